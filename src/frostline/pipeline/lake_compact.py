"""Compact lake tables: small files become larger ones, without the rows that are gone, and delete files go away.

docs/design/lake-tables.md, "Compaction". Nobody is kept from writing meanwhile: whoever commits first wins, and of what
was written here only that is committed which still has the same rows as the files that it replaces.
"""

import logging
import uuid
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortDirection

from frostline.catalog import jobs, lake_tables
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State as JobState
from frostline.catalog.pointers import LakePointer
from frostline.errors import OutcomeUnknown
from frostline.failpoints import Failpoint, reached
from frostline.lake import (
    datafiles,
    ducksql,
    lake_commit,
    lake_format,
    lake_publish,
    lake_rewrite,
    lake_rows,
    lake_table,
    lake_upkeep,
    pg_types,
    publish,
    schema,
    warehouse,
)
from frostline.lake.datafiles import WrittenFile
from frostline.lake.lake_publish import Change
from frostline.lake.lake_rewrite import Worn
from frostline.lake.lake_table import State
from frostline.model import lake_upkeep as rules
from frostline.model import upkeep
from frostline.model.lake_upkeep import Rewrite
from frostline.model.tables import TableCopy
from frostline.pipeline import copying, job, lake_expire
from frostline.pipeline.compact import Result
from frostline.pipeline.job import JobContext
from frostline.tiers.proof.files import proved

_log = logging.getLogger(__name__)
_PASSES = 10
"""A merged file may be smaller than its parts together, and go on. Writers may add files all the time."""


@dataclass(frozen=True)
class Plan:
    """What there is to do."""

    state: State
    wear: Worn
    bins: Sequence[Rewrite]
    """Each becomes one file, or none."""
    manifests: int
    """How many the snapshot has."""
    packs: bool
    """They are too many, and will be written anew."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.bins and not self.packs and not self.wear.idle


@dataclass(frozen=True)
class Merge:
    """Files of one partition that become one, for a task."""

    table: TableCopy
    files: Rewrite
    deletes: Sequence[Sequence[str]]
    """The delete files that name each of them."""
    order: str
    location: str
    memory_limit: str


@dataclass(frozen=True)
class _Made:
    """What a task has made of some files; None when none of their rows is left."""

    files: Rewrite
    written: DataFile | None


@dataclass(frozen=True)
class _Committed:
    """What became of what was made."""

    good: Sequence[_Made]
    """This is in it."""
    left: Sequence[_Made]
    """This came to nothing, because somebody has changed the same files."""
    manifests: int
    """How many the snapshot has then."""


def run(context: JobContext, tables: Sequence[LakePointer]) -> list[Result]:
    """Compact each lake table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "compact", partial(compact_table, context), Result)


def plan(table: LakePointer, *, only_due: bool = False) -> Plan:
    """What a compaction would do now. Reads the metadata, and delete files that nobody has read yet."""
    state = lake_table.state(table.metadata_location)
    lake_format.written(state.metadata)
    wear, target = lake_rewrite.worn(state), rules.target_file_size(state.metadata.properties)
    bins = rules.rewrites(lake_rewrite.kept_files(state, wear), target, only_due=only_due)
    sizes = lake_rewrite.manifest_sizes(state)
    return Plan(state, wear, bins, len(sizes), upkeep.manifests_are_many(sizes))


def compact_table(context: JobContext, chosen: LakePointer, *, only_due: bool = False) -> Result:
    """Merge until nothing is left to merge, or writers are faster. With `only_due` where it is worth the while."""
    connection = context.connection
    with warehouse.guarded(connection, context.settings.warehouse):
        now = lake_tables.by_id(connection, chosen.id)
        state = lake_table.state(now.metadata_location)
        if only_due and not lake_format.is_written(state.metadata):
            lake_expire.record(connection, chosen.id, state)
            return Result(chosen)
        result, planned = Result(chosen), plan(now, only_due=only_due)
        if not planned.is_empty:
            with job.begun_on_lake(_log, connection, chosen, "compact") as (job_id, said):
                result, planned = _passes(context, chosen, planned, only_due=only_due)
                said.update(merged=result.merged_files, written=result.written_files)
                told = f"{result.merged_files} files became {result.written_files}"
                jobs.describe(connection, job_id, told)
                jobs.advance(connection, job_id, JobState.PUBLISHED)
        lake_expire.record(connection, chosen.id, planned.state)
    return result


def _passes(context: JobContext, chosen: LakePointer, planned: Plan, *, only_due: bool) -> tuple[Result, Plan]:
    """What was done, and what is left to do."""
    result = Result(chosen)
    for _ in range(_PASSES):
        done = _Compaction(context, chosen, planned).run()
        result = replace(
            result,
            merged_files=result.merged_files + done.merged_files,
            written_files=result.written_files + done.written_files,
            replaced_manifests=result.replaced_manifests + done.replaced_manifests,
            written_manifests=result.written_manifests + done.written_manifests,
        )
        planned = plan(lake_tables.by_id(context.connection, chosen.id), only_due=only_due)
        if planned.is_empty:
            break
    return result, planned


class _Compaction:
    """One pass over one table."""

    def __init__(self, context: JobContext, table: LakePointer, planned: Plan) -> None:
        self.context, self.table, self.planned = context, table, planned
        self.copy = TableCopy(table.name, pg_types.columns(planned.state.metadata))

    def run(self) -> Result:
        """Write, prove, commit. An error before the commit leaves readers as they were, and no file."""
        made = self._merge()
        reached(Failpoint.COMPACT_MERGED)
        try:
            _, done = lake_publish.commit(partial(self._staged, made), self._transaction, reconnects=False)
        except OutcomeUnknown:
            raise  # the files may be needed; if not, they are swept
        except Exception:
            _discard(made)
            raise
        if done is None:
            _discard(made)
            return Result(self.table)
        reached(Failpoint.COMPACT_PUBLISHED)
        _discard(done.left)
        return self._done(done)

    def _merge(self) -> list[_Made]:
        metadata, deletes = self.planned.state.metadata, self.planned.wear.deletes
        pieces = [
            Merge(
                self.copy,
                files,
                [deletes.get(file.path, ()) for file in files],  # pyright: ignore[reportArgumentType]
                _order(metadata, self.copy),
                f"{metadata.location}/data/{uuid.uuid4().hex}.parquet",
                self.context.settings.export_memory,
            )
            for files in self.planned.bins
        ]
        try:
            written = self.context.run_tasks(self.copy, merge_files, pieces)
        except Exception:
            lake_commit.discard([piece.location for piece in pieces])
            raise
        return [
            _Made(files, self._data_file(files, file)) for files, file in zip(self.planned.bins, written, strict=True)
        ]

    def _data_file(self, files: Rewrite, written: WrittenFile | None) -> DataFile | None:
        """As Iceberg describes it: in the partition of the files that it replaces."""
        if written is None:
            return None
        old = self.planned.state.data[files[0].path]
        file = datafiles.to_data_file(written, self.copy, old.partition)
        file.spec_id = old.spec_id
        return file

    def _staged(self, made: Sequence[_Made]) -> tuple[Change, _Committed] | None:
        """Upon what is there now; None when nothing of it is of use any more."""
        now = lake_table.state(lake_tables.by_id(self.context.connection, self.table.id).metadata_location)
        good, left = self._unharmed(made, now)
        written = [each.written.file_path for each in good if each.written is not None]
        lake_upkeep.refuse_swept(self.planned.state, now, written)
        removed = {file.path for each in good for file in each.files}
        removed |= _applied(now, removed)
        if not removed and not self.planned.packs:
            return None
        added = [each.written for each in good if each.written is not None]
        staged = lake_rewrite.stage(self.table.id, now, added, removed, pack=self.planned.packs)
        reached(Failpoint.COMPACT_STAGED)
        return Change([staged.move], staged.written), _Committed(good, left, len(staged.state.manifests))

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        hint = f"frostline lake show {self.table.name}; then run frostline compact again"
        with publish.transaction(self.context.connection, f"publishing a compaction of {self.table.name}", hint=hint):
            yield self.context.connection
            reached(Failpoint.COMPACT_BEFORE_COMMIT)

    def _unharmed(self, made: Sequence[_Made], now: State) -> tuple[list[_Made], list[_Made]]:
        """Those that can be committed upon what is there now, and the others."""
        known = {lake_rows.local(path): path for path in now.data}
        since = [lake_rows.count_deletes(path) for path in now.deletes.keys() - self.planned.state.deletes.keys()]
        changed = {known[path] for named in since for path in named if path in known}
        good, left = list[_Made](), list[_Made]()
        for each in made:
            (left if rules.is_overtaken(each.files, now.data.keys(), changed) else good).append(each)
        return good, left

    def _done(self, commit: _Committed) -> Result:
        packed = self.planned.packs
        return Result(
            self.table,
            merged_files=sum(len(made.files) for made in commit.good),
            written_files=sum(made.written is not None for made in commit.good),
            replaced_manifests=self.planned.manifests if packed else 0,
            written_manifests=commit.manifests if packed else 0,
        )


def _applied(now: State, removed: Collection[str]) -> set[str]:
    """The delete files that name no file which stays."""
    staying = {lake_rows.local(path) for path in now.data if path not in removed}
    return {path for path in now.deletes if staying.isdisjoint(lake_rows.count_deletes(path))}


def _discard(made: Sequence[_Made]) -> None:
    lake_commit.discard([each.written.file_path for each in made if each.written is not None])


def _order(metadata: TableMetadata, table: TableCopy) -> str:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    names = dict(zip((column.field_id for column in table.columns), schema.parquet_names(table), strict=True))
    keys = [
        f"{ducksql.identifier(names[field.source_id])} "
        + ("desc nulls first" if field.direction == SortDirection.DESC else "asc nulls last")
        for field in (order.fields if order else ())
        if field.source_id in names
    ]
    return f"order by {', '.join(keys)}" if keys else ""


def merge_files(piece: Merge) -> WrittenFile | None:
    """Write the rows of all the files that are not gone to a new one, and prove that it has exactly those.

    None when no row is left. CorruptionError when an old file cannot be read, or the new one is not what it must be.
    """
    files = dict(zip((file.path for file in piece.files), piece.deletes, strict=True))
    meant = copying.remaining(piece.table, files)
    if not meant.rows:
        return None
    reached(Failpoint.COMPACT_BEFORE_FILE)
    copying.copy_remaining(piece.table, files, piece.table, piece.location, piece.memory_limit, order=piece.order)
    reached(Failpoint.COMPACT_WROTE_FILE)
    return proved(piece.table, piece.location, meant, "compaction", in_order=False)
