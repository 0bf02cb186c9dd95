"""Archive: move whole ranges from the heap to the lake and raise the frost line. Exactly once, and nobody waits.

Each job is a row with a state; every step may be repeated. docs/design/archive.md has the interleavings.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from frostline import logs
from frostline.catalog import archived_partitions, jobs, lake_files, seams
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import commit, foreign, paths, publish
from frostline.lake.commit import StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.model import archive
from frostline.model.range import Range
from frostline.model.tables import Table
from frostline.pipeline import clean, job, plan, settle
from frostline.pipeline.export import Export, export_shard
from frostline.pipeline.job import JobContext
from frostline.relation import bound, columns, heap, marks
from frostline.tiers import moment, target
from frostline.tiers.moment import Moment
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What an archive of one table did."""

    table: Table
    partitions: int = 0
    rows: int = 0
    size_bytes: int = 0
    """As the lake holds them."""
    cleaned: clean.Result = clean.NOTHING
    error: FrostlineError | None = None


def run(context: JobContext, tables: Sequence[Table]) -> list[Result]:
    """Archive each table in turn, in one Spark application that starts only if there is work.

    One table's failure does not stop the others; it is in its result.
    """
    return job.for_each(tables, "archive", partial(archive_table, context), Result)


def archive_table(context: JobContext, chosen: Table) -> Result:
    """Archive what is ripe, job by job, then clean what may be cleaned."""
    connection, settings = context.connection, context.settings
    moved, rows, size = 0, 0, 0
    with job.on_table(connection, settings, chosen, "archive", "archiving") as table:
        columns.require(connection, table)
        heap.refuse_unlogged(connection, table)
        settle.lake(connection, settings, table)
        planned = _planned(connection, table)
        heap.refuse_smallest(connection, table, heap.may_be_smallest(table, planned.partitions))
        for name in heap.adopt(connection, table, planned.from_line):
            _log.warning("%s", logs.fields(stage="adopt", table=str(table.name), partition=str(name)))
        for batch in archive.batches(planned, settings.archive_batch_bytes):
            files = archive_batch(context, table, batch)
            moved += len(batch.partitions)
            rows += sum(file.rows for file in files)
            size += sum(file.size_bytes for file in files)
        cleaned = clean.within_job(connection, table)
        lake_files.settle_merges(connection, table)
    return Result(table, moved, rows, size, cleaned)


def _planned(connection: Connection, table: Table) -> archive.Plan:
    """What to move; UsageError when the first partition that is old enough has rows which another table references."""
    found = plan.of_table(connection, table, ask_lake=True)
    if found.stays is not None and found.plan.is_empty:
        hint = "delete or move the rows that reference them first, or drop the foreign key"
        raise UsageError(f"cannot archive {found.stays}", hint=hint)
    return found.plan


def archive_batch(context: JobContext, table: Table, batch: archive.Plan) -> list[WrittenFile]:
    """Move the rows, then analyze the lake: readers see the rows there before there are statistics."""
    files = move_batch(context, table, batch)
    bound.analyze(context.connection, table)
    reached(Failpoint.ARCHIVE_ANALYZED)
    return files


def move_batch(context: JobContext, table: Table, batch: archive.Plan) -> list[WrittenFile]:
    """One job. An error before publish leaves readers as they were and the job row failed."""
    job_id = job.start(context.connection, table, "archive", batch.from_line, batch.to_line)
    with job.failure_recorded(context.connection, job_id):
        return Job(context, table, batch, job_id).run()


class Job:
    """One archive of consecutive partitions that has begun: capture, export with verify, publish."""

    def __init__(self, context: JobContext, table: Table, batch: archive.Plan, job_id: int) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.batch = batch
        self.location = paths.table_location(context.settings.warehouse, table)
        self.job_id = job_id

    def run(self) -> list[WrittenFile]:
        """All steps in order."""
        self._capture()
        files = self._export()
        staged = self._stage(files)
        reached(Failpoint.ARCHIVE_STAGED)
        self._publish(files, staged)
        return files

    def _capture(self) -> None:
        with self._stage_line("capture", partitions=len(self.batch.partitions)):
            for partition in self.batch.partitions:
                heap.capture(self.connection, self.table, partition.name)
                reached(Failpoint.ARCHIVE_CAPTURED_ONE)
            jobs.advance(self.connection, self.job_id, State.CAPTURED)
        reached(Failpoint.ARCHIVE_CAPTURED)

    def _export(self) -> list[WrittenFile]:
        """Every task reads the one snapshot that this process holds, and verifies its own file against it."""
        with self._stage_line("export") as line, moment.exported(self.settings.dsn) as exported:
            shards = list(self.shards(exported))
            made = self.context.run_tasks(self.table, export_shard, shards)
            files = [file for file in made if file is not None]
            rows, size = sum(file.rows for file in files), sum(file.size_bytes for file in files)
            line.update(files=len(files), rows=rows, size_bytes=size)
            jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=rows, size_bytes=size)
            reached(Failpoint.ARCHIVE_EXPORTED)
            return files

    def shards(self, exported: Moment) -> Iterator[Export]:
        """The block ranges of the batch, cut where the lake's partitions are: one for each task.

        ConflictError unless the partitions and the table's columns are what they were when the batch was planned.
        """
        reader = Reader(exported, "export", "frostline archive")
        size = self.settings.export_shard_bytes // archive.BLOCK_BYTES
        with moment.joined(exported, purpose="export") as connection:
            targets = target.of_plan(connection, self.table, self.batch.partitions)
            for partition in self.batch.partitions:
                read = targets[partition.name]
                if not read.blocks:
                    continue
                ranges = list(heap.lake_ranges(connection, self.table, partition))
                for first, last in archive.block_ranges(read.blocks, size):
                    for lower, upper in ranges:
                        yield Export(
                            table=self.table,
                            reader=reader,
                            shard=Shard(read, Range(lower, upper), first, last),
                            location=self.location,
                            job_id=self.job_id,
                            memory_limit=self.settings.export_memory,
                        )

    def _stage(self, files: Sequence[WrittenFile]) -> StagedCommit | None:
        """Write the Iceberg metadata; nothing points at it yet. None when the lake does not change."""
        base = foreign.base(self.connection, self.table)
        if base is None and not files:
            return None
        return commit.stage(
            self.table,
            location=self.location,
            base=base,
            add=files,
            replace=(self.batch.from_line, self.batch.to_line),
            summary={commit.JOB_ID: str(self.job_id)},
        )

    def _publish(self, files: Sequence[WrittenFile], staged: StagedCommit | None) -> None:
        bound.raise_to(self.connection, self.table, self.batch.to_line, self._say)
        reached(Failpoint.ARCHIVE_RAISED_BOUND)
        hint = "frostline status shows whether the frost line moved; then run frostline archive again"
        published = publish.transaction(self.connection, f"publishing {self.table.name}", hint=hint)
        with self._stage_line("publish"), published:
            self._swap(files, staged)
        reached(Failpoint.ARCHIVE_PUBLISHED)

    def _swap(self, files: Sequence[WrittenFile], staged: StagedCommit | None) -> None:
        """The commit of the lake and of the seam, in one transaction and with no lock that anybody waits for."""
        line = (self.batch.from_line, self.batch.to_line)
        planned = replace(seams.get(self.connection, self.table), frost_line=self.batch.from_line)
        publish.lake(self.connection, self.table, planned, staged, line=self.batch.to_line)
        heap.keep(self.connection, self.table, self.batch.partitions)
        columns.require(self.connection, self.table)
        marks.forget_lost(self.connection, self.table, *line)
        recorded = [file.recorded for file in files]
        lake_files.replace_range(self.connection, self.table, self.job_id, *line, recorded)
        for partition in self.batch.partitions:
            assert partition.upper is not None
            archived_partitions.record(
                self.connection, self.table, self.job_id, partition.name, partition.lower, partition.upper
            )
        jobs.advance(self.connection, self.job_id, State.PUBLISHED)
        reached(Failpoint.ARCHIVE_BEFORE_COMMIT)

    @contextmanager
    def _stage_line(self, name: str, **values: logs.Value) -> Generator[dict[str, logs.Value]]:
        with logs.stage(_log, name, table=str(self.table.name), job=self.job_id, **values) as line:
            yield line

    def _say(self, text: str) -> None:
        _log.info("%s", logs.fields(stage="publish", table=str(self.table.name), job=self.job_id, note=text))
