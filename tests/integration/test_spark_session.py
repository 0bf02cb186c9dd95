"""The Spark session that the pipeline uses."""

import subprocess
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


_PAUSED = """
import time, psutil
from frostline.pipeline import spark
soon = {"spark.network.timeout": "2s", "spark.network.timeoutInterval": "1s", "spark.executor.heartbeatInterval": "1s"}
session = spark.session("local[1]", options=soon)
java = next(child for child in psutil.Process().children(recursive=True) if child.name() == "java")
java.suspend()
time.sleep(5)
java.resume()
time.sleep(3)
print(session.range(10).count())
"""


@pytest.mark.slow
def test_it_outlives_a_machine_that_sleeps() -> None:
    """Without a heartbeat for so long, Spark on a cluster gives up an executor; local Spark would give up itself."""
    done = subprocess.run([sys.executable, "-c", _PAUSED], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "10\n"
    assert "Exception" not in done.stderr
