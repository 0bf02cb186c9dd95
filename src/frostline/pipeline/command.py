"""Jobs as a command runs them: Spark starts when the first table needs it and stops when the last is done."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.pipeline import archive as archive_job
from frostline.pipeline import fold as fold_job
from frostline.pipeline import spark
from frostline.pipeline import thaw as thaw_job
from frostline.pipeline import undo as undo_job
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


def undo(
    connection: Connection, settings: Settings, table: Table, to: str | None, report: undo_job.Report
) -> undo_job.Result:
    """Lower the frost line over partitions that are still in the heap."""
    with _spark_when_needed(settings) as session:
        return undo_job.run(connection, session, settings, table, to, report)


def thaw(
    connection: Connection, settings: Settings, table: Table, wanted: thaw_job.Wanted, report: thaw_job.Report
) -> thaw_job.Result:
    """Bring a range back from the lake."""
    with _spark_when_needed(settings) as session:
        return thaw_job.run(connection, session, settings, table, wanted, report)


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
