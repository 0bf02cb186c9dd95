"""Groups and aggregates that DuckDB computes are what Postgres computes of the same rows."""

import logging
import random
from collections.abc import Callable
from decimal import Decimal

import psycopg
import pytest
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first

from frostline.model.names import RemoteName
from frostline.model.tiers import TierKind
from frostline.model.types import Collation
from frostline.server.listen import LakeServer

Connect = Callable[[str], psycopg.Connection]
ROWS = 3_000
REMOTE = '"x"."7[,3000)"'
TABLE = lakeserver.table(
    7,
    [
        column(1, "id", "int8"),
        column(2, "key", "int8"),
        column(3, "small", "int2"),
        column(4, "n", "int4"),
        column(5, "price", "numeric", precision=12, scale=2),
        column(6, "wide", "numeric", precision=24, scale=0),
        column(7, "name", "text", collation=Collation.BYTES, collation_name='pg_catalog."C"'),
        column(8, "day", "date"),
        column(9, "at", "timestamp"),
        column(10, "ok", "bool"),
        column(11, "u", "uuid"),
    ],
    "key",
    TierKind.BIGINT,
)
QUERIES = [
    "select count(*), count(n), count(distinct name), sum(small), sum(n), sum(id), sum(price), sum(wide) from {}",
    "select min(small), max(n), min(id), max(price), min(wide), max(day), min(day), max(at), min(at) from {}",
    "select name, ok, count(*), sum(price), max(at) from {} group by name, ok",
    "select small, sum(id) from {} group by small order by small desc nulls last limit 5",
    "select count(*), u from {} group by u order by count(*) desc, u limit 3",
    "select day, at, count(distinct u) from {} where n > 0 and key < 2000 group by 1, 2",
    "select price, count(*) as number from {} where name = 'b' group by price order by number desc, price limit 7",
    "select count(*), sum(n), min(at) from {} where n > 100000",
    "select n from {} where n > 100000 group by n",
    "select name, sum(n) from {} where key >= 1000 group by name order by name nulls first",
]


def values(chance: random.Random) -> dict[str, list[object]]:
    """Few different values and many nulls, and the ends of each type."""

    def some(*choices: object) -> list[object]:
        return [chance.choice((*choices, None)) for _ in range(ROWS)]

    return {
        "id": [2**63 - 1 - number for number in range(ROWS)],
        "key": list(range(ROWS)),
        "small": some(-(2**15), 0, 7, 2**15 - 1),
        "n": some(-(2**31), -1, 0, 12, 2**31 - 1),
        "price": some(Decimal("-9999999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50"), Decimal("9999999999.99")),
        "wide": some(Decimal(10**24 - 1), Decimal(-(10**24) + 1), Decimal(0)),
        "name": some("", "a", "b", "B", "é", "e\u0301"),
        "day": some(-800_000, 0, 19_000),
        "at": some(-70_000_000_000_000_000, 0, 1_700_000_000_123_456),
        "ok": some(True, False),
        "u": some(*(f"{number:08}-0000-0000-0000-00000000000a" for number in range(5))),
    }  # fmt: skip


@pytest.fixture
def client(lake_server: LakeServer, stored: StoredTables, empty_database: str, connect: Connect) -> psycopg.Connection:
    """`lake_rows` in the lake, and `heap_rows` with the same rows in Postgres."""
    stored.add(TABLE)
    stored.publish(7, 1, values(random.Random(7)))
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, lake_server.port)
    lakeserver.create_foreign_table(connection, TABLE, RemoteName(7, None, ROWS), "lake_rows")
    connection.execute("create table heap_rows as select * from lake_rows")
    return connection


def texts(connection: psycopg.Connection, query: str) -> list[tuple[bytes | None, ...]]:
    """The answer as it travels: Python has no dates before Christ."""
    result = connection.execute(query.encode()).pgresult
    assert result is not None
    return [tuple(result.get_value(row, at) for at in range(result.nfields)) for row in range(result.ntuples)]


@pytest.mark.parametrize("query", first(4, QUERIES))
def test_duckdb_answers_as_postgres_does(
    client: psycopg.Connection, lake_server: LakeServer, connect: Connect, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = texts(client, query.format("heap_rows"))
    with caplog.at_level(logging.DEBUG, "frostline.server"):
        through_postgres = texts(client, query.format("lake_rows"))
        with connect(lakeserver.lake_dsn(lake_server)) as direct:
            answered = texts(direct, query.format(REMOTE))
    assert sorted(map(str, through_postgres)) == sorted(map(str, expected))
    assert sorted(map(str, answered)) == sorted(map(str, expected))
    assert "engine=postgres" not in caplog.text


def test_order_is_kept(client: psycopg.Connection, lake_server: LakeServer, connect: Connect) -> None:
    query = "select name, count(*) from {} group by name order by name desc"
    with connect(lakeserver.lake_dsn(lake_server)) as direct:
        assert texts(direct, query.format(REMOTE)) == texts(client, query.format("heap_rows"))


def test_postgres_sends_the_whole_query(client: psycopg.Connection) -> None:
    query = "explain (verbose, costs off) select name, count(*), sum(price) from lake_rows group by name"
    plan = "\n".join(line for (line,) in client.execute(query.encode()).fetchall())
    assert "GROUP BY" in plan
    assert "sum(price)" in plan
