"""Clean: empty heap partitions whose rows are in the lake, once nobody can still read them there."""

import logging
from dataclasses import dataclass

import psycopg

from frostline import logs
from frostline.catalog import archived_partitions, horizon, leases
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection
from frostline.failpoints import Failpoint, reached
from frostline.lake import foreign, warehouse
from frostline.model.tables import Table
from frostline.pipeline import job, verify
from frostline.relation import bound, heap, references
from frostline.settings import Settings

_log = logging.getLogger(__name__)

_IN_USE = "somebody has the seam in use all the time, with an open cursor perhaps"


@dataclass(frozen=True)
class Waiting:
    """A partition that stays for now, and why."""

    partition: str
    reason: str


@dataclass(frozen=True)
class Result:
    """What a clean did."""

    emptied: tuple[str, ...]
    waiting: tuple[Waiting, ...]


NOTHING = Result((), ())


def run(connection: Connection, settings: Settings, table: Table) -> Result:
    """Clean one table, by itself."""
    with (
        job.leased(connection, settings, table, "clean", "cleaning"),
        warehouse.guarded(connection, settings.warehouse),
        job.settled_names(connection, table),
    ):
        return within_job(connection, table)


def within_job(connection: Connection, target: Table) -> Result:
    """Clean one table whose job lock the caller holds; `warehouse.check` knows what to look for.

    ConflictError when somebody else has committed to its lake.
    """
    emptied: list[str] = []
    waiting: list[Waiting] = []
    foreign.refuse(connection, target)
    archived_partitions.adopt_xids(connection, target)
    for partition in archived_partitions.uncleaned(connection, target):
        reason = _reason_to_wait(connection, target, partition)
        if reason is None:
            # It was waited for long enough once; the others would wait as long.
            is_in_use = any(one.reason == _IN_USE for one in waiting)
            reason = _IN_USE if is_in_use else _empty(connection, target, partition)
        if reason:
            waiting.append(Waiting(str(partition.name), reason))
        else:
            emptied.append(str(partition.name))
            _log.info("%s", logs.fields(stage="clean", table=str(target.name), partition=str(partition.name)))
    for name in archived_partitions.emptied(connection, target):
        heap.drop(connection, target, name)
        reached(Failpoint.CLEAN_DROPPED)
    bound.lower(connection, target)
    if bound.merge(connection, target):
        bound.analyze(connection, target)  # of many small archives the statistics of one are left
    reached(Failpoint.CLEAN_MERGED)
    return Result(tuple(emptied), tuple(waiting))


def _reason_to_wait(connection: Connection, target: Table, partition: ArchivedPartition) -> str | None:
    if not partition.grace_is_over:
        return f"in its grace period until {partition.grace_ends_at:%Y-%m-%d %H:%M:%S}"
    older = horizon.older_snapshots(connection, partition.published_xid)
    if older:
        return f"a transaction from before it was published is still open: {', '.join(older)}"
    marks = heap.marks(connection, target, partition.lower, partition.upper)
    return f"{marks} changed rows of its range wait to be folded" if marks else None


def _empty(connection: Connection, target: Table, partition: ArchivedPartition) -> str | None:
    """Compare once more with the lake, then truncate. Returns why not, if not."""
    if not heap.exists(connection, partition.name):
        archived_partitions.set_cleaned(connection, target, partition.upper)
        return None
    reached(Failpoint.CLEAN_BEFORE_VERIFY)
    verify.before_clean(connection, target, partition)
    reached(Failpoint.CLEAN_VERIFIED)
    if not horizon.settle_standbys(connection):
        return _IN_USE
    warehouse.check()  # what was compared may have gone away since
    try:
        with connection.transaction():
            leases.require(connection, target)
            foreign.refuse(connection, target)
            reason = _emptied(connection, target, partition)
            if reason is not None:
                return reason
            archived_partitions.set_cleaned(connection, target, partition.upper)
            reached(Failpoint.CLEAN_BEFORE_COMMIT)
    except psycopg.errors.LockNotAvailable:
        return "it is being read or written"
    reached(Failpoint.CLEAN_EMPTIED)
    return None


def _emptied(connection: Connection, target: Table, partition: ArchivedPartition) -> str | None:
    found = references.inbound(connection, target)
    if found:
        return heap.delete_archived(connection, target, partition.name, partition.lower, partition.upper, found)
    is_empty = heap.empty(connection, target, partition.name, partition.lower, partition.upper)
    return None if is_empty else heap.CHANGED_JUST_NOW
