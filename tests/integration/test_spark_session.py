"""The Spark session that the pipeline uses."""

import sys

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_tasks_run_in_this_python(spark: SparkSession) -> None:
    def executable(_: object) -> list[str]:
        import sys

        return [sys.executable]

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(executable).collect() == [sys.executable]


def test_times_are_utc(spark: SparkSession) -> None:
    row = spark.sql("select current_timezone(), unix_timestamp(timestamp '1970-01-02 00:00:00')").first()
    assert row
    assert tuple(row) == ("UTC", 86400)


def test_nothing_is_served_to_the_network(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
