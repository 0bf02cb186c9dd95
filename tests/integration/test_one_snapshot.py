"""A transaction with one snapshot for all its statements writes after a job has published.

It sees what a plain table would show it, its own writes included, or it is told to run again (40001).
"""

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from tests.fixtures.cold_twins import both, line, make_archived, release, shown
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.statements import run, value

from frostline.pipeline import undo
from frostline.relation import heap, policy

pytestmark = pytest.mark.spark

LEVELS = ("repeatable read", "serializable")
BEFORE = [
    "update public.{t} set status = 'first' where id in (1, 2, 21, 41)",
    "delete from public.{t} where id in (3, 23)",
    "insert into public.{t} (id, ts, status) values (601, '2024-02-20 00:00+00', 'late'), (602, '2023-05-05 00:00+00', 'gap')",
]
"""Marks of rows in partitions that still are in the heap, of a row in DEFAULT, and of rows that are gone."""
STRANGE = """
create table public.strange partition of public._events for values from ('2022-01-01') to ('2022-02-01');
insert into public._events (id, ts) values (800, '2022-01-05 00:00+00')"""
"""A partition that somebody made below the line, without the guard: nobody sees its rows before it is adopted."""
KEYS = {1: "2024-01-01 01:00+00", 3: "2024-01-01 03:00+00", 5: "2024-01-01 05:00+00", 23: "2024-02-01 03:00+00"}
WRITES: dict[str, list[str]] = {
    "update a changed row": ["update public.{t} set status = 'mine' where id = 1"],
    "update a row as it was": ["update public.{t} set status = 'mine' where id = 5"],
    "update a late row": ["update public.{t} set status = 'mine' where id = 601"],
    "update a row of a gap": ["update public.{t} set status = 'mine' where id = 602"],
    "delete a changed row": ["delete from public.{t} where id = 1"],
    "delete a row as it was": ["delete from public.{t} where id = 5"],
    "delete and insert": [
        "delete from public.{t} where id = 1",
        f"insert into public.{{t}} (id, ts, status) values (1, '{KEYS[1]}', 'mine')",
    ],
    "insert what was deleted": [f"insert into public.{{t}} (id, ts, status) values (3, '{KEYS[3]}', 'mine')"],
    "insert what was deleted, in another month": [
        f"insert into public.{{t}} (id, ts, status) values (23, '{KEYS[23]}', 'mine')"
    ],
    "move a changed row to another month": ["update public.{t} set ts = ts + interval '1 month' where id = 1"],
    "move a changed row to the hot ones": ["update public.{t} set ts = '2090-05-05 00:00+00' where id = 21"],
    "move a row onto a deleted one": [f"update public.{{t}} set id = 3, ts = '{KEYS[3]}' where id = 5"],
    "move a hot row onto a deleted one": [f"update public.{{t}} set id = 3, ts = '{KEYS[3]}' where id = 70"],
    "insert a new cold row": ["insert into public.{t} (id, ts) values (700, '2024-02-25 00:00+00')"],
    "update everything": ["update public.{t} set status = status || ' mine'"],
    "delete everything": ["delete from public.{t}"],
}
TO_THE_HEAP: dict[str, str] = {
    "update": "update public.{t} set status = 'mine' where id = 1",
    "delete": "delete from public.{t} where id = 1",
    "insert": f"insert into public.{{t}} (id, ts, status) values (3, '{KEYS[3]}', 'mine')",
}


def _fold(lake: Lake) -> None:
    (result,) = lake.fold("events")
    assert result.error is None


def _undo(lake: Lake) -> None:
    lake.undo(to="2024-02-01 00:00+00")


def _undo_and_archive(lake: Lake) -> None:
    lake.undo(to="2024-02-01 00:00+00")
    release(lake)
    (result,) = lake.archive("events")
    assert result.error is None


def _fold_and_undo(lake: Lake) -> None:
    _fold(lake)
    _undo(lake)


def _thaw(lake: Lake) -> None:
    lake.thaw(first="2024-02-01 00:00+00")


def _fold_clean_and_thaw(lake: Lake) -> None:
    _fold(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    lake.clean()
    _thaw(lake)


def _fold_and_retain(lake: Lake) -> None:
    _fold(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    lake.clean()
    period = value(lake.catalog, "select (now() - timestamptz '2024-02-01 00:00+00')::text")
    policy.change(lake.catalog, lake.table(), retention_period=period)
    (result,) = lake.retain("events")
    assert result.error is None


def _compact(lake: Lake) -> None:
    (result,) = lake.compact("events")
    assert result.error is None


def _adopt(lake: Lake) -> None:
    assert heap.adopt(lake.catalog, lake.table(), line(lake))
    run(lake.catalog, "insert into public.plain (id, ts) values (800, '2022-01-05 00:00+00')")


JOBS: dict[str, Callable[[Lake], None]] = {
    "fold": _fold,
    "undo": _undo,
    "undo and archive": _undo_and_archive,
    "fold and undo": _fold_and_undo,
    "thaw": _thaw,
    "fold, clean and thaw": _fold_clean_and_thaw,
    "fold and retain": _fold_and_retain,
    "compact": _compact,
    "adopt": _adopt,
}


@pytest.fixture
def changed(lake: Lake) -> Lake:
    """Three archived months in their grace period, with changes."""
    make_archived(lake)
    with lake.connect() as connection:
        for statement in BEFORE:
            both(connection, statement)
    return lake


def _begun(lake: Lake, level: str) -> psycopg.Connection:
    connection = lake.connect()
    run(connection, "set timezone = 'UTC'")
    run(connection, f"begin isolation level {level}")
    assert shown(connection) == shown(connection, "plain")
    return connection


def _tried(connection: psycopg.Connection, statements: list[str]) -> bool:
    """Write both tables and look after each statement; says whether it came to the end without 40001."""
    try:
        for statement in statements:
            for name in ("plain", "events"):
                run(connection, statement.format(t=name))
            assert shown(connection) == shown(connection, "plain"), statement
        run(connection, "commit")
    except psycopg.errors.SerializationFailure:
        run(connection, "rollback")
        return False
    return True


def _open_writers(lake: Lake) -> Iterator[tuple[str, str, psycopg.Connection]]:
    for level in LEVELS:
        for what in WRITES:
            yield level, what, _begun(lake, level)


@pytest.mark.parametrize("job", some(JOBS, "fold", "thaw"))
def test_a_writer_from_before_a_job_sees_its_rows_once_or_is_told(
    changed: Lake, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All writers begin before the job. One after the other writes after it, looks, and is rolled back."""
    monkeypatch.setattr(undo, "_BOUND_PATIENCE_S", 0.3)  # they stay for longer than it waits
    if job == "adopt":
        run(changed.catalog, STRANGE)
    writers = list(_open_writers(changed))
    JOBS[job](changed)
    outcomes: dict[bool, int] = {True: 0, False: 0}
    for _, what, writer in writers:
        with closing(writer):
            try:
                for statement in WRITES[what]:
                    for name in ("plain", "events"):
                        run(writer, statement.format(t=name))
                    assert shown(writer) == shown(writer, "plain"), (job, what)
                outcomes[True] += 1
            except psycopg.errors.SerializationFailure:
                outcomes[False] += 1
            run(writer, "rollback")
    assert sum(outcomes.values()) == len(writers)
    with changed.connect() as connection:
        kept = "where ts >= '2024-02-01 00:00+00'" if job == "fold and retain" else ""
        run(connection, f"create temp view ours as select * from public.events {kept}")
        run(connection, f"create temp view theirs as select * from public.plain {kept}")
        assert value(connection, "select count(*) from (table ours except all table theirs) x") == 0
        assert value(connection, "select count(*) from (table theirs except all table ours) x") == 0


@pytest.mark.parametrize("level", some(LEVELS, "repeatable read"))
@pytest.mark.parametrize("what", first(1, ["update a changed row", "delete a changed row", "insert what was deleted"]))
def test_what_the_writer_of_a_folded_row_commits_is_what_others_see(changed: Lake, level: str, what: str) -> None:
    with closing(_begun(changed, level)) as writer:
        _fold(changed)
        _tried(writer, WRITES[what])
    with changed.connect() as connection:
        assert shown(connection) == shown(connection, "plain")
        assert _tried_again(connection, WRITES[what])


def _tried_again(connection: psycopg.Connection, statements: list[str]) -> bool:
    """What was refused works in a new transaction."""
    run(connection, "begin isolation level repeatable read")
    count = value(connection, "select count(*) from public.plain where status = 'mine' or id = 1 and status <> 'first'")
    done = bool(count) or not value(connection, "select count(*) from public.plain where id = 1")
    if done:
        run(connection, "rollback")
        return True
    return _tried(connection, statements)


@pytest.mark.slow
@pytest.mark.parametrize("level", some(LEVELS, "serializable"))
@pytest.mark.parametrize("what", TO_THE_HEAP)
def test_a_writer_of_the_heap_itself_is_told_as_well(changed: Lake, level: str, what: str) -> None:
    statement = TO_THE_HEAP[what]
    with closing(_begun(changed, level)) as writer:
        _fold(changed)
        try:
            run(writer, statement.format(t="plain"))
            run(writer, statement.format(t="_events"))
            assert shown(writer) == shown(writer, "plain")
        except psycopg.errors.SerializationFailure:
            pass
        run(writer, "rollback")


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_the_fault_that_was_found(changed: Lake, level: str) -> None:
    """A row was changed, the mark folded, the row in the grace period: the writer saw it twice."""
    with closing(_begun(changed, level)) as writer:
        _fold(changed)
        with pytest.raises(psycopg.errors.SerializationFailure):
            run(writer, "update public.events set status = 'mine' where id = 1")


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_no_job_touched_can_be_written(changed: Lake, level: str) -> None:
    with closing(_begun(changed, level)) as writer:
        with changed.connect() as connection:
            both(connection, "update public.{t} set status = 'later' where id = 41")
        _fold(changed)
        assert _tried(writer, ["update public.{t} set status = 'mine' where id = 70"])
