"""Retain: rows older than the retention period go for good, from both tiers, and nobody waits."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, LiteralString, cast

import psycopg
import pytest
from tests.fixtures.cold_twins import (
    APRIL,
    FEBRUARY,
    MARCH,
    at,
    both,
    change,
    compare,
    line,
    make_archived,
    shown,
    while_staging,
)
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import lake_files, seams
from frostline.errors import CorruptionError, UsageError
from frostline.lake import paths
from frostline.model.tiers import from_text
from frostline.pipeline import verify
from frostline.relation import policy, renewal

FIFTH = "2024-02-05 00:00:00+00"
"""After all rows that February has at first."""


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Three months of rows in the lake only, a file for each, and a plain table with the same rows."""
    make_archived(lake, grace="0")
    lake.clean()
    return lake


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        run(connection, "set timezone = 'UTC'")
        yield connection


def keep_from(lake: Lake, text: str, name: str = "events") -> None:
    """A retention period that ends at that time; R is then the beginning of its day, or of its hour."""
    period = value(lake.catalog, f"select (now() - timestamptz '{text}')::text")
    policy.change(lake.catalog, lake.table(name), retention_period=period)


def retained(lake: Lake, name: str = "events") -> int | None:
    return seams.retained(lake.catalog, lake.table(name))


def retain(lake: Lake, text: str) -> Any:
    """Remove what is older; the plain table loses the same rows."""
    keep_from(lake, text)
    (result,) = lake.retain("events")
    assert result.error is None, result.error
    run(lake.catalog, f"delete from public.plain where ts < '{result.line}'")
    return result


def marks(lake: Lake) -> object:
    return lake.value(f"select count(*) from frostline_overlay.{lake.table().internal}")


def test_whole_files_go_by_metadata_only(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(cold.data_files())
    monkeypatch.setattr(cold, "session", lambda: pytest.fail("Spark is not needed"))
    result = retain(cold, MARCH)
    assert (result.line, result.removed_files, result.trimmed_files, result.rows) == (MARCH, 2, 0, 40)
    assert retained(cold) == at(cold, MARCH)
    assert len(lake_files.recorded(cold.catalog, cold.table())) == 1
    assert len(cold.data_files()) == before
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_rows_of_a_partial_file_go_and_the_others_stay(lake: Lake) -> None:
    make_archived(lake, grace="0", lake_partition="year")
    lake.clean()
    lake.compact()
    result = retain(lake, "2024-02-01 23:00+00")
    assert (result.line, result.removed_files, result.trimmed_files, result.rows) == (FEBRUARY, 0, 1, 20)
    compare(lake)
    (file,) = lake_files.recorded(lake.catalog, lake.table())
    assert file.lower >= at(lake, FEBRUARY)
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.slow
def test_the_overlay_below_the_line_is_cleared_with_its_heap_rows(cold: Lake) -> None:
    change(cold)
    assert cold.value(f"select count(*) from public.events_default where ts < '{MARCH}'") == 5
    result = retain(cold, MARCH)
    assert result.marks > 5
    compare(cold)
    assert cold.value(f"select count(*) from public._events where ts < '{MARCH}'") == 0
    overlay = f"frostline_overlay.{cold.table().internal}"
    assert cold.value(f"select count(*) from {overlay} where ts < '{MARCH}'") == 0
    assert cold.value(f"select count(*) from {overlay} where ts >= '{MARCH}' and ts < '{APRIL}'") != 0
    cold.fold()
    compare(cold)


def test_a_second_run_does_nothing(cold: Lake) -> None:
    change(cold)
    retain(cold, MARCH)
    before = (seams.get(cold.catalog, cold.table()), cold.value("select count(*) from frostline.job"))
    (result,) = cold.retain()
    assert (result.changed, result.line) == (False, MARCH)
    assert (seams.get(cold.catalog, cold.table()), cold.value("select count(*) from frostline.job")) == before


def test_a_table_without_a_retention_period_keeps_its_rows(cold: Lake) -> None:
    (result,) = cold.retain()
    assert (result.changed, result.line, retained(cold)) == (False, None, None)
    compare(cold)


@pytest.mark.slow
def test_the_line_only_rises(cold: Lake) -> None:
    retain(cold, MARCH)
    keep_from(cold, FEBRUARY)
    assert cold.retain()[0].line == MARCH
    policy.change(cold.catalog, cold.table(), retention_period=None)
    assert cold.retain()[0].line == MARCH


@pytest.mark.slow
def test_the_line_rises_also_where_there_is_nothing_to_remove(cold: Lake) -> None:
    snapshot = seams.get(cold.catalog, cold.table())
    result = retain(cold, "2023-05-05 00:00+00")
    assert (result.changed, result.rows, retained(cold)) == (True, 0, at(cold, "2023-05-05 00:00:00+00"))
    assert seams.get(cold.catalog, cold.table()) == snapshot
    compare(cold)


WRITES = [
    "insert into public.events (id, ts) values (900, '2024-01-20')",
    "insert into public.events (id, ts) select n, '2024-01-20' from generate_series(900, 905) n returning id",
    "insert into public._events (id, ts) values (900, '2024-01-20')",
    "insert into public._events (id, ts) values (900, '2024-01-20') on conflict (id, ts) do update set status = 'x'",
    "insert into public.events_default (id, ts) values (900, '2024-01-20')",
    "update public.events set ts = '2024-02-20' where id = 45",
    "update public.events set ts = '2024-02-20' where id = 70",
    "update public._events set ts = '2024-02-20' where id = 800",
    "copy public.events (id, ts) from stdin",
]


def test_nothing_can_be_written_below_the_line(cold: Lake, other: psycopg.Connection) -> None:
    both(other, "insert into public.{t} (id, ts) values (800, '2024-03-20')")
    retain(cold, MARCH)
    for statement in WRITES:
        with pytest.raises(psycopg.errors.CheckViolation) as raised:
            _write(other, statement)
        said = raised.value.diag
        assert said.message_primary == "new row of events is older than its retention period", statement
        assert said.message_detail == f"Rows before {MARCH} were removed for good."
        assert said.message_hint == "How long rows are kept: frostline table set public.events --retention ..."
        assert (said.schema_name, said.table_name) == ("public", "events")
    compare(cold)


def _write(connection: psycopg.Connection, statement: str) -> None:
    if not statement.startswith("copy"):
        run(connection, statement)
        return
    with connection.cursor().copy(cast(LiteralString, statement)) as copy:
        copy.write("900\t2024-01-20\n")


@pytest.mark.slow
def test_rows_at_the_line_and_above_are_written_as_ever(cold: Lake, other: psycopg.Connection) -> None:
    retain(cold, MARCH)
    both(other, f"insert into public.{{t}} (id, ts) values (900, '{MARCH}'), (901, '2030-01-01')")
    both(other, "update public.{t} set status = 'x' where id in (45, 900)")
    both(other, f"update public.{{t}} set ts = '{MARCH}' where id = 47")
    both(other, "delete from public.{t} where id in (46, 901)")
    compare(cold)
    cold.fold()
    compare(cold)


@pytest.mark.slow
def test_a_row_that_somebody_holds_waits_for_the_next_time(cold: Lake, other: psycopg.Connection) -> None:
    both(other, "update public.{t} set status = 'changed' where id in (1, 2)")
    other.execute("begin")
    both(other, "update public.{t} set status = 'held' where id = 1")
    keep_from(cold, MARCH)
    (result,) = cold.retain()
    assert (result.error, result.marks) == (None, 1)
    other.execute("commit")
    assert cold.value(f"select string_agg(id::text, ',') from public.events where ts < '{MARCH}'") == "1"
    (result,) = cold.retain()
    assert (result.changed, result.marks, marks(cold)) == (True, 1, 0)
    run(cold.catalog, f"delete from public.plain where ts < '{MARCH}'")
    compare(cold)


@pytest.mark.slow
def test_writers_that_claimed_lake_rows_before_it(cold: Lake, other: psycopg.Connection) -> None:
    """Their marks are not committed yet, so they stay; a row that was moved up in time is saved."""
    other.execute("begin")
    both(other, "update public.{t} set status = 'late' where id = 1")
    both(other, "update public.{t} set ts = '2024-03-25' where id = 2")
    both(other, "delete from public.{t} where id = 3")
    keep_from(cold, MARCH)
    (result,) = cold.retain()
    assert (result.error, result.rows, result.marks) == (None, 40, 0)
    other.execute("commit")
    assert rows(other, f"select id, status from public.events where ts < '{MARCH}'") == [(1, "late")]
    cold.fold()  # it writes the row into a file below R
    (result,) = cold.retain()
    assert (result.changed, result.rows, marks(cold)) == (True, 1, 0)
    run(cold.catalog, f"delete from public.plain where ts < '{MARCH}'")
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


@pytest.mark.slow
def test_a_reader_from_before_keeps_what_it_sees(cold: Lake, other: psycopg.Connection) -> None:
    change(cold)
    other.execute("begin isolation level repeatable read")
    before = shown(other)
    retain(cold, MARCH)
    cold.fold()
    assert shown(other) == before
    other.execute("commit")
    assert shown(other) == shown(other, "plain") != before


def test_a_writer_with_a_snapshot_from_before_must_begin_again(cold: Lake, other: psycopg.Connection) -> None:
    both(other, "update public.{t} set status = 'changed' where id = 2")
    statements = [
        "update public.events set status = 'x' where id = 1",
        "delete from public.events where id = 1",
        "insert into public.events (id, ts) values (900, '2024-01-20')",
        "update public.events set status = 'x' where id = 2",
    ]
    with ExitStack() as stack:
        writers = [stack.enter_context(cold.connect()) for _ in statements]
        for writer in writers:
            writer.execute("begin isolation level repeatable read")
            shown(writer)
        retain(cold, MARCH)
        for writer, statement in zip(writers, statements, strict=True):
            with pytest.raises(psycopg.errors.SerializationFailure):
                run(writer, statement)
            writer.execute("rollback")
    compare(cold)


@pytest.mark.slow
def test_rows_changed_while_it_runs(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = [
        "update public.{t} set status = 'meanwhile' where id in (1, 45)",
        "insert into public.{t} (id, ts, status) values (600, '2024-02-20', 'meanwhile')",
    ]
    while_staging(cold, monkeypatch, statements)
    retain(cold, MARCH)
    assert statements == []
    compare(cold)


def test_it_waits_for_partitions_that_are_not_cleaned(lake: Lake) -> None:
    make_archived(lake)
    keep_from(lake, MARCH)
    (result,) = lake.retain()
    assert (result.error, result.waiting, result.rows) == (None, ("public.events_1: it is not cleaned yet",), 0)
    compare(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    assert lake.clean().waiting == ()
    result = retain(lake, MARCH)
    assert (result.waiting, result.rows) == ((), 40)
    compare(lake)


def test_it_never_goes_past_the_frost_line(cold: Lake, other: psycopg.Connection) -> None:
    both(other, "insert into public.{t} (id, ts) values (800, '2024-05-20')")  # hot, though it is old
    policy.change(cold.catalog, cold.table(), hot_period="100 years", retention_period=None)
    run(cold.catalog, "update frostline.managed_table set hot_interval = '1 hour'")
    policy.change(cold.catalog, cold.table(), retention_period="2 hours")
    (result,) = cold.retain()
    assert (result.line, retained(cold)) == (APRIL, line(cold))
    run(cold.catalog, f"delete from public.plain where ts < '{APRIL}'")
    compare(cold)


@pytest.mark.slow
def test_undo_stops_at_the_line(lake: Lake) -> None:
    make_archived(lake)
    retain(lake, "2023-05-05 00:00+00")
    lake.undo()
    assert line(lake) == retained(lake)
    compare(lake)
    with lake.connect() as connection, pytest.raises(psycopg.errors.CheckViolation):
        run(connection, "insert into public.events (id, ts) values (900, '2023-01-01')")
    run(lake.catalog, "update frostline.managed_table set held_from = null, grace_period = '0'")
    lake.archive()
    retain(lake, MARCH)
    compare(lake)


@pytest.mark.slow
def test_thaw_brings_back_what_is_left(cold: Lake) -> None:
    change(cold)
    retain(cold, "2024-02-01 12:00+00")
    assert retained(cold) == at(cold, FEBRUARY)
    with pytest.raises(UsageError, match=r"--from '2024-01-01' is before 2024-02-01 00:00:00\+00"):
        cold.thaw(first="2024-01-01")
    assert cold.thaw().rows > 0
    assert line(cold) == at(cold, FEBRUARY)
    compare(cold)
    with cold.connect() as connection, pytest.raises(psycopg.errors.CheckViolation):
        run(connection, "insert into public.events (id, ts) values (900, '2024-01-20')")
    run(cold.catalog, "update frostline.managed_table set held_from = null")
    (result,) = cold.archive()
    assert result.error is None
    cold.fold()
    assert cold.clean().waiting == ()
    compare(cold)
    retain(cold, APRIL)
    compare(cold)
    with pytest.raises(UsageError, match=r"the lake has no row of public\.events any more"):
        cold.thaw()


@pytest.mark.slow
def test_a_thawed_partition_across_the_line(cold: Lake, other: psycopg.Connection) -> None:
    """T is then below R, until the partition is archived again; nothing of the heap is touched meanwhile."""
    both(other, "insert into public.{t} (id, ts) values (801, '2024-02-20')")
    cold.fold()
    cold.compact()
    assert retain(cold, FIFTH).trimmed_files == 1
    cold.thaw(first=FIFTH)
    assert line(cold) == at(cold, FEBRUARY)
    compare(cold)
    with pytest.raises(psycopg.errors.CheckViolation):
        run(other, "insert into public.events (id, ts) values (900, '2024-02-02')")
    run(cold.catalog, "update frostline.managed_table set held_from = null, grace_period = '1 day'")
    cold.archive()
    result = retain(cold, MARCH)
    assert (result.line, result.waiting) == (FIFTH, ("public.events_2: it is not cleaned yet",))
    compare(cold)
    run(cold.catalog, "update frostline.managed_table set grace_period = '0'")
    assert cold.clean().waiting == ()
    assert retain(cold, MARCH).line == MARCH
    compare(cold)


@pytest.mark.slow
def test_a_damaged_file_across_the_line_stops_it(lake: Lake) -> None:
    make_archived(lake, grace="0", lake_partition="year")
    lake.clean()
    lake.compact()
    (file,) = lake_files.recorded(lake.catalog, lake.table())
    path = paths.local_path(file.path)
    assert path is not None
    sound = path.read_bytes()
    path.write_bytes(sound[:100] + bytes(200) + sound[300:])
    seam = seams.get(lake.catalog, lake.table())
    keep_from(lake, FEBRUARY)
    (result,) = lake.retain()
    assert isinstance(result.error, CorruptionError)
    assert file.path in str(result.error)
    assert (seams.get(lake.catalog, lake.table()), retained(lake)) == (seam, None)
    path.write_bytes(sound)
    retain(lake, FEBRUARY)
    compare(lake)


INTEGERS = """
create table public.{name} (n {kind} primary key, status text) partition by range (n);
create table public.{name}_1 partition of public.{name} for values from (0) to (100);
create table public.{name}_2 partition of public.{name} for values from (100) to (200);
create table public.{name}_3 partition of public.{name} for values from (200) to (1000);
insert into public.{name} select n, 'row ' || n from generate_series(0, 900, 7) n
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(["smallint", "integer", "bigint"], "integer"))
def test_integers_are_counted_from_the_largest(lake: Lake, kind: str) -> None:
    run(lake.catalog, INTEGERS.format(name="events", kind=kind))
    lake.add(hot="690", lake_partition="truncate[50]", retention_period="740")
    assert lake.archive()[0].error is None
    (result,) = lake.retain()
    assert (result.error, result.line) == (None, "150")  # 896 - 740 = 156
    assert lake.value("select min(n) from public.events") == 154
    assert lake.value("select count(*) from public.events") == 129 - 22
    with lake.connect() as connection:
        with pytest.raises(psycopg.errors.CheckViolation, match="older than its retention"):
            run(connection, "insert into public.events values (149)")
        run(connection, "insert into public.events values (150)")


@pytest.mark.slow
def test_one_wrong_integer_in_default_removes_nothing(lake: Lake) -> None:
    run(lake.catalog, INTEGERS.format(name="events", kind="bigint"))
    run(lake.catalog, "create table public.events_rest partition of public.events default")
    lake.add(hot="690", lake_partition="truncate[50]", retention_period="740")
    run(lake.catalog, "insert into public.events values (999999, 'wrong')")
    assert lake.archive()[0].error is None
    lake.clean()
    (result,) = lake.retain()
    assert (result.error, result.line) == (None, None)
    assert lake.value("select count(*) from public.events") == 129 + 1


@pytest.mark.parametrize("kind", ["date", "timestamp"])
@pytest.mark.slow
def test_dates_and_times_without_a_zone(lake: Lake, kind: str) -> None:
    run(
        lake.catalog,
        f"create table public.events (day {kind}, id int, primary key (day, id)) partition by range (day);"
        "create table public.events_1 partition of public.events for values from ('2020-01-01') to ('2020-02-01');"
        "insert into public.events select '2020-01-01'::date + n, n from generate_series(0, 30) n",
    )
    lake.add()
    lake.archive()
    keep_from(lake, "2020-01-10 12:00+00")
    (result,) = lake.retain()
    assert (result.error, result.rows, result.trimmed_files) == (None, 9, 1)
    assert str(lake.value("select min(day) from public.events")).startswith("2020-01-10")
    with lake.connect() as connection, pytest.raises(psycopg.errors.CheckViolation):
        run(connection, "insert into public.events values ('2020-01-09', 1)")


def test_the_command_says_what_it_would_do_and_then_what_it_did(
    cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    change(cold)
    keep_from(cold, MARCH)
    seam = seams.get(cold.catalog, cold.table())
    said = command("retain", "--dry-run", "--output", "json")
    assert (said.exit_code, retained(cold)) == (0, None), said.stderr
    assert seams.get(cold.catalog, cold.table()) == seam
    (planned,) = json.loads(said.stdout)
    said = command("retain", "events", "--output", "json")
    assert said.exit_code == 0, said.stderr
    (done,) = json.loads(said.stdout)
    assert done == planned
    assert done == {
        "table": "public.events",
        "retained_from": MARCH,
        "removed_files": 2,
        "trimmed_files": 0,
        "lake_rows": 40,
        "overlay_rows": 9,
        "partitions": [],
        "waits": [],
        "error": None,
    }
    detail = cold.value("select detail from frostline.job where kind = 'retain'")
    assert detail == f"rows before {MARCH} are gone: 40 of the lake, 9 of the overlay"


def test_of_a_table_without_a_lake_whole_partitions_go(
    lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    run(lake.catalog, INTEGERS.format(name="events", kind="bigint"))
    added = command("table", "add", "events", "--mode", "partition", "--premake", "0", "--retention", "750")
    assert added.exit_code == 0, added.stderr
    (planned,) = json.loads(command("retain", "--dry-run", "--output", "json").stdout)
    assert (planned["partitions"], lake.value("select count(*) from public.events")) == (["public.events_1"], 129)
    (done,) = json.loads(command("retain", "--output", "json").stdout)
    assert (done["partitions"], done["retained_from"]) == (["public.events_1"], None)
    assert lake.value("select min(n) from public.events") == 105
    assert json.loads(command("compact", "--output", "json").stdout) == []


@pytest.mark.slow
def test_a_table_of_an_older_version_gets_the_new_function(cold: Lake, other: psycopg.Connection) -> None:
    function = f"frostline_relation.mark_{cold.table().id}"
    new = value(cold.catalog, f"select pg_get_functiondef('{function}'::regproc)")
    old = "begin return null; end"
    run(cold.catalog, f"create or replace function {function}() returns trigger language plpgsql as $$ {old} $$")
    retain(cold, MARCH)
    assert [str(renewed) for renewed in renewal.renew(cold.catalog)] == ["public.events"]
    assert value(cold.catalog, f"select pg_get_functiondef('{function}'::regproc)") == new
    assert renewal.renew(cold.catalog) == []
    with pytest.raises(psycopg.errors.CheckViolation):
        run(other, WRITES[0])


@pytest.mark.slow
def test_a_table_whose_heap_is_gone_does_not_keep_frostline_from_starting(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    run(lake.catalog, "drop table public._events cascade")
    assert renewal.renew(lake.catalog) == []


@pytest.mark.slow
def test_nor_does_it_keep_the_functions_of_others_old(lake: Lake) -> None:
    for name in ("a_broken", "events"):
        make_events(lake.catalog, f"public.{name}")
        lake.add(name)
    function = f"frostline_relation.mark_{lake.table().id}"
    old = "begin return null; end"
    run(lake.catalog, f"create or replace function {function}() returns trigger language plpgsql as $$ {old} $$")
    run(lake.catalog, "drop table public._a_broken cascade")
    assert [str(renewed) for renewed in renewal.renew(lake.catalog)] == ["public.events"]


@pytest.mark.slow
def test_values_are_compared_on_the_axis(cold: Lake) -> None:
    """R is kept in the tier key's own type, whatever the session's time zone."""
    retain(cold, MARCH)
    with cold.connect() as connection:
        run(connection, "set timezone = 'Asia/Kathmandu'")
        with pytest.raises(psycopg.errors.CheckViolation):
            run(connection, "insert into public.events (id, ts) values (900, '2024-03-01 05:44:59')")
        run(connection, "insert into public.events (id, ts) values (900, '2024-03-01 05:45:00')")
    assert retained(cold) == from_text(cold.table().tier_kind, MARCH)
