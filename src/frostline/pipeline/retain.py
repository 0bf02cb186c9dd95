"""Retain: rows older than the retention period go for good, and R rises. docs/design/retention.md has the reasons."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from frostline import failpoints, logs
from frostline.catalog import jobs, seams, trust
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint
from frostline.lake import paths, publish
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model.range import Range
from frostline.model.tables import Seam, Table
from frostline.model.tiers import to_text
from frostline.partitions import dropping
from frostline.pipeline import job, plan, settle
from frostline.pipeline.copying import Trim, trim_file
from frostline.pipeline.job import JobContext
from frostline.pipeline.plan import RetentionPlan
from frostline.relation import marks

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a retention of one table did."""

    table: Table
    line: str | None = None
    """R as Postgres prints it; None while there is none."""
    removed_files: int = 0
    trimmed_files: int = 0
    rows: int = 0
    """How many went from the lake."""
    marks: int = 0
    """How many went from the overlay; those that somebody held wait for the next time."""
    partitions: tuple[str, ...] = ()
    """Of a table without a lake: those that were dropped or detached."""
    waiting: tuple[str, ...] = ()
    """Partitions that must be cleaned before R can go as far as it should; or that cannot go yet. And why."""
    changed: bool = False
    """Whether anything was done."""
    error: FrostlineError | None = None


def run(context: JobContext, tables: Sequence[Table]) -> list[Result]:
    """Remove the old rows of each table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "retain", partial(retain_table, context), Result)


def retain_table(context: JobContext, chosen: Table) -> Result:
    """Remove what is older than the retention period, and what was written below R since the last time."""
    connection, settings = context.connection, context.settings
    if not chosen.has_lake:
        done = dropping.expire(connection, settings, chosen)
        gone = (*done.dropped, *done.detached)
        return Result(chosen, partitions=gone, waiting=(*done.waiting, *done.kept), changed=done.changed)
    with job.on_table(connection, settings, chosen, "retain", "removing old rows of") as table:
        settle.lake(connection, settings, table)
        wanted = plan.retention(connection, table)
        if wanted.is_empty:
            return _result(table, wanted)
        trust.require_no_user_triggers(connection, table)
        assert wanted.to.value is not None
        seam = seams.get(connection, table)
        with job.begun(_log, connection, table, "retain", wanted.from_line, wanted.to.value) as (job_id, said):
            return Retention(context, table, wanted, wanted.to.value, seam, job_id).run(said)


def planned(connection: Connection, table: Table) -> Result:
    """What a retention would do now. Of files that reach across R, nobody has counted the rows yet."""
    trust.require(connection, table)
    if not table.has_lake:
        return Result(
            table, partitions=tuple(str(partition.name) for partition in dropping.expirable(connection, table))
        )
    wanted = plan.retention(connection, table)
    rows = sum(file.fingerprint.rows for file in wanted.gone)
    return replace(_result(table, wanted), rows=rows, marks=wanted.marks)


def _result(table: Table, done: RetentionPlan) -> Result:
    line = None if done.to.value is None else to_text(table.tier_kind, done.to.value)
    waiting = (f"{done.to.waits_for}: it is not cleaned yet",) if done.to.waits_for else ()
    return Result(table, line, removed_files=len(done.gone), trimmed_files=len(done.across), waiting=waiting)


class Retention:
    """One retention of one table, whose job has begun; the caller holds the table's job lock."""

    def __init__(
        self, context: JobContext, table: Table, planned: RetentionPlan, line: int, seam: Seam, job_id: int
    ) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.planned = planned
        self.line = line
        self.seam = seam
        self.job_id = job_id

    def run(self, said: dict[str, logs.Value]) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        trimmed = self._trim()
        rows = self._rows(trimmed)
        taken = self._publish(trimmed, rows)
        said.update(files=len(self.planned.gone), trimmed=len(trimmed), rows=rows, marks=taken)
        changed = bool(rows or taken) or self.planned.from_line != self.line
        return replace(_result(self.table, self.planned), rows=rows, marks=taken, changed=changed)

    def _trim(self) -> list[WrittenFile]:
        location, memory = paths.table_location(self.settings.warehouse, self.table), self.settings.export_memory
        keep = Range(self.planned.to.reach, None)
        pieces = [Trim(self.table, file, keep, location, self.job_id, memory) for file in self.planned.across]
        made = self.context.run_tasks(self.table, trim_file, pieces)
        failpoints.reached(Failpoint.RETAIN_TRIMMED)
        return made

    def _rows(self, trimmed: Sequence[WrittenFile]) -> int:
        """How many rows leave the lake."""
        old = sum(file.fingerprint.rows for file in (*self.planned.gone, *self.planned.across))
        rows = old - sum(file.rows for file in trimmed)
        size = sum(file.size_bytes for file in trimmed)
        jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=rows, size_bytes=size)
        return rows

    def _publish(self, trimmed: Sequence[WrittenFile], rows: int) -> int:
        replaced = [file.path for file in (*self.planned.gone, *self.planned.across)]
        change = Exchange(self.table, self.job_id, replaced, trimmed)
        staged = change.stage(self.connection, self.settings)
        failpoints.reached(Failpoint.RETAIN_STAGED)
        hint = "frostline status shows what is left; then run frostline retain again"
        with publish.transaction(self.connection, f"removing old rows of {self.table.name}", hint=hint):
            change.swap(self.connection, staged, self.seam)
            if self.line != self.planned.from_line:
                seams.retain(self.connection, self.table, self.line)
            taken = marks.take_away_all(self.connection, self.table, self.planned.to.reach)
            jobs.describe(self.connection, self.job_id, self._detail(rows, taken))
            failpoints.reached(Failpoint.RETAIN_BEFORE_COMMIT)
        failpoints.reached(Failpoint.RETAIN_PUBLISHED)
        return taken

    def _detail(self, rows: int, taken: int) -> str:
        line = to_text(self.table.tier_kind, self.line)
        return f"rows before {line} are gone: {rows} of the lake, {taken} of the overlay"
