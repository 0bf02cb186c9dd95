"""Undo: what runs inside one Spark task. A lake file that reaches across the new frost line loses its rows above it."""

from dataclasses import dataclass

from frostline import failpoints
from frostline.errors import CorruptionError
from frostline.failpoints import Failpoint
from frostline.lake import datafiles, duck, ducksql, ducktext, paths, schema, store
from frostline.lake.datafiles import WrittenFile
from frostline.model.tables import RecordedFile, Table
from frostline.pipeline import export, fingerprint
from frostline.pipeline.refill import checked

_COPY = "copy (select * from {rows} where {tier_key} < {line} order by {tier_key}) to {location} ({options})"


@dataclass(frozen=True)
class Trim:
    """A file, and the line that its rows must lie below."""

    table: Table
    file: RecordedFile
    line: int
    location: str
    job_id: int
    memory_limit: str


def trim_file(piece: Trim) -> WrittenFile:
    """Write the file's rows below the line to a new one, and prove that it has exactly those.

    Raises CorruptionError when the old file is not what was recorded, or the new one not what it must be.
    """
    meant = checked(piece.file, piece.table, (piece.table.tier_kind.lowest, piece.line))
    location = paths.data_file(piece.location, piece.job_id)
    failpoints.reached(Failpoint.UNDO_BEFORE_FILE)
    with store.reachable(f"write {location}"):
        paths.make_parent(location)
        _write(piece, location)
    failpoints.reached(Failpoint.UNDO_WROTE_FILE)
    found = fingerprint.of_parquet([location], piece.table)
    if found != meant:
        raise CorruptionError(
            f"undo of {piece.table.name}: {found.rows} rows with hash sum {found.hash_sum} were written, "
            f"but {meant.rows} with {meant.hash_sum} were meant"
        )
    return datafiles.describe(location, piece.table, found, in_order=True)


def _write(piece: Trim, location: str) -> None:
    table = piece.table
    named = dict(zip(schema.parquet_names(table), table.columns, strict=True))
    tier_key = next(name for name, column in named.items() if column.name == table.tier_key)
    statement = _COPY.format(
        rows=ducksql.read_parquet([ducksql.literal(piece.file.path)], named.items()),
        tier_key=ducksql.identifier(tier_key),
        line=ducktext.tier_literal(table.tier_kind, piece.line),
        location=ducksql.literal(location),
        # Without dictionaries, which could take a float for an equal one of other bits.
        options=export.options(table, dictionaries=False),
    )
    with duck.borrowed(piece.memory_limit) as connection:
        connection.execute("begin")
        connection.execute(statement)
