"""Jobs as a command runs them: Spark starts when the first table needs it and stops when the last is done."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.pipeline import archive as archive_job
from frostline.pipeline import fold as fold_job
from frostline.pipeline import spark
from frostline.settings import Settings


def archive(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: archive_job.Report
) -> list[archive_job.Result]:
    """Archive the tables."""
    with _spark_when_needed(settings) as session:
        return archive_job.run(connection, session, settings, tables, report)


def fold(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: fold_job.Report
) -> list[fold_job.Result]:
    """Fold the tables."""
    with _spark_when_needed(settings) as session:
        return fold_job.run(connection, session, settings, tables, report)


@contextmanager
def _spark_when_needed(settings: Settings) -> Generator[Callable[[], SparkSession]]:
    """Yield a function that starts Spark at its first call; nothing of it is left behind, also after a failure."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(spark.session(settings.spark_master, memory=settings.spark_memory))
        return started[0]

    try:
        yield session
    finally:
        for one in started:
            spark.stop(one)
