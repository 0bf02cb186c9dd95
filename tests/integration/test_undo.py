"""Undo: archived partitions that are still in the heap become hot again, and nobody who reads or writes can tell."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.cold_twins import (
    APRIL,
    CHANGES,
    FEBRUARY,
    MARCH,
    at,
    both,
    change,
    compare,
    line,
    make_archived,
    release,
    shown,
)
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.statements import run, value
from tests.fixtures.twins import PARTITIONS, TABLE

from frostline.catalog import lake_files, seams
from frostline.errors import CorruptionError, UsageError
from frostline.failpoints import Failpoint
from frostline.pipeline import plan, undo, verify
from frostline.relation import bound


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Rows of three months in the lake and, in their grace period, in the heap; and a plain table with the same rows."""
    make_archived(lake)
    return lake


@pytest.fixture
def reader(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def test_everything_is_hot_again_without_a_change(archived: Lake) -> None:
    change(archived)
    result = archived.undo()
    assert result.partitions == ("public.events_1", "public.events_2", "public.events_3")
    assert line(archived) == archived.table().tier_kind.lowest
    compare(archived)
    assert lake_files.recorded(archived.catalog, archived.table()) == []
    assert verify.run(archived.catalog, archived.table()).faults == ()


def test_writes_go_on_afterwards_and_the_range_is_archived_again(archived: Lake) -> None:
    change(archived)
    archived.undo()
    with archived.connect() as connection:
        both(connection, "update public.{t} set status = 'after the undo' where id in (1, 5, 28)")
        both(connection, "delete from public.{t} where id in (4, 25, 501)")
        both(connection, "insert into public.{t} (id, ts) values (2, '2024-01-01 02:00+00')")
    compare(archived)
    release(archived)
    (result,) = archived.archive("events")
    assert (result.error, result.partitions) == (None, 3)
    compare(archived)
    archived.fold()
    compare(archived)
    run(archived.catalog, "update frostline.managed_table set grace_period = '0'")
    assert archived.clean().waiting == ()
    compare(archived)
    assert verify.run(archived.catalog, archived.table()).faults == ()


def test_to_a_boundary_leaves_the_rest_cold(archived: Lake) -> None:
    change(archived)
    result = archived.undo(to=FEBRUARY)
    assert result.partitions == ("public.events_2", "public.events_3")
    assert line(archived) == at(archived, FEBRUARY)
    compare(archived)
    assert verify.run(archived.catalog, archived.table()).faults == ()
    archived.undo()
    compare(archived)


def test_archive_keeps_away_until_it_is_released(
    archived: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", archived.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(archived.warehouse))
    said = command("undo", "events", "--to", MARCH, "--output", "json")
    assert (said.exit_code, json.loads(said.stdout)) == (
        0,
        {
            "table": "public.events",
            "old_frost_line": APRIL,
            "frost_line": MARCH,
            "hot_again": ["public.events_3"],
            "trimmed_files": 0,
        },
    )
    assert plan.of_table(archived.catalog, archived.table()).plan.is_empty
    (planned,) = json.loads(command("plan", "--output", "json").stdout)
    assert f"; held from {MARCH} until: frostline table set public.events --release" in planned["because"]
    (state,) = json.loads(command("status", "--output", "json").stdout)["tables"]
    assert state["held_from"] == MARCH
    (result,) = archived.archive("events")
    assert result.partitions == 0
    said = command("table", "set", "events", "--release", "--output", "json")
    assert (json.loads(said.stdout)["changed"], json.loads(said.stdout)["held_from"]) == (True, None)
    (result,) = archived.archive("events")
    assert result.partitions == 1
    compare(archived)


@pytest.mark.slow
def test_a_reader_from_before_keeps_what_it_sees(archived: Lake, reader: psycopg.Connection) -> None:
    change(archived)
    archived.fold()
    change_again = "update public.{t} set status = 'newer' where id in (6, 30)"
    with archived.connect() as connection:
        both(connection, change_again)
    reader.execute("begin isolation level repeatable read")
    before = shown(reader)
    archived.undo()
    with archived.connect() as connection:
        both(connection, "update public.{t} set status = 'newest' where id between 1 and 60")
    archived.clean()
    assert shown(reader) == before
    reader.execute("commit")
    assert shown(reader) == shown(reader, "plain") != before


@pytest.mark.slow
def test_a_reader_that_plans_after_the_undo_with_an_older_snapshot(archived: Lake, reader: psycopg.Connection) -> None:
    """It has the old line, and must still find the lake's foreign tables up to it."""
    reader.execute("begin isolation level repeatable read")
    before = shown(reader, "plain")
    archived.undo()
    archived.clean()
    assert shown(reader) == before


@pytest.mark.parametrize("level", first(1, ["read committed", "repeatable read"]))
def test_a_writer_that_is_open_across_it(archived: Lake, reader: psycopg.Connection, level: str) -> None:
    writer = reader
    writer.execute("begin")
    run(writer, f"set transaction isolation level {level}")
    for statement in CHANGES[:3]:
        both(writer, statement)
    archived.undo()
    both(writer, "update public.{t} set amount = 7 where id in (25, 29)")
    both(writer, "delete from public.{t} where id = 30")
    writer.execute("commit")
    compare(archived)
    release(archived)
    archived.archive("events")
    compare(archived)


@pytest.mark.slow
def test_a_file_that_reaches_across_the_line_is_written_again(lake: Lake) -> None:
    """Fold puts the changes of a whole lake partition, here a year, into one file."""
    make_archived(lake, lake_partition="year")
    change(lake)
    lake.fold()
    february = at(lake, FEBRUARY)
    across = [file for file in lake_files.recorded(lake.catalog, lake.table()) if file.lower < february <= file.upper]
    assert across
    result = lake.undo(to=FEBRUARY)
    assert result.trimmed_files == len(across)
    assert all(file.upper < february for file in lake_files.recorded(lake.catalog, lake.table()))
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.slow
def test_a_gap_whose_rows_are_in_the_lake_only_is_not_crossed(lake: Lake) -> None:
    """A fold has carried the row into the lake and deleted it from the DEFAULT partition."""
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    run(lake.catalog, "drop table public.events_2")
    both(lake.catalog, "insert into public.{t} (id, ts) values (1, '2024-01-05'), (3, '2024-03-05')")
    lake.add(grace="10 years")
    lake.archive("events")
    both(lake.catalog, "insert into public.{t} (id, ts) values (2, '2024-02-05')")
    lake.fold()
    compare(lake)
    result = lake.undo()
    assert result.partitions == ("public.events_3",)
    assert line(lake) == at(lake, MARCH)
    compare(lake)
    with pytest.raises(UsageError, match="no archived partition"):
        lake.undo()


@pytest.mark.slow
def test_afterwards_hot_queries_do_not_ask_the_lake(archived: Lake, reader: psycopg.Connection) -> None:
    reader.execute("begin isolation level repeatable read")
    reader.execute("select from pg_class limit 1")
    archived.undo()
    assert value(archived.catalog, "select count(*) from pg_foreign_table") == 1
    reader.execute("commit")
    archived.clean()
    assert value(archived.catalog, "select count(*) from pg_foreign_table") == 0
    archived.server.stop()
    compare(archived)


def test_a_statement_that_ends_in_a_moment_does_not_leave_hot_rows_to_the_lake(
    archived: Lake, reader: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as autovacuum's look at the lake's table: whoever holds it when the bound is to fall is waited for."""
    tried: list[bool] = []
    replace_foreign_tables = bound._replace  # pyright: ignore[reportPrivateUsage]

    def tries(*arguments: Any) -> bool:
        tried.append(replace_foreign_tables(*arguments))
        reader.execute("rollback")  # only after it was in the way once
        return tried[-1]

    reader.execute("begin")
    run(reader, f'lock table frostline_lake."{archived.table().internal}" in access share mode')
    monkeypatch.setattr(bound, "_replace", tries)
    archived.undo()
    assert tried == [False, True]
    assert value(archived.catalog, "select count(*) from pg_foreign_table") == 0


@pytest.mark.slow
def test_it_can_be_done_again_and_again(archived: Lake) -> None:
    for _ in range(2):
        change_back = "update public.{t} set amount = coalesce(amount, 0) + 1 where id between 10 and 70"
        with archived.connect() as connection:
            both(connection, change_back)
        archived.undo()
        compare(archived)
        release(archived)
        archived.archive("events")
        compare(archived)


def test_cleaned_partitions_are_beyond_its_reach(archived: Lake) -> None:
    run(archived.catalog, "update frostline.managed_table set grace_period = '0'")
    archived.clean()
    with pytest.raises(UsageError, match="still whole in the heap") as refused:
        archived.undo()
    assert refused.value.hint == "frostline thaw public.events --from VALUE brings rows back from the lake"


@pytest.mark.slow
def test_nonsense_is_refused_and_nothing_changes(
    archived: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", archived.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(archived.warehouse))
    before = seams.get(archived.catalog, archived.table())
    for to, message, hint in [
        ("2024-02-15", "no archived partition of public.events begins at 2024-02-15", f"--to '{FEBRUARY}'"),
        ("2023-02-15", "undo cannot go down to 2023-02-15", "frostline thaw public.events --from '2023-02-15"),
        ("2095-01-01", "no archived partition of public.events begins at 2095", f"--to '{MARCH}'"),
        ("yesterdays", "--to 'yesterdays' is not a timestamp with time zone", "ts is a timestamp with time zone"),
        ("", "--to '' is not a timestamp with time zone", "ts is a timestamp with time zone"),
    ]:
        said = command("undo", "events", "--to", to)
        error, told = said.stderr.splitlines()
        assert (said.exit_code, said.stdout) == (2, "")
        assert message in error
        assert hint in told
    assert seams.get(archived.catalog, archived.table()) == before
    assert value(archived.catalog, "select count(*) from frostline.job where kind = 'undo'") == 0


SILENCED = "alter table public.events_2 disable trigger all; {}; alter table public.events_2 enable trigger all"


@pytest.mark.slow
@pytest.mark.parametrize("marked", some([False, True], True))
@pytest.mark.parametrize(
    "by_hand",
    [
        SILENCED.format("truncate public.events_2"),
        SILENCED.format("delete from public.events_2 where id = (select min(id) from public.events_2)"),
        SILENCED.format("update public.events_2 set status = 'behind our back'"),
    ],
)
def test_a_partition_that_was_changed_by_hand_stays_cold(archived: Lake, by_hand: str, marked: bool) -> None:
    """The lake has its rows, and nobody would read them there once it is hot."""
    if marked:
        with archived.connect() as connection:
            both(connection, "update public.{t} set amount = 1 where ts < '2024-04-01'")
    run(archived.catalog, by_hand)
    before = seams.get(archived.catalog, archived.table())
    for lower in (archived.undo, archived.thaw):
        with pytest.raises(CorruptionError, match=r"public\.events_2 .*; nothing was changed") as refused:
            lower()
        assert refused.value.hint is not None
        assert "frostline verify public.events" in refused.value.hint
    assert seams.get(archived.catalog, archived.table()) == before
    compare(archived)
    archived.undo(to=MARCH)
    compare(archived)
    run(archived.catalog, "drop table public.events_2")
    archived.thaw()
    compare(archived)


@pytest.mark.slow
def test_a_row_that_left_the_default_partition_by_hand_keeps_its_range_cold(lake: Lake) -> None:
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    run(lake.catalog, "drop table public.events_2")
    both(lake.catalog, "insert into public.{t} (id, ts) values (1, '2024-01-05'), (3, '2024-03-05')")
    lake.add(grace="10 years")
    lake.archive("events")
    both(lake.catalog, "insert into public.{t} (id, ts) values (2, '2024-02-05')")
    run(lake.catalog, "alter table public.events_default disable trigger all; truncate public.events_default")
    with pytest.raises(CorruptionError, match=r"public\._events lacks changes .*; nothing was changed"):
        lake.undo()
    compare(lake)


def test_the_heap_comes_back_when_the_lake_is_lost(archived: Lake) -> None:
    for file in archived.data_files():
        file.unlink()
    archived.undo()
    compare(archived)


class Killed(BaseException):
    """Stands for the end of the process: nothing handles it."""


@pytest.mark.slow
def test_one_that_dies_anywhere_is_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is the second one for the place where the run before it died."""
    make_archived(lake, lake_partition="year")
    change(lake)
    lake.fold()
    for place in _PLACES:
        monkeypatch.setattr(undo.failpoints, "reached", _dying(place))
        with pytest.raises(Killed):
            lake.undo(to=FEBRUARY if place in _PLACES[:-1] else None)
        compare(lake)
        with lake.connect() as connection:
            both(connection, "update public.{t} set amount = coalesce(amount, 0) + 1 where id % 7 = 0")
    monkeypatch.undo()
    # Below January there is a row in the lake, so this is as far as it can go.
    assert line(lake) == at(lake, "2024-01-01 00:00:00+00")
    assert verify.run(lake.catalog, lake.table()).faults == ()
    lake.clean()
    assert bound.current(lake.catalog, lake.table()) == line(lake)
    assert value(lake.catalog, "select count(*) from frostline.job where state in ('planned', 'exported')") == 0
    with pytest.raises(UsageError):
        lake.undo()


_PLACES = [
    failpoint for failpoint in Failpoint if failpoint.name.startswith("UNDO_") and not failpoint.name.endswith("_FILE")
]
"""Those of the process that runs the command; the others are in tasks."""


def _dying(place: Failpoint) -> Callable[[Failpoint], None]:
    def reached(here: Failpoint) -> None:
        if here is place:
            raise Killed

    return reached
