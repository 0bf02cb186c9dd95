"""Expire: take states of a lake away that nobody can read any more, and the files that only they need.

docs/design/upkeep.md has the interleavings.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from frostline import failpoints, logs
from frostline.catalog import horizon, jobs, lake_files, lake_states, pins, seams
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint
from frostline.lake import commit, foreign, paths, publish, reachable, snapshots, store
from frostline.lake.reachable import Sizes
from frostline.model import upkeep as rules
from frostline.model.names import Named
from frostline.model.tables import Table
from frostline.model.upkeep import Expiry, LakeState
from frostline.pipeline import job
from frostline.relation import bound
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What an expiry of one table did, or would do."""

    table: Named
    snapshots: int = 0
    files: int = 0
    """Those that were deleted: data, manifests and metadata."""
    size_bytes: int = 0
    left: int = 0
    """Files that nobody here needs and another lineage of this database may."""
    waiting: tuple[str, ...] = ()
    """Why states that are old enough stay."""
    error: FrostlineError | None = None


def run(connection: Connection, settings: Settings, tables: Sequence[Table], *, dry_run: bool = False) -> list[Result]:
    """Expire each table's old states in turn. One table's failure does not stop the others; it is in its result."""
    expires = would_expire if dry_run else expire_table
    return job.for_each(tables, "expire", partial(expires, connection, settings), Result)


def expire_table(connection: Connection, settings: Settings, chosen: Table) -> Result:
    """Expire what nobody can need. Without anything to expire there is no commit and no job."""
    with job.on_table(connection, settings, chosen, "expire", "expiring snapshots of") as table:
        base = foreign.base(connection, table)
        return Result(table) if base is None else Expire(connection, settings, table, base).run()


def would_expire(connection: Connection, settings: Settings, table: Table) -> Result:
    """What an expiry would do now. Changes nothing, and waits for nobody."""
    base = foreign.base(connection, table)
    if base is None:
        return Result(table)
    expiring = Expire(connection, settings, table, base)
    what, waiting = expiring.decide()
    ours, left = expiring.own(reachable.doomed(base, what)) if what else ({}, 0)
    return Result(table, len(what.snapshots), len(ours), sum(ours.values()), left, waiting)


class Expire:
    """One expiry of one table; the caller holds the table's lease."""

    def __init__(self, connection: Connection, settings: Settings, table: Table, base: str) -> None:
        self.connection = connection
        self.table = table
        self.base = base
        self.states: list[LakeState] = []
        self.location = paths.table_location(settings.warehouse, table)

    def run(self) -> Result:
        """All steps in order. An error before the commit leaves everything as it was."""
        self._adopt()
        what, waiting = self.decide()
        if not what:
            return Result(self.table, waiting=waiting)
        behind = bound.settle_standbys(self.connection)
        if behind:
            waiting = (*waiting, f"{behind} standbys are behind, and a query there may still read an old state")
            return Result(self.table, waiting=waiting)
        with job.begun(_log, self.connection, self.table, "expire") as (job_id, line):
            result = self._expire(job_id, what, waiting)
            line.update(snapshots=result.snapshots, files=result.files, size_bytes=result.size_bytes, left=result.left)
        return result

    def _adopt(self) -> None:
        """Let states from before the catalog knew of any begin their time; they go in a later run."""
        known = lake_states.list_all(self.connection, self.table)
        unknown = reachable.unknown_states(snapshots.read_metadata(self.base), known)
        lake_states.adopt(self.connection, self.table, list(unknown))

    def decide(self) -> tuple[Expiry, tuple[str, ...]]:
        """What may go, and why other old states may not."""
        self.states = lake_states.list_all(self.connection, self.table)
        pinned = pins.on(self.connection, self.table)  # after the live snapshots: a reader pins before it ends
        return self._allowed(pinned), tuple(self._reasons(pinned))

    def _allowed(self, pinned: Collection[str]) -> Expiry:
        metadata = snapshots.read_metadata(self.base)
        present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        needed = {ref.snapshot_id for ref in metadata.refs.values()}
        return rules.expiry(self.states, pinned, present, needed)

    def _reasons(self, pinned: Mapping[str, str]) -> Iterator[str]:
        seen = [state for state in self.states if state.is_over and state.is_seen]
        if seen:
            assert seen[-1].replaced_xid is not None
            who = horizon.older_snapshots(self.connection, seen[-1].replaced_xid)
            yield f"a transaction that may see {len(seen)} of them is still open: {', '.join(who) or 'it just ended'}"
        for state in self.states:
            if state.is_over and state.metadata_location in pinned:
                yield f"snapshot {state.snapshot_id}: pinned by {pinned[state.metadata_location]}"

    def _expire(self, job_id: int, what: Expiry, waiting: tuple[str, ...]) -> Result:
        files = reachable.doomed(self.base, what)
        hint = "frostline jobs shows whether it was done; then run frostline expire again"
        with publish.transaction(self.connection, f"expiring snapshots of {self.table.name}", hint=hint):
            final = self._locked(what)
            if final != what:
                files = reachable.doomed(self.base, final) if final else {}
            if final:
                self._swap(job_id, final)
            ours, left = self.own(files)
            lake_files.forget_checksums(self.connection, files)
            described = f"{len(final.snapshots)} snapshots, {len(ours)} files" + (f", {left} left" if left else "")
            jobs.describe(self.connection, job_id, described)
            jobs.advance(self.connection, job_id, State.PUBLISHED, size_bytes=sum(ours.values()))
            failpoints.reached(Failpoint.EXPIRE_BEFORE_COMMIT)
        failpoints.reached(Failpoint.EXPIRE_PUBLISHED)
        self._delete(job_id, ours)
        return Result(self.table, len(final.snapshots), len(ours), sum(ours.values()), left, waiting)

    def _locked(self, what: Expiry) -> Expiry:
        """What is left of the plan when nobody can make a pin on its states any more.

        That no live snapshot sees them was so, and stays so: nobody can get an older snapshot than there is.
        """
        locked = lake_states.lock(self.connection, self.table, what.locations)
        pins.remove_dead(self.connection, self.table)
        pinned = pins.on(self.connection, self.table, dead=True).keys()
        kept = {state.metadata_location for state in self.states} - (what.locations & locked)
        return self._allowed(kept | pinned)

    def _swap(self, job_id: int, what: Expiry) -> None:
        """The commit of the lake and of the seam: T and S stay, the metadata is another."""
        staged = commit.stage_expiry(self.table, self.base, what, job_id)
        failpoints.reached(Failpoint.EXPIRE_STAGED)
        seam = seams.get(self.connection, self.table)
        publish.lake(self.connection, self.table, seam, staged)
        lake_states.delete(self.connection, self.table, what.locations)

    def own(self, files: Sizes) -> tuple[Sizes, int]:
        """Those of the files that may be deleted, and how many may not: they belong to another lineage."""
        jobs_of_ours = lake_states.own_jobs(self.connection, self.table)
        ours = {
            location: size
            for location, size in files.items()
            if location.startswith(f"{self.location}/") and paths.job_of(location) in jobs_of_ours
        }
        return ours, len(files) - len(ours)

    def _delete(self, job_id: int, files: Collection[str]) -> None:
        """What is not deleted here, because the process or the store gives up, is for the sweep."""
        with store.reachable(f"delete files of expired snapshots of {self.table.name}"):
            for location in paths.delete_each(files):
                _log.debug("%s", logs.fields(stage="expire", job=job_id, deleted=location))
                failpoints.reached(Failpoint.EXPIRE_DELETED_ONE)
        failpoints.reached(Failpoint.EXPIRE_DELETED)
