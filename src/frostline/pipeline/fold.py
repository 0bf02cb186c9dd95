"""Fold: carry the overlay into the lake and take its marks away. Readers never notice; docs/design/fold.md says why."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from frostline import logs
from frostline.catalog import jobs, seams, snapshots, trust
from frostline.catalog.connect import Connection, Dsn
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths
from frostline.model.names import Name
from frostline.model.range import Range, overlapping
from frostline.model.tables import Table
from frostline.pipeline import exchange, settle, tasks, turn
from frostline.pipeline.exchange import Exchange
from frostline.pipeline.rewrite import Rewritten, Slice, rewrite_slice
from frostline.pipeline.tasks import Report
from frostline.relation import heap, marks
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a fold of one table did."""

    table: Table
    marks: int
    """How many were carried into the lake."""
    taken: int
    """How many of those are gone from the overlay; the others changed meanwhile, or somebody held them."""
    replaced_files: int
    written_files: int
    error: FrostlineError | None = None


def run(
    connection: Connection,
    spark: Callable[[], SparkSession],
    settings: Settings,
    tables: Sequence[Table],
    report: Report,
) -> list[Result]:
    """Fold each table in turn. One table's failure does not stop the others; it is in its result."""
    return turn.for_each(
        tables,
        "fold",
        lambda table: fold_table(connection, spark, settings, table, report),
        lambda table, error: Result(table, 0, 0, 0, 0, error),
    )


def fold_table(
    connection: Connection, spark: Callable[[], SparkSession], settings: Settings, chosen: Table, report: Report
) -> Result:
    """Fold what the overlay holds below the frost line."""
    with turn.taken(connection, settings, chosen, "fold", "folding") as table:
        trust.require_silence(connection, table)
        heap.refuse_smallest(connection, table, [Name("frostline_overlay", table.internal)], marks=True)
        settle.lake(connection, settings, table)
        return Fold(connection, settings, table).run(spark, report)


class Fold:
    """One fold of one table; the caller holds the table's job lock."""

    def __init__(self, connection: Connection, settings: Settings, table: Table) -> None:
        self.connection = connection
        self.settings = settings
        self.table = table
        self.seam = seams.get(connection, table)
        self.location = paths.table_location(settings.warehouse, table)
        self.job_id = 0

    def run(self, spark: Callable[[], SparkSession], report: Report) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        if not heap.marks(self.connection, self.table, None, self.seam.frost_line):
            return Result(self.table, 0, 0, 0, 0)
        frost_line = self.seam.frost_line
        reached(Failpoint.FOLD_BEFORE_START)
        self.job_id = jobs.start(self.connection, self.table, "fold", frost_line, frost_line)
        reached(Failpoint.FOLD_STARTED)
        said = logs.stage(_log, "fold", table=str(self.table.name), job=self.job_id)
        with turn.failure_recorded(self.connection, self.job_id), said as line:
            remembered, rewritten = self._rewrite(spark, report)
            taken = self._publish(rewritten)
            line.update(marks=remembered, taken=taken)
        replaced = sum(len(one.replaced) for one in rewritten)
        written = sum(len(one.written) for one in rewritten)
        return Result(self.table, remembered, taken, replaced, written)

    def _rewrite(self, spark: Callable[[], SparkSession], report: Report) -> tuple[int, list[Rewritten]]:
        with snapshots.exported(self.settings.dsn) as snapshot:
            remembered = marks.remember(self.connection, self.table, snapshot, self.seam.frost_line)
            reached(Failpoint.FOLD_REMEMBERED)
            pieces = list(self._slices(snapshot))
            made = tasks.run(spark(), rewrite_slice, pieces, lambda progress: report(self.table, progress))
        size = sum(file.size_bytes for one in made for file in one.written)
        jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=remembered, size_bytes=size)
        reached(Failpoint.FOLD_REWRITTEN)
        return remembered, made

    def _slices(self, snapshot: str) -> Iterator[Slice]:
        """One for each lake partition that has marks. Later marks may add one too many, never one too few."""
        recorded = jobs.recorded_files(self.connection, self.table)
        overlay = Name("frostline_overlay", self.table.internal)
        for lower, upper in heap.occupied(self.connection, self.table, overlay, self.seam.frost_line):
            yield Slice(
                table=self.table,
                dsn=Dsn(self.settings.dsn),
                snapshot=snapshot,
                overlay=overlay,
                lower=lower,
                upper=upper,
                files=tuple(overlapping(recorded, Range(lower, upper))),
                location=self.location,
                job_id=self.job_id,
                memory_limit=self.settings.export_memory,
            )

    def _publish(self, rewritten: Sequence[Rewritten]) -> int:
        replaced = [path for one in rewritten for path in one.replaced]
        written = [file for one in rewritten for file in one.written]
        change = Exchange(self.table, self.job_id, replaced, written)
        staged = exchange.stage(self.connection, self.settings, change)
        reached(Failpoint.FOLD_STAGED)
        hint = "frostline status shows whether the snapshot moved; then run frostline fold again"
        with turn.publishing(self.connection, f"publishing a fold of {self.table.name}", hint=hint):
            exchange.swap(self.connection, change, staged, self.seam, self.seam.frost_line)
            waiting = [str(one.name) for one in jobs.uncleaned(self.connection, self.table)]
            taken = marks.take_away(self.connection, self.table, self.seam.frost_line, waiting)
            reached(Failpoint.FOLD_BEFORE_COMMIT)
        reached(Failpoint.FOLD_PUBLISHED)
        return taken
