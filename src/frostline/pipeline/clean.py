"""Clean: empty heap partitions whose rows are in the lake, once nobody can still read them there."""

import logging
from dataclasses import dataclass

import psycopg

from frostline import logs
from frostline.catalog import jobs
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import ArchivedPartition
from frostline.model.tables import Table
from frostline.pipeline import verify
from frostline.relation import bound, heap

_log = logging.getLogger(__name__)


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


def run(connection: Connection, table: Table) -> Result:
    """Clean one table, by itself."""
    with jobs.exclusive(connection, table):
        return within_job(connection, table)


def within_job(connection: Connection, target: Table) -> Result:
    """Clean one table whose job lock the caller holds."""
    emptied: list[str] = []
    waiting: list[Waiting] = []
    for partition in jobs.uncleaned(connection, target):
        reason = _reason_to_wait(connection, target, partition) or _empty(connection, target, partition)
        if reason:
            waiting.append(Waiting(str(partition.name), reason))
        else:
            emptied.append(str(partition.name))
            _log.info("%s", logs.fields(stage="clean", table=str(target.name), partition=str(partition.name)))
    for name in jobs.emptied(connection, target):
        heap.drop(connection, target, name)
    bound.merge(connection, target)
    return Result(tuple(emptied), tuple(waiting))


def _reason_to_wait(connection: Connection, target: Table, partition: ArchivedPartition) -> str | None:
    if not partition.grace_is_over:
        return f"in its grace period until {partition.grace_ends_at:%Y-%m-%d %H:%M:%S}"
    older = jobs.older_snapshots(connection, partition.published_xid)
    if older:
        return f"a transaction from before it was published is still open: {', '.join(older)}"
    marks = heap.marks(connection, target, partition.lower, partition.upper)
    return f"{marks} changed rows of its range wait to be folded" if marks else None


def _empty(connection: Connection, target: Table, partition: ArchivedPartition) -> str | None:
    """Compare once more with the lake, then truncate. Returns why not, if not."""
    if not heap.exists(connection, partition.name):
        jobs.set_cleaned(connection, target, partition.upper)
        return None
    verify.before_clean(connection, target, partition)
    try:
        with connection.transaction():
            if not heap.empty(connection, target, partition.name, partition.lower, partition.upper):
                return "a row of its range was changed just now"
            jobs.set_cleaned(connection, target, partition.upper)
    except psycopg.errors.LockNotAvailable:
        return "it is being read or written"
    return None
