"""Status: where every managed table and lake table stands, what comes next, and what is wrong.

Asks Postgres only, never the lake: of lake tables it tells what was seen by whoever has looked last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from frostline.catalog import horizon, jobs, lake_files, lake_upkeep, leases, lost, seams
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import Job
from frostline.catalog.lake_upkeep import Standing
from frostline.model import health, work
from frostline.model.health import Problem, Signs
from frostline.model.tables import Table
from frostline.model.tiers import MICROS_PER_DAY, TierKind, to_text
from frostline.model.work import Kind, TableState
from frostline.observe import survey
from frostline.observe.survey import Facts, Unreadable
from frostline.partitions import premake
from frostline.relation import columns, constraints, heap, rowsecurity


@dataclass(frozen=True)
class Next:
    """What will be done to a table, and when; `at` is None for now."""

    kind: Kind
    at: datetime | None
    why: str


@dataclass(frozen=True)
class LakeStatus:
    """The cold half of a table."""

    frost_line: str | None
    """T as Postgres prints it; None while everything is hot."""
    held_from: str | None
    """Where archive stops because of an undo or a thaw; None while it does not."""
    retained_from: str | None
    """R; None while nothing was removed."""
    lag: int
    """How far the end of the oldest partition that should be cold lies behind the hot period, on the axis."""
    snapshot_id: int | None
    rows: int
    size_bytes: int
    files: int
    snapshots: int
    """Those that can still be read, the current one included."""
    overlay_rows: int
    overlay_age_s: int | None
    """How long the oldest mark has been waiting to be folded."""
    uncleaned_partitions: int
    uncleaned_bytes: int


NO_LAKE = LakeStatus(None, None, None, 0, None, 0, 0, 0, 0, 0, None, 0, 0)


@dataclass(frozen=True)
class TableStatus:
    """One table."""

    table: Table
    state: TableState
    partitions: int
    hot_rows_estimate: int
    hot_bytes: int
    lake: LakeStatus
    last_job: Job | None
    next_action: Next | None
    problems: tuple[Problem, ...]

    @property
    def lag_s(self) -> float | None:
        """The lag in seconds; None for an integer tier key."""
        return lag_s(self.table.tier_kind, self.lake.lag)

    @property
    def fold_due(self) -> str | None:
        """Why the table should be folded now; None while it need not be."""
        return next((action.why for action in work.due(self.state) if action.kind is Kind.FOLD), None)


@dataclass(frozen=True)
class LakeTableStatus:
    """One lake table."""

    standing: Standing
    state: TableState
    next_action: Next | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Status:
    """Everything at one point in time."""

    tables: tuple[TableStatus, ...]
    lake_tables: tuple[LakeTableStatus, ...]
    leader: str | None
    """The worker that leads."""
    problems: tuple[Problem, ...]
    """Those that concern no single table."""


def read(connection: Connection) -> Status:
    """The status of all managed tables at one point in time, of the lake tables, and of the worker."""
    statuses, unreadable = survey.each(connection, of_table)
    leader = leases.leader(connection)
    lakes = tuple(map(_of_lake_table, lake_upkeep.survey(connection)))
    seen = [table.state for table in (*statuses, *lakes)]
    due = sum(len(work.due(state)) for state in seen)
    broken = [problem for table in unreadable for problem in _unreadable(connection, table)]
    return Status(tuple(statuses), lakes, leader, (*broken, *health.of_all(seen, due, leader)))


def _of_lake_table(standing: Standing) -> LakeTableStatus:
    state = survey.of_lake_table(standing)
    due = sorted(work.due(state), key=lambda action: action.kind is Kind.SWEEP)
    following = [Next(action.kind, work.delayed_until(action.kind, state, {}), action.why) for action in due]
    wrong = health.problems(state, Signs())
    if not standing.is_own:
        wrong.append(Problem("another database may need its files, so none is deleted", "frostline sweep --take-over"))
    return LakeTableStatus(standing, state, next(iter(following), None), tuple(wrong))


def _unreadable(connection: Connection, table: Unreadable) -> list[Problem]:
    """What is gone of it, or else what Postgres says."""
    gone = [loss for loss in lost.read(connection) if loss.table == table.name]
    named = [Problem(f"{loss.table}: its {loss}", f"frostline {loss.remedy}") for loss in gone]
    return named or [Problem(f"{table.name} cannot be read: {table.why}", "frostline doctor")]


def of_table(connection: Connection, table: Table) -> TableStatus:
    """The status of one table."""
    seen = survey.facts(connection, table, sizes=True)
    state = survey.of_facts(connection, table, seen)
    lake = _lake(connection, table, state, seen)
    partitions, line = seen.layout.partitions, seen.layout.frost_line
    hot = [partition for partition in partitions if partition.reaches_above(line)]
    return TableStatus(
        table=table,
        state=state,
        partitions=len(partitions),
        hot_rows_estimate=sum(max(partition.rows_estimate, 0) for partition in hot),
        hot_bytes=sum(partition.size_bytes for partition in hot),
        lake=lake,
        last_job=jobs.last(connection, table),
        next_action=_next(connection, table, state, seen),
        problems=tuple(health.problems(state, _signs(connection, table, state, seen, lake))),
    )


def _lake(connection: Connection, table: Table, state: TableState, seen: Facts) -> LakeStatus:
    if seen.seam is None:
        return NO_LAKE
    kind, line = table.tier_kind, seen.seam.frost_line
    waiting = {partition.name for partition in seen.uncleaned}
    files, rows, size_bytes = lake_files.totals(connection, table)
    retained = seams.retained(connection, table)
    return LakeStatus(
        frost_line=None if line == kind.lowest else to_text(kind, line),
        held_from=None if table.held_from is None else to_text(kind, table.held_from),
        retained_from=None if retained is None else to_text(kind, retained),
        lag=state.lag,
        snapshot_id=seen.seam.snapshot_id,
        rows=rows,
        size_bytes=size_bytes,
        files=files,
        snapshots=len({lake_state.snapshot_id for lake_state in seen.states} - {None}),
        overlay_rows=state.marks,
        overlay_age_s=heap.oldest_mark_s(connection, table, line),
        uncleaned_partitions=len(waiting),
        uncleaned_bytes=sum(partition.size_bytes for partition in seen.layout.partitions if partition.name in waiting),
    )


def _signs(connection: Connection, table: Table, state: TableState, seen: Facts, lake: LakeStatus) -> Signs:
    over = [partition for partition in seen.uncleaned if partition.grace_is_over]
    strayed = rowsecurity.strayed(connection, table).get(table.name)
    return Signs(
        held_from=lake.held_from,
        stray_rows=premake.stray(connection, table, seen.layout.frost_line).rows,
        grid_problem=state.grid_problem,
        blockers=tuple(horizon.older_snapshots(connection, over[0].published_xid)) if over else (),
        columns=columns.difference(connection, table) if table.has_lake else None,
        constraints=constraints.unseen(connection, table),
        row_security=f"on {table.heap} {strayed}" if strayed else None,
        lost=tuple((f"its {loss}", f"frostline {loss.remedy}") for loss in lost.read(connection, table)),
    )


def _next(connection: Connection, table: Table, state: TableState, seen: Facts) -> Next | None:
    """What is due now, or else what will be first."""
    for action in sorted(work.due(state), key=lambda action: action.kind is Kind.SWEEP):
        return Next(action.kind, work.delayed_until(action.kind, state, {}), action.why)
    if not table.has_line:
        return None
    upcoming = {action.at: action for action in _upcoming(connection, table, state, seen) if action.at is not None}
    return upcoming[min(upcoming)] if upcoming else None


def _upcoming(connection: Connection, table: Table, state: TableState, seen: Facts) -> Iterator[Next]:
    line = seen.layout.frost_line
    uppers = [
        partition.upper
        for partition in seen.layout.partitions
        if partition.upper is not None and partition.upper > line
    ]
    if uppers and table.held_from is None and state.stays is None:
        yield Next(Kind.ARCHIVE, heap.ripe_at(connection, table, min(uppers)), "the next partition")
    yield Next(Kind.FOLD, heap.fold_due_at(connection, table, line), "fold_age")
    ends = [partition.grace_ends_at for partition in seen.uncleaned if not partition.grace_is_over]
    yield Next(Kind.CLEAN, min(ends, default=None), "the end of the grace period")


def lag_s(kind: TierKind, lag: int) -> float | None:
    """A distance on the axis in seconds; None for an integer tier key."""
    if not kind.is_time:
        return None
    return lag * 86_400.0 if kind is TierKind.DATE else lag / (MICROS_PER_DAY / 86_400)


def problems(status: Status) -> Sequence[Problem]:
    """All of them, each with its table's name."""
    named = [Problem(f"{table.table.name}: {it.what}", it.command) for table in status.tables for it in table.problems]
    lakes = [
        Problem(f"{table.state.name}: {it.what}", it.command) for table in status.lake_tables for it in table.problems
    ]
    return [*status.problems, *named, *lakes]
