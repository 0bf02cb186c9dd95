"""How a table is cut into tasks: block ranges of heap partitions and of the overlay, and groups of lake files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from frostline.model.archive import block_ranges
from frostline.model.range import Range
from frostline.tiers import files
from frostline.tiers.files import ColdFile
from frostline.tiers.point import TablePoint
from frostline.tiers.shards import Shard
from frostline.tiers.target import Target

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
class LakePiece:
    """Some lake files."""

    files: tuple[ColdFile, ...]
    range: Range
    marked: bool
    """Marked rows are to be taken away."""


def cut(at: TablePoint, part: Part, wanted: Range) -> list[Shard | LakePiece]:
    """The tasks that together read the part's rows of the range."""
    wanted = _possible(at, wanted)
    return [*_hot(at, part, wanted), *_overlay(at, part, wanted), *_cold(at, part, wanted)]


def _hot(at: TablePoint, part: Part, wanted: Range) -> Iterator[Shard]:
    if part not in (Part.ALL, Part.HOT):
        return
    above = wanted.clip(Range(at.line, None))
    for target in at.heap:
        if above.overlaps(Range(target.lower, target.upper)):
            yield from _blocks(target, above)


def _overlay(at: TablePoint, part: Part, wanted: Range) -> Iterator[Shard]:
    below = _below_the_line(at, wanted)
    if at.overlay is not None and not below.is_empty and part in (Part.ALL, Part.LIVE, Part.KEYS):
        yield from _blocks(at.overlay, below, only_live=part is not Part.KEYS)


def _blocks(target: Target, wanted: Range, *, only_live: bool = False) -> Iterator[Shard]:
    """The size was read under the snapshot: what has no block had none of its rows either."""
    for first, last in block_ranges(target.blocks, _BLOCKS) if target.blocks else ():
        yield Shard(target, wanted, first or None, last, only_live)


def _cold(at: TablePoint, part: Part, wanted: Range) -> Iterator[LakePiece]:
    if part not in (Part.ALL, Part.COLD):
        return
    below = _below_the_line(at, wanted)
    for group in _grouped(cold_files(at, wanted)):
        yield LakePiece(tuple(group), below, part is Part.ALL and at.overlay is not None)


def cold_files(at: TablePoint, wanted: Range) -> list[ColdFile]:
    """The lake files that can hold a row of the range, below the frost line."""
    below = _below_the_line(at, _possible(at, wanted))
    every = files.of_state(at.table, at.metadata_location, at.snapshot_id, at.dsn)
    return [file for file in every if below.overlaps(files.tier_range(at.table, file))]


def _possible(at: TablePoint, wanted: Range) -> Range:
    """Within what the tier key's type can hold: to Spark a smallint is an integer, and Postgres refuses the rest."""
    tier = at.table.tier
    return wanted.clip(Range.closed(tier.kind.lowest, tier.kind.highest)) if tier else wanted


def _below_the_line(at: TablePoint, wanted: Range) -> Range:
    return wanted.clip(Range(None, at.line))


def _grouped(every: Sequence[ColdFile]) -> Iterator[list[ColdFile]]:
    group: list[ColdFile] = []
    for file in every:
        if group and sum(one.size_bytes for one in group) + file.size_bytes > _FILE_BYTES:
            yield group
            group = []
        group.append(file)
    if group:
        yield group
