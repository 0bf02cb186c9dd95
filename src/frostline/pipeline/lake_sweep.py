"""Sweep lake tables: delete what lies in a table's folder and belongs to nothing.

docs/design/lake-tables.md, "Upkeep", has the fence that keeps transactions from committing what was deleted.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadataV2

from frostline.catalog import jobs, lake_tables
from frostline.catalog import lake_upkeep as catalog
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State as JobState
from frostline.catalog.pointers import LakePointer
from frostline.errors import UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import lake_table, lake_upkeep, paths, store, warehouse
from frostline.lake.lake_table import State
from frostline.lake.paths import StoredFile
from frostline.model import lake_upkeep as rules
from frostline.pipeline import job, lake_properties
from frostline.pipeline.lake_expire import COPY
from frostline.pipeline.sweep import Orphan, Request, Result, safety_age
from frostline.relation import staging
from frostline.settings import Settings

_log = logging.getLogger(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(connection: Connection, settings: Settings, chosen: Sequence[LakePointer], request: Request) -> list[Result]:
    """Sweep each table's folder in turn. One table's failure does not stop the others; it is in its result."""
    age = safety_age(connection, request)
    return job.for_each(
        chosen, "sweep", lambda table: sweep_table(connection, settings, table, age, dry_run=request.dry_run), Result
    )


def sweep_table(
    connection: Connection, settings: Settings, chosen: LakePointer, age: timedelta, *, dry_run: bool = False
) -> Result:
    """Sweep one table's folder. Without anything to delete there is no commit and no job."""
    with warehouse.guarded(connection, settings.warehouse):
        if not catalog.is_own(connection, chosen.id):
            return Result(chosen, waiting=(COPY,))
        sweep = _Sweep(connection, chosen, age)
        result = sweep.look(lake_table.state(lake_tables.by_id(connection, chosen.id).metadata_location))
        if dry_run:
            return result
        if result.orphans:
            result = sweep.delete()
        staging.drop_abandoned(connection)
        catalog.prune(connection, chosen.id, settings.job_history_days)
        catalog.set_swept(connection, chosen.id)
        return result


@dataclass(frozen=True)
class _Listing:
    """The old files of a folder."""

    files: Sequence[StoredFile]
    now: datetime
    """By the store's clock."""
    before: datetime
    """All of them are older."""


class _Sweep:
    """One sweep of one table's folder."""

    def __init__(self, connection: Connection, table: LakePointer, age: timedelta) -> None:
        self.connection, self.table, self.age = connection, table, age
        self.folder = table.location.rstrip("/")
        self._listing: _Listing | None = None

    def look(self, state: State) -> Result:
        """What there is to delete when the table is in this state. The listing comes before all references."""
        if self._listing is None:
            self._listing = self._listed(state)
        needed, now = self._needed(state), self._listing.now
        idle = [file for file in self._listing.files if file.location not in needed]
        orphans = [
            Orphan(file.location, file.size_bytes, now - file.modified_at)
            for file in idle
            if rules.is_of_iceberg(file.location)
        ]
        unknown = [file.location for file in idle if not rules.is_of_iceberg(file.location)]
        return Result(self.table, tuple(orphans), unknown=tuple(unknown))

    def _listed(self, state: State) -> _Listing:
        with store.reachable(f"list the files of {self.table.name}"):
            files = list(paths.below(self.folder))
            now = paths.store_clock(self.folder)
        if state.metadata.location.rstrip("/") != self.folder or state.location not in {
            file.location for file in files
        }:
            raise UsageError(
                f"{self.table.name} is at {state.location}, and its folder is {self.folder}; nothing was deleted",
                hint=f"frostline lake show {self.table.name}",
            )
        before = now - self.age
        return _Listing([file for file in files if file.modified_at < before], now, before)

    def _needed(self, state: State) -> set[str]:
        """What the state consists of, with all its snapshots, and all former states that somebody may read."""
        metadata, folder = state.metadata, self.folder
        former = catalog.former(self.connection, self.table.id)
        named = {state.location, *former, *(entry.metadata_file for entry in metadata.metadata_log)}
        others = lake_upkeep.read_by_others(metadata, former) if isinstance(metadata, TableMetadataV2) else []
        needed = {plain for location in named if (plain := paths.inside(location, folder)) is not None}
        needed |= lake_upkeep.files_of(folder, [*metadata.snapshots, *others]).keys()
        return needed | lake_upkeep.statistics_of(folder, metadata, lambda _: True).keys()

    def delete(self) -> Result:
        """Raise the fence, look again, and delete. Killed anywhere, the next sweep does the rest."""
        assert self._listing is not None
        with job.begun_on_lake(_log, self.connection, self.table, "sweep") as (job_id, said):
            result = self.look(self._fenced(self._listing.before))
            with store.reachable(f"delete files of {self.table.name} that belong to nothing"):
                for _ in paths.delete_each(orphan.location for orphan in result.orphans):
                    reached(Failpoint.SWEEP_DELETED_ONE)
            reached(Failpoint.SWEEP_DELETED)
            said.update(files=len(result.orphans), size_bytes=result.size_bytes)
            jobs.describe(self.connection, job_id, f"{len(result.orphans)} files")
            jobs.advance(self.connection, job_id, JobState.PUBLISHED, size_bytes=result.size_bytes)
        return result

    def _fenced(self, before: datetime) -> State:
        """What was staged before this cannot be committed, and a writer that stages anew looks for what was swept."""
        lowest = (before - _EPOCH) // timedelta(milliseconds=1) + 1

        def raised(now: State) -> Mapping[str, str]:
            known = lake_upkeep.fence(now)
            return {lake_upkeep.SWEPT_BEFORE: str(max(lowest, int(known) + 1 if known.isdigit() else 0))}

        state = lake_properties.commit(self.connection, self.table, raised)
        reached(Failpoint.SWEEP_FENCED)
        return state
