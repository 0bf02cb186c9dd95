"""The official Iceberg runtime reads, through its own JDBC catalog, whatever Frostline has written."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.other_engines import reader, spark_options
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.model import snapshot as rules
from frostline.pipeline import snapshot
from frostline.pipeline.snapshot_plan import Request


@pytest.fixture
def runtime(lake: Lake) -> Iterator[SparkSession]:
    """Spark with the lake's catalog in its SQL, as a role that may only read it."""
    spark = lake.session().newSession()  # a session remembers the first catalog of a name
    with reader(lake.dsn) as dsn:
        for key, text in spark_options(dsn, str(lake.warehouse)).items():
            spark.conf.set(key, text)
        yield spark


def shown(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows that Postgres shows."""
    with lake.connect() as connection:
        run(connection, "set timezone = 'UTC'")
        return rows(connection, "select id, ts::text, status, amount::text, data::text from events order by id")


def by_runtime(runtime: SparkSession, name: str) -> list[tuple[Any, ...]]:
    """The rows of a lake table, by the official runtime."""
    read_rows = runtime.sql(
        f"""select id, concat(date_format(ts, 'yyyy-MM-dd HH:mm:ss'), '+00') as ts, status,
                   cast(amount as string) as amount, data from frostline.{name} order by id"""
    )
    return [tuple(row) for row in read_rows.collect()]


def test_it_reads_archived_folded_and_compacted_tables(lake: Lake, runtime: SparkSession) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=4, rows_a_month=50)
    lake.add(hot="1 month")
    lake.archive()
    name = f"public.{lake.table().internal}"
    assert [tuple(row)[1] for row in runtime.sql("show tables in frostline.public").collect()] == [
        lake.table().internal
    ]
    archived = shown(lake)
    assert len(archived) >= 150
    assert by_runtime(runtime, name) == archived
    with lake.connect() as connection:
        run(connection, "update events set status = 'changed' where id % 5 = 0")
        run(connection, "delete from events where id % 7 = 0")
    lake.fold()
    folded = shown(lake)
    assert folded != archived
    assert by_runtime(runtime, name) == folded
    lake.compact()
    assert by_runtime(runtime, name) == folded
    history = runtime.sql(f"select is_current_ancestor from frostline.{name}.history").collect()
    assert [row[0] for row in history] == [True] * len(history)
    assert len(history) >= 2


def test_it_reads_every_table_of_a_snapshot(lake: Lake, runtime: SparkSession) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=4, rows_a_month=50)
    run(
        lake.catalog,
        "create table public.plain (a integer, b text); insert into public.plain values (1, 'x'), (null, null)",
    )
    run(lake.catalog, "create table public.nothing (a integer)")
    run(lake.catalog, "alter table public.plain drop column a, add column c numeric(9,3) default 1.5")
    lake.add(hot="1 month")
    lake.archive()
    with lake.connect() as connection:
        run(connection, "update events set status = 'changed' where id % 5 = 0")
        run(connection, "insert into events (ts, status) values (date_trunc('second', now()), 'hot')")
    create(lake)
    assert shown(lake) == by_runtime(runtime, "nightly.public.events")
    plain = runtime.sql(
        "select b, cast(c as string) from frostline.nightly.public.plain order by b nulls last"
    ).collect()
    assert [tuple(row) for row in plain] == [("x", "1.500"), (None, "1.500")]
    assert runtime.table("frostline.nightly.public.nothing").count() == 0
    with lake.connect() as connection:
        run(connection, "delete from events where id % 7 = 0; insert into plain values ('y', 2)")
    create(lake)
    assert shown(lake) == by_runtime(runtime, "nightly.public.events")
    assert runtime.table("frostline.nightly.public.plain").count() == 3


def create(lake: Lake) -> None:
    request = Request("nightly", tuple(rules.parse_patterns(["public.*"])))
    snapshot.create(lake.catalog, lake.session, lake.settings, request, lambda *_: None)
