"""Making an unpartitioned table partitioned: the request, the reasons to refuse it, and where it is cut."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from frostline.model import heap_grid
from frostline.model.heap_grid import HeapGrid, Step
from frostline.model.names import Name, quoted
from frostline.model.partition_names import own_name
from frostline.model.registration import HeapColumn, HeapFacts, Refusal
from frostline.model.tiers import BY_TYPNAME, TierKind, to_text

AHEAD = 3
"""At least this many partitions are made beyond the current one: the copy takes its time, and rows arrive meanwhile."""
_AHEAD_DAYS = 7
_AHEAD_SHARE = 10
"""Of an integer tier key, which does not tell the time: a tenth of those that it has."""
MAX_PARTITIONS = 1_000
"""Postgres plans slowly with more, and one transaction cannot lock many more."""
NOT_NULL = "frostline_not_null"
"""The constraint that keeps NULL out of the tier key while the table is converted."""
_MINUTE = 60_000_000


class State(StrEnum):
    """What a conversion has done last."""

    PREPARED = "prepared"
    """The shadow is there, and empty."""
    SYNCED = "synced"
    """Every change of the original reaches the shadow."""
    FILLED = "filled"
    """All rows are in it."""
    VERIFIED = "verified"
    """They were compared."""
    SWAPPED = "swapped"
    """The shadow has the table's name."""
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Conversion:
    """What the user asked for."""

    name: Name
    tier_key: str
    partition_interval: str
    """`month`, an interval, or for integer tier keys a number."""
    keep_old: bool = False


@dataclass(frozen=True)
class NewPartition:
    """A partition to make. An upper bound of None is MAXVALUE."""

    name: Name
    lower: int
    upper: int | None


@dataclass(frozen=True)
class Extent:
    """What the tier key holds: the lowest and the highest value, None in an empty table, and the current one."""

    lowest: int | None
    highest: int | None
    now: int
    has_null: bool


@dataclass(frozen=True)
class ConversionFacts:
    """What must be known of a table before it is converted."""

    heap: HeapFacts
    tier_key: str
    is_inherited: bool = False
    has_plain_key: bool = True
    unique_elsewhere: tuple[str, ...] = ()
    unfit_constraints: tuple[tuple[str, str], ...] = ()
    unfit_triggers: tuple[str, ...] = ()
    replicated_by: tuple[str, ...] = ()
    has_identity_index: bool = False
    """Its replica identity is an index."""
    has_hidden_rows: bool = False
    """Row security holds for the table's owner or for the connected role too."""
    owner_may: bool = True
    """The owner has the rights that its own triggers and copies need."""
    holders: tuple[str, ...] = ()
    key_holders: tuple[str, ...] = ()

    @property
    def column(self) -> HeapColumn | None:
        """The column that is to be the tier key."""
        return next((column for column in self.heap.columns if column.name == self.tier_key), None)

    @property
    def kind(self) -> TierKind | None:
        """Its type, if it is one that can decide a tier."""
        column = self.column
        return BY_TYPNAME.get(column.pg_type.name) if column is not None and column.pg_type.builtin else None

    @property
    def new_key(self) -> tuple[str, ...]:
        """The primary key afterwards: the old one, and the tier key."""
        old = self.heap.primary_key
        return old if self.tier_key in old else (*old, self.tier_key)


def refusals(facts: ConversionFacts) -> list[Refusal]:
    """Every reason at once; an empty list means the table can be converted."""
    heap = facts.heap
    if heap.relkind == "p":
        return [Refusal(f"{heap.name} is partitioned already", f"frostline table add {heap.name} --hot INTERVAL")]
    if heap.relkind != "r":
        return [Refusal(f"{heap.name} is not a table", "name an ordinary table")]
    own = [*_shape(facts), *_tier_key(facts), *_key(facts), *_constraints(facts), *_surroundings(facts)]
    return [*own, *heap.dangers]


def _shape(facts: ConversionFacts) -> Iterator[Refusal]:
    heap = facts.heap
    if heap.persistence != "p":
        yield Refusal("the table is temporary or unlogged", f"alter table {heap.name} set logged")
    if heap.is_partition:
        yield Refusal("the table is itself a partition", "name the table it is a partition of")
    elif facts.is_inherited:
        yield Refusal("the table inherits, or others inherit from it", f"alter table ... no inherit {heap.name}")
    if not heap.owner_is_ours:
        yield Refusal(f"the connected role may not act as its owner {heap.owner}", f"grant {heap.owner} to it")
    if facts.has_hidden_rows:
        reason = "row security hides rows from its owner or from the connected role"
        yield Refusal(reason, f"alter table {heap.name} no force row level security")
    if not facts.owner_may:
        hint = f"grant usage on schema {quoted(heap.name.schema)} and all on {heap.name} to {heap.owner}"
        yield Refusal(f"its owner {heap.owner} has no right to read and change it", hint)
    if facts.has_identity_index:
        yield Refusal("its replica identity is an index", f"alter table {heap.name} replica identity default")


def _tier_key(facts: ConversionFacts) -> Iterator[Refusal]:
    column = facts.column
    if column is None:
        known = ", ".join(present.name for present in facts.heap.columns)
        yield Refusal(f"it has no column {facts.tier_key}", f"its columns are {known}")
    elif facts.kind is None:
        reason = f"its column {column.name} is of type {column.pg_type.formatted}"
        yield Refusal(reason, "partition it by a timestamptz, timestamp, date, smallint, integer or bigint column")
    elif column.generated:
        yield Refusal(f"its column {column.name} is generated", "Postgres partitions by plain columns only")


def _key(facts: ConversionFacts) -> Iterator[Refusal]:
    if not facts.heap.primary_key:
        yield Refusal("it has no primary key", f"alter table {facts.heap.name} add primary key (...)")
    elif not facts.has_plain_key:
        hint = "make it a plain primary key: not deferrable, without INCLUDE and WITHOUT OVERLAPS"
        yield Refusal("its primary key is not a plain one", hint)
    for index in facts.unique_elsewhere:
        hint = f"add {facts.tier_key} to it, or drop it: a partitioned table can keep it within each partition only"
        yield Refusal(f"unique index {index} lacks {facts.tier_key}", hint)


_UNFIT = {
    "excludes": ("exclusion constraint {} cannot be kept over partitions", "drop it"),
    "unvalidated": ("constraint {} is not validated", "alter table ... validate constraint, or drop it"),
    "uninherited": ("constraint {} is NO INHERIT", "make it one that partitions inherit"),
}


def _constraints(facts: ConversionFacts) -> Iterator[Refusal]:
    for name, fault in facts.unfit_constraints:
        reason, hint = _UNFIT[fault]
        yield Refusal(reason.format(name), hint)
    for name in facts.unfit_triggers:
        hint = "make it a statement trigger: partitioned tables have no row triggers with transition tables"
        yield Refusal(f"trigger {name} has a transition table", hint)


def _surroundings(facts: ConversionFacts) -> Iterator[Refusal]:
    heap = facts.heap
    of_views = "drop it, convert, and create it again"
    for key in heap.inbound_foreign_keys:
        hint = f"drop it: nothing is unique by the old key alone when {facts.tier_key} is part of the key"
        yield Refusal(f"foreign key {key} points at it", hint)
    yield from (Refusal(f"materialized view {view} reads it", of_views) for view in heap.materialized_views)
    yield from (Refusal(f"{user} uses its row type", "change it to named columns") for user in heap.row_type_users)
    yield from (Refusal(f"{holder} holds it", of_views) for holder in facts.holders)
    for holder in facts.key_holders:
        yield Refusal(f"{holder} groups by its primary key alone", "name all columns in its GROUP BY")
    for publication in facts.replicated_by:
        hint = "take it out, convert, and put it back with publish_via_partition_root"
        yield Refusal(f"it is replicated by {publication}", hint)


def step(kind: TierKind, partition_interval: str, read: Step | None) -> Step | Refusal:
    """What `--every` was read as, if a table can be cut by it: months alone, or days and hours, or a number."""
    if not kind.is_time:
        if read is not None and read.units <= kind.highest:
            return read
        return Refusal(
            f"--every {partition_interval!r} is not a positive {kind.value}", "say how many units a partition is wide"
        )
    if read is None or not _is_width(read):
        hint = "say month, day, or '3 months'"
        return Refusal(f"--every {partition_interval!r} is not a width that fits a {kind.value}", hint)
    return read


def _is_width(read: Step) -> bool:
    if read.months:
        return not read.days and not read.units
    return read.days > 0 or read.units >= _MINUTE


def extent_refusals(kind: TierKind, tier_key: str, extent: Extent) -> list[Refusal]:
    """Values for which there is no partition."""
    refusals: list[Refusal] = []
    if extent.has_null:
        refusals.append(Refusal(f"{tier_key} is NULL in some rows", f"update or delete them: where {tier_key} is null"))
    if kind.is_time and (extent.lowest == kind.lowest or extent.highest == kind.highest):
        refusals.append(Refusal(f"{tier_key} is infinite in some rows", "give them a time that the calendar has"))
    return refusals


def new_partitions(name: Name, kind: TierKind, step: Step, extent: Extent) -> list[NewPartition] | Refusal:
    """The partitions for what is there, and for what comes next."""
    grid = heap_grid.calendar(kind, step, extent.now)
    numbers = _numbers(grid, extent)
    if len(numbers) > MAX_PARTITIONS:
        reason = f"there would be more than {MAX_PARTITIONS} partitions"
        if extent.lowest is not None and extent.highest is not None:
            reason += f": its values go from {to_text(kind, extent.lowest)} to {to_text(kind, extent.highest)}"
        return Refusal(reason, "say a wider --every, or correct the values at the ends")
    cut = ((number, grid.bounds(number)) for number in sorted(numbers))
    return [_new_partition(name, grid, number, *bounds) for number, bounds in cut if bounds is not None]


def _numbers(grid: HeapGrid, extent: Extent) -> set[int]:
    """The cells of the rows, the current one, and those ahead of it."""
    kind = grid.kind
    current = extent.now if kind.is_time else extent.highest or 0
    numbers = {*_between(grid, current, current + _AHEAD_DAYS * heap_grid.day_width(kind) if kind.is_time else current)}
    if extent.lowest is not None and extent.highest is not None:
        numbers.update(_between(grid, extent.lowest, extent.highest))
    ahead = AHEAD if kind.is_time else max(AHEAD, len(numbers) // _AHEAD_SHARE)
    first = grid.number(current)
    return numbers | {*range(first, first + ahead + 1)}


def _between(grid: HeapGrid, lowest: int, highest: int) -> range:
    """The cells from the lowest to the highest value; cut off when they are too many."""
    first = grid.number(lowest)
    return range(first, min(grid.number(highest), first + MAX_PARTITIONS) + 1)


def _new_partition(name: Name, grid: HeapGrid, number: int, lower: int, upper: int | None) -> NewPartition:
    """It is called after where it would begin if the type had no ends."""
    place = grid.place(number)
    return NewPartition(own_name(name, grid, lower if place is None else place), lower, upper)
