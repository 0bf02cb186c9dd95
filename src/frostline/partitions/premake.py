"""Makes the partitions of a heap ahead of time, on its own grid. docs/design/partitions.md has the locks and why."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import archived_partitions, leases, locks, trust
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.locks import Lock
from frostline.catalog.made import Purpose
from frostline.catalog.patience import RolledBack, in_use, patiently
from frostline.errors import ConflictError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.model import heap_grid
from frostline.model.heap_grid import Edges, HeapGrid, Unknown
from frostline.model.names import Name
from frostline.model.partition_names import Cell, next_name
from frostline.model.partitions import Partition
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, to_text
from frostline.partitions import default_partition, new_partition
from frostline.partitions.default_partition import Stray
from frostline.relation import clock, heap, names
from frostline.relation.heap import Layout

_statement = sqlfiles.statements(__name__, "premake")

MOST_MOVED = 10_000
"""At most this many rows are moved out of DEFAULT into their own partition: readers and writers wait meanwhile."""
SMALL_BYTES = 8 << 20
"""A DEFAULT partition of this size is read in a few milliseconds, so ATTACH may do it under its lock."""
_SHORT_S = 5.0
"""Who has an old snapshot was waited for once; for the next partition, not as long again."""


@dataclass(frozen=True)
class Plan:
    """The partitions to make, in order, and the grid they are on."""

    cells: tuple[Edges, ...]
    grid: HeapGrid | None
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
class BlockedByDefaultRows:
    """A partition cannot be made because of rows in DEFAULT."""

    reason: str
    """Which rows, and what helps."""


@dataclass(frozen=True)
class BlockedByOldSnapshot(BlockedByDefaultRows):
    """Somebody's snapshot is older than the move would be."""


class _Strays(Enum):
    """Whether DEFAULT has rows of the range. It decides which lock of the heap a try takes."""

    NONE_SEEN = auto()
    """None was there at the last look. Nobody notices the lock."""
    SEEN = auto()
    """They have to be moved, so nobody else may read or write the heap."""
    RULED_OUT = auto()
    """The guard of DEFAULT proves that there is none, so nobody looks for them."""


def plan(connection: Connection, table: Table, layout: Layout | None = None) -> Plan:
    """What is missing now, by the layout given or else read. Of an integer tier key it reads the highest value too."""
    if not table.policy.premake:
        return Plan((), None)
    trust.require(connection, table)
    layout = layout or heap.layout(connection, table)
    partitions, floor = layout.partitions, layout.frost_line  # what lies below would have to be adopted
    now = clock.now(connection, table, partitions, floor)
    known = _known(connection, table, partitions)
    grid = _grid(connection, table, [(cell.lower, cell.upper) for cell in known], now)
    if isinstance(grid, Unknown):
        return Plan((), None, grid.reason)
    taken = [(partition.lower, partition.upper) for partition in partitions if not partition.is_default]
    cells = heap_grid.missing(grid, taken, now, table.policy.premake, floor=floor)
    return Plan(tuple(cells), grid, now=now, known=known)


def _is_far(table: Table, cell: Cell, now: int) -> bool:
    """Whether it lies so far ahead that nobody writes there yet: by its own width, or a day."""
    width = cell.upper - cell.lower
    return cell.lower - now > (min(width, heap_grid.day_width(table.tier_kind)) if table.tier_kind.is_time else width)


def _known(connection: Connection, table: Table, partitions: Sequence[Partition]) -> tuple[Cell, ...]:
    """Every partition with finite bounds, those that were archived and dropped included."""
    kind = table.tier_kind
    archived = archived_partitions.list_all(connection, table) if table.has_lake else []
    named = {(partition.lower, partition.upper): partition.name for partition in archived}
    named |= {
        (partition.lower, partition.upper): partition.name
        for partition in partitions
        if partition.upper is not None and not partition.is_default
    }
    cells = (Cell(name, lower, upper) for (lower, upper), name in named.items() if lower is not None)
    return tuple(cell for cell in cells if not kind.is_time or kind.lowest < cell.lower < cell.upper < kind.highest)


def _grid(connection: Connection, table: Table, ranges: Sequence[Edges], now: int) -> HeapGrid | Unknown:
    kind, interval = table.tier_kind, table.policy.partition_interval
    grid = heap_grid.find(kind, ranges, now, interval=interval)
    if kind is not TierKind.TIMESTAMPTZ or not heap_grid.may_be_local(grid):
        return grid
    try:
        zone = _zone(connection)
    except psycopg.OperationalError as error:
        return Unknown(
            f"where its days begin is unknown, because nobody can ask for its time zone: {first_line(error)}"
        )
    return grid if zone is None else heap_grid.find(kind, ranges, now, interval=interval, zone=zone)


def _zone(connection: Connection) -> str | None:
    """The database's time zone, if Python knows it as well."""
    zone = clock.time_zone(connection)
    try:
        return None if zone is None else ZoneInfo(zone).key
    except (ZoneInfoNotFoundError, ValueError):
        return None


def make(
    connection: Connection, table: Table, wanted: Plan, most_moved: int = MOST_MOVED
) -> Iterator[Made | BlockedByDefaultRows]:
    """Make one after the other, each for good before the next. The caller holds the table's lease.

    The caller has cleaned up. A partition that somebody made meanwhile counts as made. One that is blocked does not
    stop the next. UnavailableError when DEFAULT is still in use; what was made stays.
    """
    known = list(wanted.known)
    patience_s: float | None = None
    for lower, upper in wanted.cells:
        assert wanted.grid is not None
        cell = Cell(next_name(table.name, wanted.grid, known, lower, upper), lower, upper)
        making = _Making(connection, table, cell, most_moved, patience_s)
        done = making.run(is_ahead=_is_far(table, cell, wanted.now))
        if isinstance(done, Made):
            known.append(Cell(done.name, lower, upper))
        elif isinstance(done, BlockedByOldSnapshot):
            patience_s = _SHORT_S
        if done is not None:
            yield done


def clean_up(connection: Connection, table: Table) -> None:
    """Take away what a process that died has left: the guard of DEFAULT, and tables that were not attached.

    ConflictError unless this session has the table's lease; UnavailableError when somebody holds such a table.
    """
    default_partition.clear_guard(connection, table)
    new_partition.drop_leftovers(connection, table, Purpose.PREMAKE)


def _try_to_clean_up(connection: Connection, table: Table) -> None:
    """After an error, which must not be hidden by another one. What stays is found by the next run."""
    with suppress(psycopg.Error, FrostlineError):
        clean_up(connection, table)


class _Making:
    """One partition on its way: guarded, if it is far ahead and DEFAULT is big; created; attached.

    Attaching is tried for as long as there is patience, each try in a transaction of its own:

        strays      what the try finds          its transaction  what comes next
        NONE_SEEN   no row of the range         is committed     made
        NONE_SEEN   rows that can be moved      is rolled back   SEEN, and another try
        NONE_SEEN   rows that cannot be moved   is rolled back   BlockedByDefaultRows
        SEEN        rows, or none any more      is committed     made, with so many rows moved
        SEEN        rows that cannot be moved   is rolled back   BlockedByDefaultRows
        SEEN        somebody's older snapshot   is rolled back   another try; in the end BlockedByOldSnapshot
        RULED_OUT   nothing: it does not look   is committed     made
        any         a lock that is not free     is rolled back   another try; in the end UnavailableError

    From SEEN there is no way back: where rows have come, more are likely to. A partition of somebody else that
    overlaps is an error of ATTACH, and counts as made.
    """

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
        self.strays = _Strays.NONE_SEEN
        self.default = new_partition.default_partition(connection, table)

    @property
    def moves_rows(self) -> bool:
        """DEFAULT has rows of the range, so the heap has to be locked for a move."""
        return self.strays is _Strays.SEEN

    def run(self, *, is_ahead: bool) -> Made | BlockedByDefaultRows | None:
        """All steps; None when somebody else has made it. Unless it is made, nothing is left."""
        try:
            done = self._made(is_ahead=is_ahead)
        except psycopg.errors.InvalidObjectDefinition:
            done = None  # it would overlap one that somebody made meanwhile
        except BaseException:  # Ctrl-C too: the guard would refuse rows until the next run
            _try_to_clean_up(self.connection, self.table)
            raise
        if isinstance(done, Made):
            reached(Failpoint.PREMAKE_ATTACHED_ONE)
        else:
            _try_to_clean_up(self.connection, self.table)
        return done

    def _made(self, *, is_ahead: bool) -> Made | BlockedByDefaultRows:
        if is_ahead and self._guard():
            self.strays = _Strays.RULED_OUT
        elif self._is_too_big():
            hint = f"in a quiet moment: frostline premake {self.table.name} --move-rows {2 * MOST_MOVED}"
            return BlockedByDefaultRows(f"{self.default} is too big to be read while others wait for it; {hint}")
        name = self._create()
        reached(Failpoint.PREMAKE_CREATED_ONE)
        # Before the transaction: what only counts there would hold DEFAULT already while it waits for the heap.
        if self.strays is not _Strays.RULED_OUT and self._count():
            self.strays = _Strays.SEEN
        moved = patiently(self.connection, self.table.heap, lambda: self._attach(name), patience_s=self.patience_s)
        if moved is None:
            raise in_use(self.table.heap)
        if isinstance(moved, BlockedByDefaultRows):
            return moved
        lower, upper = (to_text(self.table.tier_kind, value) for value in (self.lower, self.upper))
        return Made(name, lower, upper, moved)

    def _create(self) -> Name:
        for _ in range(3):
            name = new_partition.free_name(self.connection, self.wanted)
            try:
                new_partition.create(self.connection, self.table, name, (self.lower, self.upper), Purpose.PREMAKE)
            except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
                continue  # somebody took the name in this moment
            new_partition.copy_replica_identity(self.connection, self.table, name)
            return name
        raise ConflictError(f"somebody else makes partitions of {self.table.name}", hint="try again")

    def _attach(self, name: Name) -> int | RolledBack[BlockedByDefaultRows | None]:
        """One try: lock, move the rows of DEFAULT that belong here, attach. Returns how many were moved.

        None as its result, when there is no time for another one, is as if a lock was not to be had.
        """
        leases.require(self.connection, self.table)
        self._lock_heap()
        if self.moves_rows and (pids := self._watchers()):
            return RolledBack(self._watched_by(pids), try_again=True)
        self.default = new_partition.default_partition(self.connection, self.table)
        self._lock_default()
        rows = 0 if self.strays is _Strays.RULED_OUT else self._count()
        if rows and (obstacle := self._obstacle(rows)):
            return RolledBack(BlockedByDefaultRows(f"{self._where()}, {obstacle}"))
        if rows and self.strays is _Strays.NONE_SEEN:
            self.strays = _Strays.SEEN  # they were written in this moment, and the heap is not locked for a move
            return RolledBack(None, try_again=True)
        if rows and self.default is not None:
            default_partition.move_strays(self.connection, self.table, self.default, name, (self.lower, self.upper))
        new_partition.attach(self.connection, self.table, name, self.lower, self.upper)
        if self.default is not None and self.strays is _Strays.RULED_OUT:
            default_partition.drop_guard(self.connection, self.default)
        reached(Failpoint.PREMAKE_BEFORE_COMMIT)
        if rows and (pids := self._watchers()):
            return RolledBack(self._watched_by(pids), try_again=True)
        return rows

    def _lock_heap(self) -> None:
        """Nobody waits for it, unless there are rows to move.

        Then everybody does. A writer may be about to write more of them, and Postgres refuses a row that it has sent to
        DEFAULT just before there was a partition for it. A reader that waited for DEFAULT only would know the old
        partitions, and see the rows in none of them.
        """
        mode = Lock.ACCESS_EXCLUSIVE if self.moves_rows else Lock.SHARE_UPDATE_EXCLUSIVE
        locks.take_only(self.connection, mode, self.table.heap)

    def _lock_default(self) -> None:
        """At once as ATTACH needs it: a session that has read it and then writes would wait for us, and we for it."""
        if self.default is not None:
            locks.take_only(self.connection, Lock.ACCESS_EXCLUSIVE, self.default)

    def _watchers(self) -> list[int]:
        """Who has a snapshot from before would look for the moved rows in the new partition, and not see them."""
        self.connection.execute(_statement("see_anew"))
        heap_name = sql.Literal(names.identifier(self.table.heap).as_string(self.connection))
        return [pid for (pid,) in self.connection.execute(_statement("watchers").format(heap=heap_name)).fetchall()]

    def _watched_by(self, pids: Sequence[int]) -> BlockedByOldSnapshot | None:
        if self.default is None:
            return None
        said, hint = ", ".join(map(str, pids)), "end them, or wait: the next run tries again"
        return BlockedByOldSnapshot(f"{self._where()}, and these processes have older snapshots: {said}; {hint}")

    def _count(self) -> int:
        """How many rows of the range are in DEFAULT; counting stops where more would not matter."""
        if self.default is None:
            return 0
        return default_partition.count_strays(
            self.connection, self.table, self.default, self.in_range, self.most_moved + 1
        ).rows

    def _guard(self) -> bool:
        """Prove beforehand that a big DEFAULT has no row of the range, without a lock that others notice."""
        if self.default is None:
            return False
        about = default_partition.about(self.connection, self.table, self.default)
        if not about.is_plain or about.size_bytes <= SMALL_BYTES:
            return False
        default_partition.put_guard(self.connection, self.table, self.default, (self.lower, self.upper))
        reached(Failpoint.PREMAKE_GUARDED)
        if not default_partition.guard_proves(self.connection, self.default):
            clean_up(self.connection, self.table)
            return False
        return True

    def _is_too_big(self) -> bool:
        """Whether ATTACH would read DEFAULT for too long, unless somebody has allowed it."""
        if self.default is None or self.most_moved > MOST_MOVED:
            return False
        return default_partition.about(self.connection, self.table, self.default).size_bytes > SMALL_BYTES

    def _where(self) -> str:
        lower, upper = (to_text(self.table.tier_kind, value) for value in (self.lower, self.upper))
        return f"{self.default} has rows from {lower} to {upper}"

    def _obstacle(self, rows: int) -> str | None:
        """Why the rows of DEFAULT must not be moved, if they are too many."""
        assert self.default is not None
        about = default_partition.about(self.connection, self.table, self.default)
        if about.is_referenced:
            return "and a foreign key points at them: move them by hand"
        if not about.is_plain:
            return "and is no plain table: move them by hand"
        if rows > self.most_moved:
            hint = f"frostline premake {self.table.name} --move-rows N moves up to N, while others wait"
            return f"more than {self.most_moved}; {hint}"
        return None


def stray(connection: Connection, table: Table, frost_line: int | None = None) -> Stray:
    """The rows in DEFAULT that have no partition of their own; below the frost line that is where they belong.

    The frost line is read unless it is given.
    """
    default = new_partition.default_partition(connection, table)
    if default is None:
        return Stray()
    floor = heap.frost_line(connection, table) if frost_line is None else frost_line
    condition = names.within(table, None if floor == table.tier_kind.lowest else floor, None)
    return default_partition.count_strays(connection, table, default, condition, MOST_MOVED + 1)
