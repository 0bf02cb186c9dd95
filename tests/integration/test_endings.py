"""Every way a command can end, with its real cause: one line, a hint, the right exit code, and never "this is a bug"."""

import json
import os
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from tests.fixtures.command import Command
from tests.fixtures.commands import ELSEWHERE, WORDS, ended_well, leaves, try_all
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first
from tests.fixtures.remembered import remembered
from tests.fixtures.roles import role
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.pipeline import snapshot_plan
from frostline.pipeline import spark as pipeline_spark

POLICIES = "version: 1\ntables:\n  public.events:\n    hot_period: 3 months\n"


@pytest.fixture
def managed(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession) -> Lake:
    """`events` is in the lake only, `kept` in the heap too; `flat` and `fresh` are to be managed."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(lake.settings.lake_port))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    monkeypatch.setattr(snapshot_plan, "_PATIENCE_S", 1.0)  # what somebody dropped does not come back
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.yaml").write_text(POLICIES)
    make_managed(lake)
    return lake


@remembered
def make_managed(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=20)
    make_events(lake.catalog, "public.fresh", months=2)
    run(lake.catalog, "create table public.fresh_default partition of public.fresh default")
    run(lake.catalog, "create table public.flat (id int primary key, ts timestamptz not null default '2024-01-15')")
    make_events(lake.catalog, "public.kept", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=20, name="public.kept")
    lake.add()
    lake.add("kept", grace="10 years")
    lake.archive()
    run(lake.catalog, "update public.events set status = 'changed' where id = 1")


def test_every_command_is_tried_here() -> None:
    assert {name for name, _ in leaves()} == WORDS.keys() | ELSEWHERE


@contextmanager
def as_role(lake: Lake, monkeypatch: pytest.MonkeyPatch, *grants: str) -> Generator[str]:
    """The settings name a role that has nothing but these."""
    with role(lake.dsn, "endings") as dsn:
        for grant in grants:
            run(lake.catalog, grant)
        monkeypatch.setenv("FROSTLINE_DSN", dsn)
        yield dsn


LOOKS = (
    "grant usage on schema frostline, frostline_relation, frostline_overlay, frostline_lake to endings",
    "grant select on all tables in schema frostline to endings",
)
WORKS = (*LOOKS, "grant insert, update, delete on all tables in schema frostline to endings",
         "grant usage on all sequences in schema frostline to endings",
         "grant execute on all functions in schema frostline to endings")  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(
    "grants",
    [
        pytest.param((), id="nothing", marks=pytest.mark.slow),
        pytest.param(LOOKS, id="the catalog to read", marks=pytest.mark.slow),
        pytest.param(WORKS, id="the catalog to write"),
    ],
)
def test_a_role_without_the_rights_is_told_so(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, grants: tuple[str, ...]
) -> None:
    with as_role(managed, monkeypatch, *grants):
        ended = try_all(command, {0, 1, 2, 4})
    assert ended["table add"] == ended["init"] == 2
    if not grants:
        assert set(ended.values()) - {ended["doctor"]} == {2}


@pytest.mark.slow
@pytest.mark.spark
def test_a_table_of_another_role_is_refused_in_plain_words(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_role(managed, monkeypatch, *WORKS):
        for words in ("table add fresh --hot 1month", "table add fresh --mode partition", WORDS["table convert"]):
            said = command(*words.split())
            assert said.exit_code == 2, said.stderr
            assert "owner postgres" in said.stderr, words


@pytest.mark.spark
def test_a_database_without_frostline_is_told(
    managed: Lake, empty_database: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", empty_database)
    ended = try_all(command, {0, 1, 2}, but=("init",))
    assert {code for name, code in ended.items() if name != "doctor"} == {2}


@pytest.mark.slow
@pytest.mark.spark
def test_a_database_that_is_newer_than_the_program_is_told(managed: Lake, command: Command) -> None:
    run(managed.catalog, "insert into frostline.migration values (999, 'later')")
    ended = try_all(command, {0, 1, 2})
    assert {code for name, code in ended.items() if name != "doctor"} == {2}


@pytest.mark.parametrize(
    "dsn", first(1, ["host=127.0.0.1 port=1", "host=nowhere.invalid", "host=127.0.0.1 dbname=nosuch"])
)
def test_a_postgres_that_cannot_be_reached_is_told(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", dsn if "dbname" not in dsn else make_conninfo(managed.dsn, dbname="nosuch"))
    ended = try_all(command, {1, 4})
    assert ended["doctor"] == 1
    assert {code for name, code in ended.items() if name != "doctor"} == {4}


@pytest.mark.slow
def test_a_role_without_a_connection_left_is_told(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_role(managed, monkeypatch, "alter role endings connection limit 0"):
        assert set(try_all(command, {1, 4}).values()) == {1, 4}


@pytest.mark.slow
@pytest.mark.spark
def test_a_timeout_of_the_role_is_told(managed: Lake, command: Command) -> None:
    run(managed.catalog, f"alter role postgres in database {managed.catalog.info.dbname} set statement_timeout = 1")
    run(managed.catalog, "create function public.slow(int) returns int language sql as 'select 1 from pg_sleep(0.01)'")
    ended = try_all(command, {0, 1, 2, 3, 4})
    assert 4 in ended.values()


BROKEN = {
    "a dropped heap": "drop table public._events cascade",
    "a dropped relation": "drop view public.events, public.kept cascade",
    "a dropped partition": "drop table public.kept_2 cascade",
    "a renamed partition": "alter table public.kept_2 rename to other",
    "a detached partition": "alter table public._kept detach partition public.kept_2",
    "a dropped overlay": "drop schema frostline_overlay cascade",
    "a dropped column of the catalog": "alter table frostline.seam drop metadata_location cascade",
    "a dropped function of ours": "drop function frostline.this_server cascade",
    "a dropped foreign server": "drop server frostline_lake cascade",
    "a trigger that refuses": (
        "create function public.no() returns trigger language plpgsql as $$ begin raise 'not today'; end $$;"
        "create trigger no before insert or update on frostline.job for each row execute function public.no()"
    ),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_what_somebody_did_to_the_database_is_no_bug(managed: Lake, command: Command, what: str) -> None:
    run(managed.catalog, BROKEN[what])
    try_all(command, {0, 1, 2, 3, 4})


@pytest.mark.spark
@pytest.mark.parametrize("what", first(1, ["a dropped relation", "a dropped overlay"]))
def test_a_table_whose_relation_somebody_dropped_can_be_given_up(managed: Lake, command: Command, what: str) -> None:
    run(managed.catalog, BROKEN[what])
    said = command("table", "remove", "kept", "--keep-lake")
    assert said.exit_code == 0, said.stderr
    assert managed.value("select count(*) from public.kept") == 40


@contextmanager
def interfering(lake: Lake, function: str) -> Generator[None]:
    """Whoever of us waits for a table meanwhile is cancelled, or loses the session."""
    done = threading.Event()
    query = (
        f"select {function}(pid) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    )

    def interfere() -> None:
        with lake.connect() as watcher:
            while not done.wait(0.02):
                run(watcher, query)

    with lake.connect() as holder, holder.transaction(), ThreadPoolExecutor(1) as pool:
        run(holder, "lock table frostline.managed_table, frostline.snapshot, frostline.pin in access exclusive mode")
        running = pool.submit(interfere)
        try:
            yield
        finally:
            done.set()
            running.result()


@pytest.mark.spark
@pytest.mark.parametrize("function", first(1, ["pg_terminate_backend", "pg_cancel_backend"]))
def test_who_is_cancelled_or_loses_the_session_says_so(managed: Lake, command: Command, function: str) -> None:
    with interfering(managed, function):
        ended = try_all(command, {0, 1, 2, 4}, but=("table convert",))
    assert ended["status"] == ended["archive"] == ended["table list"] == 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("dsn = ", "cannot read"),
        ("dsn = 'host=x'\nwarehouse = 5", "wrong warehouse"),
        ("colour = 1", "colour"),
        (b"\xff", "cannot read"),
    ],
)
def test_a_settings_file_that_cannot_be_used_is_told(
    command: Command, tmp_path: Path, text: str | bytes, named: str
) -> None:
    (tmp_path / "frostline.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for words in WORDS.values():
        said = command(*words.split(), "--home", tmp_path)
        if "policies.yaml" not in words and words != "doctor":
            ended_well(said, {2}, words)
            assert named in said.stderr


def test_a_variable_that_is_no_text_is_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "/tmp")
    monkeypatch.setenv("FROSTLINE_DSN", os.fsdecode(b"host=n\xf6"))
    ended_well(command("status"), {2}, "status")


@pytest.mark.slow
def test_a_policy_file_that_cannot_be_read_is_told(managed: Lake, command: Command, tmp_path: Path) -> None:
    for text in (b"tables: [", b"\xff\xfe", b"version: 1\ntables: {nosuch: {hot_period: 1 day}}", b"- 1"):
        (tmp_path / "policies.yaml").write_bytes(text)
        ended_well(command("table", "import", "policies.yaml"), {2}, str(text))


@pytest.mark.parametrize("name", WORDS)
def test_under_json_an_error_is_one_object_for_every_command(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", "host=127.0.0.1 port=1")
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "/nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.yaml").write_text(POLICIES)
    words = WORDS[name].split()
    wrong = (
        [*words, "--nosuch", "--output", "json"],
        ["--output=json", *words, "--nosuch"],
        ["--output", "json", "nosuch", *words],
    )
    for line in (*wrong, [*words, "--output", "json"]):
        said = command(*line)
        if name == "doctor" and line == [*words, "--output", "json"]:
            continue  # whatever it finds is its result
        error = json.loads(said.stderr)["error"]
        assert error.keys() == {"code", "class", "message", "hint", "exit_code"}
        assert (error["exit_code"], said.stdout) == (said.exit_code, "")
        assert error["class"] == ("UsageError" if line in wrong else "UnavailableError")


def test_serve_on_a_port_or_address_that_cannot_be_had_is_told(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(taken.getsockname()[1]))
        said = command("serve")
    assert (said.exit_code, "Address already in use" in said.stderr) == (2, True), said.stderr
    for address in ("192.0.2.1", "nowhere.invalid"):
        monkeypatch.setenv("FROSTLINE_LAKE_LISTEN", address)
        ended_well(command("serve"), {2}, f"serve on {address}")
