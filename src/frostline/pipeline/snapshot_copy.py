"""Snapshot of many tables: what runs inside one Spark task. Pieces of tables become verified Parquet files.

A piece is a block range of a heap, an overlay, or a file of a managed table's lake. A task takes several: most
tables are small.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.failpoints import Failpoint, reached
from frostline.lake import damage, datafiles, ducksql, ducktext, paths, schema, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model.tables import Fingerprint, RecordedFile, Table
from frostline.pipeline import copying, export, source
from frostline.pipeline.proof import fingerprint
from frostline.pipeline.proof.files import blamed, proved
from frostline.pipeline.source import Shard

_KEPT = (
    "select {columns} from {rows} as f "
    "where f.{tier_key} < {line} and not exists (select 1 from marks as m where {same_key})"
)
_COPY = "copy ({query}) to {location} ({options})"


@dataclass(frozen=True)
class HeapPiece:
    """Rows that Postgres has."""

    number: int
    """Of the table among those of the plan."""
    shard: Shard


@dataclass(frozen=True)
class LakePiece:
    """Rows of one file of a managed table's lake: those below the frost line that have no mark."""

    number: int
    table: Table
    """As the copy has it."""
    marks: Shard
    """The overlay's marks in the range of the file, of the managed table."""
    file: RecordedFile
    line: int
    """The frost line, on the axis."""


Piece = HeapPiece | LakePiece


@dataclass(frozen=True)
class Made:
    """What a task wrote, by table."""

    files: tuple[tuple[int, WrittenFile], ...]

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """All of it, for counting."""
        return tuple(file for _, file in self.files)


def copy_pieces(pieces: Sequence[Piece]) -> Made:
    """Write each piece to a file of its own and prove that all its rows are there; none for a piece without rows."""
    made: list[tuple[int, WrittenFile]] = []
    for piece in pieces:
        file = export.export_shard(piece.shard) if isinstance(piece, HeapPiece) else copy_file(piece)
        if file is not None:
            made.append((piece.number, file))
    return Made(tuple(made))


@dataclass(frozen=True)
class Surveyed:
    """What Postgres says of the pieces of a task, by table."""

    found: tuple[tuple[int, Fingerprint], ...]
    written: tuple[WrittenFile, ...] = ()


def survey_pieces(pieces: Sequence[HeapPiece]) -> Surveyed:
    """Fingerprint each piece in Postgres, without writing anything."""
    return Surveyed(tuple((piece.number, source.survey(piece.shard).fingerprint) for piece in pieces))


def copy_file(piece: LakePiece) -> WrittenFile | None:
    """Copy the rows of a lake file that are neither marked nor hot, and prove it; None when there are none.

    Raises CorruptionError when the file is not what was recorded, or the new one not what it must be.
    """
    keys = source.survey_marks(piece.marks).keys
    with blamed(piece.marks.table, [piece.file]):
        meant = _meant(piece, keys)
        return _copied(piece, meant) if meant.rows else None


def _copied(piece: LakePiece, meant: Fingerprint) -> WrittenFile:
    location = paths.data_file(piece.marks.location, piece.marks.job_id)
    warehouse.prepare(location)
    reached(Failpoint.SNAPSHOT_BEFORE_FILE)
    with source.marks_loaded(piece.marks) as connection:
        twins = copying.has_twin_floats(connection, piece.marks.table, [piece.file])
        options = datafiles.copy_options(piece.table, dictionaries=not twins)
        connection.execute(_COPY.format(query=_kept(piece), location=ducksql.literal(location), options=options))
    reached(Failpoint.SNAPSHOT_WROTE_FILE)
    return proved(piece.table, location, meant, "snapshot", in_order=False)


def _meant(piece: LakePiece, keys: frozenset[int]) -> Fingerprint:
    """What the copy must have, from the whole file, which must be what was recorded of it."""
    managed, path = piece.marks.table, piece.file.path
    others, named = fingerprint.split(path, managed, keys)
    if others + named != piece.file.fingerprint:
        raise damage.damaged(f"file {path}", "it is not what was written", managed.name)
    if piece.file.upper < piece.line:
        return others
    return fingerprint.split(path, managed, keys, within=(managed.tier_kind.lowest, piece.line))[0]


def _kept(piece: LakePiece) -> str:
    """The rows that go on, under the names that the copy has for the columns."""
    managed = piece.marks.table
    named = zip(schema.parquet_names(managed), schema.parquet_names(piece.table), strict=True)
    return _KEPT.format(
        columns=", ".join(f"f.{ducksql.identifier(old)} as {ducksql.identifier(new)}" for old, new in named),
        rows=copying.rows(managed, [piece.file]),
        tier_key=copying.column_name(managed, managed.tier_key),
        line=ducktext.tier_literal(managed.tier_kind, piece.line),
        same_key=copying.same_key(managed),
    )
