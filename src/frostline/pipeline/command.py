"""Archive as a command runs it: Spark starts when the first table needs it and stops when the last is done."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.pipeline import archive as job
from frostline.pipeline import spark
from frostline.settings import Settings


def archive(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: job.Report
) -> list[job.Result]:
    """Archive the tables and leave no Spark behind, also when it fails."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(spark.session(settings.spark_master, memory=settings.spark_memory))
        return started[0]

    try:
        return job.run(connection, session, settings, tables, report)
    finally:
        for one in started:
            spark.stop(one)
