"""Undo: archived partitions that are still in the heap become hot again. docs/design/thaw.md says why it is right."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psycopg

from frostline import failpoints, logs
from frostline.catalog import archived_partitions, facts, jobs, lake_files, seams, tables
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import ConflictError, FrostlineError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import foreign, paths, publish, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model import thaw as rules
from frostline.model.range import Range, overlapping
from frostline.model.tables import RecordedFile, Seam, Table
from frostline.model.thaw import Archived, ColdRange, Holds
from frostline.model.tiers import to_text
from frostline.pipeline import job, verify
from frostline.pipeline.copying import Trim, trim_file
from frostline.pipeline.job import JobContext
from frostline.pipeline.tasks import SparkGaveUp
from frostline.relation import bound, heap
from frostline.settings import Settings

_log = logging.getLogger(__name__)

_BOUND_PATIENCE_S = 5.0
"""Long enough for a statement or autovacuum to end. For a long transaction, the next `clean` does it."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Result:
    """What an undo did."""

    table: Table
    from_line: int
    to_line: int
    partitions: tuple[str, ...]
    """Those that are hot again."""
    trimmed_files: int
    lake_left: str | None = None
    """Why the lake still has what is hot again, hidden by the frost line; the next job takes it away."""
    counted: tuple[str, ...] = ()
    """Partitions whose rows were only counted, because the lake's files cannot be read."""


def run(context: JobContext, table: Table, to: str | None) -> Result:
    """Lower the frost line to a value where a partition begins, or as far as the heap still has every row.

    Spark starts only if a lake file reaches across the new line. A lake that is away, lost or damaged is left as it is:
    the heap has the rows.
    """
    connection, settings = context.connection, context.settings
    with job.leased(connection, settings, table, "undo", "undoing"), job.settled_names(connection, table):
        foreign.refuse(connection, table)
        seam = seams.get(connection, table)
        cold = cold_range(connection, table, seam)
        files = lake_files.recorded(connection, table)
        wanted = None if to is None else heap.tier_value(connection, table, "--to", to)
        line = _line(table, cold, rules.reach(cold, files), wanted)
        line = rules.settled(line, cold, files, floor(connection, table))
        lowering = Lowering(context, table, job.start(connection, table, "undo", seam.frost_line, line))
        with _lake(connection, settings, table) as away:
            done = lowering.run(line, cold, away)
    back = tuple(str(part.partition) for part in cold if part.lower >= line and part.holds is Holds.EVERYTHING)
    return Result(table, seam.frost_line, line, back, done.trimmed, done.lake_left, done.counted)


@contextmanager
def _lake(connection: Connection, settings: Settings, table: Table) -> Generator[FrostlineError | None]:
    """The lake for the block, without what failed jobs left there; or why it cannot be used."""
    try:
        marker = warehouse.require(connection, settings.warehouse)
        job.remove_leftovers(connection, settings, table)
    except FrostlineError as error:
        yield error
        return
    with warehouse.used(marker):
        yield None


def floor(connection: Connection, table: Table) -> int:
    """The smallest value that a row can have: R, if rows were removed, else the smallest of the type."""
    removed = seams.retained(connection, table)
    return table.tier_kind.lowest if removed is None else removed


def cold_range(connection: Connection, table: Table, seam: Seam) -> list[ColdRange]:
    """How the cold range is made up now."""
    archived = [
        Archived(
            partition.name,
            partition.lower,
            partition.upper,
            in_heap=not partition.is_cleaned and facts.exists(connection, partition.name),
        )
        for partition in archived_partitions.list_all(connection, table)
    ]
    partitions = heap.partitions(connection, table)
    return rules.cold_ranges(partitions, archived, seam.frost_line, table.tier_kind.lowest)


def _line(table: Table, cold: Sequence[ColdRange], reach: Sequence[int], wanted: int | None) -> int:
    """The line that was asked for; UsageError when an undo cannot go there."""
    if not reach:
        hint = f"frostline thaw {table.name} --from VALUE brings rows back from the lake"
        if not any(part.holds is not Holds.NO_PARTITION for part in cold):
            hint = f"nothing of {table.name} is archived"
        raise UsageError(f"no archived partition of {table.name} is still whole in the heap", hint=hint)
    if wanted is None or wanted in reach:
        return reach[-1] if wanted is None else wanted
    text = to_text(table.tier_kind, wanted)
    begins = [line for line in reach if line <= wanted]
    if wanted < reach[-1] or not begins:
        raise UsageError(
            f"undo cannot go down to {text}: below {to_text(table.tier_kind, reach[-1])} the rows are in the lake only",
            hint=f"frostline thaw {table.name} --from '{text}'",
        )
    line = to_text(table.tier_kind, begins[0])
    raise UsageError(
        f"no archived partition of {table.name} begins at {text}", hint=f"frostline undo {table.name} --to '{line}'"
    )


@dataclass(frozen=True)
class Lowered:
    """What became of the lake when the line went down."""

    trimmed: int
    lake_left: str | None
    counted: tuple[str, ...]


class Lowering:
    """Lowers the frost line over partitions that have everything; the caller holds the table's job lock."""

    def __init__(self, context: JobContext, table: Table, job_id: int) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.job_id = job_id
        self.location = paths.table_location(context.settings.warehouse, table)
        self.lake_left: str | None = None

    def run(self, line: int, cold: Sequence[ColdRange], away: FrostlineError | None = None) -> Lowered:
        """All steps in order. An error leaves readers as they were; an error of the lake leaves the lake as it was.

        Of the cold range, what the heap has everything of is compared with the lake right before the line goes down.
        """
        self.lake_left = str(away.args[0]) if away else None
        stage = logs.stage(_log, "undo", table=str(self.table.name), job=self.job_id)
        with job.failure_recorded(self.connection, self.job_id), stage as said:
            files = overlapping(lake_files.recorded(self.connection, self.table), Range(line, None))
            across = overlapping(files, Range(None, line))
            trimmed = self._unless_left(lambda: self._trim(across, line)) or []
            counted = self._compare(line, cold)
            self._publish(line, files, trimmed)
            said.update(removed=len(files), trimmed=len(trimmed), lake_left=self.lake_left)
        bound.lower(self.connection, self.table, patience_s=_BOUND_PATIENCE_S)
        failpoints.reached(Failpoint.UNDO_LOWERED_BOUND)
        return Lowered(len(trimmed), self.lake_left, tuple(counted))

    def _unless_left(self, step: Callable[[], Made]) -> Made | None:
        """Do something with the lake, unless it is left as it is; from an error of its own on, it is."""
        if self.lake_left is not None:
            return None
        try:
            return step()
        except (ConflictError, UsageError, SparkGaveUp, psycopg.Error):
            raise
        except Exception as error:  # noqa: BLE001  (whatever is wrong with the lake, the heap has the rows)
            text = error.args[0] if isinstance(error, FrostlineError) else error  # without the hint
            self.lake_left = " ".join(str(text).split())
            return None

    def _compare(self, line: int, cold: Sequence[ColdRange]) -> list[str]:
        complete = [part for part in cold if part.lower >= line and part.holds is Holds.EVERYTHING]
        kept = {part.partition for part in complete if part.partition is not None}
        away = self.lake_left is not None
        return verify.before_lowering(self.connection, self.table, line, kept, without_lake=away)

    def _trim(self, across: Sequence[RecordedFile], line: int) -> list[WrittenFile]:
        if not across:
            return []
        memory, keep = self.settings.export_memory, Range(None, line)
        pieces = [Trim(self.table, file, keep, self.location, self.job_id, memory) for file in across]
        made = self.context.run_tasks(self.table, trim_file, pieces)
        failpoints.reached(Failpoint.UNDO_TRIMMED)
        return made

    def _publish(self, line: int, gone: Sequence[RecordedFile], trimmed: Sequence[WrittenFile]) -> None:
        change = Exchange(self.table, self.job_id, [file.path for file in gone], trimmed)
        staged = self._unless_left(lambda: change.stage(self.connection, self.settings))
        failpoints.reached(Failpoint.UNDO_STAGED)
        hint = "frostline status shows whether the frost line moved"
        lake = warehouse.used(None if self.lake_left else warehouse.in_use())
        with lake, publish.transaction(self.connection, f"lowering the frost line of {self.table.name}", hint=hint):
            if self.lake_left is None:
                change.swap(self.connection, staged, seams.get(self.connection, self.table), line=line)
            else:
                # T goes down and S stays: what the lake has at or above T is hidden, and goes with the next job.
                publish.line_only(self.connection, self.table, line)
                jobs.advance(self.connection, self.job_id, State.PUBLISHED)
            archived_partitions.forget_above(self.connection, self.table, line)
            tables.hold(self.connection, self.table, line)
            failpoints.reached(Failpoint.UNDO_BEFORE_COMMIT)
        failpoints.reached(Failpoint.UNDO_PUBLISHED)
