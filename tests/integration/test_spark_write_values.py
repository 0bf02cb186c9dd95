"""Writing from Spark: every type, every name, and what a role needs for it."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import types
from tests.fixtures.batches import frame, new
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins
from tests.fixtures.type_zoo import EVERY_KIND, OPTIONAL, SETUP, Kind

from frostline import spark
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tiers import days_of
from frostline.relation import grants
from frostline.spark import write_task
from frostline.spark.writes import Written

pytestmark = pytest.mark.spark


def _archived(lake: Lake, name: str, columns: str) -> None:
    """A table of integers below and above the frost line, which is at 100, and a plain one for the same rows."""
    run(
        lake.catalog,
        f"create table public.{name} (id int, {columns}, primary key (id)) partition by range (id);"
        f"create table public.{name}_1 partition of public.{name} for values from (0) to (100);"
        f"create table public.{name}_2 partition of public.{name} for values from (100) to (2000);"
        f"create table public.plain (like public.{name} including all);"
        f"insert into public.{name} (id) values (99), (1000); insert into public.plain (id) values (99), (1000)",
    )
    lake.add(name, hot="500")
    (result,) = lake.archive(name)
    assert result.error is None
    assert lake.clean(name).waiting == ()


def _same(lake: Lake, name: str) -> None:
    shown = "select id, whole_row::text from public.{} whole_row order by id"
    with lake.connect() as connection:
        assert rows(connection, shown.format(name)) == rows(connection, shown.format("plain"))


@pytest.mark.slow
def test_every_type_can_be_given_as_a_string(lake: Lake) -> None:
    run(lake.catalog, SETUP)
    kinds = [kind for kind in EVERY_KIND if kind.name not in OPTIONAL]
    _archived(lake, "zoo", ", ".join(f"{kind.column} {kind.type}" for kind in kinds))
    given = [[str(first + number), *_values(kinds, number)] for first in (0, 200) for number in range(12)]
    schema = ", ".join(["id string", *(f"{kind.column} string" for kind in kinds)])
    df = lake.session().createDataFrame([tuple(row) for row in given], schema).coalesce(1)
    modes: list[tuple[Any, Written]] = [("append", Written(24, inserted=24)), ("upsert", Written(24, updated=24))]
    for mode, done in modes:
        assert spark.write(df, "zoo", mode, dsn=lake.dsn) == done
        places = ", ".join(f"%s::text::{kind.type.partition(' collate ')[0]}" for kind in kinds)
        run(lake.catalog, "delete from public.plain where id not in (99, 1000)")
        for row in given:
            run(lake.catalog, f"insert into public.plain values (%s, {places})", row)
        _same(lake, "zoo")


def _values(kinds: Sequence[Kind], number: int) -> list[str | None]:
    return [kind.values[number] if number < len(kind.values) else None for kind in kinds]


NATIVE = """
b boolean, i2 smallint, i4 int, i8 bigint, o oid, f4 real, f8 double precision, n numeric, n5 numeric(5,2), n38 numeric(38,38),
d date, t timestamp, tz timestamptz, s text, v varchar(5), c char(5), x bytea, u uuid, j jsonb, ints int[], texts text[],
stamps timestamptz[], grid int[], bs bytea[], dom public.small, i8n numeric, nothing point
"""
NATIVE_SCHEMA = """
id int, b boolean, i2 short, i4 int, i8 long, o long, f4 float, f8 double, n decimal(38,10), n5 decimal(5,2), n38 decimal(38,38),
d date, t timestamp_ntz, tz timestamp, s string, v string, c string, x binary, u string, j string, ints array<int>, texts array<string>,
stamps array<timestamp>, grid array<array<int>>, bs array<binary>, dom byte, i8n long, nothing void
"""
NATIVE_ROWS: list[tuple[Any, ...]] = [
    (1, True, -32768, -(2**31), -(2**63), 4294967295, -0.0, 5e-324, Decimal("1E-10"), Decimal("-999.99"), Decimal("1E-38"),
     date(1, 1, 1), datetime.fromisoformat("0001-01-01"), datetime(1, 1, 1, tzinfo=UTC), "", "", "", b"", "0" * 32, "{}", [], [], [], [], [], 1, 2**63 - 1, None),
    (2, False, 32767, 2**31 - 1, 2**63 - 1, 0, 0.1, 0.1, Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.10"), Decimal(0),
     date(9999, 12, 31), datetime.fromisoformat("9999-12-31 23:59:59.999999"), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
     'a "b" \\ \n\r\t,\';\\N \\.', "é", "ab", bytes(range(256)), "f" * 32, '{"a": "☃\\n"}', [1, None, -3],
     ["", "NULL", None, 'a,"b"\\{}', " "], [datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=UTC), None], [[1, 2], [3, None]], [b"\x00\xff\\", None], 127, 0, None),
    (3, *[None] * 27),
    (4, None, None, None, None, None, float("nan"), float("nan"), *[None] * 6, "\\.", *[None] * 13),
    (5, None, None, None, None, None, float("-inf"), float("inf"), *[None] * 6, "☃\U0001f9ca", *[None] * 13),
]  # fmt: skip


def test_every_type_of_spark_keeps_its_value(lake: Lake) -> None:
    run(lake.catalog, "create domain public.small as smallint check (value > 0)")
    _archived(lake, "native", NATIVE)
    given = [(first + row[0], *row[1:]) for first in (0, 200) for row in NATIVE_ROWS]
    session = lake.session()
    df = session.createDataFrame(given, NATIVE_SCHEMA).coalesce(1)
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")  # a zone of Spark's own changes no instant
    try:
        assert spark.write(df, "native", dsn=lake.dsn) == Written(10, inserted=10)
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    for row in given:
        run(lake.catalog, f"insert into public.plain values ({', '.join(['%s'] * len(row))})", row)
    _same(lake, "native")


def test_times_outside_four_digits_of_a_year_are_written_as_postgres_writes_them() -> None:
    days = pa.array([-(2**31) + 1, 2**31 - 1, None, 2932897, days_of(-43, 3, 15)], pa.date32())
    assert write_task.texts(days).to_pylist() == ["-infinity", "infinity", None, "10000-01-01", "0044-03-15 BC"]
    micros = pa.array([2**63 - 1, -62135596800000001, 0], pa.timestamp("us", "Asia/Tokyo"))
    assert write_task.texts(micros).to_pylist() == [
        "infinity",
        "0001-12-31 23:59:59.999999+00 BC",
        "1970-01-01 00:00:00+00",
    ]


MISFITS = [
    ("b", types.IntegerType()), ("i4", types.StringType()), ("tz", types.DateType()), ("t", types.TimestampType()), ("d", types.TimestampNTZType()),
    ("s", types.IntegerType()), ("i8", types.DecimalType(10, 0)), ("x", types.ArrayType(types.ByteType())), ("ints", types.IntegerType()),
    ("stamps", types.ArrayType(types.TimestampNTZType())), ("j", types.MapType(types.StringType(), types.StringType())), ("f8", types.BooleanType()),
]  # fmt: skip


@pytest.mark.slow
def test_a_type_that_could_mean_something_else_is_refused(lake: Lake) -> None:
    run(lake.catalog, "create domain public.small as smallint check (value > 0)")
    columns = NATIVE.replace("\n", " ")
    run(lake.catalog, f"create table public.native (id int primary key, {columns}) partition by range (id)")
    run(lake.catalog, "create table public.native_1 partition of public.native for values from (0) to (100)")
    lake.add("native", hot="500")
    for name, kind in MISFITS:
        df = lake.session().createDataFrame(
            [], types.StructType([types.StructField("id", types.IntegerType()), types.StructField(name, kind)])
        )
        if isinstance(kind, types.StringType):
            assert spark.write(df, "native", dsn=lake.dsn) == Written(0)
            continue
        with pytest.raises(UsageError, match=f"column {name} of public.native is .*, the DataFrame's is"):
            spark.write(df, "native", dsn=lake.dsn)


@pytest.mark.slow
@pytest.mark.parametrize("name", first(1, ["a.\"b\" `c` %s {} 'd'; --", "select", "attempt", "c0", "Ünï 雪🧊\n"]))
def test_names_may_be_anything(lake: Lake, name: str) -> None:
    table, key, note = (sql.Identifier(each) for each in (name, name + "1", name))
    create = sql.SQL(
        "create table public.{0} ({1} int primary key, {2} text not null) partition by range ({1});"
        "create table public.part_1 partition of public.{0} for values from (0) to (100);"
        "create table public.part_2 partition of public.{0} for values from (100) to (2000);"
        "insert into public.{0} values (1, 'one'), (1000, 'thousand')"
    )
    lake.catalog.execute(create.format(table, key, note))
    quoted = str(Name("public", name))
    lake.add(quoted, hot="500")
    assert lake.archive(quoted)[0].error is None
    df = lake.session().createDataFrame([(1, "eins"), (2, "zwei"), (1000, "tausend")], "a int, b string")
    df = df.toDF(name + "1", name).coalesce(1)
    assert spark.write(df, quoted, "upsert", dsn=lake.dsn, label=name) == Written(3, inserted=1, updated=2)
    assert not spark.write(df, quoted, "upsert", dsn=lake.dsn, label=name).applied
    shown = sql.SQL("select {1}, {2} from public.{0} order by 1").format(table, key, note)
    assert lake.catalog.execute(shown).fetchall() == [(1, "eins"), (2, "zwei"), (1000, "tausend")]
    assert spark.write(df, quoted, "delete", dsn=lake.dsn) == Written(3, deleted=3)
    assert lake.catalog.execute(shown).fetchall() == []


def test_a_role_with_grants_writes_what_it_may(lake: Lake) -> None:
    make_twins(lake)
    df = frame(lake.session(), [new(1000, hot=True), new(1001, hot=False)], 1)
    labels = "select count(*) from frostline.applied_batch"
    with role(lake.dsn, "spark app") as dsn:
        with pytest.raises(UsageError, match="permission denied for schema frostline_stage") as caught:
            spark.write(df, "events", dsn=dsn)
        run(lake.catalog, 'grant usage, create on schema frostline_stage to "spark app"')
        with pytest.raises(UsageError, match="permission denied for function begin_batch"):
            spark.write(df, "events", dsn=dsn, label="a")
        assert str(caught.value.hint).startswith('grant usage, create on schema frostline_stage to "spark app"; ')
        for statement in str(caught.value.hint).split("; "):
            run(lake.catalog, statement)
        with pytest.raises(UsageError, match=r"append to public\.events: permission denied") as caught:
            spark.write(df, "events", dsn=dsn, label="a")
        assert caught.value.hint == 'frostline grant "spark app" public.events'
        _may_not_take_labels(lake, dsn)
        assert value(lake.catalog, labels) == 0
        grants.grant(lake.catalog, "spark app", [lake.table()])
        assert spark.write(df, "events", dsn=dsn, label="a") == Written(2, inserted=2)
        assert spark.write(df, "events", "upsert", dsn=dsn, label="b") == Written(2, updated=2)
        assert spark.write(df, "events", "delete", dsn=dsn, label="c") == Written(2, deleted=2)
        assert not spark.write(df, "events", "delete", dsn=dsn, label="c").applied
        with psycopg.connect(dsn, autocommit=True) as connection:
            run(connection, "select frostline_stage.begin_batch('public', 'events', 'mine', 'append', 0)")
        assert spark.write(df, "events", dsn=lake.dsn, label="mine") == Written(2, inserted=2)
        assert value(lake.catalog, labels) == 5


def _may_not_take_labels(lake: Lake, dsn: str) -> None:
    """Nor by claiming to be somebody else, nor by writing them."""
    claim = "select frostline_stage.begin_batch('public', 'events', 'x', 'append', 1)"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (claim, "insert into frostline.applied_batch values (1, 'x', 'append', 1)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(connection, statement)
        with pytest.raises(psycopg.errors.UndefinedFunction):
            run(connection, "select frostline_stage.begin_batch('public', 'events', 'x', 'append')")
