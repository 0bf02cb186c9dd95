"""The official Iceberg runtime for Spark uses the catalog server: it makes, writes and evolves lake tables, and reads the others."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.catalogserver import Served, numbers, serving
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.other_engines import blocks
from tests.fixtures.tables import make_events


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
