"""Undo and retain: what runs inside one Spark task. A lake file that reaches across a line keeps one side of it."""

from dataclasses import dataclass

from frostline import failpoints
from frostline.failpoints import Failpoint
from frostline.lake import ducktext, paths
from frostline.lake.datafiles import WrittenFile
from frostline.model.range import Range
from frostline.model.tables import RecordedFile, Table
from frostline.pipeline import copying
from frostline.pipeline.refill import checked


@dataclass(frozen=True)
class Trim:
    """A file, and the range whose rows it keeps."""

    table: Table
    file: RecordedFile
    keep: Range
    location: str
    job_id: int
    memory_limit: str


def trim_file(piece: Trim) -> WrittenFile:
    """Write the file's rows of the range to a new one, and prove that it has exactly those.

    Raises CorruptionError when the old file is not what was recorded, or the new one not what it must be.
    """
    meant = checked(piece.file, piece.table, piece.keep)
    location = paths.data_file(piece.location, piece.job_id)
    failpoints.reached(Failpoint.TRIM_BEFORE_FILE)
    copying.copy(piece.table, [piece.file], location, piece.memory_limit, _condition(piece))
    failpoints.reached(Failpoint.TRIM_WROTE_FILE)
    return copying.proved(piece.table, location, meant, "trimming a file")


def _condition(piece: Trim) -> str:
    tier_key = copying.column_name(piece.table, piece.table.tier_key)
    return ducktext.within(tier_key, piece.table.tier_kind, piece.keep)
