"""psycopg 3 as applications use it: asynchronous, in pipelines, with server-side cursors and binary COPY."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from tests.fixtures.pair import Pair

pytestmark = pytest.mark.spark

OLD, NEW = datetime(2024, 1, 15, tzinfo=UTC), datetime(2090, 7, 1, tzinfo=UTC)

Work = Callable[[Any, str], Any]


def on_both(pair: Pair, work: Work, **options: Any) -> Any:
    def connected(name: str) -> Any:
        with psycopg.connect(pair.dsn, **options) as connection:
            return work(connection, f"public.{name}")

    return pair.both(connected)


def on_both_async(pair: Pair, work: Callable[[Any, str], Awaitable[Any]]) -> Any:
    async def connected(name: str) -> Any:
        async with await psycopg.AsyncConnection.connect(pair.dsn) as connection:
            return await work(connection, f"public.{name}")

    return pair.both(lambda name: asyncio.run(connected(name)))


def test_a_pipeline_of_statements_is_answered_in_order(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        with connection.pipeline():
            cursors = [
                connection.execute(f"select id, status from {name} where id between 58 and 62 order by id"),
                connection.execute(f"update {name} set version = version + 1 where id in (3, 63) returning version"),
                connection.execute(f"insert into {name} (ts) values (%s), (%s) returning id, status", [OLD, NEW]),
                connection.execute(f"delete from {name} where id in (4, 64)"),
            ]
        return [(cursor.statusmessage, cursor.fetchall() if cursor.description else None) for cursor in cursors]

    assert [tag for tag, _ in on_both(pair, work)] == ["SELECT 5", "UPDATE 2", "INSERT 0 2", "DELETE 2"]


def test_an_error_in_a_pipeline_aborts_what_follows_it_only(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        def change(*values: str | None) -> None:
            with connection.pipeline():
                for value in values:
                    with connection.transaction():
                        connection.execute(f"update {name} set status = %s where id = 5", [value])

        with pytest.raises(errors.NotNullViolation):
            change("before", None)
        return connection.execute(f"select status from {name} where id = 5").fetchall()

    assert on_both(pair, work, autocommit=True) == [("before",)]


@pytest.mark.parametrize("threshold", [0, None])
def test_executemany_with_returning_gives_each_its_result(pair: Pair, threshold: int | None) -> None:
    def work(connection: Any, name: str) -> Any:
        cursor = connection.cursor()
        insert = f"insert into {name} (ts, status, data) values (%s, %s, %s) returning id, ts, status"
        cursor.executemany(
            insert, [((OLD, NEW)[i % 2], f"many {i}", Jsonb({"i": i})) for i in range(30)], returning=True
        )
        results = [result.fetchall() for result in cursor.results()]
        return results, cursor.rowcount

    answers, _ = on_both(pair, work, prepare_threshold=threshold)
    assert [status for ((_, _, status),) in answers] == [f"many {i}" for i in range(30)]


def test_binary_copy_in_and_a_query_out(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        cursor = connection.cursor()
        with cursor.copy(f"copy {name} (id, ts, status) from stdin (format binary)") as copy:
            copy.set_types(["int8", "timestamptz", "text"])
            for i in range(20):
                copy.write_row((800 + i, (OLD, NEW)[i % 2], "copied"))
        told = cursor.statusmessage
        with cursor.copy(
            f"copy (select id, status from {name} where id between 58 and 62 order by id) to stdout"
        ) as copy:
            return told, list(copy.rows())

    assert on_both(pair, work)[0] == "COPY 20"


@pytest.mark.parametrize("binary", [False, True])
def test_a_server_side_cursor_reads_on_over_the_frost_line(pair: Pair, binary: bool) -> None:
    def work(connection: Any, name: str) -> Any:
        with connection.cursor(name="reader", row_factory=dict_row, binary=binary) as cursor:
            cursor.itersize = 7
            cursor.execute(f"select id, ts, amount, data, tags, ref, kind::text from {name} order by id, ts")
            return list(cursor)

    assert len(on_both(pair, work)) > 70


def test_a_scrollable_cursor_goes_back(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        with connection.cursor(name="reader", scrollable=True) as cursor:
            cursor.execute(f"select id from {name} where id < 100 order by id")
            cursor.scroll(55)
            there = cursor.fetchmany(10)
            cursor.scroll(-30)
            return there, cursor.fetchmany(5)

    on_both(pair, work)


def test_a_cursor_with_hold_outlives_its_transaction(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        with connection.cursor(name="reader", withhold=True) as cursor:
            cursor.execute(f"select id from {name} where id < 100 order by id")
            before = cursor.fetchmany(5)
            connection.commit()
            return before, cursor.fetchall()

    on_both(pair, work)


def test_statements_are_bound_by_the_client_too(pair: Pair) -> None:
    def work(connection: Any, name: str) -> Any:
        opened: Any = psycopg.ClientCursor(connection)
        with opened as cursor:
            cursor.execute(
                f"update {name} set data = %s where id = any (%s) returning id", [Jsonb({"x": "%"}), [7, 67]]
            )
            return sorted(cursor.fetchall())

    assert on_both(pair, work) == [(7,), (67,)]


def test_asynchronous_connections_pipelines_and_notices(pair: Pair) -> None:
    async def work(connection: Any, name: str) -> Any:
        async with connection.pipeline():
            first = await connection.execute(f"update {name} set status = 'async' where id in (8, 68) returning id")
            second = await connection.execute(f"select count(*) from {name} where status = 'async'")
            rows = sorted(await first.fetchall()), await second.fetchall()
        async with connection.cursor(name="reader") as cursor:
            await cursor.execute(f"select id, status from {name} order by id, ts")
            return rows, [row async for row in cursor]

    (updated, counted), _ = on_both_async(pair, work)
    assert (updated, counted) == ([(8,), (68,)], [(2,)])
