"""Partition bounds as Postgres prints them, on the tier axis."""

import re
from dataclasses import dataclass
from typing import TypeAlias

from frostline.model.names import Name
from frostline.model.range import Range
from frostline.model.tiers import TierKind, from_text

_BOUNDS = re.compile(r"FOR VALUES FROM \((MINVALUE|'[^']*'|-?\d+)\) TO \((MAXVALUE|'[^']*'|-?\d+)\)")


Identity: TypeAlias = tuple[Name, int, int | None, int | None]
"""Name, oid and bounds of a partition."""


@dataclass(frozen=True)
class Partition:
    """One heap partition. A bound of None is MINVALUE or MAXVALUE; the DEFAULT partition has neither."""

    name: Name
    lower: int | None
    upper: int | None
    is_default: bool
    size_bytes: int
    rows_estimate: int
    """-1 when Postgres never counted."""
    is_unlogged: bool = False
    """A crash of Postgres empties it."""
    oid: int = 0

    @property
    def range(self) -> Range:
        """What it holds rows of; not of the DEFAULT partition."""
        return Range(self.lower, self.upper)

    def begins_below(self, line: int) -> bool:
        """Whether it may hold rows below the line, as the DEFAULT partition always may."""
        return self.lower is None or self.lower < line

    def reaches_above(self, line: int) -> bool:
        """Whether it may hold rows at the line or above it, as the DEFAULT partition always may."""
        return self.upper is None or self.upper > line

    @property
    def identity(self) -> Identity:
        """What another partition does not have, not even one that was made anew with its name and bounds."""
        return self.name, self.oid, self.lower, self.upper


def bounds(kind: TierKind, text: str) -> tuple[int | None, int | None]:
    """Read `FOR VALUES FROM (...) TO (...)`; ValueError for anything else."""
    match = _BOUNDS.fullmatch(text)
    if not match:
        raise ValueError(f"not a range of one {kind.value}: {text!r}")
    return _bound(kind, match[1]), _bound(kind, match[2])


def _bound(kind: TierKind, text: str) -> int | None:
    if text in ("MINVALUE", "MAXVALUE"):
        return None
    return from_text(kind, text.strip("'"))
