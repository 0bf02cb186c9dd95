"""Jobs as a command runs them: Spark starts when the first table needs it and stops when the last is done."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.pipeline import archive as archive_job
from frostline.pipeline import compact as compact_job
from frostline.pipeline import fold as fold_job
from frostline.pipeline import retain as retain_job
from frostline.pipeline import snapshot as snapshot_job
from frostline.pipeline import snapshot_plan, spark
from frostline.pipeline import thaw as thaw_job
from frostline.pipeline import undo as undo_job
from frostline.settings import Settings


def archive(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: archive_job.Report
) -> list[archive_job.Result]:
    """Archive the tables."""
    with spark_while_busy(settings) as busy:
        return archive_job.run(connection, busy.session, settings, tables, report)


def fold(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: fold_job.Report
) -> list[fold_job.Result]:
    """Fold the tables."""
    with spark_while_busy(settings) as busy:
        return fold_job.run(connection, busy.session, settings, tables, report)


def compact(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: compact_job.Report
) -> list[compact_job.Result]:
    """Merge small files of the tables' lakes."""
    with spark_while_busy(settings) as busy:
        return compact_job.run(connection, busy.session, settings, tables, report)


def retain(
    connection: Connection, settings: Settings, tables: Sequence[Table], report: retain_job.Report
) -> list[retain_job.Result]:
    """Remove what is older than the tables' retention periods."""
    with spark_while_busy(settings) as busy:
        return retain_job.run(connection, busy.session, settings, tables, report)


def undo(
    connection: Connection, settings: Settings, table: Table, to: str | None, report: undo_job.Report
) -> undo_job.Result:
    """Lower the frost line over partitions that are still in the heap."""
    with spark_while_busy(settings) as busy:
        return undo_job.run(connection, busy.session, settings, table, to, report)


def thaw(
    connection: Connection, settings: Settings, table: Table, wanted: thaw_job.Wanted, report: thaw_job.Report
) -> thaw_job.Result:
    """Bring a range back from the lake."""
    with spark_while_busy(settings) as busy:
        return thaw_job.run(connection, busy.session, settings, table, wanted, report)


def snapshot(
    connection: Connection, settings: Settings, wish: snapshot_plan.Wish, report: snapshot_job.Report
) -> snapshot_job.Result:
    """Make a new version of a snapshot of many tables."""
    with spark_while_busy(settings) as busy:
        return snapshot_job.create(connection, busy.session, settings, wish, report)


class Busy:
    """Spark, started when it is first needed; a process that goes on for months stops it when it has long not been."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._used_at = 0.0

    def session(self) -> SparkSession:
        """The session, started if need be."""
        if self._session is not None and not spark.is_alive(self._session):
            self.stop()
        if self._session is None:
            self._session = spark.session(self._settings.spark_master, memory=self._settings.spark_memory)
        self._used_at = time.monotonic()
        return self._session

    def rest(self) -> None:
        """Between jobs: stop Spark if it was not used for a while."""
        if self._session is not None and time.monotonic() - self._used_at > self._settings.spark_idle_s:
            self.stop()

    def stop(self) -> None:
        """Stop Spark if it runs."""
        if self._session is not None:
            session, self._session = self._session, None
            spark.stop(session)


@contextmanager
def spark_while_busy(settings: Settings) -> Generator[Busy]:
    """Spark for as long as jobs come in; nothing of it is left behind, also after a failure."""
    busy = Busy(settings)
    try:
        yield busy
    finally:
        busy.stop()
