"""How far the retention line R of a table rises, and what of its lake lies below it: pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.model import lake_grid
from frostline.model.names import Name
from frostline.model.range import Range, overlapping
from frostline.model.tables import RecordedFile, Table


@dataclass(frozen=True)
class UncleanedPartition:
    """An archived partition that is not cleaned: the heap still has all its rows."""

    name: Name
    lower: int | None


@dataclass(frozen=True)
class Line:
    """Where R goes."""

    value: int | None
    """None while there is none."""
    reach: int
    """Rows below this go. It is R, unless a thaw has brought T, or a partition that is not cleaned, below R."""
    waits_for: Name | None = None
    """The partition that must be cleaned before R can go as far as the retention period says."""


def line(
    table: Table, cutoff: int | None, frost_line: int, uncleaned: Sequence[UncleanedPartition], current: int | None
) -> Line:
    """R rises to the cutoff, rounded down to a day (hour, number), not past T or into a partition that is not cleaned.

    The cutoff is None for a table that keeps its rows for ever. R never falls.
    """
    lowest = table.tier_kind.lowest
    before = lowest if current is None else current
    wanted = before if cutoff is None else min(cutoff - cutoff % lake_grid.finest(*table.lake_grid), frost_line)
    first = min(uncleaned, key=lambda partition: _lower(partition, lowest), default=None)
    limit = frost_line if first is None else min(frost_line, _lower(first, lowest))
    value = max(min(wanted, limit), before)
    waits_for = first.name if first is not None and _lower(first, lowest) < wanted else None
    return Line(None if value == lowest else value, min(value, limit), waits_for)


def _lower(partition: UncleanedPartition, lowest: int) -> int:
    return lowest if partition.lower is None else partition.lower


def below(files: Sequence[RecordedFile], value: int) -> tuple[list[RecordedFile], list[RecordedFile]]:
    """The files that lie wholly below the line, and those that reach across it."""
    expired = Range(None, value)
    touched = overlapping(files, expired)
    gone = [file for file in touched if expired.covers(file.range)]
    return gone, [file for file in touched if not expired.covers(file.range)]
