"""The lake's partition grid: how a range of tier values is cut where the Iceberg transform changes its value."""

import re
from collections.abc import Iterator

from frostline.model.tiers import MICROS_PER_DAY, TierKind, civil, days_of

_TRUNCATE = re.compile(r"truncate\[(\d+)\]")
_TIME_TRANSFORMS = ("year", "month", "day", "hour")


def check(transform: str, kind: TierKind) -> str | None:
    """Why this transform does not fit this kind of tier key, or None when it does."""
    if kind.is_time:
        allowed = _TIME_TRANSFORMS if kind is not TierKind.DATE else _TIME_TRANSFORMS[:3]
        return None if transform in allowed else f"{transform!r} is not one of {', '.join(allowed)}"
    match = _TRUNCATE.fullmatch(transform)
    if match and int(match[1]) > 0:
        return None
    return f"{transform!r} is not truncate[N]"


def ranges(transform: str, kind: TierKind, lower: int, upper: int) -> Iterator[tuple[int, int]]:
    """Cut [lower, upper) so that the transform has one value in each range. `lower` and `upper` are finite."""
    start = lower
    while start < upper:
        end = min(cell_end(transform, kind, start), upper)
        yield start, end
        start = end


def finest(transform: str, kind: TierKind) -> int:
    """A width that every edge of the grid is a multiple of: an hour, a day, or the number that integers are cut by."""
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate:
        return int(truncate[1])
    if kind is TierKind.DATE:
        return 1
    return MICROS_PER_DAY // 24 if transform == "hour" else MICROS_PER_DAY


def cell_end(transform: str, kind: TierKind, value: int) -> int:
    """Where the lake partition ends that the value lies in. Values of one lake partition have the same."""
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate:
        width = int(truncate[1])
        return (value // width + 1) * width
    if transform == "hour":
        hour = MICROS_PER_DAY // 24
        return (value // hour + 1) * hour
    unit = 1 if kind is TierKind.DATE else MICROS_PER_DAY
    return _next_day_edge(transform, value // unit) * unit


def smallest(transform: str, kind: TierKind) -> int:
    """The smallest tier value that the lake can hold: the first that one of its partitions can begin with."""
    truncate = _TRUNCATE.fullmatch(transform)
    if not truncate:
        return kind.lowest
    width, lowest = int(truncate[1]), TierKind.INTEGER.lowest if kind is TierKind.SMALLINT else kind.lowest
    return max(-(-lowest // width) * width, kind.lowest)


def cell_start(transform: str, kind: TierKind, value: int) -> int:
    """Where the lake partition begins that the value lies in."""
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate or transform == "hour":
        width = int(truncate[1]) if truncate else MICROS_PER_DAY // 24
        return value // width * width
    unit = 1 if kind is TierKind.DATE else MICROS_PER_DAY
    days = value // unit
    year, month, _ = civil(days)
    if transform != "day":
        days = days_of(year, month if transform == "month" else 1, 1)
    return days * unit


def _next_day_edge(transform: str, days: int) -> int:
    year, month, _ = civil(days)
    if transform == "day":
        return days + 1
    if transform == "month":
        return days_of(year + month // 12, month % 12 + 1, 1)
    return days_of(year + 1, 1, 1)
