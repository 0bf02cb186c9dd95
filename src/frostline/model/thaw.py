"""How the cold range of a table is made up, and how far its frost line can go down: pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.tables import RecordedFile


class Holds(Enum):
    """What the heap has of a stretch of the cold range."""

    EVERYTHING = auto()
    """An archived partition that is not cleaned: the complete truth of its range."""
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


@dataclass(frozen=True)
class Stretch:
    """A part [lower, upper) of the cold range. The smallest value of the axis stands for "from the beginning"."""

    lower: int
    upper: int
    holds: Holds
    name: Name | None = None
    """What its partition is or was called."""
    partition: Name | None = None
    """Its partition, if it is in the heap."""


def stretches(
    partitions: Sequence[Partition], archived: Sequence[Archived], frost_line: int, lowest: int
) -> list[Stretch]:
    """The whole cold range, without gaps and in order: partitions that are there, were there, and what lies between."""
    kept = {one.name for one in archived if one.in_heap}
    present = [
        Stretch(lowest if one.lower is None else one.lower, one.upper, _holds(one, archived, kept), one.name, one.name)
        for one in partitions
        if not one.is_default and one.upper is not None and one.upper <= frost_line
    ]
    gone = [
        Stretch(lowest if one.lower is None else one.lower, one.upper, Holds.CHANGES, one.name)
        for one in archived
        if one.upper <= frost_line
    ]
    covered = list(_filled(present, gone, lowest, frost_line))
    return list(_with_gaps(covered, lowest, frost_line))


def _holds(one: Partition, archived: Sequence[Archived], kept: set[Name]) -> Holds:
    if one.name in kept:
        return Holds.EVERYTHING
    return Holds.CHANGES if any(one.name == other.name for other in archived) else Holds.NO_PARTITION


def _filled(present: list[Stretch], gone: list[Stretch], lowest: int, line: int) -> Iterator[Stretch]:
    """What is there, and between that as much as fits of what was there."""
    for free in _with_gaps(sorted(present, key=_position), lowest, line):
        if free.name is not None:
            yield free
            continue
        at = free.lower
        for one in sorted(gone, key=_position):
            lower, upper = max(one.lower, at), min(one.upper, free.upper)
            if lower < upper:
                yield Stretch(lower, upper, one.holds, one.name)
                at = upper


def _with_gaps(covered: list[Stretch], lowest: int, line: int) -> Iterator[Stretch]:
    at = lowest
    for one in covered:
        if one.lower > at:
            yield Stretch(at, one.lower, Holds.NO_PARTITION)
        yield one
        at = one.upper
    if at < line:
        yield Stretch(at, line, Holds.NO_PARTITION)


def _position(one: Stretch) -> int:
    return one.lower


def reach(cold: Sequence[Stretch], files: Sequence[RecordedFile]) -> list[int]:
    """The lines that an undo can go down to, highest first; each is where an archived partition begins.

    It goes through partitions that have everything, and through ranges without one that the lake has no row of.
    """
    found: list[int] = []
    for one in reversed(cold):
        if one.holds is Holds.EVERYTHING:
            found.append(one.lower)
        elif one.holds is Holds.CHANGES or any(touching(files, one.lower, one.upper)):
            break
    return found


def settled(line: int, cold: Sequence[Stretch], files: Sequence[RecordedFile], lowest: int) -> int:
    """The line itself, or the smallest value that a row can have, if nothing below was ever archived or folded."""
    below = [one for one in cold if one.upper <= line]
    untouched = all(one.holds is Holds.NO_PARTITION for one in below) and not any(touching(files, lowest, line))
    return min(line, lowest) if untouched else line


def touching(files: Sequence[RecordedFile], lower: int, upper: int) -> Iterator[RecordedFile]:
    """The files that may hold a row of the range."""
    return (file for file in files if file.upper >= lower and file.lower < upper)


def beginning(cold: Sequence[Stretch], value: int) -> int | None:
    """Where the stretch begins that the value lies in; None when the value is not cold."""
    return next((one.lower for one in cold if one.lower <= value < one.upper), None)
