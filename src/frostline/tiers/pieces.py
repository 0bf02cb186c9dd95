"""How a table is cut into tasks: block ranges of heap partitions and of the overlay, and groups of lake files."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

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
"""One task reads lake files of this many bytes together."""
EVERY_ROW = AlwaysTrue()
"""The condition that leaves no file out."""


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


def cut(at: TablePoint, part: Part, wanted: Range, condition: BooleanExpression = EVERY_ROW) -> list[Shard | LakePiece]:
    """The tasks that together read the part's rows of the range; of a lake table, those the condition can hold for."""
    wanted = _possible(at, wanted)
    above, below = wanted.clip(Range(at.line, None)), wanted.clip(Range(None, at.line))
    pieces: list[Shard | LakePiece] = []
    if part in (Part.ALL, Part.HOT):
        for target in at.heap:
            if above.overlaps(Range(target.lower, target.upper)):
                pieces += _blocks(target, above)
    if part in (Part.ALL, Part.LIVE, Part.KEYS) and at.overlay is not None and not below.is_empty:
        pieces += _blocks(at.overlay, below, only_live=part is not Part.KEYS)
    if part in (Part.ALL, Part.COLD):
        marked = part is Part.ALL and at.overlay is not None
        groups = files.grouped(cold_files(at, wanted, condition), _FILE_BYTES)
        pieces += [LakePiece(tuple(group), below, marked) for group in groups]
    return pieces


def _blocks(target: Target, wanted: Range, *, only_live: bool = False) -> Iterator[Shard]:
    """The size was read under the snapshot: what has no block had none of its rows either."""
    for first, last in block_ranges(target.blocks, _BLOCKS) if target.blocks else ():
        yield Shard(target, wanted, first or None, last, only_live)


def cold_files(at: TablePoint, wanted: Range, condition: BooleanExpression = EVERY_ROW) -> list[ColdFile]:
    """The lake files that can hold a row of the range, below the frost line; of a lake table, of the condition."""
    if at.is_lake_table:
        return list(files.of_lake_table(at.table, at.metadata_location, at.snapshot_id, condition))
    below = _possible(at, wanted).clip(Range(None, at.line))
    all_files = files.of_state(at.table, at.metadata_location, at.snapshot_id, at.dsn)
    return [file for file in all_files if below.overlaps(files.tier_range(at.table, file))]


def _possible(at: TablePoint, wanted: Range) -> Range:
    """Within what the tier key's type can hold: to Spark a smallint is an integer, and Postgres refuses the rest."""
    tier = at.table.tier
    return wanted.clip(Range.closed(tier.kind.lowest, tier.kind.highest)) if tier else wanted
