"""The official Iceberg runtime for Spark uses the catalog server: it makes, writes and evolves lake tables, and reads the others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.fixtures.catalogserver import Served, numbers, serving
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.other_engines import blocks
from tests.fixtures.tables import make_events

from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables


@pytest.fixture
def rest(lake: Lake) -> Iterator[Served]:
    """A catalog server over the lake."""
    with serving(lake.dsn, lake.settings.warehouse) as running:
        yield running


def test_it_creates_writes_evolves_and_reads_as_the_guide_says(lake: Lake, rest: Served) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=2, rows_a_month=50)
    lake.add(hot="1 month")
    lake.archive()
    client, spark = rest.client(write=True), session(lake, rest)
    client.create_namespace("app")
    for statement in (
        blocks("sql", "catalog-server.md")["Spark, with Iceberg's runtime"].strip().rstrip(";").split(";\n")
    ):
        spark.sql(statement)
    client.load_table("app.readings").append(numbers(2, 3, 4))
    assert shown(spark) == [(1, "from Spark"), (2, "new"), (3, "new"), (4, "new")]
    spark.sql("delete from rest.app.readings where id = 2")
    spark.sql("alter table rest.app.readings add column more int")
    spark.sql("alter table rest.app.readings set tblproperties ('colour' = 'red')")
    spark.sql("alter table rest.app.readings unset tblproperties ('colour', 'none')")
    spark.sql("insert into rest.app.readings values (5, 'five', 50)")
    assert shown(spark) == [(1, "from Spark"), (3, "new"), (4, "new"), (5, "five")]
    table = client.load_table("app.readings")
    assert set(table.scan().to_arrow()["id"].to_pylist()) == {1, 3, 4, 5}
    assert "colour" not in table.properties
    spark.sql("create table rest.app.made using iceberg as select id from rest.app.readings")
    spark.sql("create or replace table rest.app.made using iceberg as select id + 1 as id from rest.app.readings")
    spark.sql("alter table rest.app.made rename to app.renamed")
    assert [row[0] for row in spark.sql("select id from rest.app.renamed order by 1").collect()] == [2, 4, 5, 6]
    assert {row[1] for row in spark.sql("show tables in rest.app").collect()} == {"readings", "renamed"}
    spark.sql("drop table rest.app.renamed")
    assert not client.table_exists("app.renamed")
    events = lake.table().internal
    assert spark.table(f"rest.public.{events}").count() == 100
    with pytest.raises(Exception, match="only Frostline commits to"):
        spark.sql(f"delete from rest.public.{events} where id = 1")


def session(lake: Lake, rest: Served) -> SparkSession:
    """Spark with the catalog in its SQL."""
    spark = lake.session().newSession()
    (text,) = blocks("properties", "catalog-server.md").values()
    for line in text.replace("URI", rest.uri).replace("TOKEN", rest.token(write=True)).splitlines():
        spark.conf.set(*line.split(" = ", 1))
    return spark


def shown(spark: SparkSession) -> list[tuple[int, str]]:
    rows = spark.sql("select id, word from rest.app.readings order by id").collect()
    return [(row[0], row[1]) for row in rows]


def test_it_writes_while_postgres_does_and_neither_loses_a_row(lake: Lake, rest: Served) -> None:
    name, columns = Name("public", "shared"), ("id bigint", "writer text", "n integer")
    lake_tables.create(lake.catalog, lake.settings, name, columns, Layout(["writer"]))
    spark = session(lake, rest)
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(_written_by_spark, spark), pool.submit(_written_by_postgres, lake)]
        expected = sorted(row for writer in writers for row in writer.result().items())
    with lake.connect() as connection:
        assert connection.execute("select id, n from public.shared order by id").fetchall() == expected
    spark.sql("refresh table rest.public.shared")
    assert [tuple(row) for row in spark.sql("select id, n from rest.public.shared order by id").collect()] == expected


def _written_by_spark(spark: SparkSession) -> dict[int, int]:
    """The value of `n` by id."""
    mine, into = dict[int, int](), "insert into rest.public.shared (id, writer, n)"
    for step in range(6):
        first = 1000 + 10 * step
        _tried(spark, f"{into} select id, 'both', 0 from range({first}, {first + 3})")
        mine.update(dict.fromkeys(range(first, first + 3), 0))
        if step % 2:
            _tried(spark, f"delete from rest.public.shared where id = {first - 10}")
            _tried(spark, f"update rest.public.shared set n = 5 where id = {first - 9}")
            mine.pop(first - 10)
            mine[first - 9] = 5
        if step == 2:
            _tried(spark, "alter table rest.public.shared add column more int")
    return mine


def _written_by_postgres(lake: Lake) -> dict[int, int]:
    """The same."""
    mine = dict[int, int]()
    with lake.connect() as connection:
        for step in range(40):
            connection.execute("insert into public.shared (id, writer, n) values (%s, 'both', 0)", (step,))
            mine[step] = 0
            for _ in range(300):
                try:
                    connection.execute("update public.shared set n = n + 1 where id = %s", (step // 2,))
                except psycopg.errors.SerializationFailure:
                    continue
                mine[step // 2] += 1
                break
    return mine


def _tried(spark: SparkSession, statement: str) -> None:
    """Until nobody else is faster: Iceberg itself tries an append a few times, and others only where it may."""
    for _ in range(100):
        try:
            spark.sql(statement)
        except Exception as error:
            if not any(word in str(error) for word in ("CommitFailedException", "ValidationException")):
                raise
            spark.sql("refresh table rest.public.shared")
        else:
            return
    raise AssertionError("Postgres was always faster")
