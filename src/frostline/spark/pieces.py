"""How a table is cut into tasks: block ranges of heap partitions and of the overlay, and groups of lake files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql.datasource import InputPartition

from frostline.model.archive import block_ranges
from frostline.spark import lakefiles
from frostline.spark.conditions import Bounds
from frostline.spark.lakefiles import ColdFile
from frostline.spark.point import TablePoint, Target

_BLOCKS = 8192
"""64 MB of heap are one task."""
_FILE_BYTES = 128 << 20
"""Lake files of together so many bytes are one task."""


class Part(StrEnum):
    """Which rows of a table."""

    ALL = "all"
    HOT = "hot"
    """The heap at or above the frost line."""
    LIVE = "live"
    """The overlay's live rows below it."""
    KEYS = "keys"
    """The keys in the overlay below it, live or not."""
    COLD = "cold"
    """The lake, marked rows included."""


@dataclass(frozen=True)
class HeapPiece(InputPartition):
    """A block range of a heap partition or the overlay."""

    target: Target
    bounds: Bounds
    first_block: int | None
    last_block: int | None
    only_live: bool = False


@dataclass(frozen=True)
class LakePiece(InputPartition):
    """Some lake files."""

    files: tuple[ColdFile, ...]
    bounds: Bounds
    marked: bool
    """Marked rows are to be taken away."""


def cut(at: TablePoint, part: Part, bounds: Bounds) -> list[InputPartition]:
    """The tasks that together read the part's rows within the bounds."""
    return [*_hot(at, part, bounds), *_overlay(at, part, bounds), *_cold(at, part, bounds)]


def _hot(at: TablePoint, part: Part, bounds: Bounds) -> Iterator[HeapPiece]:
    if part not in (Part.ALL, Part.HOT):
        return
    low, high = max(bounds[0], at.seam.frost_line), bounds[1]
    for target in at.heap:
        above = target.upper is not None and target.upper <= low
        below = target.lower is not None and target.lower > high
        if low <= high and not above and not below:
            yield from _blocks(target, (low, high))


def _overlay(at: TablePoint, part: Part, bounds: Bounds) -> Iterator[HeapPiece]:
    low, high = bounds[0], min(bounds[1], at.seam.frost_line - 1)
    if at.overlay is not None and low <= high and part in (Part.ALL, Part.LIVE, Part.KEYS):
        yield from _blocks(at.overlay, (low, high), only_live=part is not Part.KEYS)


def _blocks(target: Target, bounds: Bounds, *, only_live: bool = False) -> Iterator[HeapPiece]:
    """The size was read under the snapshot: what has no block had none of its rows either."""
    for first, last in block_ranges(target.blocks, _BLOCKS) if target.blocks else ():
        yield HeapPiece(target, bounds, first or None, last, only_live)


def _cold(at: TablePoint, part: Part, bounds: Bounds) -> Iterator[LakePiece]:
    if part not in (Part.ALL, Part.COLD):
        return
    below = _below_the_line(at, bounds)
    for group in _grouped(cold_files(at, bounds)):
        yield LakePiece(tuple(group), below, part is Part.ALL and at.overlay is not None)


def cold_files(at: TablePoint, bounds: Bounds) -> list[ColdFile]:
    """The lake files that can hold a row within the bounds, below the frost line."""
    return lakefiles.within(at.table, lakefiles.of_state(at.table, at.seam, at.dsn), *_below_the_line(at, bounds))


def _below_the_line(at: TablePoint, bounds: Bounds) -> Bounds:
    """A table that only the lake knows has no line."""
    return (bounds[0], min(bounds[1], at.seam.frost_line - 1)) if at.table.tier_key else bounds


def _grouped(files: Sequence[ColdFile]) -> Iterator[list[ColdFile]]:
    group: list[ColdFile] = []
    for file in files:
        if group and sum(one.size_bytes for one in group) + file.size_bytes > _FILE_BYTES:
            yield group
            group = []
        group.append(file)
    if group:
        yield group
