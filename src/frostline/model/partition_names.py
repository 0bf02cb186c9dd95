"""Names of new partitions: as the user's own, if that can be told, and else the table's name with its place."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from frostline.model.heap_grid import HeapGrid, local_time
from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tiers import TierKind, civil

_NUMBER = re.compile(r"(.*?)(\d+)", re.DOTALL)
_MINUTE = 60_000_000
_FIRST_ISO_YEAR, _LAST_ISO_YEAR = 2, 9_998
FORMATS = (
    "{y:04}_{m:02}_{d:02}_{H:02}{M:02}", "{y:04}_{m:02}_{d:02}_{H:02}", "{y:04}-{m:02}-{d:02}_{H:02}",
    "{y:04}{m:02}{d:02}_{H:02}{M:02}", "{y:04}{m:02}{d:02}{H:02}{M:02}",
    "{y:04}{m:02}{d:02}_{H:02}", "{y:04}{m:02}{d:02}{H:02}", "y{y:04}m{m:02}d{d:02}h{H:02}",
    "y{y:04}m{m:02}d{d:02}", "{y:04}_{m:02}_{d:02}", "{y:04}-{m:02}-{d:02}", "{y:04}{m:02}{d:02}",
    "{iso:04}_w{w:02}", "{iso:04}w{w:02}", "{iso:04}-w{w:02}", "y{iso:04}w{w:02}",
    "{y:04}_q{q}", "{y:04}q{q}", "{y:04}-q{q}", "y{y:04}q{q}",
    "y{y:04}m{m:02}", "{y:04}_{m:02}", "{y:04}-{m:02}", "{y:04}{m:02}", "y{y:04}", "{y:04}",
)  # fmt: skip
"""How people write where a partition begins, the most exact first."""
_NUMBERS = ("{lower}_{upper}", "{lower}_{last}", "{lower}")


@dataclass(frozen=True)
class Cell:
    """A partition that is there, and its finite bounds."""

    name: Name
    lower: int
    upper: int


def next_name(table: Name, grid: HeapGrid, known: Sequence[Cell], lower: int, upper: int) -> Name:
    """What to call the partition [lower, upper): as the newest two before it are called."""
    before = sorted((cell for cell in known if cell.lower < lower), key=lambda cell: cell.lower)[-2:]
    if before:
        label = _label(grid)
        for pattern in FORMATS if grid.kind.is_time else _NUMBERS:
            name = _by_pattern(pattern, label, before, lower, upper)
            if name is not None:
                return name
        following = _by_number(before)
        if following is not None:
            return following
    return own_name(table, grid, lower)


Label = Callable[[str, int, int], str | None]


def _by_pattern(pattern: str, label: Label, before: Sequence[Cell], lower: int, upper: int) -> Name | None:
    """The name by this pattern, if the others are called by it: the same around it, and no two alike."""
    around: set[tuple[str, str]] = set()
    for cell in before:
        text = label(pattern, cell.lower, cell.upper)
        head, separator, tail = cell.name.table.rpartition(text) if text else ("", "", "")
        if not separator:
            return None
        around.add((head, tail))
    new = label(pattern, lower, upper)
    if len(around) != 1 or new is None or new == label(pattern, before[-1].lower, before[-1].upper):
        return None
    ((head, tail),) = around
    return Name(before[-1].name.schema, cut(head, MAX_BYTES - len((new + tail).encode())) + new + tail)


def _by_number(before: Sequence[Cell]) -> Name | None:
    """The next of names that are counted."""
    matches = [_NUMBER.fullmatch(cell.name.table) for cell in before]
    if len(matches) < 2 or matches[0] is None or matches[1] is None:
        return None
    (head, first), (other, second) = matches[0].groups(), matches[1].groups()
    if head != other or int(second) != int(first) + 1:
        return None
    number = str(int(second) + 1).zfill(len(second))
    return Name(before[-1].name.schema, cut(head, MAX_BYTES - len(number)) + number)


def own_name(table: Name, grid: HeapGrid, lower: int) -> Name:
    """What we call the partition that begins there: the table's name, and its place as exactly as the grid needs."""
    suffix = "_p" + (_label(grid)(_usual(grid), lower, lower) or str(lower)).replace("-", "m")
    return Name(table.schema, cut(table.table, MAX_BYTES - len(suffix)) + suffix)


def _usual(grid: HeapGrid) -> str:
    step = grid.step
    if not grid.kind.is_time:
        return "{lower}"
    if step.months and not step.days and not step.units:
        return "{y:04}_{m:02}" if step.months % 12 else "{y:04}"
    clock = "" if grid.kind is TierKind.DATE or not step.units else "_{H:02}{M:02}"
    return "{y:04}_{m:02}_{d:02}" + clock + ("{S:02}" if clock and step.units % _MINUTE else "")


def _label(grid: HeapGrid) -> Label:
    """Writes where a partition lies; None where its calendar has no such thing."""

    def write(pattern: str, lower: int, upper: int) -> str | None:
        if not grid.kind.is_time:
            return pattern.format(lower=lower, upper=upper, last=upper - 1)
        local = local_time(grid.kind, lower, grid.zone)
        parts = {} if local is None else _parts(*local)
        return None if not parts or ("{iso" in pattern and "w" not in parts) else pattern.format(**parts)

    return write


def _parts(days: int, micros: int) -> dict[str, int]:
    year, month, day = civil(days)
    minutes, rest = divmod(micros, _MINUTE)
    clock = {"H": minutes // 60, "M": minutes % 60, "S": rest // 1_000_000}
    parts = {"y": year, "m": month, "d": day, "q": (month + 2) // 3, **clock}
    if _FIRST_ISO_YEAR <= year <= _LAST_ISO_YEAR:
        iso = date(year, month, day).isocalendar()
        parts |= {"iso": iso.year, "w": iso.week}
    return parts
