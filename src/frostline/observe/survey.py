"""Survey: the state of every table, as far as it matters for what to do next. Asks Postgres only, never the lake."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import sql

from frostline import logs
from frostline.catalog import (
    archived_partitions,
    jobs,
    lake_files,
    lake_states,
    lake_upkeep,
    leases,
    pins,
    pointers,
    seams,
    tables,
    trust,
)
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.lake_upkeep import Standing
from frostline.catalog.patience import set_lock_timeout
from frostline.model import archive, upkeep
from frostline.model.lake_upkeep import commits_between
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.tables import Seam, Table
from frostline.model.upkeep import LakeState
from frostline.model.work import TableState
from frostline.partitions import default_partition, dropping, premake
from frostline.pipeline import plan
from frostline.relation import heap, references
from frostline.relation.heap import Layout

_log = logging.getLogger(__name__)


Read = TypeVar("Read")


def list_all(connection: Connection) -> list[TableState]:
    """The state of all managed tables at one point in time, and of the lake tables after that.

    The log says which managed tables cannot be read, and why.
    """
    states, unreadable = each(connection, of_table)
    for lost in unreadable:
        _log.error("%s", logs.fields(stage="survey", table=str(lost.name), error=lost.why))
    return [*states, *map(of_lake_table, lake_upkeep.survey(connection))]


def of_lake_table(standing: Standing) -> TableState:
    """The state of a lake table: what Postgres knows of it, and what somebody has seen who has looked at the lake."""
    seen = standing.look
    commits = 1 if seen is None else commits_between(seen.metadata_location, standing.metadata_location)
    return TableState(
        name=standing.name,
        now=standing.now,
        leased_by=standing.leased_by,
        expirable=standing.expirable if standing.is_own else 0,
        has_lake=standing.is_own,
        swept_at=standing.swept_at,
        lake_table_id=standing.id,
        commits=commits,
        looked_at=standing.looked_at,
        failures=standing.failures,
    )


@dataclass(frozen=True)
class Unreadable:
    """A table whose state cannot be told now."""

    name: Name
    why: str


def each(connection: Connection, question: Callable[[Connection, Table], Read]) -> tuple[list[Read], list[Unreadable]]:
    """Ask something of every managed table, all at one point in time; one that fails does not keep the others back.

    No lock is waited for longer than a second: somebody may rewrite a partition for hours.
    """
    answers: list[Read] = []
    unreadable: list[Unreadable] = []
    with connection.transaction():
        connection.execute(sql.SQL("set transaction isolation level repeatable read, read only"))
        set_lock_timeout(connection, 1000)
        for name in tables.names(connection):
            try:
                with connection.transaction():
                    table = tables.get(connection, name)
                    trust.require(connection, table)
                    answers.append(question(connection, table))
            except Exception as error:
                if connection.broken:
                    raise
                unreadable.append(Unreadable(name, first_line(error)))
    return answers, unreadable


def of_table(connection: Connection, table: Table) -> TableState:
    """The state of one table."""
    return of_facts(connection, table, facts(connection, table))


@dataclass(frozen=True)
class Facts:
    """What several questions about a table rest on. Each is read once, and handed to whoever needs it."""

    layout: Layout
    seam: Seam | None = None
    """None of a table without a lake, of which nothing more is known."""
    uncleaned: Sequence[ArchivedPartition] = ()
    states: Sequence[LakeState] = ()
    """Those that the lake has had, the current one last."""


def facts(connection: Connection, table: Table, *, sizes: bool = False) -> Facts:
    """Read them now. With the partitions' sizes it waits for whoever rewrites one."""
    partitions = heap.partitions(connection, table, sizes=sizes)
    if not table.has_lake:
        return Facts(Layout(partitions, table.tier_kind.lowest))
    seam = seams.get(connection, table)
    layout = Layout(partitions, seam.frost_line)
    return Facts(
        layout, seam, archived_partitions.uncleaned(connection, table), lake_states.list_all(connection, table)
    )


def of_facts(connection: Connection, table: Table, seen: Facts) -> TableState:
    """The state of one table of which somebody has read the facts."""
    return _tiered(connection, table, seen) if table.has_lake else _partitioned(connection, table, seen)


def _partitioned(connection: Connection, table: Table, seen: Facts) -> TableState:
    missing, problem = _partitions_ahead(connection, table, seen.layout)
    return TableState(
        name=table.name,
        now=tables.now(connection),
        leased_by=leases.current_holder(connection, table),
        missing_partitions=missing,
        grid_problem=problem,
        can_retain=bool(dropping.expirable(connection, table, seen.layout.partitions)),
        failures=jobs.failures(connection, table),
    )


def _tiered(connection: Connection, table: Table, seen: Facts) -> TableState:
    line, standing = seen.layout.frost_line, pointers.standing(connection, table)
    cutoff = heap.cutoff(connection, table)
    moved, stays = _moved(connection, table, plan.ripe(table, seen.layout.partitions, line, cutoff))
    missing, problem = _partitions_ahead(connection, table, seen.layout)
    over = [partition for partition in seen.uncleaned if partition.grace_is_over]
    blocked = [partition for partition in over if heap.marks(connection, table, partition.lower, partition.upper)]
    snapshots = frozenset(state.snapshot_id for state in seen.states if state.snapshot_id is not None)
    old = upkeep.expiry(seen.states, pins.on(connection, table), snapshots, ())
    return TableState(
        name=table.name,
        now=tables.now(connection),
        leased_by=leases.current_holder(connection, table),
        foreign=standing.described if standing.is_foreign else None,
        missing_partitions=missing,
        grid_problem=problem,
        ripe_partitions=len(moved.partitions),
        stays=stays,
        lag=_lag(moved.partitions, cutoff),
        marks=heap.marks(connection, table, None, line),
        fold_rows=table.policy.fold_rows,
        has_old_mark=heap.has_older_mark(connection, table, line, table.policy.fold_age),
        over_grace=len(over),
        blocked_by_marks=len(blocked),
        can_retain=not plan.retention(connection, table, seen.layout).is_empty,
        can_compact=bool(lake_files.due_merges(connection, table)),
        manifests=lake_states.manifests(connection, table),
        expirable=len(old.snapshots),
        has_lake=bool(seen.states),
        swept_at=tables.swept_at(connection, table),
        failures=jobs.failures(connection, table),
    )


def _moved(connection: Connection, table: Table, ripe: archive.Plan) -> tuple[archive.Plan, str | None]:
    """What archive would move, and before which partition it ends. It will see itself where somebody has locked one."""
    try:
        with connection.transaction():
            return references.limited(connection, table, ripe, ask_lake=False)
    except psycopg.errors.LockNotAvailable:
        return ripe, None


def _lag(ripe: Sequence[Partition], cutoff: int) -> int:
    oldest = ripe[0].upper if ripe else None
    return 0 if oldest is None else cutoff - oldest


def _partitions_ahead(connection: Connection, table: Table, layout: Layout) -> tuple[int, str | None]:
    """How many of the partitions that premake wants are not there, and what is wrong with them.

    A guard that was left is a reason to run it too.
    """
    planned = premake.plan(connection, table, layout)
    return len(planned.cells) or int(default_partition.guard_stands(connection, table)), planned.problem
