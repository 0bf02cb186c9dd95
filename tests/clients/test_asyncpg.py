"""asyncpg, which prepares every statement and speaks binary, does to the relation what it does to a plain table."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.fixtures.pair import Pair

pytestmark = pytest.mark.spark

OLD, NEW = datetime(2024, 1, 15, 1, 2, 3, 456789, tzinfo=UTC), datetime(2090, 7, 1, tzinfo=UTC)
COLUMNS = ["id", "ts", "status", "amount", "data", "tags", "ref", "kind", "version"]

Work = Callable[[Any, str], Awaitable[Any]]


def on_both(pair: Pair, work: Work) -> Any:
    """Do it to each table on a new connection, with JSON as an application sets it up."""

    async def connected(name: str) -> Any:
        connection: Any = await asyncpg.connect(pair.dsn)
        try:
            await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            return await work(connection, f"public.{name}")
        finally:
            await connection.close()

    return pair.both(lambda name: asyncio.run(connected(name)))


def row(number: int, when: datetime) -> tuple[Any, ...]:
    return (number, when, "asyncpg", Decimal("12.34"), {"n": [1, None, "ä"]}, ["x", None], UUID(int=7), "large", 2)


@pytest.mark.parametrize("condition", ["id <= 40", "id > 70", "id between 55 and 65", "true"])
def test_it_selects_rows_of_each_tier_and_of_both(pair: Pair, condition: str) -> None:
    async def select(connection: Any, name: str) -> Any:
        return [
            tuple(record)
            for record in await connection.fetch(f"select * from {name} where {condition} order by id, ts")
        ]

    assert len(on_both(pair, select)) > 5


def test_a_prepared_statement_finds_rows_of_either_tier_by_parameters(pair: Pair) -> None:
    async def select(connection: Any, name: str) -> Any:
        prepared = await connection.prepare(
            f"select * from {name} where id = $1 and ts = $2 and kind = $3 and $4 = any (tags)"
        )
        keys = await connection.fetch(
            f"select id, ts, kind, tags[2] from {name} where id % 9 = 0 and tags is not null order by id"
        )
        rows = [tuple(await prepared.fetchrow(*key)) for key in keys]
        types = [(attribute.name, attribute.type.name) for attribute in prepared.get_attributes()]
        return rows, types, [parameter.name for parameter in prepared.get_parameters()]

    answers, types, parameters = on_both(pair, select)
    assert len(answers) > 6
    assert dict(types)["kind"] == "kind"
    assert parameters == ["int8", "timestamptz", "kind", "text"]


@pytest.mark.parametrize("when", [OLD, NEW])
def test_every_type_goes_in_and_comes_back(pair: Pair, when: datetime) -> None:
    async def insert(connection: Any, name: str) -> Any:
        marks = ", ".join(f"${n}" for n in range(1, len(COLUMNS) + 1))
        return tuple(await connection.fetchrow(f"insert into {name} values ({marks}) returning *", *row(501, when)))

    assert on_both(pair, insert) == row(501, when)


def test_the_tags_count_rows_of_both_tiers(pair: Pair) -> None:
    async def write(connection: Any, name: str) -> Any:
        return [
            await connection.execute(
                f"insert into {name} (ts, data) select * from unnest($1::timestamptz[], $2::jsonb[])",
                [OLD, NEW],
                [{}, None],
            ),
            await connection.execute(f"update {name} set status = $1 where id between $2 and $3", "tagged", 58, 63),
            await connection.execute(f"delete from {name} where id = any ($1::bigint[])", [40, 75, 999999]),
        ]

    assert on_both(pair, write) == ["INSERT 0 2", "UPDATE 6", "DELETE 2"]


def test_executemany_is_one_transaction(pair: Pair) -> None:
    async def write(connection: Any, name: str) -> Any:
        insert = f"insert into {name} (id, ts, status) values ($1, $2, $3)"
        await connection.executemany(insert, [(600 + i, (OLD, NEW)[i % 2], f"many {i}") for i in range(40)])
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.executemany(insert, [(700, NEW, "not kept"), (600, OLD, "twice")])
        return await connection.fetchval(f"select count(*) from {name} where id between 600 and 700")

    assert on_both(pair, write) == 40


def test_records_are_copied_in_and_a_query_out(pair: Pair) -> None:
    async def copy(connection: Any, name: str) -> Any:
        values = [(800 + i, (OLD, NEW)[i % 2], "copied", "small", 1) for i in range(20)]
        columns = ["id", "ts", "status", "kind", "version"]
        schema, _, table = name.partition(".")
        said = [await connection.copy_records_to_table(table, schema_name=schema, records=values, columns=columns)]
        parts: list[bytes] = []

        async def keep(part: bytes) -> None:
            parts.append(part)

        query = f"select id, status from {name} where id between 55 and 65 or id >= 800 order by id"
        said.append(await connection.copy_from_query(query, output=keep, format="csv"))
        return said, b"".join(parts)

    said, _ = on_both(pair, copy)
    assert said == ["COPY 20", "COPY 31"]


def test_a_whole_table_is_not_copied_out(pair: Pair) -> None:
    async def copy() -> None:
        connection: Any = await asyncpg.connect(pair.dsn)
        try:
            await connection.copy_from_table("events", schema_name="public", output="/dev/null")
        finally:
            await connection.close()

    with pytest.raises(asyncpg.WrongObjectTypeError, match="cannot copy from view"):
        asyncio.run(copy())


def test_a_cursor_reads_on_over_the_frost_line(pair: Pair) -> None:
    async def read(connection: Any, name: str) -> Any:
        async with connection.transaction():
            cursor = await connection.cursor(f"select id, status from {name} where id < $1 order by id", 500)
            rows = [tuple(record) for record in await cursor.fetch(10)]
            await cursor.forward(15)
            rows += [tuple(record) for record in await cursor.fetch(100)]
            return rows + [
                tuple(record)
                async for record in connection.cursor(f"select id, ref from {name} order by id", prefetch=7)
            ]

    assert len(on_both(pair, read)) > 100


def test_a_savepoint_is_rolled_back_and_the_rest_stays(pair: Pair) -> None:
    async def lost(connection: Any, name: str) -> None:
        async with connection.transaction():
            await connection.execute(f"update {name} set status = 'lost' where id = 21")
            await connection.execute(f"update {name} set amount = -1 where id = 22")

    async def write(connection: Any, name: str) -> Any:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(f"update {name} set version = version + 1 where id in (20, 70)")
            with pytest.raises(asyncpg.CheckViolationError):
                await lost(connection, name)
            rows = await connection.fetch(
                f"select id, status, version from {name} where id in (20, 21, 22, 70) order by id"
            )
            return [tuple(record) for record in rows]

    assert [version for *_, version in on_both(pair, write)] == [2, 1, 1, 2]


def test_connections_of_a_pool_are_reset_and_used_again(pair: Pair) -> None:
    async def write(name: str) -> Any:
        async with asyncpg.create_pool(pair.dsn, min_size=2, max_size=2) as pool:

            async def one(number: int) -> Any:
                return await pool.fetchval(
                    f"update public.{name} set version = version + 1 where id = $1 returning id", number
                )

            return await asyncio.gather(*(one(number) for number in (23, 24, 25, 76, 77, 78)))

    assert pair.both(lambda name: asyncio.run(write(name))) == [23, 24, 25, 76, 77, 78]
