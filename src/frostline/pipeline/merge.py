"""Compact: what runs inside one Spark task. Small files of one lake partition become one, sorted by the tier key."""

from dataclasses import dataclass

from frostline.errors import CorruptionError
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths
from frostline.lake.datafiles import WrittenFile
from frostline.model.compaction import Bin
from frostline.model.tables import NO_ROWS, Table
from frostline.pipeline import copying


@dataclass(frozen=True)
class Merge:
    """Files that become one."""

    table: Table
    files: Bin
    location: str
    job_id: int
    memory_limit: str


def merge_files(piece: Merge) -> WrittenFile:
    """Write the rows of all the files to a new one, and prove that it has exactly what was recorded of them.

    Raises CorruptionError when an old file is not what was recorded, or the new one not what it must be.
    """
    location = paths.data_file(piece.location, piece.job_id)
    reached(Failpoint.COMPACT_BEFORE_FILE)
    copying.copy(piece.table, piece.files, location, piece.memory_limit)
    reached(Failpoint.COMPACT_WROTE_FILE)
    meant = sum((file.fingerprint for file in piece.files), start=NO_ROWS)
    try:
        return copying.proved(piece.table, location, meant, "compaction")
    except CorruptionError:
        copying.blame(piece.table, piece.files)
        raise
