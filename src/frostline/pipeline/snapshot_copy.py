"""A named snapshot: one Spark job copies the pieces of all its tables under one Postgres snapshot.

A piece is a block range of a heap, an overlay, a file of a managed table's lake, or some files of a lake table. A task
takes several: most tables are small. First how tables are cut into pieces; below it `copy_pieces`, which runs inside
one Spark task, and makes verified Parquet files of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from frostline.catalog.snapshot_versions import Run
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import damage, datafiles, ducksql, ducktext, paths, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model import fields, snapshot
from frostline.model.range import Range
from frostline.model.tables import NO_ROWS, Fingerprint, RecordedFile, Table, TableCopy
from frostline.pipeline import copying, export, tasks
from frostline.pipeline.export import Export
from frostline.pipeline.snapshot_plan import Plan, Source, ranges
from frostline.pipeline.tasks import Progress
from frostline.settings import Settings
from frostline.tiers import shards, survey
from frostline.tiers.files import grouped
from frostline.tiers.moment import Holder
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import blamed, fingerprint_now, proved
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCK_TIMEOUT_S = 30
"""A session that alters a table waits for the holder, and the tasks wait behind it. Rather than wait for ever, the run
gives up: Postgres sees no deadlock in this, because the holder waits outside of it."""
_MARK_BYTES = 100
"""About what a mark takes in the overlay; only for sharing work out."""
_MOST_FILES = 1000
"""Of a lake table, that one task opens together."""
_KEPT = "select {columns} from {rows} as f where f.{tier_key} < {line} and not {is_marked}"
_COPY = "copy ({query}) to {location} ({options})"


@dataclass(frozen=True)
class HeapPiece:
    """Rows that Postgres has."""

    number: int
    """Of the table among those of the plan."""
    export: Export


@dataclass(frozen=True)
class LakePiece:
    """Rows of one file of a managed table's lake: those below the frost line that have no mark."""

    number: int
    export: Export
    """Of the overlay's marks in the range of the file; with the table as its copy has it."""
    managed: Table
    file: RecordedFile
    line: int
    """The frost line, on the axis."""


@dataclass(frozen=True)
class LakeTablePiece:
    """Rows of some files of a lake table: those that no delete file names."""

    number: int
    table: TableCopy
    """With the field ids that these files have."""
    files: Mapping[str, Sequence[str]]
    """By path, the delete files that name rows of each."""
    copy: TableCopy
    """With those that the copy has."""
    location: str
    """The folder of the copy."""
    job_id: int
    memory_limit: str


Piece = HeapPiece | LakePiece | LakeTablePiece


@dataclass(frozen=True)
class Made:
    """What a task wrote, by table."""

    files: tuple[tuple[int, WrittenFile], ...]

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """All of it, for counting."""
        return tuple(file for _, file in self.files)


@dataclass(frozen=True)
class Surveyed:
    """What Postgres says of the pieces of a task, by table."""

    fingerprints: tuple[tuple[int, Fingerprint], ...]
    written: tuple[WrittenFile, ...] = ()


Report = Callable[[Progress], None]
OnePiece = TypeVar("OnePiece", HeapPiece | LakeTablePiece, Piece)
Done = TypeVar("Done")


class Copying:
    """What a run does under its snapshot."""

    def __init__(self, settings: Settings, job: Run, plan: Plan, holder: Holder, report: Report) -> None:
        self.settings = settings
        self.job = job
        self.plan = plan
        self.holder = holder
        self.report = report

    def files(
        self, spark: "Callable[[], SparkSession]", without: frozenset[int]
    ) -> Mapping[int, Sequence[WrittenFile]]:
        """Copy the tables but for these; the written files by the number of their table."""
        numbers = [number for number in range(len(self.plan.sources)) if number not in without]
        pieces = [piece for number in numbers for piece in self._pieces(number)]
        files: dict[int, list[WrittenFile]] = {}
        for made in self._run(spark, copy_pieces, pieces):
            for number, file in made.files:
                files.setdefault(number, []).append(file)
        return files

    def unchanged(self, spark: "Callable[[], SparkSession]") -> frozenset[int]:
        """The tables that have the very columns and rows of their last copy.

        Postgres computes the fingerprint of each under the snapshot; of a managed table, of its hot rows, to which the
        recorded ones of the lake's files are added. That of a lake table is computed from its files, unless nobody has
        committed to it since.
        """
        current = {
            number: sum((file.fingerprint for file in source.cold.files), start=NO_ROWS) if source.cold else NO_ROWS
            for number, source in enumerate(self.plan.sources)
            if _may_be_same(source) and not _is_same(source)
        }
        pieces = [piece for number in current for piece in self._surveyed_pieces(number)]
        for surveyed in self._run(spark, survey_pieces, pieces):
            for number, rows in surveyed.fingerprints:
                current[number] += rows
        bases = {number: self.plan.sources[number].base for number in current}
        same = frozenset(number for number, base in bases.items() if base and base.fingerprint == current[number])
        return same | {number for number, source in enumerate(self.plan.sources) if _is_same(source)}

    def _run(
        self,
        spark: "Callable[[], SparkSession]",
        function: Callable[[Sequence[OnePiece]], Done],
        pieces: Sequence[tuple[OnePiece, int]],
    ) -> list[Done]:
        if not pieces:
            return []
        bins = snapshot.bins(pieces, self.settings.export_shard_bytes)
        try:
            return tasks.run(spark(), function, bins, self._watched)
        except FrostlineError:
            self.holder.check()  # when it is gone, that is why
            raise

    def _watched(self, progress: Progress) -> None:
        self.holder.watch()
        self.report(progress)

    def _pieces(self, number: int) -> Iterator[tuple[Piece, int]]:
        """All pieces of a table, each with about how many bytes it has."""
        yield from self._surveyed_pieces(number)
        origin = self.plan.sources[number]
        if origin.cold is None:
            return
        for file in origin.cold.files:
            marks = self._export(origin, Shard(origin.cold.overlay, file.range))
            yield LakePiece(number, marks, origin.cold.table, file, origin.cold.line), file.size_bytes

    def _surveyed_pieces(self, number: int) -> Iterator[tuple[HeapPiece | LakeTablePiece, int]]:
        """Those whose fingerprint nobody has recorded."""
        yield from self._heap_pieces(number)
        origin = self.plan.sources[number]
        if origin.in_lake is None:
            return
        for group in grouped(origin.in_lake.files, self.settings.export_shard_bytes):
            for start in range(0, len(group), _MOST_FILES):
                part = group[start : start + _MOST_FILES]
                piece = LakeTablePiece(
                    number=number,
                    table=origin.in_lake.table,
                    files={file.path: file.deletes for file in part},
                    copy=origin.table,
                    location=origin.location,
                    job_id=self.job.id,
                    memory_limit=self.settings.export_memory,
                )
                yield piece, sum(file.size_bytes for file in part)

    def _heap_pieces(self, number: int) -> Iterator[tuple[HeapPiece, int]]:
        """Those that Postgres has."""
        origin = self.plan.sources[number]
        hot = origin.cold.line if origin.cold and origin.cold.line > origin.cold.table.tier_kind.lowest else None
        for heap, first, last, size in ranges(origin, self.settings.export_shard_bytes):
            yield HeapPiece(number, self._export(origin, Shard(heap, Range(hot, None), first, last))), size
        if origin.cold and origin.cold.marks:
            live = Shard(origin.cold.overlay, Range(None, origin.cold.line), only_live=True)
            yield HeapPiece(number, self._export(origin, live)), origin.cold.marks * _MARK_BYTES

    def _export(self, origin: Source, shard: Shard) -> Export:
        again = "run frostline snapshot create again"
        return Export(
            table=origin.table,
            reader=Reader(self.plan.moment, "export", again, lock_timeout_s=_LOCK_TIMEOUT_S),
            shard=shard,
            location=origin.location,
            job_id=self.job.id,
            memory_limit=self.settings.export_memory,
            in_order=False,
        )


def _may_be_same(origin: Source) -> bool:
    """Whether the copy that is there has the same columns, and Postgres alone can say whether it has the same rows."""
    if origin.base is None or origin.base.columns != tuple(map(fields.of, origin.table.columns)):
        return False
    return origin.cold is None or (
        origin.cold.marks == 0
        and all(file.upper < origin.cold.line and file.fields is None for file in origin.cold.files)
    )


def _is_same(origin: Source) -> bool:
    """Whether it is a lake table that nobody has committed to since its copy was made."""
    known = origin.base.read_from if origin.base else None
    return known is not None and known == origin.read_from and _may_be_same(origin)


def copy_pieces(pieces: Sequence[Piece]) -> Made:
    """Write each piece to a file of its own and prove that all its rows are there; none for a piece without rows."""
    made: list[tuple[int, WrittenFile]] = []
    for piece in pieces:
        file = _copied_piece(piece)
        if file is not None:
            made.append((piece.number, file))
    return Made(tuple(made))


def _copied_piece(piece: Piece) -> WrittenFile | None:
    match piece:
        case HeapPiece():
            return export.export_shard(piece.export)
        case LakePiece():
            return copy_file(piece)
        case LakeTablePiece():
            return copy_files(piece)


def survey_pieces(pieces: Sequence[HeapPiece | LakeTablePiece]) -> Surveyed:
    """Fingerprint each piece where its rows are, without writing anything."""
    return Surveyed(tuple((piece.number, _fingerprint(piece)) for piece in pieces))


def _fingerprint(piece: HeapPiece | LakeTablePiece) -> Fingerprint:
    if isinstance(piece, LakeTablePiece):
        return copying.remaining(piece.table, piece.files)
    return survey.of_rows(piece.export.table, piece.export.reader, piece.export.shard).fingerprint


def copy_files(piece: LakeTablePiece) -> WrittenFile | None:
    """Copy what is left of files of a lake table to one file, and prove it; None when nothing is.

    Raises CorruptionError when a file cannot be read, or the new one is not what it must be.
    """
    meant = copying.remaining(piece.table, piece.files)
    if not meant.rows:
        return None
    location = paths.data_file(piece.location, piece.job_id)
    reached(Failpoint.SNAPSHOT_BEFORE_FILE)
    copying.copy_remaining(piece.table, piece.files, piece.copy, location, piece.memory_limit)
    reached(Failpoint.SNAPSHOT_WROTE_FILE)
    return proved(piece.copy, location, meant, "snapshot", in_order=False)


def copy_file(piece: LakePiece) -> WrittenFile | None:
    """Copy the rows of a lake file that are neither marked nor hot, and prove it; None when there are none.

    Raises CorruptionError when the file is not what was recorded, or the new one not what it must be.
    """
    keys = survey.key_hashes(piece.managed, piece.export.reader, piece.export.shard)
    with blamed(piece.managed, [piece.file]):
        meant = _meant(piece, keys)
        return _copied(piece, meant) if meant.rows else None


def _copied(piece: LakePiece, meant: Fingerprint) -> WrittenFile:
    location = paths.data_file(piece.export.location, piece.export.job_id)
    warehouse.prepare(location)
    reached(Failpoint.SNAPSHOT_BEFORE_FILE)
    marks = (piece.managed, piece.export.reader, piece.export.shard)
    with shards.marks_loaded(*marks, piece.export.memory_limit) as connection:
        twins = copying.has_twin_floats(connection, piece.managed, [piece.file.path])
        options = datafiles.copy_options(piece.export.table, dictionaries=not twins)
        connection.execute(_COPY.format(query=_kept(piece), location=ducksql.literal(location), options=options))
    reached(Failpoint.SNAPSHOT_WROTE_FILE)
    return proved(piece.export.table, location, meant, "snapshot", in_order=False)


def _meant(piece: LakePiece, keys: frozenset[int]) -> Fingerprint:
    """What the copy must have, from the whole file, which must be what was recorded of it."""
    managed, path = piece.managed, piece.file.path
    others, named = fingerprint.split(path, managed, keys)
    if others + named != fingerprint_now(managed, piece.file):
        raise damage.damaged(f"file {path}", "it is not what was written", managed.name)
    if piece.file.upper < piece.line:
        return others
    return fingerprint.split(path, managed, keys, within=Range(None, piece.line))[0]


def _kept(piece: LakePiece) -> str:
    """The rows that go on, under the names that the copy has for the columns."""
    managed = piece.managed
    return _KEPT.format(
        columns=copying.named_as(managed, piece.export.table),
        rows=copying.rows(managed, [piece.file.path]),
        tier_key=copying.column_name(managed, managed.tier_key),
        line=ducktext.tier_literal(managed.tier_kind, piece.line),
        is_marked=copying.is_marked(managed),
    )
