"""Half-open ranges of tier values, and the files that may hold a row of one.

A tier value is an int on its kind's axis (`model/tiers.py`), so there is always a next one: what is given by its
smallest and largest value, as the bounds of a data file are, is the half-open range that ends one further.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class Range:
    """The tier values from `lower` up to `upper`, without `upper` itself. None is no limit on that side.

    No value of the axis could stand for "no limit" above: infinity is a tier value too, and must lie within.
    """

    lower: int | None
    upper: int | None

    @classmethod
    def closed(cls, first: int, last: int) -> "Range":
        """From one value to another, both included."""
        return cls(first, last + 1)

    @property
    def is_empty(self) -> bool:
        """Whether no value lies in it."""
        return self.lower is not None and self.upper is not None and self.lower >= self.upper

    def __contains__(self, value: int) -> bool:
        return (self.lower is None or self.lower <= value) and (self.upper is None or value < self.upper)

    def clip(self, other: "Range") -> "Range":
        """The values that both have."""
        lowers = [edge for edge in (self.lower, other.lower) if edge is not None]
        uppers = [edge for edge in (self.upper, other.upper) if edge is not None]
        return Range(max(lowers, default=None), min(uppers, default=None))

    def overlaps(self, other: "Range") -> bool:
        """Whether a value lies in both."""
        begins = self.lower is None or other.upper is None or self.lower < other.upper
        ends = self.upper is None or other.lower is None or other.lower < self.upper
        return begins and ends and not self.is_empty and not other.is_empty

    def covers(self, other: "Range") -> bool:
        """Whether every value of the other lies in this one."""
        return other.is_empty or self.clip(other) == other


EVERYTHING = Range(None, None)


class HasTierValues(Protocol):
    """A data file: its smallest and its largest tier value, both included, as Iceberg keeps bounds."""

    @property
    def lower(self) -> int: ...  # noqa: D102
    @property
    def upper(self) -> int: ...  # noqa: D102


File = TypeVar("File", bound=HasTierValues)


def overlapping(files: Iterable[File], wanted: Range) -> list[File]:
    """The files that may hold a row of the range."""
    # Compared as they are: a query may ask this of every file of a large lake.
    lower = -inf if wanted.lower is None else wanted.lower
    upper = inf if wanted.upper is None else wanted.upper
    return [file for file in files if file.upper >= lower and file.lower < upper] if lower < upper else []


def gaps(outer: Range, taken: Iterable[Range]) -> Iterator[Range]:
    """What of `outer` none of the others has; they come in the order of their lower ends."""
    rest = outer
    for part in taken:
        if part.is_empty:
            continue
        free = rest.clip(Range(None, part.lower))
        if part.lower is not None and not free.is_empty:
            yield free
        if part.upper is None:
            return
        rest = rest.clip(Range(part.upper, None))
    if not rest.is_empty:
        yield rest
