"""Sweep: delete what lies in a table's folder of the lake and belongs to nothing: docs/design/upkeep.md."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from frostline import failpoints
from frostline.catalog import jobs, lake_files, lake_states, periods
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import foreign, paths, reachable, snapshots, store, warehouse
from frostline.lake.paths import StoredFile
from frostline.model.names import Named
from frostline.model.tables import Table
from frostline.pipeline import job
from frostline.relation import staging
from frostline.settings import Settings

OLDER_THAN = "3 days"
"""The safety age, when nobody says another."""
_LEAST_AGE = timedelta(hours=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Orphan:
    """A file that belongs to nothing."""

    location: str
    size_bytes: int
    age: timedelta
    """By the store's clock."""


@dataclass(frozen=True)
class Result:
    """What a sweep of one table deleted, or would delete."""

    table: Named
    orphans: tuple[Orphan, ...] = ()
    left: int = 0
    """Old files that belong to nothing here, and may belong to another lineage of this database."""
    unknown: tuple[str, ...] = ()
    """Old files that no job named. They are never deleted."""
    waiting: tuple[str, ...] = ()
    """Why nothing was looked for."""
    error: FrostlineError | None = None

    @property
    def size_bytes(self) -> int:
        """Of all that was deleted."""
        return sum(orphan.size_bytes for orphan in self.orphans)


@dataclass(frozen=True)
class Request:
    """How to sweep."""

    older_than: str = OLDER_THAN
    """Younger files are left alone, as an interval of Postgres."""
    dry_run: bool = False
    take_over: bool = False
    """The databases that this one was restored or promoted from are gone: what they left is ours."""


def run(connection: Connection, settings: Settings, chosen: Sequence[Table], request: Request) -> list[Result]:
    """Sweep each table's folder in turn. One table's failure does not stop the others; it is in its result."""
    age = safety_age(connection, request)
    if request.take_over and not request.dry_run:
        with suppress(FrostlineError) if chosen else nullcontext():  # of a wrong warehouse each table tells
            warehouse.require(connection, settings.warehouse)
            lake_states.take_over(connection)
    return job.for_each(chosen, "sweep", lambda table: _sweep(connection, settings, table, age, request), Result)


def sweep_table(connection: Connection, settings: Settings, table: Table) -> Result:
    """Sweep one table's folder, as the worker does."""
    request = Request()
    return _sweep(connection, settings, table, safety_age(connection, request), request)


def safety_age(connection: Connection, request: Request) -> timedelta:
    """The safety age. A short one is for looking only: it guards against mistakes, the lease against running jobs."""
    periods.check_interval(connection, "older-than", request.older_than)
    age = timedelta(seconds=periods.seconds(connection, request.older_than))
    if age < _LEAST_AGE and not request.dry_run:
        raise UsageError(f"--older-than {request.older_than!r} is less than an hour", hint="say --dry-run to only look")
    return age


def _sweep(connection: Connection, settings: Settings, chosen: Table, age: timedelta, request: Request) -> Result:
    if request.dry_run:  # leaves even what a failed job left
        warehouse.require(connection, settings.warehouse)  # the store's clock is asked by writing
        return Sweep(connection, settings, chosen, age, request).look()
    with job.on_table(connection, settings, chosen, "sweep", "sweeping the lake of") as table:
        sweep = Sweep(connection, settings, table, age, request)
        result = sweep.look()
        if result.orphans:
            sweep.delete(result)
        staging.drop_abandoned(connection)  # of writes from Spark, to whichever table
        jobs.prune(connection, table, settings.job_history_days, sweep.writers)
        return result


class Sweep:
    """One sweep of one table's folder; the caller holds the table's lease."""

    def __init__(
        self, connection: Connection, settings: Settings, table: Table, age: timedelta, request: Request
    ) -> None:
        self.connection = connection
        self.table = table
        self.age = age
        self.request = request
        self.location = paths.table_location(settings.warehouse, table)
        self.base: str | None = None
        """The current metadata."""
        self.writers: set[int] = set()
        """The jobs of which the folder has files."""

    def look(self) -> Result:
        """What there is to delete. One listing of the folder, and one look at each of the lake's manifests.

        ConflictError while the catalog points to somebody else's commit: what that needs is nobody's to delete.
        """
        self.base = foreign.base(self.connection, self.table)
        ours = lake_states.own_jobs(self.connection, self.table, any_lineage=self.request.take_over)
        orphans: list[Orphan] = []
        unknown: list[str] = []
        left = 0
        for file, age in self._old():
            writer = paths.job_of(file.location)
            if writer is None:
                unknown.append(file.location)
            elif writer in ours:
                orphans.append(Orphan(file.location, file.size_bytes, age))
            else:
                left += 1
        return Result(self.table, tuple(orphans), left, tuple(unknown))

    def _old(self) -> Iterator[tuple[StoredFile, timedelta]]:
        """Files that are older than the safety age and belong to nothing. The listing comes before the references."""
        with store.reachable(f"list the lake's files of {self.table.name}"):
            files = list(paths.stored(self.location))
            now: datetime | None = paths.store_clock(self.location) if files else None
        self._refuse_another_place({file.location for file in files})
        self.writers = {writer for file in files if (writer := paths.job_of(file.location)) is not None}
        needed = self._needed()
        for file in files:
            assert now is not None
            if file.location not in needed and now - file.modified_at >= self.age:
                yield file, now - file.modified_at

    def _refuse_another_place(self, listed: Collection[str]) -> None:
        """The lake's own names for its files must be those of the listing, or all of them would look like garbage.

        The same folder may have two names: by a link, a mount, or another spelling of the warehouse.
        """
        base = self.base
        if base is None:
            return
        place = snapshots.read_metadata(base).location
        if place != self.location or base not in listed:
            raise UsageError(
                f"the lake of {self.table.name} is at {place}, not at {self.location}; nothing was deleted",
                hint="set warehouse as it was when the table was archived",
            )

    def _needed(self) -> Collection[str]:
        """Everything that the current metadata, its snapshots, or a state that may still be read consists of."""
        known = lake_states.list_all(self.connection, self.table)
        needed = {state.metadata_location for state in known}
        needed.update(file.path for file in lake_files.recorded(self.connection, self.table))
        base = self.base
        if base is None:
            return needed
        metadata = snapshots.read_metadata(base)
        needed |= {base, *(entry.metadata_file for entry in metadata.metadata_log)}
        needed |= reachable.all_files(metadata).keys()
        present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        for state in known:
            if state.snapshot_id is not None and state.snapshot_id not in present:
                needed |= reachable.all_files(snapshots.read_metadata(state.metadata_location)).keys()
        return needed

    def delete(self, result: Result) -> None:
        """Delete the orphans. Killed anywhere, the next sweep does the rest."""
        begun = job.begun(_log, self.connection, self.table, "sweep", files=len(result.orphans))
        with begun as (job_id, _):
            with store.reachable(f"delete files of {self.table.name} that belong to nothing"):
                for _ in paths.delete_each(orphan.location for orphan in result.orphans):
                    failpoints.reached(Failpoint.SWEEP_DELETED_ONE)
            lake_files.forget_checksums(self.connection, [orphan.location for orphan in result.orphans])
            failpoints.reached(Failpoint.SWEEP_DELETED)
            left = f", {result.left} of another lineage left" if result.left else ""
            jobs.describe(self.connection, job_id, f"{len(result.orphans)} files{left}")
            jobs.advance(self.connection, job_id, State.PUBLISHED, size_bytes=result.size_bytes)
