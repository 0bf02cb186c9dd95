"""The grid of a heap's own partitions: how it is told from those that are there, and which come next.

`model/lake_grid.py` is the lake's. This one is the user's: calendar months stay calendar months, and midnight may be
that of a time zone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from frostline.model.range import Range
from frostline.model.tiers import MICROS_PER_DAY, TierKind, civil, days_of

MAX_GAP = 100
"""At most this many partitions are made between the last one and the current one. A longer gap is left as it is."""
MAX_CELLS = 1_100
"""Never more at once: the longest gap, and as many ahead as a policy may ask for."""
_JUDGED = 12
"""The grid is inferred from this many of the newest partitions."""
_FEWER = (6, 3)
"""And if those are not alike, because the width was changed, from this many."""
_MONDAY = 4
"""1970-01-05 was one."""
_LAST_YEARS = {TierKind.TIMESTAMPTZ: 294_276, TierKind.TIMESTAMP: 294_276, TierKind.DATE: 5_874_897}
_LAST_LOCAL_YEAR = 9_990
_INTERVAL = re.compile(
    r"(?:(?P<years>\d+) years? ?)?(?:(?P<months>\d+) mons? ?)?(?:(?P<days>\d+) days? ?)?"
    r"(?:(?P<H>\d+):(?P<M>\d\d):(?P<S>\d\d)(?:\.(?P<f>\d{1,6}))?)?"
)
_UNITS = ("minute", "hour", "day", "week", "month", "year", "decade")
_WORDS = {"quarter": "3 months", **{unit: f"1 {unit}" for unit in _UNITS}}
_CYCLE = 4_800, 146_097
"""The months and days of the 400 years after which the calendar repeats."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)

Edges = tuple[int, int]
"""Where a cell of the grid, or a partition, begins and ends; both finite."""
Bounds = tuple[int | None, int | None]
"""Of a partition; None is MINVALUE or MAXVALUE."""


@dataclass(frozen=True)
class Step:
    """From one edge to the next: calendar months, days of the calendar, and units of the axis, together."""

    months: int = 0
    days: int = 0
    units: int = 0

    def times(self, number: int) -> "Step":
        """That many of them."""
        return Step(self.months * number, self.days * number, self.units * number)

    def fits(self, kind: TierKind, distance: int) -> int:
        """About how often it fits into that distance on the axis: a month is as long as all of them are on average."""
        months, days = _CYCLE
        width = (self.months * days + self.days * months) * day_width(kind) + self.units * months
        return distance * months // width

    def in_utc(self) -> "Step":
        """The same in a calendar whose days all have 24 hours; units are microseconds."""
        days, units = divmod(self.units, MICROS_PER_DAY)
        return Step(self.months, self.days + days, units)


@dataclass(frozen=True)
class HeapGrid:
    """The edges anchor + n steps, for all whole n. `zone` is whose calendar it is; None is UTC."""

    kind: TierKind
    anchor: int
    step: Step
    zone: str | None = None

    def edge(self, number: int) -> int | None:
        """The edge of that number; None where Postgres, or the time zone's calendar, has no more values."""
        value = self.place(number)
        return value if value is not None and self.kind.earliest <= value <= _last(self.kind) else None

    def place(self, number: int) -> int | None:
        """Where that edge would be if the type had no ends; None where the time zone's calendar has no more values."""
        return _added(self.kind, self.anchor, self.step.times(number), self.zone)

    def number(self, value: int) -> int:
        """The number of the edge at which the cell of this value begins."""
        number = self.step.fits(self.kind, value - self.anchor)
        while (lower := self.place(number)) is not None and lower > value:
            number -= 1
        while (upper := self.place(number + 1)) is not None and upper <= value:
            number += 1
        return number

    def cell(self, value: int) -> Edges | None:
        """The cell in which this value lies, if the type has both its ends."""
        number = self.number(value)
        lower, upper = self.edge(number), self.edge(number + 1)
        return None if lower is None or upper is None else (lower, upper)

    def bounds(self, number: int) -> tuple[int, int | None] | None:
        """The cell that begins at that edge, cut off at the ends of the type: None is MAXVALUE. None beyond its end."""
        lower = self.place(number)
        if lower is None or lower > _last(self.kind):
            return None
        return max(lower, self.kind.earliest), self.edge(number + 1)


@dataclass(frozen=True)
class Unknown:
    """There is no grid, and why."""

    reason: str


def find(
    kind: TierKind, ranges: Sequence[Edges], now: int, *, interval: str | None = None, zone: str | None = None
) -> HeapGrid | Unknown:
    """The grid of the partitions with these finite bounds, or with steps of `interval` from where they end."""
    edges = chain(ranges, now)
    if interval is not None:
        return _given(kind, edges, now, parse(kind, interval), zone)
    if not edges:
        return Unknown("it has no partition with two finite bounds")
    for newest in _samples(edges):
        grid = _told(kind, newest, zone)
        if grid is not None:
            return grid
    return Unknown("its newest partitions are not alike")


def chain(ranges: Sequence[Edges], now: int) -> list[int]:
    """The edges of the partitions around now that follow each other without a gap, as far as they go; else none."""
    ordered = sorted(ranges)
    begun = [index for index, edges in enumerate(ordered) if edges[0] <= now]
    if not ordered:
        return []
    first = last = begun[-1] if begun else 0
    while first > 0 and ordered[first - 1][1] == ordered[first][0]:
        first -= 1
    while last + 1 < len(ordered) and ordered[last][1] == ordered[last + 1][0]:
        last += 1
    return [ordered[first][0], *(upper for _, upper in ordered[first : last + 1])]


def missing(grid: HeapGrid, taken: Sequence[Bounds], now: int, ahead: int, *, floor: int) -> list[Edges]:
    """The cells to make so that there are `ahead` partitions beyond the one that holds now; none below `floor`.

    A cell that overlaps a partition is left out, and that one counts in its stead.
    """
    cells: list[Edges] = []
    held = [Range(*bounds) for bounds in taken]
    beyond = 0
    for lower, upper in _walk(grid, held, _start(grid, held, now, floor)):
        if lower is not None and lower >= floor and not any(map(Range(lower, upper).overlaps, held)):
            cells.append((lower, upper))
        beyond += lower is not None and lower > now
        if len(cells) == MAX_CELLS or (upper > now and beyond >= ahead):
            break
    return cells


def _walk(grid: HeapGrid, held: Sequence[Range], point: int) -> Iterator[tuple[int | None, int]]:
    """From there upwards: the partition that holds the point, or else its cell, and so on, as far as there are any."""
    while True:
        holding = next((cell for cell in held if point in cell), None)
        lower, upper = (holding.lower, holding.upper) if holding else grid.cell(point) or (None, None)
        if upper is None:
            return
        yield lower, upper
        point = upper


def _start(grid: HeapGrid, held: Sequence[Range], now: int, floor: int) -> int:
    """Where to begin: at the end of the last partition before now, unless that is too long ago."""
    ends = [cell.upper for cell in held if cell.upper is not None and cell.upper <= now]
    last = max(ends, default=now) if floor == grid.kind.lowest else max([*ends, floor])
    return last if last <= now and grid.step.fits(grid.kind, now - last) <= MAX_GAP else now


def spelled(interval: str) -> str:
    """A width as Postgres reads it: `month` is one month, a quarter three."""
    return _WORDS.get(interval.lower().removesuffix("s"), interval)


def parse(kind: TierKind, interval: str) -> Step | None:
    """Read an interval as Postgres prints it, or for integers a number; None for one that is no step of this kind."""
    if not kind.is_time:
        return Step(units=int(interval)) if interval.isascii() and interval.isdecimal() and int(interval) > 0 else None
    match = _INTERVAL.fullmatch(interval)
    if not match or not interval:
        return None
    years, months, days, hours, minutes, seconds = (
        int(match[name] or 0) for name in ("years", "months", "days", "H", "M", "S")
    )
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match["f"] or "").ljust(6, "0"))
    step = Step(years * 12 + months, days, micros)
    if kind is TierKind.DATE:
        step = step.in_utc()
    return None if step == Step() or (kind is TierKind.DATE and step.units) else step


def _given(kind: TierKind, edges: list[int], now: int, step: Step | None, zone: str | None) -> HeapGrid | Unknown:
    if step is None:
        return Unknown(f"its --every is no width for a {kind.value}")
    if not edges:
        return calendar(kind, step, now)
    is_local = zone is not None and not _at_midnight(kind, edges[-1], None) and _at_midnight(kind, edges[-1], zone)
    return HeapGrid(kind, edges[-1], step, zone if is_local else None)


def calendar(kind: TierKind, step: Step, now: int) -> HeapGrid:
    """The grid of this step that UTC's calendar has; of integers, the one that has zero."""
    step = step.in_utc() if kind.is_time else step
    return HeapGrid(kind, _origin(kind, step, now), step)


def _origin(kind: TierKind, step: Step, now: int) -> int:
    """Where the calendar puts an edge: a year, quarter or month begins, a Monday, midnight, a whole hour; zero."""
    if step.months:
        year, month, _ = civil(now // day_width(kind))
        number = (year * 12 + month - 1) // step.months * step.months
        return days_of(number // 12, number % 12 + 1, 1) * day_width(kind)
    is_weekly = step.days and step.days % 7 == 0 and not step.units
    return _MONDAY * day_width(kind) if is_weekly else 0


def _samples(edges: Sequence[int]) -> Iterator[list[int]]:
    """The edges to tell the grid from: of the newest twelve partitions, or all; else of the newest six; then three."""
    yield list(edges[-_JUDGED - 1 :])
    for length in _FEWER:
        if len(edges) > length:
            yield list(edges[-length - 1 :])


def _told(kind: TierKind, edges: list[int], zone: str | None) -> HeapGrid | None:
    """The grid that has exactly these edges, if there is one."""
    calendars = _calendars(kind, edges, zone) if kind.is_time else ()
    for grid in (*calendars, HeapGrid(kind, edges[0], Step(units=edges[1] - edges[0]))):
        if [grid.edge(number) for number in range(len(edges))] == edges:
            return grid
    return None


def _calendars(kind: TierKind, edges: list[int], zone: str | None) -> Iterator[HeapGrid]:
    """Months and days that could be meant: those that begin at midnight first, UTC's before the zone's."""
    zones = [None] if zone is None or kind is not TierKind.TIMESTAMPTZ else [None, zone]
    for calendar_zone in sorted(zones, key=lambda zone: not _at_midnight(kind, edges[0], zone)):
        first, second = (local_time(kind, edge, calendar_zone) for edge in edges[:2])
        if first is None or second is None:
            continue
        months, days = _months(second[0]) - _months(first[0]), second[0] - first[0]
        if months > 0 and civil(first[0])[2] <= 28:
            yield HeapGrid(kind, edges[0], Step(months=months), calendar_zone)
        if days > 0 and first[1] == second[1]:
            yield HeapGrid(kind, edges[0], Step(days=days), calendar_zone)


def may_be_local(grid: HeapGrid | Unknown) -> bool:
    """Whether the calendar of a time zone could be meant: it is no midnight of UTC where the days and months begin."""
    if isinstance(grid, Unknown):
        return True
    return not grid.step.units and not _at_midnight(grid.kind, grid.anchor, None)


def _months(days: int) -> int:
    year, month, _ = civil(days)
    return year * 12 + month


def day_width(kind: TierKind) -> int:
    """A day on the axis; of integers, one."""
    return MICROS_PER_DAY if kind in (TierKind.TIMESTAMPTZ, TierKind.TIMESTAMP) else 1


def _at_midnight(kind: TierKind, value: int, zone: str | None) -> bool:
    local = local_time(kind, value, zone)
    return local is not None and local[1] == 0


def local_time(kind: TierKind, value: int, zone: str | None) -> tuple[int, int] | None:
    """The day since 1970 that a value lies on in the zone's calendar, and how far into it; None beyond its years."""
    if zone is not None:
        if not _has_year(value // MICROS_PER_DAY):
            return None
        offset = (_EPOCH + timedelta(microseconds=value)).astimezone(ZoneInfo(zone)).utcoffset()
        value += (offset or timedelta()) // _MICRO
    return divmod(value, day_width(kind))


def _has_year(days: int) -> bool:
    return 1 < civil(days)[0] < _LAST_LOCAL_YEAR


def _added(kind: TierKind, anchor: int, step: Step, zone: str | None) -> int | None:
    """What Postgres makes of anchor + step in that time zone, or would if its types had no ends."""
    if not kind.is_time:
        return anchor + step.units
    local = local_time(kind, anchor, zone)
    if local is None:
        return None
    days = _moved(local[0], step)
    value = days * day_width(kind) + local[1]
    if zone is not None:
        if not _has_year(days):
            return None
        value -= _offset(days, local[1], zone)
    return value + step.units


def _last(kind: TierKind) -> int:
    """The greatest value that a partition can begin or end with."""
    return days_of(_LAST_YEARS[kind] + 1, 1, 1) * day_width(kind) - 1 if kind.is_time else kind.highest


def _moved(days: int, step: Step) -> int:
    """Months first, and no further than the month's last day; then days."""
    year, month, day = civil(days)
    number = year * 12 + month - 1 + step.months
    year, month = number // 12, number % 12 + 1
    length = days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1)
    return days_of(year, month, min(day, length)) + step.days


def _offset(days: int, micros: int, zone: str) -> int:
    """How far that local time is ahead of UTC. Of two, and where there is none, the smaller: as Postgres chooses."""
    naive = _EPOCH.replace(tzinfo=ZoneInfo(zone)) + timedelta(days=days, microseconds=micros)
    offsets = [naive.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    return min(offsets) // _MICRO
