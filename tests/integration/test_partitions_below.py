"""A partition that somebody makes below the frost line must not swallow rows."""

import psycopg
import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.relation import guard

BELOW = "create table public.late partition of public._events for values from ('2023-01-01') to ('2023-02-01')"

ATTACHED_BELOW = """
    create table public.late (like public._events);
    alter table public._events attach partition public.late for values from ('2023-01-01') to ('2023-02-01')"""


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """A table with everything in the lake."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, rows_a_month=10)
    lake.add()
    lake.archive()
    return lake


@pytest.mark.parametrize(
    "statement",
    first(
        1,
        [
            BELOW,
            "create table public.late partition of public._events for values from (minvalue) to ('2020-01-01')",
            ATTACHED_BELOW,
        ],
    ),
)
def test_the_guard_refuses_it(archived: Lake, statement: str) -> None:
    assert guard.ensure(archived.catalog)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="below the frost line") as refused:
        run(archived.catalog, statement)
    assert refused.value.diag.message_hint


def test_the_guard_does_not_believe_an_older_snapshot(lake: Lake) -> None:
    """For it the line is where it was, and after it the partition would lie below."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, rows_a_month=10)
    lake.add()
    assert guard.ensure(lake.catalog)
    with lake.connect() as older:
        older.execute("begin isolation level repeatable read")
        older.execute("select 1 from frostline.seam")
        lake.archive()
        with pytest.raises(psycopg.errors.SerializationFailure):
            older.execute(BELOW)
        older.execute("rollback")


def test_the_guard_lets_other_partitions_be_made(archived: Lake) -> None:
    assert guard.ensure(archived.catalog)
    archived.catalog.execute(
        "create table public.next partition of public._events for values from ('2024-07-01') to ('2024-08-01')"
    )
    archived.catalog.execute("alter table public._events add column extra int")
    archived.catalog.execute("create table public.unrelated (x int)")


def test_without_the_guard_archive_adopts_it(archived: Lake) -> None:
    archived.catalog.execute(BELOW)
    with archived.connect() as connection:
        connection.execute("insert into public.events (ts, status) values ('2023-01-05', 'swallowed')")
    archived.archive()
    assert archived.value("select count(*) from public.events where status = 'swallowed'") == 1
    with archived.connect() as connection:
        connection.execute("insert into public.events (ts, status) values ('2023-01-06', 'seen at once')")
    assert archived.value("select count(*) from public.events where ts < '2024-01-01'") == 2
