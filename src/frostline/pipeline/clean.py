"""Clean: empty heap partitions whose rows are in the lake, once nobody can still read them there."""

import logging
from dataclasses import dataclass

import psycopg

from frostline import logs
from frostline.catalog import archived_partitions, facts, horizon, leases
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection
from frostline.failpoints import Failpoint, reached
from frostline.lake import foreign, warehouse
from frostline.model.tables import Table
from frostline.pipeline import job, verify
from frostline.relation import bound, columns, heap, references
from frostline.settings import Settings

_log = logging.getLogger(__name__)

_IN_USE = "a session keeps the seam in use, perhaps with an open cursor"


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


def within_job(connection: Connection, table: Table) -> Result:
    """Clean one table whose job lock the caller holds; `warehouse.check` knows what to look for.

    ConflictError when somebody else has committed to its lake.
    """
    emptied: list[str] = []
    waiting: list[Waiting] = []
    foreign.refuse(connection, table)
    columns.require(connection, table)
    archived_partitions.adopt_xids(connection, table)
    for partition in archived_partitions.uncleaned(connection, table):
        reason = _reason_to_wait(connection, table, partition)
        if reason is None:
            # It was waited for long enough once; the others would wait as long.
            is_in_use = any(other.reason == _IN_USE for other in waiting)
            reason = _IN_USE if is_in_use else _empty(connection, table, partition)
        if reason:
            waiting.append(Waiting(str(partition.name), reason))
        else:
            emptied.append(str(partition.name))
            _log.info("%s", logs.fields(stage="clean", table=str(table.name), partition=str(partition.name)))
    for name in archived_partitions.emptied(connection, table):
        heap.drop(connection, table, name)
        reached(Failpoint.CLEAN_DROPPED)
    bound.lower(connection, table)
    if bound.merge(connection, table):
        bound.analyze(connection, table)  # of many small archives the statistics of one are left
    reached(Failpoint.CLEAN_MERGED)
    return Result(tuple(emptied), tuple(waiting))


def _reason_to_wait(connection: Connection, table: Table, partition: ArchivedPartition) -> str | None:
    if not partition.grace_is_over:
        return f"in its grace period until {partition.grace_ends_at:%Y-%m-%d %H:%M:%S}"
    older = horizon.older_snapshots(connection, partition.published_xid)
    if older:
        return f"a transaction from before it was published is still open: {', '.join(older)}"
    marks = heap.marks(connection, table, partition.lower, partition.upper)
    return f"{marks} changed rows of its range wait to be folded" if marks else None


def _empty(connection: Connection, table: Table, partition: ArchivedPartition) -> str | None:
    """Compare once more with the lake, then truncate. Returns why not, if not."""
    if not facts.exists(connection, partition.name):
        archived_partitions.set_cleaned(connection, table, partition.upper)
        return None
    reached(Failpoint.CLEAN_BEFORE_VERIFY)
    verify.before_clean(connection, table, partition)
    reached(Failpoint.CLEAN_VERIFIED)
    if not horizon.settle_standbys(connection):
        return _IN_USE
    warehouse.check()  # what was compared may have gone away since
    try:
        with connection.transaction():
            leases.require(connection, table)
            foreign.refuse(connection, table)
            reason = _emptied(connection, table, partition)
            if reason is not None:
                return reason
            archived_partitions.set_cleaned(connection, table, partition.upper)
            reached(Failpoint.CLEAN_BEFORE_COMMIT)
    except psycopg.errors.LockNotAvailable:
        return "it is being read or written"
    reached(Failpoint.CLEAN_EMPTIED)
    return None


def _emptied(connection: Connection, table: Table, partition: ArchivedPartition) -> str | None:
    if references.inbound(connection, table):
        return heap.delete_archived(connection, table, partition.name, partition.lower, partition.upper)
    is_empty = heap.empty(connection, table, partition.name, partition.lower, partition.upper)
    return None if is_empty else heap.CHANGED_JUST_NOW
