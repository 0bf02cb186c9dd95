"""A snapshot takes lake tables as of the moment of all others, whatever becomes of them meanwhile."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType
from tests.fixtures import copies, lake_past
from tests.fixtures.catalogserver import serving
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.lake_commits import pointer
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run

from frostline import spark as connector
from frostline.catalog.connect import connect
from frostline.catalog.snapshot_versions import Copied, Shown
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.lake import lake_table
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import copying, lake_compact, lake_tables, snapshot_plan, tasks

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")]

READINGS, TWIN = Name("public", "readings"), Name("public", "twin")
COLUMNS = ["id bigint not null", "ts timestamptz", "price numeric(8,2)", "ratio float8", "note text", "data jsonb"]
LAYOUT = Layout(["day(ts)"], ["id desc"])
STATEMENTS = (
    """insert into public.{t} select n, timestamptz '2024-01-01' + n * interval '6 hours', n / 100.0, n, 'n' || n,
                                     jsonb_build_object('n', n) from generate_series(1, 40) n""",
    "insert into public.{t} values (41, 'infinity', null, 'NaN', '', '[]'), (42, null, 1, '-0', null, null)",
    "update public.{t} set note = 'changed' where id % 5 = 0",
    "delete from public.{t} where id % 7 = 0",
)
QUERY = "select id, epoch_us(ts), price, ratio::text, note, data::text from copy order by all"


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    """A lake table with rows that are gone and rows that were replaced, and a plain table with the same ones."""
    lake_tables.create(lake.catalog, lake.settings, READINGS, COLUMNS, LAYOUT)
    run(lake.catalog, f"create table public.twin ({', '.join(COLUMNS)})")
    with lake.connect() as opened:
        both(opened, *STATEMENTS)
        yield opened


@pytest.fixture
def here(lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same, with tasks in this process, which is quicker."""
    del session
    copies.without_spark(lake, monkeypatch)
    return lake


def both(session: psycopg.Connection, *statements: str) -> None:
    for statement in statements:
        for name in ("readings", "twin"):
            run(session, statement.format(t=name))


def same(lake: Lake, version: int | None = None) -> Shown:
    """The copies of both have the same rows, by two engines and by their fingerprints."""
    there = copies.shown(lake, version=version)
    readings, twin = there[READINGS], there[TWIN]
    assert copies.by_duckdb(readings, QUERY) == copies.by_duckdb(twin, QUERY)
    assert (readings.rows, readings.hash_sum) == (twin.rows, twin.hash_sum)
    assert copies.by_pyiceberg(readings).num_rows == readings.rows
    return readings


def made(lake: Lake, **options: Any) -> dict[Name, Copied]:
    return {table.name: table for table in copies.create(lake, "public.*", **options).tables}


def compact(lake: Lake) -> None:
    (done,) = lake_compact.run(lake.jobs(), [pointer(lake, "readings")])
    assert done.error is None


def when_tasks_begin(lake: Lake, patch: pytest.MonkeyPatch, act: Callable[[Lake], None]) -> None:
    """Once, when the run has its snapshot and has copied nothing: do something else on another connection."""
    real, begun = tasks.run, list[bool]()

    def first(*arguments: Any) -> Any:
        if not begun:
            begun.append(True)
            with connect(lake.dsn, purpose="meanwhile") as other:
                act(replace(lake, catalog=other))
        return real(*arguments)

    patch.setattr(tasks, "run", first)


def test_a_lake_table_is_copied_with_all_others(lake: Lake, session: psycopg.Connection) -> None:
    assert len(lake_table.state(pointer(lake, "readings").metadata_location).deletes) > 0
    assert list(made(lake)) == [READINGS, TWIN]
    copy = same(lake)
    assert (copy.namespace, copy.rows) == ("nightly.public", len(rows(session, "select from public.readings")))
    frame = connector.read(lake.session(), "public.readings", dsn=lake.dsn, as_of="nightly", columns=["id"])
    expected = [number for (number,) in rows(session, "select id from public.twin order by id")]
    session.execute("delete from public.readings")
    assert sorted(row.id for row in frame.collect()) == expected
    connector.release(frame)


def test_the_command_names_lake_tables_and_patterns_leave_them_out(
    here: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", here.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(here.warehouse))
    said = command("snapshot", "create", "nightly", "--tables", "public.*", "--dry-run", "--output", "json")
    assert '"lake_table": true' in said.stdout
    assert said.stdout.count('"lake_table": false') == 1
    (found,) = snapshot_plan.chosen(here.catalog, copies.request("public.*", exclude=("readings",)))
    assert found.name == TWIN


def test_every_lake_table_is_of_the_moment_of_all_others(here: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit changes two lake tables, again and again; the third and its twin change once the snapshot is taken."""
    for name in ("a", "b"):
        lake_tables.create(here.catalog, here.settings, Name("public", name), ["id int", "held bigint"], Layout())
        run(here.catalog, f"insert into public.{name} values (1, 1000)")
    before, stop = len(rows(here.catalog, "select from public.twin")), threading.Event()

    def transfer() -> None:
        with psycopg.connect(here.dsn) as connection:
            while not stop.is_set():
                run(connection, "update public.a set held = held - 1")
                run(connection, "update public.b set held = held + 1")
                connection.commit()

    def change(aside: Lake) -> None:
        both(aside.catalog, "delete from public.{t} where id < 20", "update public.{t} set ratio = 7")
        run(aside.catalog, "insert into public.a values (2, 1000000)")
        compact(aside)

    when_tasks_begin(here, monkeypatch, change)
    writer = threading.Thread(target=transfer)
    writer.start()
    try:
        made(here)
    finally:
        stop.set()
        writer.join()
    there = copies.shown(here)
    sums = [copies.by_duckdb(there[Name("public", name)], "select sum(held) from copy")[0][0] for name in "ab"]
    assert sum(sums) == 2000
    assert same(here).rows == before


def test_columns_keep_their_field_ids_when_another_engine_changes_them(here: Lake) -> None:
    made(here)
    before = copies.shown(here)[READINGS]
    with serving(here.dsn, here.settings.warehouse) as rest:
        table = rest.client(write=True).load_table("public.readings")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("price")
            update.rename_column("note", "word")
            update.add_column("more", LongType())
    lake_tables.sync(here.catalog, pointer(here, "readings"), dry_run=False)
    here.catalog.execute("insert into public.readings (id, word, more) values (100, 'new', 5)")
    made(here)
    after = copies.shown(here)[READINGS]
    then, now = field_ids(before), field_ids(after)
    assert (now["word"], now["more"]) == (then["note"], max(then.values()) + 1)
    shown = rows(here.catalog, "select id, word, more from public.readings order by id")
    assert copies.by_duckdb(after, "select id, word, more from copy order by id") == shown
    prices = "select count(price) from copy"
    assert copies.by_duckdb(before, prices) == copies.by_duckdb(copies.shown(here)[TWIN], prices)


def field_ids(copy: Shown) -> dict[str, int]:
    fields = StaticTable.from_metadata(copy.metadata_location).schema().fields
    return {field.name: field.field_id for field in fields}


def test_incremental_reads_no_lake_table_that_nobody_has_committed_to(
    here: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(here)
    read = list[str]()
    remaining = copying.remaining

    def counted(table: Any, files: Any) -> object:
        read.extend(files)
        return remaining(table, files)

    monkeypatch.setattr(copying, "remaining", counted)

    def again() -> dict[Name, bool]:
        read.clear()
        result = {name: table.reused for name, table in made(here, incremental=True).items()}
        same(here)
        return result

    assert (again(), read) == ({READINGS: True, TWIN: True}, [])
    compact(here)
    assert (again(), len(read) > 0) == ({READINGS: True, TWIN: True}, True), "the same rows in other files"
    assert (again(), read) == ({READINGS: True, TWIN: True}, [])
    both(session, "update public.{t} set ratio = 7 where id = 3")
    assert again() == {READINGS: False, TWIN: False}
    both(session, "delete from public.{t}")
    assert again() == {READINGS: False, TWIN: False}
    assert copies.shown(here)[READINGS].rows == 0


def test_expiry_sweep_and_purge_leave_what_is_being_copied(here: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run has seen becomes a former state before it is read, and older than the policy keeps states."""
    before = len(rows(here.catalog, "select from public.twin"))

    def upkeep(aside: Lake) -> None:
        compact(aside)
        run(aside.catalog, "delete from public.readings")
        lake_past.age(aside)
        run(aside.catalog, "update frostline.snapshot set started_at = started_at - interval '11 days'")
        assert lake_past.expired(aside).files == 0
        lake_past.swept(aside)
        with pytest.raises(ConflictError, match="snapshot 'nightly' is being made"):
            lake_tables.drop(aside.catalog, aside.settings, READINGS, purge=True)

    when_tasks_begin(here, monkeypatch, upkeep)
    made(here)
    assert same(here).rows == before
    assert lake_past.expired(here).snapshots > 0, "nobody needs them any more"
    lake_tables.drop(here.catalog, here.settings, READINGS, purge=True)
    assert same(here).rows == before


def test_a_table_that_is_dropped_or_renamed_meanwhile_is_copied_under_the_name_it_had(
    here: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_tables.create(here.catalog, here.settings, Name("public", "other"), ["id int"], Layout())
    run(here.catalog, "insert into public.other values (1), (2)")

    def change(aside: Lake) -> None:
        lake_tables.drop(aside.catalog, aside.settings, Name("public", "other"), purge=False)
        run(aside.catalog, "alter foreign table public.readings rename to renamed")

    when_tasks_begin(here, monkeypatch, change)
    assert list(made(here)) == [Name("public", "other"), READINGS, TWIN]
    assert copies.shown(here)[Name("public", "other")].rows == 2
    same(here)
    assert list(made(here)) == [Name("public", "renamed"), TWIN]


def test_a_lake_table_without_a_foreign_table_here_is_taken_under_the_name_that_the_catalog_has(here: Lake) -> None:
    folder = made(here)[READINGS].metadata_location.rpartition("/metadata/")[0]
    run(here.catalog, "drop foreign table public.readings")
    again = made(here)
    assert list(again) == [READINGS, TWIN]
    assert again[READINGS].metadata_location.startswith(folder), "it is the same table still"
    same(here)
    run(here.catalog, "create table public.readings (id int)")
    assert made(here)[READINGS].fingerprint.rows == 0, "the name is the plain table's"


def test_what_is_not_there_or_cannot_be_shown_is_refused_and_can_be_left_out(here: Lake) -> None:
    gone = "create foreign table public.gone (id int) server frostline_lake options (table_name 'lake_999')"
    run(here.catalog, gone)
    with pytest.raises(
        UsageError, match=r"public\.gone is the foreign table of a lake table that the catalog does not"
    ):
        made(here)
    run(here.catalog, "drop foreign table public.gone")
    run(here.catalog, "create table public.child (extra int) inherits (public.readings)")
    with pytest.raises(UsageError, match=r"public\.readings is a lake table, and public\.child inherits from it"):
        made(here)
    run(here.catalog, "drop table public.child")
    assert list(made(here)) == [READINGS, TWIN]


def test_a_role_copies_only_what_it_may_read(here: Lake) -> None:
    with role(here.dsn, "copier") as dsn:
        run(here.catalog, "grant usage on schema frostline, public to copier; grant select on public.twin to copier")
        run(here.catalog, "grant all on all tables in schema frostline to copier")
        run(here.catalog, "grant execute on all functions in schema frostline to copier")
        with connect(dsn, purpose="snapshot") as own:
            poor = replace(here, dsn=dsn, catalog=own, settings=here.settings.model_copy(update={"dsn": dsn}))
            with pytest.raises(UsageError, match=r"may not read public\.readings"):
                made(poor)
            run(here.catalog, "grant select on public.readings to copier")
            assert list(made(poor)) == [READINGS, TWIN]


def test_a_damaged_file_of_a_lake_table_is_not_copied(here: Lake) -> None:
    path = next(iter(lake_table.state(pointer(here, "readings").metadata_location).data))
    damaged = Path(path.removeprefix("file://"))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(CorruptionError, match=damaged.name):
        made(here)
