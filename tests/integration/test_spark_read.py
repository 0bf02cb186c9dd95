"""Reading a managed table from Spark: every result is what Postgres shows over the relation at that moment."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from tests.fixtures import copies
from tests.fixtures.cold_twins import change, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.sparkrows import HOLDERS, at_the_point, in_postgres, in_spark, nothing_is_held, plan
from tests.fixtures.statements import run, value
from tests.fixtures.states import expired

from frostline import spark as connector
from frostline.catalog import seams
from frostline.errors import UsageError
from frostline.relation import following
from frostline.spark.frames import _Frame
from frostline.spark.keeper import KEEPER

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

ARCHIVE_ALL = {"hot": "1 month", "grace": "10 years", "snapshot_retention": "0"}


@pytest.fixture(scope="module")
def changed(shared_lake: Lake) -> Lake:
    """`events` with rows in the heap, in the lake and in the overlay, and tables that lack some of these."""
    make_archived(shared_lake)
    change(shared_lake)
    _kinds(shared_lake)
    return shared_lake


def _kinds(lake: Lake) -> None:
    run(lake.catalog, SMALL_TABLES)
    widths = {"wide": "1000", "narrow": "100"}
    for name in ("hot_only", "cold_only", "overlay_only", "empty", "dated", "unzoned", "wide", "narrow"):
        lake.add(name, hot=widths.get(name, "1 month"), grace="10 years")
    run(lake.catalog, "insert into public.narrow values (400, 400)")
    for result in lake.archive("cold_only", "overlay_only", "dated", "unzoned", "wide", "narrow"):
        assert result.error is None
    run(lake.catalog, "delete from public.overlay_only; insert into public.overlay_only values (7, '2024-01-07', 'x')")
    run(lake.catalog, "update public.wide set note = 'new' where tenant = 'a,b' and n < 30")
    run(lake.catalog, "delete from public.wide where n = 40; delete from public.dated where id = 3")
    run(lake.catalog, "delete from public.narrow where id = 5; insert into public.narrow values (6, -6)")
    run(lake.catalog, "update public.unzoned set note = 'changed' where id = 2")


SMALL_TABLES = """
create table public.hot_only (id int, ts timestamptz, note text, primary key (id, ts)) partition by range (ts);
create table public.hot_only_1 partition of public.hot_only for values from ('2090-01-01+00') to ('2091-01-01+00');
insert into public.hot_only select i, '2090-03-01+00', 'note ' || i from generate_series(1, 10) i;
create table public.empty (like public.hot_only including all) partition by range (ts);
create table public.empty_1 partition of public.empty for values from ('2090-01-01+00') to ('2091-01-01+00');
create table public.cold_only (like public.hot_only including all) partition by range (ts);
create table public.cold_only_1 partition of public.cold_only for values from ('2024-01-01+00') to ('2024-02-01+00');
insert into public.cold_only select i, '2024-01-02+00', 'note ' || i from generate_series(1, 10) i;
create table public.overlay_only (like public.hot_only including all) partition by range (ts);
create table public.overlay_only_1 partition of public.overlay_only for values from ('2024-01-01+00') to ('2024-02-01+00');
insert into public.overlay_only select i, '2024-01-02+00', 'note ' || i from generate_series(1, 10) i;
create table public.dated (id int, d date, note text, primary key (id, d)) partition by range (d);
create table public.dated_1 partition of public.dated for values from ('2024-01-01') to ('2024-02-01');
create table public.dated_2 partition of public.dated for values from ('2090-01-01') to ('2090-02-01');
insert into public.dated select i, date '2024-01-01' + i, 'x' from generate_series(0, 20) i;
insert into public.dated select i, date '2090-01-01' + i, 'x' from generate_series(0, 20) i;
create table public.narrow (id int, k smallint, primary key (id, k)) partition by range (k);
create table public.narrow_1 partition of public.narrow for values from (0) to (100);
insert into public.narrow select i, i from generate_series(0, 99) i;
create table public.unzoned (id int, ts timestamp, note text, primary key (id, ts)) partition by range (ts);
create table public.unzoned_1 partition of public.unzoned for values from ('2024-01-01') to ('2024-02-01');
create table public.unzoned_2 partition of public.unzoned for values from ('2090-01-01') to ('2090-02-01');
insert into public.unzoned select i, timestamp '2024-01-01 00:00:00.000001' + i * interval '1 day', 'x' from generate_series(0, 20) i;
insert into public.unzoned select i, timestamp '2090-01-01 00:00:00.000001' + i * interval '1 day', 'x' from generate_series(0, 20) i;
create table public.wide (tenant text, n int, u uuid, day date, note text, "No te" text, primary key (tenant, n, u, day))
    partition by range (n);
create table public.wide_1 partition of public.wide for values from (0) to (1000);
create table public.wide_2 partition of public.wide for values from (1000) to (100000);
insert into public.wide select t, i, md5(i::text)::uuid, date '2024-01-01' + i, 'old', null
  from unnest(array['a,b', E'a\\x1fb', 'é', '']) t, generate_series(10, 50) i;
insert into public.wide select 'a,b', i, md5(i::text)::uuid, date '2024-01-01', 'old', 'y' from generate_series(5000, 5010) i;
"""
TABLES = ["events", "hot_only", "empty", "cold_only", "overlay_only", "dated", "unzoned", "wide"]


def read(lake: Lake, table: str = "public.events", **options: Any) -> DataFrame:
    return connector.read(lake.session(), table, dsn=lake.dsn, **options)


def shown(lake: Lake, table: str = "public.events", where: str = "true", columns: str = "*") -> list[Any]:
    with lake.connect() as connection:
        return in_postgres(connection, table, where, columns)


@pytest.mark.parametrize("table", some(TABLES, "events", "overlay_only", "wide"))
def test_a_table_is_the_same_in_spark_and_in_postgres(changed: Lake, table: str) -> None:
    frame = read(changed, table)
    assert in_spark(frame) == shown(changed, f"public.{table}")
    assert frame.columns == [shown_column[0] for shown_column in _columns(changed, table)]


def _columns(lake: Lake, table: str) -> list[Any]:
    query = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum"
    return run(lake.catalog, query, [f"public.{table}"]).fetchall()


CONDITIONS = [
    ("events", "ts < '2024-02-10'", "ts < '2024-02-10'"),
    ("events", "timestamp'2024-03-05 03:00:00' <= ts", "ts >= '2024-03-05 03:00:00'"),
    ("events", "ts between '2024-01-20' and '2090-01-01 07:00:00' and status like 'row %'", None),
    ("events", "ts in ('2024-01-01 01:00:00', '2090-01-01 02:00:00')", None),
    ("events", "ts < '2024-02-10' or id = 70", None),
    ("events", "ts > '2100-01-01'", None),
    ("events", "1 = 1", None),
    ("dated", "d >= '2024-01-15' and d < '2090-01-03'", None),
    ("dated", "d = '2024-01-15'", None),
    ("narrow", "k > 50", None),
    ("narrow", "k >= 100000", None),
    ("narrow", "k = -100000 or k <= -100000", None),
    ("narrow", "k <= -5", None),
    ("unzoned", "ts >= '2024-01-15 00:00:00.000001' and ts < '2090-01-03'", None),
    ("wide", "n > 20.5 and n <= 5003 and tenant = 'a,b'", None),
]


@pytest.mark.parametrize(("table", "condition", "in_sql"), first(2, CONDITIONS))
def test_a_condition_means_what_it_means_in_spark(
    changed: Lake, table: str, condition: str, in_sql: str | None
) -> None:
    """Its literals are in the session's time zone."""
    spark = changed.session()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = read(changed, table, where=condition)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    with changed.connect() as connection:
        run(connection, "set timezone = 'America/New_York'")
        query = f"select count(*) from public.{table} where {in_sql or condition}"
        assert frame.count() == value(connection, query)


def test_a_condition_leaves_files_and_partitions_out(changed: Lake) -> None:
    assert len(read(changed).inputFiles()) == 3
    february = read(changed, where="ts >= '2024-02-01' and ts < '2024-02-20'")
    assert len(february.inputFiles()) == 1
    assert in_spark(february) == shown(changed, where="ts >= '2024-02-01' and ts < '2024-02-20'")
    hot = read(changed, where="ts >= '2090-01-01'")
    assert hot.inputFiles() == []
    assert in_spark(hot) == shown(changed, where="ts >= '2090-01-01'")


def test_spark_prunes_columns_and_pushes_filters_to_parquet(changed: Lake) -> None:
    frame = read(changed, "public.cold_only").where("note = 'note 3'").select("id")
    text = plan(frame)
    assert "ReadSchema: struct<id:int,note:string>" in text
    assert "EqualTo(note,note 3)" in text.partition("PushedFilters")[2]
    assert "Batched: true" in text
    assert "BatchScan" not in text  # nothing is asked of Postgres
    assert [row[0] for row in frame.collect()] == [3]


def test_only_the_wanted_columns_come_and_others_may_be_in_the_condition(changed: Lake) -> None:
    frame = read(changed, columns=["amount", "id"], where="status like 'row 1%' and ts < '2090-01-01 12:00:00'")
    assert frame.columns == ["amount", "id"]
    condition = "status like 'row 1%' and ts < '2090-01-01 12:00:00+00'"
    assert in_spark(frame) == shown(changed, where=condition, columns="amount, id")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "public.nothing"}, "public.nothing is not managed"),
        ({"table": "a.b.c"}, "not a table name: 'a.b.c'"),
        ({"columns": ["id", "nope"]}, "public.events has no column 'nope'"),
        ({"where": "nope > 3"}, "where 'nope > 3': "),
        ({"where": "id >"}, "where 'id >': "),
        ({"as_of": 123}, "the lake of public.events does not have the lake snapshot 123"),
        ({"as_of": "nightly"}, "snapshot 'nightly' has no table public.events"),
        ({"as_of": datetime(2020, 1, 1)}, "as_of 2020-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
    ],
)
def test_a_wrong_request_is_told_and_holds_nothing(changed: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(changed, **options)
    assert str(refused.value).startswith(message)
    assert refused.value.hint
    assert "\n" not in str(refused.value)
    assert nothing_is_held(changed)


def test_pins_and_snapshots_go_with_the_release(changed: Lake) -> None:
    first = read(changed)
    tables = connector.read_many(changed.session(), ["public.events", "dated"], dsn=changed.dsn)
    assert (value(changed.catalog, "select count(*) from frostline.pin"), value(changed.catalog, HOLDERS)) == (3, 2)
    connector.release(tables["dated"].select("id"))
    assert value(changed.catalog, "select count(*) from frostline.pin") == 1
    connector.release(first)
    connector.release(first)
    assert nothing_is_held(changed)
    with connector.reading(changed.session(), "events", dsn=changed.dsn) as frame:
        assert frame.count() == value(changed.catalog, "select count(*) from public.plain")
    assert nothing_is_held(changed)
    with pytest.raises(PySparkException, match="point in time of this DataFrame is gone"):
        frame.count()


def test_a_view_answers_spark_sql(changed: Lake) -> None:
    connector.view(changed.session(), "cold_events", "public.events", dsn=changed.dsn, where="ts < '2024-04-01'")
    rows = changed.session().sql("select status, count(*) from cold_events group by status order by status nulls last")
    in_sql = "select status, count(*) from public.events where ts < '2024-04-01+00' group by status order by status collate \"C\""
    assert [tuple(row) for row in rows.collect()] == run(changed.catalog, in_sql).fetchall()


@pytest.mark.slow
def test_a_role_with_row_security_is_refused(changed: Lake) -> None:
    run(
        changed.catalog,
        "alter table public._dated enable row level security; alter table public._dated force row level security",
    )
    run(changed.catalog, "drop role if exists spark_reader; create role spark_reader login password 'x'")
    run(
        changed.catalog,
        "grant all on schema frostline, frostline_overlay to spark_reader; grant all on all tables in schema frostline, frostline_overlay, public to spark_reader",
    )
    try:
        dsn = make_conninfo(changed.dsn, user="spark_reader", password="x")
        with pytest.raises(UsageError, match=r"row security of public\.dated applies to this role"):
            connector.read(changed.session(), "dated", dsn=dsn)
    finally:
        run(
            changed.catalog,
            "alter table public._dated no force row level security; alter table public._dated disable row level security",
        )
        run(changed.catalog, "drop owned by spark_reader; drop role spark_reader")


# What others do between the point and an action.


@pytest.fixture
def events(lake: Lake) -> Iterator[Lake]:
    """`events` with the usual rows; the lake's old states may go at once."""
    make_archived(lake, **ARCHIVE_ALL)
    yield lake
    connector.release()


@pytest.mark.slow
def test_an_archive_between_the_point_and_the_action_changes_nothing(lake: Lake) -> None:
    make_archived(lake, hot="500 years", grace="0")  # nothing is archived yet
    before, frame = shown(lake), read(lake)
    run(lake.catalog, "update frostline.managed_table set hot_interval = '1 month', snapshot_retention = '0'")
    (result,) = lake.archive("events")
    assert (result.error, result.partitions) == (None, 3)
    change(lake)
    assert lake.clean().waiting  # for us
    assert in_spark(frame) == before
    assert in_spark(read(lake)) == shown(lake) != before


@pytest.mark.slow
def test_fold_clean_and_expiry_between_two_actions_change_nothing(events: Lake) -> None:
    change(events)
    before, frame = shown(events), read(events)
    assert in_spark(frame) == before
    run(events.catalog, "update frostline.managed_table set grace_period = '0'")
    for _ in range(2):
        run(
            events.catalog,
            "update public.events set amount = 1000 where id < 60; update public.events set ts = ts + interval '1 day' where id = 9",
        )
        (folded,) = events.fold("events")
        assert folded.error is None
    events.clean()
    assert any("pinned" in reason for reason in expired(events).waiting)
    assert in_spark(frame) == before
    assert in_spark(frame.where("ts < '2024-02-01'")) == [row for row in before if row[1] < 1706745600000000]
    assert in_spark(read(events)) == shown(events) != before
    connector.release()
    assert expired(events).snapshots > 0


@pytest.mark.slow
def test_a_lost_holder_is_an_error_and_never_other_rows(events: Lake) -> None:
    change(events)
    frame = read(events)
    assert frame.count() > 0
    run(
        events.catalog,
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'frostline snapshot'",
    )
    run(events.catalog, "delete from public.events where id > 10")
    for action in (frame, frame.where("ts > '2090-01-01'"), frame.where("ts < '2024-02-01'")):
        with pytest.raises(PySparkException, match=r"point in time of this DataFrame is gone.*read the table again"):
            action.collect()
    connector.release(frame)
    assert nothing_is_held(events)


@pytest.mark.parametrize(
    "statement",
    first(1, ["truncate public.events_hot", "vacuum full public.events_hot", "drop table public.events_hot"]),
)
def test_a_partition_that_was_rewritten_is_an_error_and_never_fewer_rows(events: Lake, statement: str) -> None:
    frame = read(events)
    assert frame.count() == 80
    run(events.catalog, statement)
    with pytest.raises(PySparkException, match=r"emptied or rewritten after the point in time|is not the table it was"):
        frame.collect()


@pytest.mark.slow
def test_a_snapshot_of_the_same_name_is_not_taken_for_the_points_own(events: Lake) -> None:
    """After a restart of the server the names begin anew."""
    kept = KEEPER.take(events.dsn, None, ["events"], None)
    moment = replace(kept.point.moment, horizon="1:1:")
    KEEPER._held[kept.id] = (replace(kept, point=replace(kept.point, moment=moment)), KEEPER._held[kept.id][1])
    frame = _Frame.of(events.session(), KEEPER.get(kept.id), "events", None, None).build()
    with pytest.raises(PySparkException, match="point in time of this DataFrame is gone"):
        frame.collect()


@pytest.mark.slow
def test_rows_above_a_line_that_was_lowered_by_hand_come_from_the_heap(events: Lake) -> None:
    """No job leaves a file across the line; should one be there, its rows above are not shown twice."""
    run(events.catalog, "update frostline.seam set line_timestamptz = '2024-02-01 05:00:00+00'")
    run(events.catalog, "update public._events set status = 'heap' where id = 30")
    frame = read(events)
    assert in_spark(frame) == shown(events)
    assert frame.count() == 80


@pytest.mark.slow
def test_tables_of_one_point_are_of_one_transaction(lake: Lake) -> None:
    """A writer moves amounts from one table to the other; archives and folds run meanwhile."""
    make_archived(lake, hot="1 month", grace="0")
    for name in ("_events", "plain"):
        run(lake.catalog, f"alter table public.{name} drop constraint {name.strip('_')}_amount_check")
    run(lake.catalog, "create table public.other (like public.plain including all) partition by range (ts)")
    run(
        lake.catalog,
        "create table public.other_1 partition of public.other for values from ('2024-01-01+00') to ('2024-04-01+00'); create table public.other_2 partition of public.other for values from ('2090-01-01+00') to ('2091-01-01+00'); insert into public.other select * from public.plain",
    )
    lake.add("other", hot="1 month", grace="0")
    total = value(lake.catalog, "select sum(amount) from public.plain") * 2
    done = threading.Event()
    writer = threading.Thread(target=_move, args=(lake, done))
    writer.start()
    try:
        for step in (lambda: lake.archive("other"), lambda: lake.clean("other"), lake.fold):
            frames = connector.read_many(lake.session(), ["events", "other"], dsn=lake.dsn)
            step()
            answers = {table: in_spark(frame) for table, frame in frames.items()}
            with at_the_point(lake) as connection:
                assert answers == {table: in_postgres(connection, f"public.{table}") for table in frames}
            assert sum(row[3] for rows in answers.values() for row in rows) == total
            connector.release()
    finally:
        done.set()
        writer.join()


def _move(lake: Lake, done: threading.Event) -> None:
    """Whole transactions, each of which takes from one table what it gives to the other."""
    with lake.connect() as connection:
        for number in itertools.count():
            if done.is_set():
                return
            amount, row = number % 3 - 1, number % 80 + 1
            try:
                with connection.transaction():
                    for table, change in (("events", 10 * amount), ("other", -10 * amount)):
                        run(connection, f"update public.{table} set amount = amount + {change} where id = {row}")
            except psycopg.errors.SerializationFailure:
                continue


# Columns that changed.


SWAPPED = """
alter table {table} rename status to swapped;
alter table {table} rename data to status;
alter table {table} rename swapped to data;
"""


@pytest.mark.slow
def test_columns_are_found_by_field_id_whatever_the_files_call_them(events: Lake) -> None:
    """Two columns have changed names, and one file was written since: by name, filters would skip the wrong rows."""
    for table in ("public._events", "frostline_overlay.events_1"):
        run(events.catalog, SWAPPED.format(table=table))
    columns = "id, ts, data, amount, status"
    run(
        events.catalog,
        f"insert into frostline_overlay.events_1 ({columns}, frostline_live) "
        f"select id, ts, 'folded', amount, status, true from public._events where id = 5",
    )
    (folded,) = events.fold("events")
    assert (folded.error, folded.written_files) == (None, 1)
    frame = read(events)
    assert frame.columns == columns.split(", ")
    run(events.catalog, "update public.plain set status = 'folded' where id = 5")
    expected = shown(events, "public.plain")
    assert in_spark(frame) == expected
    for text, count in (("row 3", 4), ("folded", 1)):
        rows = in_spark(frame.where(f"data = '{text}'"))
        assert rows == [row for row in expected if row[2] == text]
        assert len(rows) == count


@pytest.mark.slow
def test_a_column_that_older_files_lack_is_null_there(events: Lake) -> None:
    run(events.catalog, "alter table public._events add column extra text")
    following.follow(events.catalog, events.table())
    run(events.catalog, "update public._events set extra = 'here' where ts > '2090-01-01'")
    frame = read(events)
    assert frame.columns == ["id", "ts", "status", "amount", "data", "extra"]
    assert in_spark(frame.select("id", "extra")) == sorted(
        ((i, None if i <= 60 else "here") for i in range(1, 81)), key=repr
    )
    assert frame.where("extra is null").count() == 60


DEFAULTS = {
    "boolean": "true",
    "smallint": "-7",
    "bigint": "9223372036854775807",
    "real": "0.1",
    "double precision": "'-0'",
    "numeric(38,10)": "1234567890123456789012345678.0123456789",
    "date": "'0044-03-15 BC'",
    "timestamp": "'12024-02-29 12:00:00.000001'",
    "timestamptz": "'2024-02-29 12:00:00.123456+05:30'",
    "text": "'it''s'",
    "bytea": "'\\x00ff'",
    "jsonb": """'{"a": 1}'""",
    "uuid": "'7d444840-9dc0-11d1-b245-5ffdce74fad2'",
}


@pytest.mark.parametrize("own_reader", [True, False])
def test_a_column_that_older_files_lack_has_its_missing_value_there(
    events: Lake, monkeypatch: pytest.MonkeyPatch, own_reader: bool
) -> None:
    added = [f"add column c{n} {kind} not null default {text}" for n, (kind, text) in enumerate(DEFAULTS.items())]
    run(events.catalog, f"alter table public._events {', '.join(added)}, add column extra int default 5")
    following.follow(events.catalog, events.table())
    run(events.catalog, "update public.events set extra = null where id % 7 = 0")
    if not own_reader:
        monkeypatch.setattr("frostline.spark.frames._opens", lambda *_: False)
    for job in (lambda: None, events.fold):
        job()
        assert in_spark(read(events)) == shown(events)
        for where in ("extra = 5", "extra is null", "extra <> 5 or c0", "c2 > 0 and c9 = 'it''s'"):
            assert in_spark(read(events, where=where)) == shown(events, where=where)


def test_a_missing_value_that_spark_has_not_is_refused(events: Lake) -> None:
    run(events.catalog, "alter table public._events add column extra date default '-infinity'")
    following.follow(events.catalog, events.table())
    with pytest.raises(UsageError, match=r"'extra' of .* holds infinity"):
        read(events)
    assert read(events, columns=["id"], where="ts < '2024-04-01'").count() == 60


# Earlier states.


def test_the_lake_can_be_read_as_it_was(events: Lake) -> None:
    seam = seams.get(events.catalog, events.table())
    first = seam.snapshot_id
    cold = shown(events, where="ts < '2024-04-01+00'")
    between = value(events.catalog, "select clock_timestamp()")
    change(events)
    (folded,) = events.fold("events")
    assert folded.error is None
    for as_of in (first, between):
        assert in_spark(read(events, as_of=as_of)) == cold
    assert in_spark(read(events, as_of=datetime.now(UTC))) == shown(events, where="ts < '2024-04-01+00'") != cold
    assert in_spark(read(events, as_of=first, where="ts < '2024-02-01'", columns=["id"])) == sorted(
        ((i,) for i in range(1, 21)), key=repr
    )
    with pytest.raises(UsageError, match="does not have the state of 20") as refused:
        read(events, as_of=between - timedelta(days=1))
    assert "snapshot_retention" in (refused.value.hint or "")
    connector.release()
    assert expired(events).snapshots == 1
    for as_of in (first, between):
        with pytest.raises(UsageError, match=r"the lake of public\.events does not have"):
            read(events, as_of=as_of)


@pytest.mark.slow
def test_a_named_snapshot_can_be_read(events: Lake) -> None:
    before = shown(events)
    copies.create(events, "public.events", "public.plain")
    change(events)
    copies.create(events, "public.events", "public.plain")
    run(events.catalog, "delete from public.events where id < 50")
    for name, expected in (("nightly@1", before), ("nightly", shown(events, "public.plain"))):
        tables = connector.read_many(events.session(), ["public.events", "plain"], dsn=events.dsn, as_of=name)
        assert [in_spark(frame) for frame in tables.values()] == [expected, expected]
    with pytest.raises(UsageError, match="snapshot 'nightly@3' has no table"):
        read(events, as_of="nightly@3")
