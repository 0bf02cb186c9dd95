"""`spark.read.format("frostline")` and `using frostline`: one point for all actions, the rows of both tiers."""

import gc
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import AuthenticationError
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from tests.fixtures.cold_twins import change, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.sparkrows import HOLDERS, in_postgres, in_spark, nothing_is_held
from tests.fixtures.statements import run, value
from tests.fixtures.type_zoo import EVERY_KIND, OPTIONAL, SETUP, Kind

from frostline import spark as connector
from frostline.errors import UsageError
from frostline.spark import keeper, source
from frostline.spark.keeper import KEEPER
from frostline.spark.source import FrostlineReader, Task
from frostline.tiers import files as tier_files
from frostline.tiers.pieces import LakePiece, Part
from frostline.tiers.shards import Shard

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released"), pytest.mark.slow]

Result = TypeVar("Result")

DISTINCT_POINTS = "a source that is made more than once for a DataFrame takes another point each time"


@pytest.fixture
def events(lake: Lake) -> Lake:
    """`events` with rows in the heap, in the lake and in the overlay."""
    make_archived(lake)
    change(lake)
    connector.register(lake.session())
    return lake


def load(lake: Lake, table: str = "public.events", **options: str) -> DataFrame:
    reader = lake.session().read.format("frostline").option("dsn", lake.dsn).option("table", table)
    return reader.options(**options).load()


def shown(lake: Lake, table: str = "public.events", where: str = "true", columns: str = "*") -> list[Any]:
    with lake.connect() as connection:
        return in_postgres(connection, table, where, columns)


def test_every_action_shows_the_one_point_of_the_load(events: Lake) -> None:
    before, frame = shown(events), load(events)
    run(events.catalog, "delete from public.events where id % 3 = 0; update public.events set amount = 7 where id < 30")
    events.fold("events")
    assert in_spark(frame) == before
    joined = frame.join(frame.select("id", "ts").withColumnRenamed("amount", "other"), ["id", "ts"])
    assert joined.count() == len(before)
    assert frame.cache().count() == len(before)
    frame.unpersist()
    assert in_spark(frame.where("ts >= '2024-02-01' and ts < '2024-03-01'").select("id")) == sorted(
        ((row[0],) for row in before if 1706745600000000 <= row[1] < 1709251200000000), key=repr
    )
    assert (len(KEEPER.ids()), value(events.catalog, HOLDERS)) == (1, 1), DISTINCT_POINTS
    assert in_spark(load(events)) == shown(events) != before
    connector.release(frame.where("id > 3").select("status"))
    assert len(KEEPER.ids()) == 1
    connector.release()
    assert nothing_is_held(events)
    with pytest.raises(PySparkException, match=r"point in time of this DataFrame is gone"):
        frame.collect()


@pytest.mark.quick
def test_spark_sql_reads_a_table(events: Lake) -> None:
    spark = events.session()
    connector.register(spark, dsn=events.dsn)
    spark.sql("create or replace temporary view events using frostline options (table 'public.events')")
    counted = spark.sql("select status, count(*), sum(amount) from events where ts < '2024-03-05' group by status")
    query = "select status, count(*), sum(amount) from public.events where ts < '2024-03-05+00' group by status"
    assert sorted(map(tuple, counted.collect()), key=repr) == sorted(run(events.catalog, query).fetchall(), key=repr)
    assert spark.sql("select * from events e join events f using (id, ts)").count() == len(shown(events))
    assert len(KEEPER.ids()) == 1, DISTINCT_POINTS
    spark.catalog.dropTempView("events")


JANUARY, FEBRUARY, YEAR_2090 = (
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 1, tzinfo=UTC),
    datetime(2090, 1, 1, tzinfo=UTC),
)
KEY = ("ts",)
FILTERS: list[tuple[list[Filter], int, set[str]]] = [
    ([], 3, {"events_hot", "events_default", "events_1"}),
    ([GreaterThanOrEqual(KEY, YEAR_2090)], 0, {"events_hot", "events_default"}),
    ([LessThan(KEY, JANUARY)], 0, {"events_1"}),
    ([EqualTo(KEY, FEBRUARY + timedelta(hours=2))], 1, {"events_1"}),
    ([In(KEY, (JANUARY + timedelta(hours=3), FEBRUARY + timedelta(hours=3)))], 2, {"events_1"}),
    (
        [Not(EqualTo(KEY, JANUARY)), EqualTo(("id",), 3), IsNotNull(KEY)],
        3,
        {"events_hot", "events_default", "events_1"},
    ),
    ([GreaterThan(KEY, FEBRUARY), LessThanOrEqual(KEY, JANUARY)], 0, set()),
    ([GreaterThan(KEY, datetime(2200, 1, 1, tzinfo=UTC))], 0, {"events_default"}),
]


def test_filters_leave_files_and_partitions_out(events: Lake) -> None:
    """What Spark hands over is what tasks are made for; `events_1` is the overlay."""
    kept = KEEPER.take(events.dsn, None, ["events"], None)
    at = kept.point.tables["events"]
    for filters, files, targets in FILTERS:
        reader = FrostlineReader(
            source.reading(kept.point.moment, None, at, Part.ALL, tier_files.shown_names(at.table))
        )
        assert reader.pushFilters(filters) == filters
        cut = [partition.piece for partition in reader.partitions() if isinstance(partition, Task)]
        assert sum(len(piece.files) for piece in cut if isinstance(piece, LakePiece)) == files, filters
        assert {piece.target.name.table for piece in cut if isinstance(piece, Shard)} == targets, filters
    frame = load(events)
    for condition in ("ts < '2024-01-01 05:00:00'", "ts > '2200-01-01'"):
        assert in_spark(frame.where(condition)) == shown(events, where=condition.replace("'2", "timestamptz '2"))


def test_pyspark_has_little_to_look_through_between_two_tasks(events: Lake) -> None:
    """It collects garbage after each. All imported modules together took it longer than a task of a small table."""
    kept = KEEPER.take(events.dsn, None, ["events"], None)
    at = kept.point.tables["events"]
    reader = FrostlineReader(source.reading(kept.point.moment, None, at, Part.HOT, tier_files.shown_names(at.table)))
    pieces = _leaves_nothing_to_collect(reader.partitions)
    assert sum(map(len, (_leaves_nothing_to_collect(partial(_read, reader, piece)) for piece in pieces)))


def _read(reader: FrostlineReader, piece: InputPartition) -> list[pa.RecordBatch]:
    return list(reader.read(piece))


def _leaves_nothing_to_collect(call: Callable[[], Result]) -> Result:
    gc.unfreeze()
    try:
        result = call()
        assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()
    return result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "public.nothing"}, "public.nothing is not managed by Frostline"),
        ({"tabel": "x"}, "unknown option 'tabel'"),
        ({"columns": "id,nope"}, "public.events has no column 'nope'"),
        ({"as_of": "17"}, "does not have the lake snapshot 17"),
        ({"as_of": "2001-01-01T00:00:00+00:00"}, "does not have the state of 2001-01-01"),
        ({"as_of": "nightly"}, "snapshot 'nightly' has no table public.events"),
    ],
)
def test_a_wrong_option_is_told(events: Lake, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        load(events, **options)


def test_columns_can_be_chosen_and_a_schema_cannot(events: Lake) -> None:
    assert in_spark(load(events, columns="status, id")) == shown(events, columns="status, id")
    spark = events.session()
    reader = spark.read.format("frostline").option("dsn", events.dsn).option("table", "events")
    with pytest.raises(PySparkException, match="a schema of your own cannot be given"):
        reader.schema("id int").load().collect()


def test_a_lost_holder_is_an_error(events: Lake) -> None:
    frame = load(events)
    run(
        events.catalog,
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'frostline snapshot'",
    )
    with pytest.raises(PySparkException, match="point in time of this DataFrame is gone"):
        frame.collect()


def test_points_of_a_postgres_that_is_gone_end_with_the_process_and_without_a_word(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """What is logged so late goes to a file that may be closed already."""
    make_archived(lake)
    own = keeper.Keeper()
    kept = [own.take(lake.dsn, None, ["events"], None) for _ in range(2)]
    run(
        lake.catalog,
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity where application_name like 'frostline %' and datname = current_database() and pid <> pg_backend_pid()",
    )
    own.release(kept[0].id)
    assert "stage=release" in caplog.text
    caplog.clear()
    own._at_exit(os.getpid())
    assert (own.ids(), caplog.text) == ([], "")


def test_the_keeper_answers_only_those_who_know_the_secret() -> None:
    address = KEEPER.address()
    stranger = keeper.Address(address.port, b"guess")
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        keeper.ask(stranger, keeper.Request(tables=("events",)))
    assert KEEPER.address() is address
    with pytest.raises(UsageError, match="the point in time of this DataFrame was released"):
        keeper.ask(address, keeper.Request(point_id="none"))


def test_a_lake_in_an_object_store_is_read_by_the_tasks(s3_lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """Without a jar Spark cannot open it itself."""
    make_archived(s3_lake)
    change(s3_lake)
    connector.register(s3_lake.session(), dsn=s3_lake.dsn)
    expected = shown(s3_lake)
    assert in_spark(connector.read(s3_lake.session(), "events", dsn=s3_lake.dsn)) == expected
    assert "Spark has no reader of this store" in caplog.text
    assert in_spark(load(s3_lake)) == expected
    connector.release()


# Types.

NATIVE_TIMES = ("date", "timestamp", "timestamptz", "timestamptz_0", "timestamp_3")


@pytest.fixture
def zoo(lake: Lake) -> Sequence[Kind]:
    """`zoo`: every hard value twice, cold and hot, but for those that Spark has no value like."""
    run(lake.catalog, SETUP)
    kinds = [kind for kind in EVERY_KIND if kind.name not in OPTIONAL or _is_available(lake, OPTIONAL[kind.name])]
    columns = ", ".join(f"{kind.column} {kind.type}" for kind in kinds)
    run(
        lake.catalog,
        f"create table public.zoo (id int primary key, {columns}) partition by range (id);"
        "create table public.zoo_1 partition of public.zoo for values from (0) to (100);"
        "create table public.zoo_2 partition of public.zoo for values from (100) to (2000)",
    )
    for number in range(max(len(kind.values) for kind in kinds) + 1):
        for row in (number, number + 1000):
            _insert(lake, kinds, row, number)
    lake.add("zoo", hot="500")
    (result,) = lake.archive("zoo")
    assert result.error is None
    run(
        lake.catalog, "update public.zoo set id = id where id = 1; update public.zoo set bool_ = not bool_ where id = 2"
    )
    return kinds


def _is_available(lake: Lake, statement: str) -> bool:
    try:
        run(lake.catalog, statement)
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
        return False
    return True


def _insert(lake: Lake, kinds: Sequence[Kind], row: int, number: int) -> None:
    given = [kind.values[number] if number < len(kind.values) else None for kind in kinds]
    finite = [
        None if kind.name in NATIVE_TIMES and text in ("infinity", "-infinity") else text
        for kind, text in zip(kinds, given, strict=True)
    ]
    places = ", ".join(f"%s::text::{kind.type.partition(' collate ')[0]}" for kind in kinds)
    run(lake.catalog, f"insert into public.zoo values ({row}, {places})", finite)


def test_every_value_of_every_type_arrives(lake: Lake, zoo: Sequence[Kind]) -> None:
    with lake.connect() as connection:
        expected = in_postgres(connection, "public.zoo", texts=("num_3_neg_", "positive_"))
    assert len(expected) > 20
    connector.register(lake.session())
    for frame in (connector.read(lake.session(), "zoo", dsn=lake.dsn), load(lake, "zoo")):
        assert frame.columns == ["id", *(kind.column for kind in zoo)]
        pairs = zip(zip(*in_spark(frame), strict=True), zip(*expected, strict=True), strict=True)
        texts = [(list(map(repr, there)), list(map(repr, here))) for there, here in pairs]
        assert not [(name, *pair) for name, pair in zip(frame.columns, texts, strict=True) if pair[0] != pair[1]]


ENDS = """
create table public.ends (id int primary key, d date, t timestamp, z timestamptz, n numeric(12,2)) partition by range (id);
create table public.ends_1 partition of public.ends for values from (0) to (100);
create table public.ends_2 partition of public.ends for values from (100) to (2000);
"""
REFUSED = ["d = '-infinity'", "t = 'infinity'", "z = 'infinity'", "z = '294250-01-01+00'", "n = 'NaN'"]


def test_what_spark_has_no_value_for_is_refused(lake: Lake) -> None:
    run(lake.catalog, ENDS + "insert into public.ends values (1000), (1001)")
    lake.add("ends", hot="500")
    for value_ in REFUSED:
        run(lake.catalog, f"update public.ends set {value_} where id = 1001")
        with pytest.raises(PySparkException, match=f"cannot be held by Spark: column '{value_[0]}' is .*leave it out"):
            connector.read(lake.session(), "ends", dsn=lake.dsn).collect()
        rest = [name for name in ("id", "d", "t", "z", "n") if name != value_[0]]
        assert connector.read(lake.session(), "ends", dsn=lake.dsn, columns=rest).count() == 2
        run(lake.catalog, f"update public.ends set {value_[0]} = null where id = 1001")


def test_infinity_in_the_lake_is_refused(lake: Lake) -> None:
    rows = "(1, '-infinity', 'infinity', 'infinity'), (2, '2024-01-01', null, '2024-01-01'), (1000, null, null, null)"
    run(lake.catalog, ENDS + f"insert into public.ends values {rows}")
    lake.add("ends", hot="500")
    (result,) = lake.archive("ends")
    assert result.error is None
    connector.register(lake.session())
    for column in ("d", "t", "z"):
        with pytest.raises(UsageError, match=f"column '{column}' of public.ends holds infinity"):
            connector.read(lake.session(), "ends", dsn=lake.dsn, columns=["id", column])
        with pytest.raises(PySparkException, match=f"column '{column}' of public.ends holds infinity"):
            load(lake, "ends", columns=f"id,{column}").collect()
        with pytest.raises(UsageError, match=f"column '{column}' of public.ends holds infinity"):
            connector.read(lake.session(), "ends", dsn=lake.dsn, columns=["id"], where=f"{column} is not null")
    assert connector.read(lake.session(), "ends", dsn=lake.dsn, columns=["id"], where="id > 1").count() == 2
    assert load(lake, "ends", columns="id").count() == 3
