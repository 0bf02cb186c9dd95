"""Undo: archived partitions that are still in the heap become hot again. docs/design/thaw.md says why it is right."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from frostline import failpoints, logs
from frostline.catalog import jobs, seams, tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.lake import paths
from frostline.lake.datafiles import WrittenFile
from frostline.model import thaw as rules
from frostline.model.tables import RecordedFile, Seam, Table
from frostline.model.thaw import Archived, Holds, Stretch
from frostline.model.tiers import to_text
from frostline.pipeline import exchange, tasks, turn, verify
from frostline.pipeline.exchange import Exchange
from frostline.pipeline.tasks import Report
from frostline.pipeline.trim import Trim, trim_file
from frostline.relation import bound, heap
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What an undo did."""

    table: Table
    from_line: int
    to_line: int
    partitions: tuple[str, ...]
    """Those that are hot again."""
    trimmed_files: int


def run(
    connection: Connection,
    spark: Callable[[], SparkSession],
    settings: Settings,
    table: Table,
    to: str | None,
    report: Report,
) -> Result:
    """Lower the frost line to a value where a partition begins, or as far as the heap still has every row.

    Spark starts only if a lake file reaches across the new line.
    """
    with turn.taken(connection, settings, table, "undo", "undoing"):
        seam = seams.get(connection, table)
        cold = cold_range(connection, table, seam)
        files = jobs.recorded_files(connection, table)
        wanted = None if to is None else heap.tier_value(connection, table, "--to", to)
        line = _line(table, cold, rules.reach(cold, files), wanted)
        line = rules.settled(line, cold, files, floor(connection, table))
        failpoints.reached(Failpoint.UNDO_BEFORE_START)
        job = Lowering(connection, settings, table, jobs.start(connection, table, "undo", seam.frost_line, line))
        failpoints.reached(Failpoint.UNDO_STARTED)
        trimmed = job.run(line, cold, spark, report)
    back = tuple(str(one.partition) for one in cold if one.lower >= line and one.holds is Holds.EVERYTHING)
    return Result(table, seam.frost_line, line, back, trimmed)


def floor(connection: Connection, table: Table) -> int:
    """The smallest value that a row can have: R, if rows were removed, else the smallest of the type."""
    removed = seams.retained(connection, table)
    return table.tier_kind.lowest if removed is None else removed


def cold_range(connection: Connection, table: Table, seam: Seam) -> list[Stretch]:
    """How the cold range is made up now."""
    archived = [
        Archived(name, lower, upper, not cleaned and heap.exists(connection, name))
        for name, lower, upper, cleaned in jobs.archived(connection, table)
    ]
    partitions = heap.partitions(connection, table)
    return rules.stretches(partitions, archived, seam.frost_line, table.tier_kind.lowest)


def _line(table: Table, cold: Sequence[Stretch], reach: Sequence[int], wanted: int | None) -> int:
    """The line that was asked for; UsageError when an undo cannot go there."""
    if not reach:
        hint = f"frostline thaw {table.name} --from VALUE brings rows back from the lake"
        if not any(one.holds is not Holds.NO_PARTITION for one in cold):
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


class Lowering:
    """Lowers the frost line over partitions that have everything; the caller holds the table's job lock."""

    def __init__(self, connection: Connection, settings: Settings, table: Table, job_id: int) -> None:
        self.connection = connection
        self.settings = settings
        self.table = table
        self.job_id = job_id
        self.location = paths.table_location(settings.warehouse, table)

    def run(self, line: int, cold: Sequence[Stretch], spark: Callable[[], SparkSession], report: Report) -> int:
        """All steps in order; returns how many files were trimmed. An error leaves readers as they were.

        Of the cold range, what the heap has everything of is compared with the lake right before the line goes down.
        """
        stage = logs.stage(_log, "undo", table=str(self.table.name), job=self.job_id)
        with turn.failure_recorded(self.connection, self.job_id), stage as said:
            files = [file for file in jobs.recorded_files(self.connection, self.table) if file.upper >= line]
            trimmed = self._trim([file for file in files if file.lower < line], line, spark, report)
            said.update(removed=len(files), trimmed=len(trimmed))
            self._compare(line, cold)
            self._publish(line, files, trimmed)
        bound.lower(self.connection, self.table)
        failpoints.reached(Failpoint.UNDO_LOWERED_BOUND)
        return len(trimmed)

    def _compare(self, line: int, cold: Sequence[Stretch]) -> None:
        whole = [one for one in cold if one.lower >= line and one.holds is Holds.EVERYTHING]
        kept = {one.partition for one in whole if one.partition is not None}
        verify.before_lowering(self.connection, self.table, line, kept)

    def _trim(
        self, across: Sequence[RecordedFile], line: int, spark: Callable[[], SparkSession], report: Report
    ) -> list[WrittenFile]:
        if not across:
            return []
        memory, keep = self.settings.export_memory, (self.table.tier_kind.lowest, line)
        pieces = [Trim(self.table, file, keep, self.location, self.job_id, memory) for file in across]
        made = tasks.run(spark(), trim_file, pieces, lambda progress: report(self.table, progress))
        failpoints.reached(Failpoint.UNDO_TRIMMED)
        return made

    def _publish(self, line: int, gone: Sequence[RecordedFile], trimmed: Sequence[WrittenFile]) -> None:
        change = Exchange(self.table, self.job_id, [file.path for file in gone], trimmed)
        staged = exchange.stage(self.connection, self.settings, change)
        failpoints.reached(Failpoint.UNDO_STAGED)
        hint = "frostline status shows whether the frost line moved"
        with turn.publishing(self.connection, f"lowering the frost line of {self.table.name}", hint=hint):
            exchange.swap(self.connection, change, staged, seams.get(self.connection, self.table), line)
            jobs.forget_archived(self.connection, self.table, line)
            tables.hold(self.connection, self.table, line)
            failpoints.reached(Failpoint.UNDO_BEFORE_COMMIT)
        failpoints.reached(Failpoint.UNDO_PUBLISHED)
