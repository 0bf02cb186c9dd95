"""Makes the partitions of a heap ahead of time, on its own grid. docs/design/partitions.md has the locks and why."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, jobs, leases, tables, trust
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.made import Purpose
from frostline.catalog.patience import in_use, patiently
from frostline.errors import ConflictError, FrostlineError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.model import ladder
from frostline.model.ladder import Ladder, Range, Unknown
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.partnames import Cell, next_name
from frostline.model.policy import Mode
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, to_text
from frostline.relation import clock, defaultguard, heap, marks, names, newpartition
from frostline.relation.heap import Layout

MOST_MOVED = 10_000
"""So many rows are moved out of DEFAULT into their own partition while readers and writers wait."""
SMALL_BYTES = 8 << 20
"""A DEFAULT partition of this size is read in a few milliseconds, so ATTACH may do it under its lock."""
_SHORT_S = 5.0
"""Who has an old snapshot was waited for once; for the next partition, not as long again."""


@dataclass(frozen=True)
class Plan:
    """The partitions to make, in order, and the grid they are on."""

    cells: tuple[Range, ...]
    grid: Ladder | None
    problem: str | None = None
    """Why there is no grid."""
    now: int = 0
    known: tuple[Cell, ...] = ()
    """The partitions that are there or were archived: new ones are called as they are."""


@dataclass(frozen=True)
class Made:
    """A partition that was made, and how many rows were in DEFAULT that belong to it."""

    name: Name
    lower: str
    upper: str
    moved: int = 0


@dataclass(frozen=True)
class Stray:
    """Rows that lie in DEFAULT though they are hot: there was no partition for them."""

    rows: int = 0
    is_more: bool = False
    """There are more; counting stopped, and the two values are of those that were counted."""
    lowest: str | None = None
    highest: str | None = None


class InTheWay(Exception):
    """A partition cannot be made because of rows in DEFAULT. The text says which and what helps."""


class Watched(InTheWay):
    """Somebody's snapshot is older than the move would be."""


class _NotNow(psycopg.errors.LockNotAvailable):
    """Roll back and try again, as if a lock was not to be had."""


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "premake")[name])


def _row(connection: Connection, statement: sql.Composed) -> tuple[Any, ...]:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row


def plan(connection: Connection, table: Table, layout: Layout | None = None) -> Plan:
    """What is missing now, by the layout given or else read. Of an integer tier key it reads the highest value too."""
    if not table.policy.premake:
        return Plan((), None)
    trust.require(connection, table)
    layout = layout or heap.layout(connection, table)
    partitions, floor = layout.partitions, layout.frost_line  # what lies below would have to be adopted
    now = clock.now(connection, table, partitions, floor)
    known = _known(connection, table, partitions)
    grid = _grid(connection, table, [(one.lower, one.upper) for one in known], now)
    if isinstance(grid, Unknown):
        return Plan((), None, grid.reason)
    taken = [(one.lower, one.upper) for one in partitions if not one.is_default]
    cells = ladder.missing(grid, taken, now, table.policy.premake, floor=floor)
    return Plan(tuple(cells), grid, now=now, known=known)


def _is_far(table: Table, cell: Cell, now: int) -> bool:
    """Whether it lies so far ahead that nobody writes there yet: by its own width, or a day."""
    width = cell.upper - cell.lower
    return cell.lower - now > (min(width, ladder.day_width(table.tier_kind)) if table.tier_kind.is_time else width)


def _known(connection: Connection, table: Table, partitions: Sequence[Partition]) -> tuple[Cell, ...]:
    """Every partition with finite bounds, those that were archived and dropped included."""
    kind = table.tier_kind
    archived = jobs.archived(connection, table) if table.mode is Mode.TIERED else []
    found = {(lower, upper): name for name, lower, upper, _ in archived}
    found |= {(one.lower, one.upper): one.name for one in partitions if one.upper is not None and not one.is_default}
    cells = (Cell(name, lower, upper) for (lower, upper), name in found.items() if lower is not None)
    return tuple(one for one in cells if not kind.is_time or kind.lowest < one.lower < one.upper < kind.highest)


def _grid(connection: Connection, table: Table, ranges: Sequence[Range], now: int) -> Ladder | Unknown:
    kind, every = table.tier_kind, table.policy.every
    found = ladder.find(kind, ranges, now, every=every)
    if kind is not TierKind.TIMESTAMPTZ or not ladder.may_be_local(found):
        return found
    try:
        zone = _zone(connection)
    except psycopg.OperationalError as error:
        return Unknown(
            f"where its days begin is unknown, because nobody can ask for its time zone: {first_line(error)}"
        )
    return found if zone is None else ladder.find(kind, ranges, now, every=every, zone=zone)


def _zone(connection: Connection) -> str | None:
    """The database's time zone, if Python knows it as well."""
    zone = clock.time_zone(connection)
    try:
        return None if zone is None else ZoneInfo(zone).key
    except (ZoneInfoNotFoundError, ValueError):
        return None


def make(connection: Connection, table: Table, wanted: Plan, most_moved: int = MOST_MOVED) -> Iterator[Made | InTheWay]:
    """Make one after the other, each for good before the next. The caller holds the table's lease.

    The caller has cleaned up. A partition that somebody made meanwhile counts as made. One that has something in its
    way does not stop the next. UnavailableError when DEFAULT is in use all the time; what was made stays.
    """
    known = list(wanted.known)
    patience_s: float | None = None
    for lower, upper in wanted.cells:
        assert wanted.grid is not None
        cell = Cell(next_name(table.name, wanted.grid, known, lower, upper), lower, upper)
        try:
            making = _Making(connection, table, cell, most_moved, patience_s)
            done = making.run(is_ahead=_is_far(table, cell, wanted.now))
        except InTheWay as problem:
            patience_s = _SHORT_S if isinstance(problem, Watched) else patience_s
            yield problem
            continue
        if done is not None:
            known.append(Cell(done.name, lower, upper))
            yield done


def clean_up(connection: Connection, table: Table) -> None:
    """Take away what a process that died has left: the guard of DEFAULT, and tables that were not attached.

    ConflictError unless this session has the table's lease; LockNotAvailable when somebody holds such a table.
    """
    defaultguard.clear(connection, table)
    newpartition.drop_leftovers(connection, table, Purpose.PREMAKE)


def _try_to_clean_up(connection: Connection, table: Table) -> None:
    """After an error, which must not be hidden by another one. What stays is found by the next run."""
    with suppress(psycopg.Error, FrostlineError):
        clean_up(connection, table)


def _literal(connection: Connection, name: Name) -> sql.Literal:
    return sql.Literal(names.identifier(name).as_string(connection))


class _Making:
    """One partition on its way."""

    def __init__(
        self, connection: Connection, table: Table, wanted: Cell, most_moved: int, patience_s: float | None
    ) -> None:
        self.connection = connection
        self.table = table
        self.lower, self.upper = wanted.lower, wanted.upper
        self.wanted = wanted.name
        self.in_range = names.within(table, wanted.lower, wanted.upper)
        self.most_moved = most_moved
        self.patience_s = patience_s
        self.watchers: list[int] = []
        self.is_live = False
        """DEFAULT has rows of the range, so the heap has to be locked for a move."""
        self.default = newpartition.default_partition(connection, table)

    def run(self, *, is_ahead: bool) -> Made | None:
        """All steps; None when somebody else has made it. After an error nothing is left."""
        try:
            is_guarded = is_ahead and self._guard()
            if not is_guarded:
                self._refuse_size()
            name = self._create()
            reached(Failpoint.PREMAKE_CREATED_ONE)
            # Before the transaction: what only counts there would hold DEFAULT already while it waits for the heap.
            self.is_live = self.default is not None and not is_guarded and self._count(self.default).rows > 0
            moved = patiently(
                self.connection,
                self.table.heap,
                lambda: self._attach(name, is_guarded=is_guarded),
                complaint=self._complaint,
                patience_s=self.patience_s,
            )
        except psycopg.errors.InvalidObjectDefinition:
            _try_to_clean_up(self.connection, self.table)
            return None  # it would overlap one that somebody made meanwhile
        except BaseException:  # Ctrl-C too: the guard would refuse rows until the next run
            _try_to_clean_up(self.connection, self.table)
            raise
        reached(Failpoint.PREMAKE_ATTACHED_ONE)
        lower, upper = (to_text(self.table.tier_kind, value) for value in (self.lower, self.upper))
        return Made(name, lower, upper, moved)

    def _create(self) -> Name:
        for _ in range(3):
            name = newpartition.free_name(self.connection, self.wanted)
            try:
                newpartition.create(self.connection, self.table, name, (self.lower, self.upper), Purpose.PREMAKE)
            except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
                continue  # somebody took the name in this moment
            newpartition.copy_replica_identity(self.connection, self.table, name)
            return name
        raise ConflictError(f"somebody else makes partitions of {self.table.name}", hint="try again")

    def _attach(self, name: Name, *, is_guarded: bool) -> int:
        """In one transaction: lock, move the rows of DEFAULT that belong here, attach. Returns how many were moved."""
        self.watchers = []
        leases.require(self.connection, self.table)
        self._lock_heap()
        self.default = newpartition.default_partition(self.connection, self.table)
        self._lock_default()
        moved = 0 if self.default is None or is_guarded else self._move(self.default, name)
        newpartition.attach(self.connection, self.table, name, self.lower, self.upper)
        if self.default is not None and is_guarded:
            defaultguard.drop(self.connection, self.default)
        reached(Failpoint.PREMAKE_BEFORE_COMMIT)
        if moved:
            self._refuse_watchers()
        return moved

    def _lock_heap(self) -> None:
        """Nobody waits for it, unless there are rows to move.

        Then everybody does. A writer may be about to write more of them, and Postgres refuses a row that it has sent to
        DEFAULT just before there was a partition for it. A reader that waited for DEFAULT only would know the old
        partitions, and see the rows in none of them.
        """
        mode = sql.SQL("access exclusive" if self.is_live else "share update exclusive")
        heap_name = names.identifier(self.table.heap)
        self.connection.execute(sql.SQL("lock table only {} in {} mode").format(heap_name, mode))
        if self.is_live:
            self._refuse_watchers()

    def _lock_default(self) -> None:
        """At once as ATTACH needs it. Who had read it and then writes would wait for a weaker lock, and we for him."""
        if self.default is not None:
            target = names.identifier(self.default)
            self.connection.execute(sql.SQL("lock table only {} in access exclusive mode").format(target))

    def _refuse_watchers(self) -> None:
        """Who has a snapshot from before would look for the moved rows in the new partition, and not see them."""
        self.connection.execute(_statement("see_anew"))
        heap_name = _literal(self.connection, self.table.heap)
        found = self.connection.execute(_statement("watchers").format(heap=heap_name)).fetchall()
        self.watchers = [pid for (pid,) in found]
        if found:
            raise _NotNow("somebody has an older snapshot")

    def _complaint(self) -> UnavailableError:
        if self.watchers and self.default is not None:
            pids = ", ".join(map(str, self.watchers))
            hint = "end them, or wait: the next run tries again"
            raise Watched(f"{self._where(self.default)}, and these processes have older snapshots: {pids}; {hint}")
        return in_use(self.table.heap)

    def _count(self, default: Name) -> Stray:
        return _count(self.connection, self.table, default, self.in_range, self.most_moved + 1)

    def _guard(self) -> bool:
        """Prove beforehand that a big DEFAULT has no row of the range, without a lock that others notice."""
        if self.default is None:
            return False
        kind, size, _ = self._about(self.default)
        if kind != "r" or size <= SMALL_BYTES:
            return False
        defaultguard.put(self.connection, self.table, self.default, (self.lower, self.upper))
        reached(Failpoint.PREMAKE_GUARDED)
        if not defaultguard.proves(self.connection, self.default):
            clean_up(self.connection, self.table)
            return False
        return True

    def _about(self, default: Name) -> tuple[str, int, bool]:
        """Its kind and size, and whether a foreign key points at it."""
        heap_name = _literal(self.connection, self.table.heap)
        statement = _statement("about").format(default_partition=_literal(self.connection, default), heap=heap_name)
        kind, size, is_referenced = _row(self.connection, statement)
        return kind, size, is_referenced

    def _move(self, default: Name, name: Name) -> int:
        """Move the rows of the range out of DEFAULT, unnoticed by marks and triggers. Nobody else uses it now."""
        kind, _, is_referenced = self._about(default)
        target = names.identifier(default)
        rows = self._count(default).rows
        if not rows:
            return 0
        self._refuse_rows(default, rows, is_plain=kind == "r", is_referenced=is_referenced)
        if not self.is_live:
            self.is_live = True
            raise _NotNow("they were written in this moment, and the heap is not locked for a move")
        with newpartition.unnoticed(self.connection, default):
            if self.table.mode is Mode.TIERED:
                with marks.silence(self.connection, self.table):
                    self._move_rows(target, name)
                heap.forget_marks(self.connection, self.table, self.lower, self.upper)
            else:
                self._move_rows(target, name)
        return rows

    def _move_rows(self, default: sql.Identifier, name: Name) -> None:
        oid = tables.heap_oid(self.connection, self.table.name, self.table.mode)
        written = [column.name for column in facts.read_columns(self.connection, oid) if not column.generated]
        statement = _statement("move").format(
            default_partition=default,
            condition=self.in_range,
            columns=names.columns(None, written),
            partition=names.identifier(name),
        )
        self.connection.execute(sql.SQL("set local row_security = off"))
        self.connection.execute(statement)

    def _refuse_size(self) -> None:
        if self.default is None or self.most_moved > MOST_MOVED:
            return
        if self._about(self.default)[1] > SMALL_BYTES:
            hint = f"in a quiet moment: frostline premake {self.table.name} --move-rows {2 * MOST_MOVED}"
            raise InTheWay(f"{self.default} is too big to be read while others wait for it; {hint}")

    def _where(self, default: Name) -> str:
        lower, upper = (to_text(self.table.tier_kind, value) for value in (self.lower, self.upper))
        return f"{default} has rows from {lower} to {upper}"

    def _refuse_rows(self, default: Name, rows: int, *, is_plain: bool, is_referenced: bool) -> None:
        where = self._where(default)
        if is_referenced:
            raise InTheWay(f"{where}, and a foreign key points at them: move them by hand")
        if not is_plain:
            raise InTheWay(f"{where}, and is no plain table: move them by hand")
        if rows > self.most_moved:
            hint = f"frostline premake {self.table.name} --move-rows N moves up to N, while others wait"
            raise InTheWay(f"{where}, more than {self.most_moved}; {hint}")


def stray(connection: Connection, table: Table, frost_line: int | None = None) -> Stray:
    """The rows in DEFAULT that have no partition of their own; below the frost line that is where they belong.

    The frost line is read unless it is given.
    """
    default = newpartition.default_partition(connection, table)
    if default is None:
        return Stray()
    floor = heap.frost_line(connection, table) if frost_line is None else frost_line
    condition = names.within(table, None if floor == table.tier_kind.lowest else floor, None)
    return _count(connection, table, default, condition, MOST_MOVED + 1)


def _count(connection: Connection, table: Table, default: Name, condition: sql.Composed, most: int) -> Stray:
    statement = _statement("count").format(
        tier_key=sql.Identifier(table.tier_key),
        partition=names.identifier(default),
        condition=condition,
        most=sql.Literal(most),
    )
    rows, lowest, highest = _row(connection, statement)
    return Stray(rows, rows == most, lowest, highest)
