"""Every condition gives through the lake server the answer that Postgres gives on a heap with the same rows."""

import decimal
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables
from tests.fixtures.quick import some
from tests.fixtures.waiting import until_extracted
from tests.property.conditions import ATOMS, BY_KIND, CASTS, CONDITIONS, KEYS, POOLS, kind_of, lake_table, quoted

from frostline.model.names import RemoteName
from frostline.model.tables import Column, Table
from frostline.model.tiers import TierKind, from_text
from frostline.model.types import Collation
from frostline.runtime.postgres import Postgres
from frostline.server import extracts
from frostline.server.keeping import LEAST_ASKED
from frostline.server.listen import LakeServer

ROWS = 400
UNDEFINED_TIME = "22008"
"""The SQLSTATE of arithmetic with an infinite date."""
_KINDS = {"date": TierKind.DATE, "timestamp": TierKind.TIMESTAMP, "timestamptz": TierKind.TIMESTAMPTZ}


def stored_value(each: Column, text: str | None) -> object:
    if text is None:
        return None
    kind = each.pg_type.name
    if kind in _KINDS:
        return from_text(_KINDS[kind], text)
    if kind in ("int2", "int4", "int8"):
        return int(text)
    if kind in ("float4", "float8"):
        return float(text)
    if kind == "numeric":
        return decimal.Decimal(text).quantize(
            decimal.Decimal(1).scaleb(-(each.pg_type.scale or 0)), context=decimal.Context(60)
        )
    return {"bool": lambda: text == "t", "bytea": lambda: bytes.fromhex(text[2:])}.get(kind, lambda: text)()


def random_rows(served: Table, without: tuple[str, ...] = ()) -> list[dict[str, str | None]]:
    choose = random.Random(7)
    rows: list[dict[str, str | None]] = []
    for number in range(ROWS):
        row: dict[str, str | None] = {"id": str(number), "key": str(number // 2)}
        for each in served.columns[2:]:
            pool = [text for text in POOLS[kind_of(each)] if text not in without]
            row[each.name] = None if choose.random() < 0.12 else choose.choice(pool)
        rows.append(row)
    return rows


@dataclass
class Pair:
    """A database with the foreign table `lake_rows` and the heap `heap_rows`, which hold the same rows."""

    connection: psycopg.Connection
    served: Table
    server: LakeServer
    has_missing: bool
    """The columns are younger than the first half of the rows."""


def fill(pair: Pair, stored: StoredTables, port: int) -> None:
    served, connection = pair.served, pair.connection
    # Dictionaries make zero of negative zero, so export does without them where there is one.
    rows = random_rows(served, without=("-0",) if stored.by_duckdb else ())
    halves = [(rows[: ROWS // 2], served.columns), (rows[ROWS // 2 :], served.columns)]
    if pair.has_missing:
        old = [each for each in served.columns if each.missing is None]
        for row in rows[: ROWS // 2]:
            row.update({each.name: each.missing for each in served.columns[2:]})
        halves[0] = (rows[: ROWS // 2], (*served.columns[:2], *old[2:5]))
    stored.publish(
        3,
        1,
        *[
            {each.name: [stored_value(each, row[each.name]) for row in half] for each in columns}
            for half, columns in halves
        ],
    )
    lakeserver.create_foreign_server(connection, port)
    # The bounds leave out the last 20 rows, so the heap has only those below them.
    lakeserver.create_foreign_table(connection, served, RemoteName(3, None, (ROWS - 20) // 2), "lake_rows")
    connection.execute("create table heap_rows (like lake_rows)")
    with connection.cursor().copy("copy heap_rows from stdin") as copy:
        for row in rows[: ROWS - 20]:
            copy.write_row([*row.values(), "1"])


def with_missing(served: Table) -> Table:
    """With a missing value in most columns; None, which is NULL, in others."""
    choose = random.Random(11)
    words = {"t": "true", "f": "false"}

    def chosen(each: Column) -> str | None:
        text = choose.choice([text for text in POOLS[kind_of(each)] if text != "-0"])
        return None if choose.random() < 0.2 else words.get(text, text) if each.pg_type.name == "bool" else text

    younger = [replace(each, missing=chosen(each)) for each in served.columns[2:]]
    return replace(served, columns=(*served.columns[:2], *younger))


DATABASES = {
    "bytes": ("template template0 locale 'C' encoding 'UTF8'", Collation.BYTES, True),
    "missing": ("template template0 locale 'C' encoding 'UTF8'", Collation.BYTES, False),
    "linguistic": (
        "template template0 locale_provider icu icu_locale 'en-US' locale 'C' encoding 'UTF8'",
        Collation.LINGUISTIC,
        False,
    ),
}
"""Some builds of Postgres have no ICU; the server is then told all the same that it cannot know the order."""


@pytest.fixture(scope="module", params=list(DATABASES))
def pair(
    request: pytest.FixtureRequest, postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    options, collation, by_duckdb = DATABASES[request.param]
    name = f"pushdown_{request.param}"
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as admin:
        try:
            admin.execute(b"create database %s %s" % (name.encode(), options.encode()))
        except psycopg.errors.FeatureNotSupported:
            admin.execute(b"create database %s template template0" % name.encode())
    stored = StoredTables(tmp_path_factory.mktemp("lake"), by_duckdb=by_duckdb)
    has_missing = request.param == "missing"
    served = with_missing(lake_table(collation)) if has_missing else lake_table(collation)
    stored.add(served)
    server = LakeServer(
        "127.0.0.1",
        0,
        stored,
        lakeserver.USER,
        lakeserver.PASSWORD,
        postgres_server.dsn(name),
        warehouse=str(stored.directory),
    )
    server.start()
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
        pair = Pair(connection, served, server, has_missing)
        fill(pair, stored, server.port)
        yield pair
    server.stop()


RELAXED = settings(
    max_examples=settings().max_examples * 3 // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


Answer = list[object] | tuple[str | None, str]
"""Rows, or SQLSTATE and message."""


def answers(pair: Pair, query: str) -> tuple[Answer, Answer]:
    lake, heap = (query.replace("FROM_HERE", name) for name in ("lake_rows", "heap_rows"))
    return run(pair.connection, lake), run(pair.connection, heap)


def run(connection: psycopg.Connection, query: str) -> list[object] | tuple[str | None, str]:
    try:
        return list(connection.execute(query.encode()).fetchall())
    except psycopg.Error as error:
        return error.sqlstate, str(error)


def check(pair: Pair, query: str) -> None:
    lake, heap = answers(pair, query)
    if isinstance(heap, tuple):
        # Postgres itself fails; through the lake it may do so, or not get that far.
        return
    if isinstance(lake, tuple) and lake[0] == UNDEFINED_TIME:
        # postgres_fdw has the conditions that it sends evaluated before those that it keeps: more rows, more errors.
        return
    assert lake == heap, query


def test_all_values_come_back_as_they_were(pair: Pair) -> None:
    columns = ", ".join(f"{each.name}::text" for each in pair.served.columns)
    check(pair, f"select {columns} from FROM_HERE order by id")


@pytest.mark.parametrize("kind", some(POOLS, "int4", "text", "numeric", "timestamptz"))
def test_every_value_is_found_by_equality(pair: Pair, kind: str) -> None:
    cast = CASTS.get(kind, kind)
    values = [f"{quoted(text)}::{cast}" for text in POOLS[kind]]
    for value in values:
        for form in ("{} = {}", "not ({} <> {})", "{} in ({})", "{} is not distinct from {}"):
            check(pair, f"select id from FROM_HERE where {form.format(BY_KIND[kind][0].name, value)} order by id")


@pytest.mark.parametrize("kind", some(POOLS, "bool", "int4", "text", "numeric", "timestamptz", "float8"))
def test_an_extract_has_every_value_as_it_was(pair: Pair, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the other columns too: of a float that is looked up there is no extract, but it is in those of the others."""
    monkeypatch.setattr(extracts, "_VALUE_S", 0.0)
    name, cast, meter = BY_KIND[kind][0].name, CASTS.get(kind, kind), pair.server.backend.meter
    columns = ", ".join(f"{each.name}::text" for each in pair.served.columns)
    queries = [
        f"select {columns} from FROM_HERE where {name} = {quoted(text)}::{cast} order by id" for text in POOLS[kind]
    ]
    for query in queries * (1 + LEAST_ASKED // len(queries)):
        check(pair, query)
    until_extracted()
    before = meter.reading()
    for query in queries:
        check(pair, query)
    if kind in ("int4", "text", "numeric", "timestamptz"):
        assert meter.reading().files_extracted > before.files_extracted


@RELAXED
@given(condition=CONDITIONS)
def test_a_condition_selects_the_same_rows(pair: Pair, condition: str) -> None:
    check(pair, f"select id from FROM_HERE where {condition} order by id")


@RELAXED
@given(
    condition=ATOMS,
    key=st.sampled_from(KEYS),
    way=st.sampled_from(["asc", "desc", "asc nulls first", "desc nulls last"]),
    limit=st.integers(0, 30),
)
@pytest.mark.slow
def test_order_and_limit_choose_the_same_rows(pair: Pair, condition: str, key: str, way: str, limit: int) -> None:
    tail = f"order by {key} {way}, id limit {limit} offset {limit // 3}"
    check(pair, f"select id from FROM_HERE where {condition} {tail}")


@RELAXED
@given(condition=ATOMS, key=st.sampled_from(KEYS))
def test_aggregates_are_the_same(pair: Pair, condition: str, key: str) -> None:
    totals = f"count(*), count({key}), min(id), max(key), sum(c_int4), sum(c_numeric)"
    check(pair, f"select {totals} from FROM_HERE where {condition}")
    # Zero and minus zero are one group, shown as whichever comes first.
    shown = f"{key} + 0" if "float" in key else key
    groups = f"select ({shown})::text, count(*), sum(id) from FROM_HERE where {condition} group by {key}"
    check(pair, f'{groups} order by 1 collate "C", 2, 3')
