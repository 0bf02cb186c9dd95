"""Fold: carry the overlay into the lake and take its marks away. Readers never notice; docs/design/fold.md says why."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from frostline.catalog import jobs, seams, snapshots, trust
from frostline.catalog.connect import Dsn
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.thaw import touching
from frostline.pipeline import job, settle
from frostline.pipeline.job import Exchange, JobContext
from frostline.pipeline.rewrite import Rewritten, Slice, rewrite_slice
from frostline.relation import heap, marks

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a fold of one table did."""

    table: Table
    marks: int = 0
    """How many were carried into the lake."""
    taken: int = 0
    """How many of those are gone from the overlay; the others changed meanwhile, or somebody held them."""
    replaced_files: int = 0
    written_files: int = 0
    error: FrostlineError | None = None


def run(context: JobContext, tables: Sequence[Table]) -> list[Result]:
    """Fold each table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "fold", partial(fold_table, context), Result)


def fold_table(context: JobContext, chosen: Table) -> Result:
    """Fold what the overlay holds below the frost line."""
    connection, settings = context.connection, context.settings
    with job.on_table(connection, settings, chosen, "fold", "folding") as table:
        trust.require_silence(connection, table)
        heap.refuse_smallest(connection, table, [Name("frostline_overlay", table.internal)], marks=True)
        settle.lake(connection, settings, table)
        return Fold(context, table).run()


class Fold:
    """One fold of one table; the caller holds the table's job lock."""

    def __init__(self, context: JobContext, table: Table) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.seam = seams.get(context.connection, table)
        self.location = paths.table_location(context.settings.warehouse, table)
        self.job_id = 0

    def run(self) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        if not heap.marks(self.connection, self.table, None, self.seam.frost_line):
            return Result(self.table)
        frost_line = self.seam.frost_line
        begun = job.begun(_log, self.connection, self.table, "fold", frost_line, frost_line)
        with begun as (self.job_id, line):
            remembered, rewritten = self._rewrite()
            taken = self._publish(rewritten)
            line.update(marks=remembered, taken=taken)
        replaced = sum(len(one.replaced) for one in rewritten)
        written = sum(len(one.written) for one in rewritten)
        return Result(self.table, remembered, taken, replaced, written)

    def _rewrite(self) -> tuple[int, list[Rewritten]]:
        with snapshots.exported(self.settings.dsn) as snapshot:
            remembered = marks.remember(self.connection, self.table, snapshot, self.seam.frost_line)
            reached(Failpoint.FOLD_REMEMBERED)
            pieces = list(self._slices(snapshot))
            made = self.context.run_tasks(self.table, rewrite_slice, pieces)
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
                files=tuple(touching(recorded, lower, upper)),
                location=self.location,
                job_id=self.job_id,
                memory_limit=self.settings.export_memory,
            )

    def _publish(self, rewritten: Sequence[Rewritten]) -> int:
        replaced = [path for one in rewritten for path in one.replaced]
        written = [file for one in rewritten for file in one.written]
        change = Exchange(self.table, self.job_id, replaced, written)
        staged = change.stage(self.connection, self.settings)
        reached(Failpoint.FOLD_STAGED)
        hint = "frostline status shows whether the snapshot moved; then run frostline fold again"
        with job.publishing(self.connection, f"publishing a fold of {self.table.name}", hint=hint):
            change.swap(self.connection, staged, self.seam, self.seam.frost_line)
            waiting = [str(one.name) for one in jobs.uncleaned(self.connection, self.table)]
            taken = marks.take_away(self.connection, self.table, self.seam.frost_line, waiting)
            reached(Failpoint.FOLD_BEFORE_COMMIT)
        reached(Failpoint.FOLD_PUBLISHED)
        return taken
