"""Compact: small lake files become larger ones, and many manifests few. docs/design/compaction.md has the reasons.

First the job; below it `merge_files`, which runs inside one Spark task.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from frostline import logs
from frostline.catalog import jobs, lake_files, seams
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import CorruptionError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import manifests, paths, publish
from frostline.lake.commit import Rows, StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model import upkeep
from frostline.model.names import Named
from frostline.model.tables import NO_ROWS, Seam, Table
from frostline.model.upkeep import Bin
from frostline.pipeline import copying, job, settle
from frostline.pipeline.job import JobContext
from frostline.tiers.proof.files import blame, fingerprint_now, proved

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What there is to do."""

    bins: Sequence[Bin]
    """Each becomes one file."""
    manifests: int
    """How many the snapshot has."""
    packs: bool
    """They are too many, and will be written anew."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.bins and not self.packs

    @property
    def files(self) -> int:
        """How many are to be merged."""
        return sum(map(len, self.bins))


@dataclass(frozen=True)
class Result:
    """What a compaction of one table did."""

    table: Named
    merged_files: int = 0
    written_files: int = 0
    replaced_manifests: int = 0
    """0 unless they were written anew."""
    written_manifests: int = 0
    error: FrostlineError | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.written_files or self.written_manifests)


@dataclass(frozen=True)
class Merge:
    """Small files of one lake partition that become one."""

    table: Table
    files: Bin
    location: str
    job_id: int
    memory_limit: str


def run(context: JobContext, tables: Sequence[Table]) -> list[Result]:
    """Compact each table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "compact", partial(compact_table, context), Result)


def compact_table(context: JobContext, chosen: Table, *, only_due: bool = False) -> Result:
    """Merge until nothing is left to merge: a merged file may be smaller than its parts together, and go on.

    With `only_due`, only where it is worth the while, which is how often a worker may ask.
    """
    if not chosen.has_lake:
        return Result(chosen)
    connection, settings = context.connection, context.settings
    with job.on_table(connection, settings, chosen, "compact", "compacting") as table:
        settle.lake(connection, settings, table)
        result = Result(table)
        planned = plan(connection, table, only_due=only_due)
        while not planned.is_empty:  # it ends: each time there are fewer files, and then few manifests
            seam = seams.get(connection, table)
            with job.begun(_log, connection, table, "compact") as (job_id, said):
                result = Compaction(context, table, planned, seam, job_id).run(result, said)
            planned = plan(connection, table, only_due=only_due)
        lake_files.settle_merges(connection, table)
        return result


def plan(connection: Connection, table: Table, *, only_due: bool = False) -> Plan:
    """What a compaction would do now. Reads the records of the files, and the snapshot's list of manifests."""
    if not table.has_lake:
        return Plan((), 0, packs=False)
    recorded = () if only_due else lake_files.recorded(connection, table)
    bins = lake_files.due_merges(connection, table) if only_due else upkeep.merges(table, recorded)
    seam = seams.get(connection, table)
    sizes: list[int] = []
    if seam.metadata_location is not None and seam.snapshot_id is not None:
        sizes = manifests.sizes_bytes(seam.metadata_location, seam.snapshot_id)
    return Plan(bins, len(sizes), upkeep.manifests_are_many(sizes))


class Compaction:
    """One compaction of one table, whose job has begun; the caller holds the table's job lock."""

    def __init__(self, context: JobContext, table: Table, planned: Plan, seam: Seam, job_id: int) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.planned = planned
        self.seam = seam
        self.job_id = job_id

    def run(self, before: Result, said: dict[str, logs.Value]) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        written = self._merge()
        staged = self._publish(written)
        said.update(merged=self.planned.files, written=len(written), manifests=staged.manifests)
        packed = self.planned.packs
        return replace(
            before,
            merged_files=before.merged_files + self.planned.files,
            written_files=before.written_files + len(written),
            replaced_manifests=before.replaced_manifests + (self.planned.manifests if packed else 0),
            written_manifests=before.written_manifests + (staged.manifests if packed else 0),
        )

    def _merge(self) -> list[WrittenFile]:
        location, memory = paths.table_location(self.settings.warehouse, self.table), self.settings.export_memory
        pieces = [Merge(self.table, files, location, self.job_id, memory) for files in self.planned.bins]
        made = self.context.run_tasks(self.table, merge_files, pieces)
        rows, size = sum(file.rows for file in made), sum(file.size_bytes for file in made)
        jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=rows, size_bytes=size)
        reached(Failpoint.COMPACT_MERGED)
        return made

    def _publish(self, written: Sequence[WrittenFile]) -> StagedCommit:
        replaced = [file.path for files in self.planned.bins for file in files]
        rows = Rows.SAME_PACKED if self.planned.packs else Rows.SAME
        change = Exchange(self.table, self.job_id, replaced, written, rows)
        staged = change.stage(self.connection, self.settings)
        assert staged is not None
        reached(Failpoint.COMPACT_STAGED)
        hint = "frostline status shows whether the snapshot moved; then run frostline compact again"
        with publish.transaction(self.connection, f"publishing a compaction of {self.table.name}", hint=hint):
            change.swap(self.connection, staged, self.seam)
            jobs.describe(self.connection, self.job_id, self._detail(written, staged))
            reached(Failpoint.COMPACT_BEFORE_COMMIT)
        reached(Failpoint.COMPACT_PUBLISHED)
        return staged

    def _detail(self, written: Sequence[WrittenFile], staged: StagedCommit) -> str:
        merged = f"{self.planned.files} files became {len(written)}" if written else ""
        packed = f"{self.planned.manifests} manifests became {staged.manifests}" if self.planned.packs else ""
        return "; ".join(filter(None, (merged, packed)))


def merge_files(piece: Merge) -> WrittenFile:
    """Write the rows of all the files to a new one, and prove that it has exactly what was recorded of them.

    Raises CorruptionError when an old file is not what was recorded, or the new one not what it must be.
    """
    location = paths.data_file(piece.location, piece.job_id)
    reached(Failpoint.COMPACT_BEFORE_FILE)
    copying.copy(piece.table, piece.files, location, piece.memory_limit)
    reached(Failpoint.COMPACT_WROTE_FILE)
    meant = sum((fingerprint_now(piece.table, file) for file in piece.files), start=NO_ROWS)
    try:
        return proved(piece.table, location, meant, "compaction")
    except CorruptionError:
        blame(piece.table, piece.files)
        raise
