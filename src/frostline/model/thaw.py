"""How the cold range of a table is made up, and how far its frost line can go down: pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.range import Range, gaps, overlapping
from frostline.model.tables import RecordedFile


class Holds(Enum):
    """What the heap has of a range of the cold range."""

    EVERYTHING = auto()
    """An archived partition that is not cleaned: it has all rows of its range."""
    CHANGES = auto()
    """Its partition was cleaned. The heap has at most rows that are in the overlay too."""
    NO_PARTITION = auto()
    """There never was a partition, or none that we archived. The same is true of the rows."""


@dataclass(frozen=True)
class Archived:
    """A partition that was archived once and not brought back since."""

    name: Name
    lower: int | None
    upper: int
    in_heap: bool
    """It is still there and was not cleaned."""

    @property
    def range(self) -> Range:
        """What it held rows of."""
        return Range(self.lower, self.upper)


@dataclass(frozen=True)
class ColdRange:
    """A part [lower, upper) of the cold range. The smallest value of the axis stands for "from the beginning"."""

    lower: int
    upper: int
    holds: Holds
    name: Name | None = None
    """What its partition is or was called."""
    partition: Name | None = None
    """Its partition, if it is in the heap."""

    @property
    def range(self) -> Range:
        """Its tier values."""
        return Range(self.lower, self.upper)


def cold_ranges(
    partitions: Sequence[Partition], archived: Sequence[Archived], frost_line: int, lowest: int
) -> list[ColdRange]:
    """The whole cold range, without gaps and in order: partitions that are there, were there, and what lies between."""
    cold = Range(lowest, frost_line)
    kept = {partition.name for partition in archived if partition.in_heap}
    present = [
        _cold_range(partition.range.clip(cold), _holds(partition, archived, kept), partition.name, partition.name)
        for partition in partitions
        if not partition.reaches_above(frost_line)
    ]
    gone = [
        _cold_range(partition.range.clip(cold), Holds.CHANGES, partition.name)
        for partition in archived
        if partition.upper <= frost_line
    ]
    known = _in_order([*present, *_fitted(gone, _gaps(cold, present))])
    return _in_order([*known, *(_cold_range(free, Holds.NO_PARTITION) for free in _gaps(cold, known))])


def _cold_range(part: Range, holds: Holds, name: Name | None = None, partition: Name | None = None) -> ColdRange:
    assert part.lower is not None  # the cold range has two ends
    assert part.upper is not None
    return ColdRange(part.lower, part.upper, holds, name, partition)


def _holds(partition: Partition, archived: Sequence[Archived], kept: set[Name]) -> Holds:
    if partition.name in kept:
        return Holds.EVERYTHING
    return Holds.CHANGES if any(partition.name == other.name for other in archived) else Holds.NO_PARTITION


def _fitted(gone: Iterable[ColdRange], free: Iterable[Range]) -> Iterator[ColdRange]:
    """As much of what was there as fits where nothing is now; of two that overlap, the first has what both have."""
    ordered = _in_order(gone)
    for gap in free:
        rest = gap
        for archived in ordered:
            part = archived.range.clip(rest)
            if not part.is_empty:
                yield _cold_range(part, archived.holds, archived.name)
                rest = Range(part.upper, gap.upper)


def _gaps(cold: Range, taken: Iterable[ColdRange]) -> Iterator[Range]:
    return gaps(cold, (archived.range for archived in _in_order(taken)))


def _in_order(some: Iterable[ColdRange]) -> list[ColdRange]:
    return sorted(some, key=lambda cold_range: cold_range.lower)


def reach(cold: Sequence[ColdRange], files: Sequence[RecordedFile]) -> list[int]:
    """The lines that an undo can go down to, highest first; each is where an archived partition begins.

    It goes through partitions that have everything, and through ranges without one that the lake has no row of.
    """
    lines: list[int] = []
    for cold_range in reversed(cold):
        if cold_range.holds is Holds.EVERYTHING:
            lines.append(cold_range.lower)
        elif cold_range.holds is Holds.CHANGES or overlapping(files, cold_range.range):
            break
    return lines


def settled(line: int, cold: Sequence[ColdRange], files: Sequence[RecordedFile], lowest: int) -> int:
    """The line itself, or the smallest value that a row can have, if nothing below was ever archived or folded."""
    below = [cold_range for cold_range in cold if cold_range.upper <= line]
    is_empty = all(cold_range.holds is Holds.NO_PARTITION for cold_range in below)
    untouched = is_empty and not overlapping(files, Range(lowest, line))
    return min(line, lowest) if untouched else line


def beginning(cold: Sequence[ColdRange], value: int) -> int | None:
    """Where the range begins that the value lies in; None when the value is not cold."""
    return next((cold_range.lower for cold_range in cold if value in cold_range.range), None)
