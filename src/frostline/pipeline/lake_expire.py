"""Expire lake tables: states that the policy does not keep any more, and the files that only they have.

docs/design/lake-tables.md, "Upkeep". Nobody is kept from writing meanwhile: the metadata without the old snapshots is
committed by compare-and-set, and what is deleted is found out from what was committed.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from frostline import logs
from frostline.catalog import jobs, lake_tables
from frostline.catalog import lake_upkeep as catalog
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State as JobState
from frostline.catalog.lake_tables import CommitLost
from frostline.catalog.lake_upkeep import Former
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.lake import lake_format, lake_publish, lake_table, lake_upkeep, paths, publish, store, warehouse
from frostline.lake.lake_publish import Change
from frostline.lake.lake_table import State
from frostline.lake.lake_upkeep import Sizes
from frostline.model import lake_upkeep as rules
from frostline.pipeline import job
from frostline.pipeline.expire import Result
from frostline.settings import Settings

COPY = (
    "this database was restored or promoted, and the one that it comes from may need the files: "
    "frostline sweep --take-over says that it is gone"
)
READ_ONLY = "a table of format 1 is read and not written: let another engine set format-version to 2"
_NEVER = timedelta(days=36_500)
"""The age at which states are over that nobody here expires."""
_log = logging.getLogger(__name__)


def run(
    connection: Connection, settings: Settings, tables: Sequence[LakePointer], *, dry_run: bool = False
) -> list[Result]:
    """Expire each lake table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "expire", partial(expire_table, connection, settings, dry_run=dry_run), Result)


def expire_table(connection: Connection, settings: Settings, chosen: LakePointer, *, dry_run: bool = False) -> Result:
    """Expire what the policy does not keep. Without anything to expire there is no commit and no job."""
    with warehouse.guarded(connection, settings.warehouse):
        if not catalog.is_own(connection, chosen.id):
            return Result(chosen, waiting=(COPY,))
        state = lake_table.state(lake_tables.by_id(connection, chosen.id).metadata_location)
        if not lake_format.is_written(state.metadata):
            record(connection, chosen.id, state)
            return Result(chosen, waiting=(READ_ONLY,))
        planned = plan(connection, chosen)
        if dry_run:
            files = doomed(connection, planned, planned.state.metadata)
            return Result(chosen, len(planned.snapshots), len(files), sum(files.values()))
        if planned.over:
            with job.begun_on_lake(_log, connection, chosen, "expire") as (job_id, said):
                result, state = _Expiry(connection, chosen, job_id).run()
                said.update(snapshots=result.snapshots, files=result.files, size_bytes=result.size_bytes)
        else:
            result, state = Result(chosen), planned.state
        record(connection, chosen.id, state)
        return result


def record(connection: Connection, lake_table_id: int, state: State) -> None:
    """Write down what a table consists of, for all who do not read the lake."""
    keeping = rules.keeping(state.metadata.properties)
    if not lake_format.is_written(state.metadata):
        keeping = replace(keeping, age=_NEVER, short_age=_NEVER)
    catalog.record(connection, lake_table_id, lake_upkeep.look(state), keeping)


@dataclass(frozen=True)
class Plan:
    """What may go of a table as it is now."""

    table: LakePointer
    state: State
    over: Sequence[Former]
    """States that nobody may read any more."""
    snapshots: frozenset[int]
    """Of the present metadata, those that no other state has."""


def plan(connection: Connection, chosen: LakePointer) -> Plan:
    """Decide upon what is there now. Reads the metadata of the oldest state that stays."""
    table = lake_tables.by_id(connection, chosen.id)
    state = lake_table.state(table.metadata_location)
    metadata = lake_format.written(state.metadata)
    keeping = rules.keeping(metadata.properties)
    over = [
        known
        for known in catalog.over(connection, table.id, keeping)
        if known.metadata_location != table.metadata_location
    ]
    if not over:
        return Plan(table, state, (), frozenset())
    readable = (lake_upkeep.read(at) for at in _staying(connection, table.id, over))
    oldest = next(filter(None, readable), metadata)
    return Plan(table, state, over, rules.expired(lake_upkeep.past(metadata), lake_upkeep.since(oldest), keeping))


def _staying(connection: Connection, lake_table_id: int, over: Sequence[Former]) -> list[str]:
    """The metadata files of former states that somebody may read, the oldest first."""
    gone = {known.metadata_location for known in over}
    return [location for location in catalog.former(connection, lake_table_id) if location not in gone]


def doomed(connection: Connection, planned: Plan, committed: TableMetadata) -> Sizes:
    """The files of the states and snapshots that go, which no other one has: metadata files first.

    So a reader that misses a file of its state can see that the state has expired.
    """
    before, gone, folder = planned.state.metadata, planned.snapshots, planned.table.location.rstrip("/")
    assert isinstance(committed, TableMetadataV2)
    metadata = [plain for at in planned.over if (plain := paths.inside(at.metadata_location, folder)) is not None]
    sizes = dict.fromkeys(metadata, 0)
    if gone:
        others = lake_upkeep.read_by_others(committed, _staying(connection, planned.table.id, planned.over))
        kept = [known for known in committed.snapshots if known.snapshot_id not in gone]
        needed = lake_upkeep.files_of(folder, [*kept, *others]).keys()
        needed |= lake_upkeep.statistics_of(folder, committed, lambda number: number not in gone).keys()
        going = _files(folder, [known for known in before.snapshots if known.snapshot_id in gone])
        going |= lake_upkeep.statistics_of(folder, before, gone.__contains__)
        sizes |= {location: size for location, size in going.items() if location not in needed}
    return sizes


def _files(folder: str, going: Sequence[Snapshot]) -> Sizes:
    """The files of snapshots that go. What is left of one that cannot be read is for the sweep."""
    sizes = Sizes()
    for known in going:
        try:
            sizes |= lake_upkeep.files_of(folder, [known])
        except UnavailableError as error:
            _log.warning("%s", logs.fields(stage="expire", snapshot=known.snapshot_id, warning=error.message))
    return sizes


class _Expiry:
    """One expiry of one table, whose job has begun."""

    def __init__(self, connection: Connection, table: LakePointer, job_id: int) -> None:
        self.connection, self.table, self.job_id = connection, table, job_id

    def run(self) -> tuple[Result, State]:
        """Commit, then delete. An error before the commit leaves everything as it was. Gives what the table is then."""
        _, done = lake_publish.commit(self._staged, self._transaction, reconnects=False)
        if done is None:
            raise ConflictError(f"others keep committing to {self.table.name}", hint="run it again")
        reached(Failpoint.EXPIRE_PUBLISHED)
        planned, state = done
        files = doomed(self.connection, planned, state.metadata)
        self._delete(files)
        return Result(self.table, len(planned.snapshots), len(files), sum(files.values())), state

    def _staged(self) -> tuple[Change, tuple[Plan, State]]:
        """Upon what is there now, with what the table is then."""
        planned = plan(self.connection, self.table)
        claim = partial(self._forgotten, planned)
        if not planned.snapshots:
            return Change(claim=claim), (planned, planned.state)
        files = {state.metadata_location for state in planned.over}
        staged = lake_upkeep.stage_expiry(self.table.id, planned.state, planned.snapshots, files)
        reached(Failpoint.EXPIRE_STAGED)
        return Change([staged.move], staged.written, claim=claim), (planned, staged.state)

    def _forgotten(self, planned: Plan, connection: Connection) -> bool:
        """In the transaction that moves the pointer: forget the states that are over, and end the job.

        CommitLost when it is not all as it was found: a table that was registered meanwhile may be in one of them.
        """
        now = lake_tables.locked(connection, self.table.id)
        forgotten = catalog.forget(connection, self.table.id, planned.over)
        if now.metadata_location != planned.table.metadata_location or len(forgotten) != len(planned.over):
            raise CommitLost(f"somebody else has changed {self.table.name} meanwhile", hint="run it again")
        jobs.describe(connection, self.job_id, f"{len(planned.snapshots)} snapshots, {len(planned.over)} states")
        jobs.advance(connection, self.job_id, JobState.PUBLISHED)
        return True

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        hint = f"frostline lake show {self.table.name}; then run frostline expire again"
        with publish.transaction(self.connection, f"expiring snapshots of {self.table.name}", hint=hint):
            yield self.connection
            reached(Failpoint.EXPIRE_BEFORE_COMMIT)

    def _delete(self, files: Sizes) -> None:
        """What is not deleted here, because the process or the store gives up, is for the sweep."""
        with store.reachable(f"delete files of expired snapshots of {self.table.name}"):
            for location in paths.delete_each(files):
                _log.debug("%s", logs.fields(stage="expire", job=self.job_id, deleted=location))
                reached(Failpoint.EXPIRE_DELETED_ONE)
        reached(Failpoint.EXPIRE_DELETED)
