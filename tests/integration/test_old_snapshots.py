"""A transaction whose snapshot is older than an ALTER of the table: the rows of that moment, or an error."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.cold_twins import alter, both, make_guarded, shown
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.relation import following

WHOLE = "select id, status from public.{} order by id, ts"
PLAIN = {
    "a longer type": "alter column amount type numeric(20, 2)",
    "a column": "add column more int default 5",
    "a name": "rename column status to state",
    "a column less": "drop column data",
}


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, and a plain table with the same rows."""
    make_guarded(lake)
    return lake


@pytest.fixture
def reader(cold: Lake) -> Iterator[psycopg.Connection]:
    """Has a snapshot from after some cold rows were changed and deleted, and has read neither table."""
    alter(cold, "add column n int default 1")
    with cold.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
        both(connection, "delete from public.{t} where id in (4, 31)")
    with cold.connect() as connection:
        run(connection, "begin isolation level repeatable read; select 1")
        yield connection


def test_deleted_cold_rows_do_not_come_back_after_the_overlay_was_rewritten(
    cold: Lake, reader: psycopg.Connection
) -> None:
    alter(cold, "alter column n type bigint")
    for statement in (
        WHOLE.format("events"),
        "select count(*) from public.events where id = 4 and ts < '2024-04-01'",
        "update public.events set status = 'x' where id = 4",
        "delete from public.events where ts < '2024-02-01'",
        "insert into public.events (id, ts) select 5000, ts from public.events where id = 3",
        "select * from public.events where ts = '2024-01-01 04:00+00'",
    ):
        with pytest.raises(psycopg.errors.SerializationFailure, match="altered") as refused, reader.transaction():
            run(reader, statement)
        assert refused.value.diag.message_hint == "Run the transaction again."
    with pytest.raises(psycopg.errors.SerializationFailure), reader.transaction():
        run(reader, "insert into public.events (id, ts) values (4, '2024-01-01 04:00+00')")
    run(reader, "rollback")
    assert shown(reader) == shown(reader, "plain")


def test_hot_rows_are_as_on_a_table_that_was_rewritten(cold: Lake, reader: psycopg.Connection) -> None:
    """Postgres shows none of them to an older snapshot; and does not ask for the overlay."""
    alter(cold, "alter column n type bigint")
    hot = "select count(*) from public.{} where ts >= '2090-01-01+00'"
    assert value(reader, hot.format("events")) == value(reader, hot.format("plain")) == 0


@pytest.mark.parametrize("what", PLAIN)
def test_what_rewrites_nothing_leaves_the_rows_as_they_were(cold: Lake, reader: psycopg.Connection, what: str) -> None:
    before = rows(cold.catalog, "select id from public.plain order by id, ts")
    alter(cold, PLAIN[what])
    assert rows(reader, "select id from public.events order by id, ts") == before


def test_the_transaction_that_alters_goes_on(cold: Lake) -> None:
    with cold.connect() as connection, connection.transaction():
        run(connection, "set transaction isolation level repeatable read")
        for table, name in (("_events", "events"), ("plain", "plain")):
            run(connection, f"delete from public.{name} where id = 5")
            run(connection, f"alter table public.{table} add column n int")
            run(connection, f"alter table public.{table} alter column n type bigint")
        assert shown(connection) == shown(connection, "plain")


def test_nor_do_they_come_back_after_a_sync_has_rewritten_the_overlay(lake: Lake) -> None:
    """With a column of a domain, which Postgres rewrites a table for."""
    make_twins(lake)
    run(lake.catalog, "create domain public.small as int check (value < 100)")
    with lake.connect() as connection:
        both(connection, "delete from public.{t} where id in (4, 31)")
    alter(lake, "add column n public.small")
    with lake.connect() as connection:
        run(connection, "begin isolation level repeatable read")
        before = rows(connection, "select id from public.plain where ts < '2024-04-01' order by id, ts")
        assert following.follow(lake.catalog, lake.table()) == ("n",)
        try:
            seen = rows(connection, "select id from public.events where ts < '2024-04-01' order by id, ts")
        except psycopg.errors.SerializationFailure:
            return
        assert seen == before
