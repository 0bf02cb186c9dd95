"""Every way a command can end, with its real cause: one line, a hint, the right exit code, and never "this is a bug"."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from tests.fixtures.command import Command, Said
from tests.fixtures.commands import ELSEWHERE, WORDS, leaves
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.roles import role
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.pipeline import spark as pipeline_spark

POLICIES = "version: 1\ntables:\n  public.events:\n    hot_period: 3 months\n"
BUG = ("this is a bug", "unexpected", "Traceback")


@pytest.fixture
def managed(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession) -> Lake:
    """`events` is in the lake only, `kept` in the heap too; `flat` and `fresh` are to be managed."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(lake.settings.lake_port))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.yaml").write_text(POLICIES)
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
    return lake


def test_every_command_is_tried_here() -> None:
    assert {name for name, _ in leaves()} == WORDS.keys() | ELSEWHERE


def ended_well(said: Said, allowed: set[int], words: str) -> None:
    """It said what is wrong in one line and what to do in others, or it did what it was asked for."""
    text = f"{words}: {said.exit_code}\n{said.stdout}\n{said.stderr}"
    assert not [word for word in BUG if word in said.stderr], text
    assert said.exit_code in allowed, text
    lines = [line for line in said.stderr.splitlines() if line.startswith(("error: ", "hint: "))]
    if said.exit_code not in (0, 1):
        assert lines[0].startswith("error: "), text
        assert lines[-1].startswith("hint: "), text


def try_all(command: Command, allowed: set[int], *, but: set[str] = frozenset()) -> dict[str, int]:
    """Run every command; gives back how each ended."""
    ended: dict[str, int] = {}
    for name, words in WORDS.items():
        if name not in but:
            said = command(*words.split())
            ended_well(said, allowed, words)
            ended[name] = said.exit_code
    return ended


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
@pytest.mark.parametrize("grants", [(), LOOKS, WORKS], ids=["nothing", "the catalog to read", "the catalog to write"])
def test_a_role_without_the_rights_is_told_so(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, grants: tuple[str, ...]
) -> None:
    with as_role(managed, monkeypatch, *grants):
        ended = try_all(command, {0, 1, 2, 4})
    assert ended["table add"] == ended["init"] == 2
    if not grants:
        assert set(ended.values()) - {ended["doctor"]} == {2}


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
    ended = try_all(command, {0, 1, 2}, but={"init"})
    assert {code for name, code in ended.items() if name != "doctor"} == {2}


@pytest.mark.spark
def test_a_database_that_is_newer_than_the_program_is_told(managed: Lake, command: Command) -> None:
    run(managed.catalog, "insert into frostline.migration values (999, 'later')")
    ended = try_all(command, {0, 1, 2})
    assert {code for name, code in ended.items() if name != "doctor"} == {2}


@pytest.mark.parametrize("dsn", ["host=127.0.0.1 port=1", "host=nowhere.invalid", "host=127.0.0.1 dbname=nosuch"])
def test_a_postgres_that_cannot_be_reached_is_told(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", dsn if "dbname" not in dsn else make_conninfo(managed.dsn, dbname="nosuch"))
    ended = try_all(command, {1, 4})
    assert ended["doctor"] == 1
    assert {code for name, code in ended.items() if name != "doctor"} == {4}


def test_a_role_without_a_connection_left_is_told(
    managed: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_role(managed, monkeypatch, "alter role endings connection limit 0"):
        assert set(try_all(command, {1, 4}).values()) == {1, 4}


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
@pytest.mark.parametrize("what", BROKEN)
def test_what_somebody_did_to_the_database_is_no_bug(managed: Lake, command: Command, what: str) -> None:
    run(managed.catalog, BROKEN[what])
    try_all(command, {0, 1, 2, 3, 4})


@pytest.mark.spark
@pytest.mark.parametrize("what", ["a dropped relation", "a dropped overlay"])
def test_a_table_whose_relation_somebody_dropped_can_be_given_up(managed: Lake, command: Command, what: str) -> None:
    run(managed.catalog, BROKEN[what])
    said = command("table", "remove", "kept", "--keep-lake")
    assert said.exit_code == 0, said.stderr
    assert managed.value("select count(*) from public.kept") == 40


@contextmanager
def locked(lake: Lake, table: str) -> Generator[int]:
    with lake.connect() as other, other.transaction():
        other.execute(f"lock table {table} in access exclusive mode")
        yield other.info.backend_pid


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
