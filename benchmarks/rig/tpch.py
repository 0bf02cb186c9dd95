"""The tables and queries of TPC-H, as DuckDB's extension `tpch` generates them, in one database three times.

The schema `tiered` has `lineitem` and `orders` as relations over both tiers, the schema `heap` the same rows in ordinary partitioned tables.
The schema `floor` has them as the least that two tiers by postgres_fdw can be: a view of UNION ALL over the hot years' partitions and a foreign table,
whose rows are in ordinary tables with all indexes, in another database of the same Postgres server.
The other six tables are in the schema `tpch`, for all. Types are those of DuckDB's generator: text where the specification has char and varchar.
"""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString, cast

import duckdb
from psycopg.conninfo import conninfo_to_dict

from benchmarks.rig.data import hot_period
from benchmarks.world import World
from frostline.catalog.connect import Connection, connect
from frostline.lake import duck
from frostline.relation import foreign_server, names

TIERED, HEAP, FLOOR, SHARED = "tiered", "heap", "floor", "tpch"
COLD = datetime(1997, 1, 1, tzinfo=UTC)
"""Five of the seven years are cold."""
YEARS = range(1992, 1999)
Row = tuple[object, ...]

_TABLES = {
    "region": "r_regionkey integer primary key, r_name text, r_comment text",
    "nation": "n_nationkey integer primary key, n_name text, n_regionkey integer, n_comment text",
    "supplier": """s_suppkey bigint primary key, s_name text, s_address text, s_nationkey integer, s_phone text,
        s_acctbal numeric(15,2), s_comment text""",
    "customer": """c_custkey bigint primary key, c_name text, c_address text, c_nationkey integer, c_phone text,
        c_acctbal numeric(15,2), c_mktsegment text, c_comment text""",
    "part": """p_partkey bigint primary key, p_name text, p_mfgr text, p_brand text, p_type text, p_size integer,
        p_container text, p_retailprice numeric(15,2), p_comment text""",
    "partsupp": """ps_partkey bigint, ps_suppkey bigint, ps_availqty bigint, ps_supplycost numeric(15,2), ps_comment text,
        primary key (ps_partkey, ps_suppkey)""",
}
_SPLIT = {
    "orders": """o_orderkey bigint, o_custkey bigint not null, o_orderstatus text not null, o_totalprice numeric(15,2) not null,
        o_orderdate date, o_orderpriority text not null, o_clerk text not null, o_shippriority integer not null,
        o_comment text not null, primary key (o_orderkey, o_orderdate)""",
    "lineitem": """l_orderkey bigint, l_partkey bigint not null, l_suppkey bigint not null, l_linenumber bigint,
        l_quantity numeric(15,2) not null, l_extendedprice numeric(15,2) not null, l_discount numeric(15,2) not null,
        l_tax numeric(15,2) not null, l_returnflag text not null, l_linestatus text not null, l_shipdate date,
        l_commitdate date not null, l_receiptdate date not null, l_shipinstruct text not null, l_shipmode text not null,
        l_comment text not null, primary key (l_orderkey, l_linenumber, l_shipdate)""",
}
_TIER_KEY = {"orders": "o_orderdate", "lineitem": "l_shipdate"}
_FOREIGN_KEYS = {
    "nation": ["n_regionkey"],
    "supplier": ["s_nationkey"],
    "customer": ["c_nationkey"],
    "partsupp": ["ps_suppkey"],
    "orders": ["o_custkey"],
    "lineitem": ["l_partkey, l_suppkey", "l_suppkey"],
}
"""Those that no primary key begins with."""
_FETCH_SIZE = """
select o.option_value from pg_inherits i join pg_foreign_table f on f.ftrelid = i.inhrelid, pg_options_to_table(f.ftoptions) o
 where i.inhparent = '{lake}'::regclass and o.option_name = 'fetch_size'"""
_LIMIT = re.compile(r"\blimit (\d+)$", re.IGNORECASE)
ORDERED_BY = {2: (0, 2, 1, 3), 3: (1, 2), 10: (2,), 18: (4, 3), 21: (1, 0)}
"""Of the queries with a LIMIT, the columns that they are ordered by."""


def fill(world: World, factor: float) -> dict[int, str]:
    """Make both schemas at that scale factor; returns the 22 queries with the parameters of the specification's validation run."""
    with duckdb.connect() as generator:
        duck.load(generator, "tpch")
        generator.execute(f"call dbgen(sf = {factor})")
        for schema in (SHARED, HEAP, TIERED):
            world.run(f"create schema {schema}")
        for name, columns in _TABLES.items():
            world.run(f"create table {SHARED}.{name} ({columns})")
            _load(world, generator, SHARED, name)
        for name in _SPLIT:
            for schema in (HEAP, TIERED):
                _partitioned(world, schema, name, name, YEARS)
                _load(world, generator, schema, name)
        queries = generator.execute("select query_nr, query from tpch_queries()").fetchall()
    for schema, name in _everything():
        _index(world.run, f"{schema}.{name}", name)
    for name in _SPLIT:
        _freeze(world, name)
    return {int(number): plain(text) for number, text in queries}


@contextmanager
def floor(world: World) -> Generator[None]:
    """What `fill` has made, once more as the schema `floor`. Its cold rows are in a database of their own, which is gone afterwards."""
    database = f"{world.database}_floor"
    world.run(f"create database {database}")
    try:
        with connect(world.postgres.dsn(database), purpose="benchmark") as remote:
            _floor_server(world, database)
            for name in _SPLIT:
                _floor_table(world, remote, name)
        yield
    finally:
        world.run(f"drop database {database} with (force)")


def plain(query: str) -> str:
    """A query of the extension, without what ends it."""
    return query.strip().rstrip(";")


def limit_of(query: str) -> int | None:
    """How many rows it may have."""
    limit = _LIMIT.search(query)
    return int(limit[1]) if limit else None


def use(world: World, schema: str) -> None:
    """Queries that follow mean the tables of that schema."""
    world.run(f"set search_path = {schema}, {SHARED}")


def check_same(number: int, query: str, ours: Sequence[Row], expected: Sequence[Row]) -> None:
    """Fail unless both are the same rows, value by value as Postgres prints them.

    Where a LIMIT cuts through rows that the ORDER BY does not tell apart, either of those may be in the answer.
    """
    if limit_of(query) == len(expected):
        key = ORDERED_BY[number]
        assert [_key(row, key) for row in ours] == [_key(row, key) for row in expected], f"Q{number}: other rows"
        last = _key(expected[-1], key)
        ours, expected = ([row for row in rows if _key(row, key) != last] for rows in (ours, expected))
    assert _printed(ours) == _printed(expected), f"Q{number}: other rows"


def _key(row: Row, columns: Iterable[int]) -> Row:
    return tuple(str(row[column]) for column in columns)


def _printed(rows: Iterable[Row]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(str, row)) for row in rows)


def _everything() -> Iterator[tuple[str, str]]:
    yield from ((SHARED, name) for name in _TABLES)
    yield from ((schema, name) for schema in (HEAP, TIERED) for name in _SPLIT)


def _partitioned(world: World, schema: str, name: str, like: str, years: Iterable[int]) -> None:
    """A partition for each of the years, with the columns of the specification's table `like`."""
    world.run(f"create table {schema}.{name} ({_SPLIT[like]}) partition by range ({_TIER_KEY[like]})")
    for year in years:
        world.run(
            f"create table {schema}.{name}_{year} partition of {schema}.{name} "
            f"for values from ('{year}-01-01') to ('{year + 1}-01-01')"
        )


def _floor_server(world: World, database: str) -> None:
    """A foreign server that costs what Frostline's costs, and is another database of the same Postgres."""
    address = conninfo_to_dict(world.postgres.dsn(database))
    ours, _ = foreign_server.options(world.connection)
    options = {key: (ours or {})[key] for key in (*foreign_server.COSTS, "keep_connections")}
    options |= {key: str(address[key]) for key in ("host", "port", "dbname")}
    login = {key: str(address[key]) for key in ("user", "password")}
    world.run(f"create schema {FLOOR}")
    world.run(f"create server {FLOOR} foreign data wrapper postgres_fdw options ({_options(options)})")
    world.run(f"create user mapping for current_user server {FLOOR} options ({_options(login)})")


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{key} '{value}'" for key, value in options.items())


def _floor_table(world: World, remote: Connection, name: str) -> None:
    """The hot rows, the cold rows, and a view of both."""
    hot, cold = f"{name}_hot", f"{name}_cold"
    is_hot = f"{_TIER_KEY[name]} >= '{COLD:%F}'"
    _partitioned(world, FLOOR, hot, name, range(COLD.year, YEARS.stop))
    world.run(f"insert into {FLOOR}.{hot} select * from {HEAP}.{name} where {is_hot}")
    _index(world.run, f"{FLOOR}.{hot}", name)

    def run_there(text: str) -> None:
        remote.execute(cast(LiteralString, text))

    run_there(f"create table public.{name} ({_SPLIT[name]})")
    # The check lets Postgres leave the foreign table out of a question for hot rows, as it leaves out the lake.
    columns, _, _ = _SPLIT[name].rpartition(", primary key")
    options = {
        "schema_name": "public",
        "table_name": name,
        "fetch_size": _fetch_size(world, name),
        "batch_size": "1000",
    }
    world.run(
        f"create foreign table {FLOOR}.{cold} ({columns}, check (not {is_hot})) server {FLOOR} options ({_options(options)})"
    )
    world.run(f"insert into {FLOOR}.{cold} select * from {HEAP}.{name} where not {is_hot}")
    _index(run_there, f"public.{name}", name)
    world.run(f"analyze {FLOOR}.{cold}")
    world.run(f"create view {FLOOR}.{name} as select * from {FLOOR}.{hot} union all select * from {FLOOR}.{cold}")


def _fetch_size(world: World, name: str) -> str:
    lake = names.lake(world.table(f"{TIERED}.{name}")).as_string()
    return str(world.ask(_FETCH_SIZE.format(lake=lake))[0][0])


def _load(world: World, generator: duckdb.DuckDBPyConnection, schema: str, name: str) -> None:
    path = Path(world.folder) / f"{name}.csv"
    if not path.exists():
        generator.execute(f"copy {name} to '{path}' (format csv, header false)")
    copied = cast(LiteralString, f"copy {schema}.{name} from stdin (format csv)")
    with path.open("rb") as file, world.connection.cursor().copy(copied) as copy:
        while part := file.read(2**20):
            copy.write(part)
    if schema != HEAP:
        path.unlink()


def _index(run: Callable[[str], object], table: str, like: str) -> None:
    """Index the columns of foreign keys as in the specification's table `like`, and analyze."""
    for columns in _FOREIGN_KEYS.get(like, []):
        run(f"create index on {table} ({columns})")
    run(f"vacuum analyze {table}")


def _freeze(world: World, name: str) -> None:
    """Archive what is before `COLD`, which also analyzes the lake's foreign tables, and remove it from the heap."""
    world.add(f"{TIERED}.{name}", hot_period(COLD))
    done = world.archive(f"{TIERED}.{name}")
    assert not done.cleaned.waiting, done
    assert done.rows, done
    world.run(f"vacuum analyze {TIERED}._{name}")
