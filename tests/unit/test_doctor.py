"""The doctor's judgements, where they need no patient; and that no check can stop the others."""

import threading
from pathlib import Path

import pytest
from pydantic import SecretStr

from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.observe.doctor import database, lakeside, machine, plans, store
from frostline.observe.doctor.examination import CHECKS, Check, examine
from frostline.observe.doctor.patient import Patient, State, Unknowable, Verdict, ok
from frostline.settings import Settings


def psql(text: str) -> str:
    return f"psql -c {text}"


def nobody() -> Settings:
    raise UsageError("dsn is not set", hint="set it")


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10, 9), State.FAULT), ((3, 11, 0), State.OK), ((3, 14, 1), State.OK)]
)
def test_an_old_python_is_a_fault(version: tuple[int, ...], state: State) -> None:
    assert machine.judge_python(version).state is state


@pytest.mark.parametrize(("major", "state"), [(14, State.FAULT), (15, State.OK), (18, State.OK)])
def test_an_old_postgres_is_a_fault(major: int, state: State) -> None:
    assert database.judge_postgres(major, f"{major}.1").state is state


def test_a_package_of_another_version_is_doubtful() -> None:
    assert machine.required("pyspark") == "<5,>=4.1"
    for version in ("4.1.0", "4.1.4", "4.10"):
        assert machine.judge_package("pyspark", version).state is State.OK
    for version in ("4.0.5", "5.0.0", "5.1"):
        other = machine.judge_package("pyspark", version)
        assert (other.state, other.hint) == (State.WARNING, "pip install 'pyspark<5,>=4.1'")


def test_a_package_that_must_be_of_one_version() -> None:
    wanted = machine.required("duckdb")
    assert wanted
    assert machine.judge_package("duckdb", wanted.removeprefix("==")).state is State.OK
    assert machine.judge_package("duckdb", "0.1").state is State.WARNING


def test_a_package_with_extras_or_none_is_known_too() -> None:
    assert machine.required("psycopg")
    assert machine.required("no-such-package") is None


@pytest.mark.parametrize(
    ("mode", "state"), [(0o100600, State.OK), (0o100640, State.WARNING), (0o100604, State.WARNING)]
)
def test_a_settings_file_that_others_read_is_doubtful(mode: int, state: State) -> None:
    assert machine.judge_mode(Path("/srv/frostline.toml"), mode).state is state


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (100.5, None),
        (98.0, None),
        (103.0, None),
        (97.9, "2.1 s behind"),
        (103.1, "2.1 s ahead of"),
        (0.0, "100.0 s behind"),
    ],
)
def test_a_clock_may_be_two_seconds_away(there: float, said: str | None) -> None:
    verdict = database.judge_skew("Postgres", there, 100.0, 101.0)
    assert verdict.state is (State.WARNING if said else State.OK)
    assert (said or "") in verdict.detail


@pytest.mark.parametrize(
    ("name", "offset_s", "state"),
    [
        ("UTC", 0, State.OK),
        ("Asia/Kolkata", 19_800, State.OK),
        ("UTC", 3600, State.WARNING),
        ("No/Where", 0, State.WARNING),
    ],
)
def test_a_time_zone_must_mean_the_same_here(name: str, offset_s: int, state: State) -> None:
    assert database.judge_zone(name, offset_s).state is state


@pytest.mark.parametrize(("free", "state"), [(9, State.WARNING), (10, State.OK), (99, State.OK)])
def test_a_disk_that_is_nearly_full_is_doubtful(free: int, state: State) -> None:
    assert store.judge_space("/srv/lake", free, 100).state is state


@pytest.mark.parametrize(
    ("open_now", "wanted", "state"),
    [(10, 8, State.OK), (85, 8, State.OK), (86, 8, State.WARNING), (96, None, State.OK), (97, 1, State.WARNING)],
)
def test_a_job_must_find_room_for_its_tasks(open_now: int, wanted: int | None, state: State) -> None:
    assert database.judge_connections(97, open_now, wanted, psql).state is state


@pytest.mark.parametrize(
    ("above", "dearest", "state"),
    [(100_000, 99_000.0, State.OK), (100_000, 101_000.0, State.WARNING), (-1, 1e12, State.OK)],
)
def test_a_lake_whose_scans_are_compiled_is_doubtful(above: float, dearest: float, state: State) -> None:
    scans = [(Name("public", "small"), 7.0), (Name("public", "large"), dearest)]
    verdict = plans.judge_compiling(above, scans, "alter database")
    assert verdict.state is state
    assert ("public.large" in verdict.detail) is (state is State.WARNING)
    assert plans.judge_compiling(above, [], "alter database").state is State.OK


def test_roles_that_could_keep_their_plans_are_named_and_that_is_no_warning() -> None:
    gain = plans.Gain(Name("public", "events"), 0.2312, 0.0411)
    verdict = plans.judge_prepared_statements(["app", "other"], gain, psql, lambda name: f'"{name}"')
    assert verdict.state is State.OK
    assert verdict.detail.startswith("app, other: ")
    assert "0.231 ms in Postgres, and 0.0411 ms" in verdict.detail
    for name in ("app", "other"):
        assert f'alter role "{name}" set plan_cache_mode = force_generic_plan' in str(verdict.hint)
    assert plans.judge_prepared_statements([], None, psql, str).hint is None


def test_nobody_is_told_to_keep_plans_that_take_longer() -> None:
    gain = plans.Gain(Name("public", "events"), 0.2, 0.3)
    verdict = plans.judge_prepared_statements(["app"], gain, psql, str)
    assert (verdict.state, verdict.hint) == (State.OK, None)
    assert "0.2 ms" in verdict.detail
    assert "0.3 ms" in verdict.detail


@pytest.mark.parametrize(
    ("master", "count"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("yarn", None), ("spark://h:1", None)]
)
def test_the_master_says_how_many_tasks_there_are(master: str, count: int | None) -> None:
    assert database.tasks(master) == count


def test_what_holds_back_clean_is_named_with_the_command_that_ends_it() -> None:
    verdicts = [
        database.judge_transactions([(42, "app", 7300), (43, "app", 3600)], psql),
        database.judge_prepared([("it's mine", 90_000)], psql),
        database.judge_slots([("left", 12, False)], psql),
        database.judge_slots([("busy", 2_000_000, True)], psql),
    ]
    assert {verdict.state for verdict in verdicts} == {State.WARNING}
    assert "2 h 1 min" in verdicts[0].detail
    assert "(and 1 more)" in verdicts[0].detail
    assert [verdict.hint for verdict in verdicts] == [
        "psql -c select pg_terminate_backend(42)",
        "psql -c rollback prepared 'it''s mine'",
        "psql -c select pg_drop_replication_slot('left')",
        "psql -c select * from pg_replication_slots",
    ]


def test_the_foreign_server_must_say_what_the_settings_say() -> None:
    settings = Settings(dsn="x", warehouse="/w", lake_port=7, lake_password=SecretStr("right"))
    server, mapping = {"host": "127.0.0.1", "port": "7"}, {"user": "frostline", "password": "right"}
    assert lakeside.differences(settings, server, mapping) == []
    assert lakeside.differences(settings, server, {"user": "frostline"}) == []  # not ours to see
    assert lakeside.differences(settings, None, mapping) == ["there is no foreign server frostline_lake"]
    assert lakeside.differences(settings, server, None) == ["the connected role has no user mapping for it"]
    wrong = lakeside.differences(
        settings, {"host": "h", "port": "8", "passfile": "/p"}, {"user": "u", "password": "leaked"}
    )
    assert [text.split()[0] for text in wrong] == ["host", "port", "user", "its", "passfile"]
    assert "leaked" not in str(wrong)
    assert "right" not in str(wrong)


def test_without_settings_the_machine_is_still_looked_at() -> None:
    findings = {finding.name: finding for finding in examine(Patient(nobody))}
    assert len(findings) == len(CHECKS)
    assert (findings["settings"].state, findings["settings"].hint) == (State.FAULT, "set it")
    assert [name for name, finding in findings.items() if finding.state is State.OK] == [
        "python",
        "frostline",
        "java",
        "spark",
        "duckdb",
    ]
    assert {finding.detail for finding in findings.values() if finding.state is State.SKIPPED} == {
        "needs the settings",
        "needs Postgres",
    }


def test_a_check_that_hangs_or_breaks_does_not_stop_the_next() -> None:
    released = threading.Event()

    def hangs(_: Patient) -> Verdict:
        released.wait()
        return ok("late")

    def breaks(_: Patient) -> Verdict:
        raise ZeroDivisionError("in postgresql://me:secret@host/db\nand more")

    def misses(_: Patient) -> Verdict:
        raise Unknowable("needs luck")

    checks = [Check("1", hangs, 0.1), Check("2", breaks), Check("3", misses), Check("4", lambda _: ok("fine"))]
    findings = list(examine(Patient(nobody), checks))
    released.set()
    assert [finding.state for finding in findings] == [State.FAULT, State.FAULT, State.SKIPPED, State.OK]
    assert findings[0].detail == "nothing answers within 0.1 s"
    assert findings[1].detail == "unexpected ZeroDivisionError: in postgresql://me:***@host/db and more"
    assert all(finding.hint for finding in findings if finding.state is State.FAULT)


def test_a_folder_is_open_to_others_when_it_and_all_above_it_are(tmp_path: Path) -> None:
    inner = tmp_path / "lake"
    inner.mkdir(mode=0o755)
    inner.chmod(0o755)
    tmp_path.chmod(0o700)
    assert not store.others_may_enter(inner)
    assert store.others_may_enter(Path("/"))
    assert not store.others_may_enter(tmp_path / "not there")
