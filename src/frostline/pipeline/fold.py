"""Fold: carry the overlay into the lake and take its marks away. Readers never notice; docs/design/fold.md says why.

First the job; below it `rewrite_piece`, which runs inside one Spark task.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import duckdb
import numpy as np

from frostline import logs
from frostline.catalog import archived_partitions, jobs, lake_files, seams, trust
from frostline.catalog.jobs import State
from frostline.errors import CorruptionError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import datafiles, ducksql, paths, publish, schema
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model.names import Name
from frostline.model.range import Range, overlapping
from frostline.model.tables import NO_ROWS, RecordedFile, Seam, Table
from frostline.pipeline import copying, job, settle
from frostline.pipeline.job import JobContext
from frostline.relation import columns, heap, marks
from frostline.tiers import moment, shards, survey, target
from frostline.tiers.moment import Moment
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import blame, blamed, different, fingerprint_now, sound
from frostline.tiers.proof.fingerprint import Hashes
from frostline.tiers.shards import Shard
from frostline.tiers.survey import Marks
from frostline.tiers.target import Reader

_HELD = "select 1 from {rows} as f where {is_marked} limit 1"
_KEPT = "select {names} from {rows} as f where not {is_marked}"
_LIVE = "select {names} from marks where frostline_live"
_KEYS = "select {names} from marks"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a fold of one table did."""

    table: Table
    marks: int = 0
    """How many were carried into the lake."""
    taken: int = 0
    """How many of those are gone from the overlay; the others changed meanwhile, or somebody held them."""
    replaced_files: int = 0
    written_files: int = 0
    error: FrostlineError | None = None


@dataclass(frozen=True)
class Piece:
    """The part of one lake partition that has marks, and the files that may hold their keys."""

    table: Table
    reader: Reader
    marks: Shard
    files: tuple[RecordedFile, ...]
    location: str
    job_id: int
    memory_limit: str


@dataclass(frozen=True)
class Rewritten:
    """What a task did: these files are replaced by those."""

    replaced: tuple[str, ...]
    written: tuple[WrittenFile, ...]
    marks: int


def run(context: JobContext, tables: Sequence[Table]) -> list[Result]:
    """Fold each table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(tables, "fold", partial(fold_table, context), Result)


def fold_table(context: JobContext, chosen: Table) -> Result:
    """Fold what the overlay holds below the frost line."""
    connection, settings = context.connection, context.settings
    with job.on_table(connection, settings, chosen, "fold", "folding") as table:
        columns.require(connection, table)
        trust.require_no_user_triggers(connection, table)
        heap.refuse_smallest(connection, table, [Name("frostline_overlay", table.internal)], marks=True)
        settle.lake(connection, settings, table)
        seam = seams.get(connection, table)
        if not heap.marks(connection, table, None, seam.frost_line):
            return Result(table)
        with job.begun(_log, connection, table, "fold", seam.frost_line, seam.frost_line) as (job_id, said):
            return Fold(context, table, seam, job_id).run(said)


class Fold:
    """One fold of one table, whose job has begun; the caller holds the table's job lock."""

    def __init__(self, context: JobContext, table: Table, seam: Seam, job_id: int) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.seam = seam
        self.location = paths.table_location(context.settings.warehouse, table)
        self.job_id = job_id

    def run(self, said: dict[str, logs.Value]) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        remembered, rewritten = self._rewrite()
        taken = self._publish(rewritten)
        said.update(marks=remembered, taken=taken)
        replaced = sum(len(task.replaced) for task in rewritten)
        written = sum(len(task.written) for task in rewritten)
        return Result(self.table, remembered, taken, replaced, written)

    def _rewrite(self) -> tuple[int, list[Rewritten]]:
        with moment.exported(self.settings.dsn) as exported:
            remembered = marks.remember(self.connection, self.table, exported.snapshot, self.seam.frost_line)
            reached(Failpoint.FOLD_REMEMBERED)
            pieces = list(self.pieces(exported))
            made = self.context.run_tasks(self.table, rewrite_piece, pieces)
        size = sum(file.size_bytes for task in made for file in task.written)
        jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=remembered, size_bytes=size)
        reached(Failpoint.FOLD_REWRITTEN)
        return remembered, made

    def pieces(self, exported: Moment) -> Iterator[Piece]:
        """One for each lake partition that has marks.

        ConflictError unless the table's columns are what they were when the fold began.
        """
        recorded = lake_files.recorded(self.connection, self.table)
        reader = Reader(exported, "export", "frostline fold")
        with moment.joined(exported, purpose="export") as connection:
            target.require_columns(connection, self.table)
            read = target.overlay_of(connection, self.table)
            for lower, upper in heap.occupied(connection, self.table, read.name, self.seam.frost_line):
                yield Piece(
                    table=self.table,
                    reader=reader,
                    marks=Shard(read, Range(lower, upper)),
                    files=tuple(overlapping(recorded, Range(lower, upper))),
                    location=self.location,
                    job_id=self.job_id,
                    memory_limit=self.settings.export_memory,
                )

    def _publish(self, rewritten: Sequence[Rewritten]) -> int:
        replaced = [path for task in rewritten for path in task.replaced]
        written = [file for task in rewritten for file in task.written]
        change = Exchange(self.table, self.job_id, replaced, written)
        staged = change.stage(self.connection, self.settings)
        reached(Failpoint.FOLD_STAGED)
        hint = "frostline status shows whether the snapshot moved; then run frostline fold again"
        with publish.transaction(self.connection, f"publishing a fold of {self.table.name}", hint=hint):
            change.swap(self.connection, staged, self.seam)
            waiting = [str(partition.name) for partition in archived_partitions.uncleaned(self.connection, self.table)]
            taken = marks.take_away(self.connection, self.table, self.seam.frost_line, waiting)
            reached(Failpoint.FOLD_BEFORE_COMMIT)
        reached(Failpoint.FOLD_PUBLISHED)
        return taken


def rewrite_piece(piece: Piece) -> Rewritten:
    """Write the piece's files anew with its marks in them, and prove that nothing else changed.

    Raises CorruptionError when an old file is not what was recorded, or a new one not what it must be.
    """
    surveyed = survey.of_marks(piece.table, piece.reader, piece.marks)
    with blamed(piece.table, piece.files):
        with shards.marks_loaded(piece.table, piece.reader, piece.marks, piece.memory_limit) as connection:
            held = [file for file in piece.files if _holds_a_mark(connection, piece, file)]
            twins = surveyed.has_twin_floats or copying.has_twin_floats(
                connection, piece.table, [file.path for file in held]
            )
            written = [
                _write(connection, piece, file, with_images=with_images, dictionaries=not twins)
                for file, with_images in _new_files(held, surveyed.live.rows)
            ]
            places = _places(connection, piece.table)
        files = [file for file in written if file is not None]
        rest = [file for file in piece.files if file not in held]
        _prove_the_rest(piece, rest, surveyed)
        in_lake = _prove(piece, held, files, surveyed)
        _prove_absence(piece, rest, places, in_lake)
    return Rewritten(tuple(file.path for file in held), tuple(files), len(surveyed.keys))


def _new_files(held: Sequence[RecordedFile], live: int) -> Iterator[tuple[RecordedFile | None, bool]]:
    """Which old file each new one is made of, and whether the live images go into it."""
    if not held:
        if live:
            yield None, True
        return
    for position, file in enumerate(held):
        yield file, position == 0


def _holds_a_mark(connection: duckdb.DuckDBPyConnection, piece: Piece, file: RecordedFile) -> bool:
    rows = copying.rows(piece.table, [file.path])
    return connection.execute(_HELD.format(rows=rows, is_marked=copying.is_marked(piece.table))).fetchone() is not None


def _write(
    connection: duckdb.DuckDBPyConnection,
    piece: Piece,
    file: RecordedFile | None,
    *,
    with_images: bool,
    dictionaries: bool,
) -> WrittenFile | None:
    names = ", ".join(map(ducksql.identifier, schema.parquet_names(piece.table)))
    parts: list[str] = []
    if file:
        rows = copying.rows(piece.table, [file.path])
        parts.append(_KEPT.format(names=names, rows=rows, is_marked=copying.is_marked(piece.table)))
    parts += [_LIVE.format(names=names)] if with_images else []
    location = paths.data_file(piece.location, piece.job_id)
    reached(Failpoint.REWRITE_BEFORE_FILE)
    copying.write(connection, piece.table, " union all ".join(parts), location, dictionaries=dictionaries)
    reached(Failpoint.REWRITE_WROTE_FILE)
    seal = fingerprint.sealed(location, piece.table)
    if not seal.fingerprint.rows:
        paths.delete(location)
        return None
    return datafiles.describe(location, piece.table, seal, in_order=True)


def _places(connection: duckdb.DuckDBPyConnection, table: Table) -> tuple[Hashes, Hashes]:
    """The hash and the tier value of every marked key."""
    names = ", ".join(copying.column_name(table, key) for key in table.key)
    return fingerprint.placed_keys(connection.execute(_KEYS.format(names=names)).to_arrow_table(), table)


def _prove(piece: Piece, held: Sequence[RecordedFile], written: Sequence[WrittenFile], marks: Marks) -> Hashes:
    """What was recorded of the old files, less their marked rows, plus the live images, must be what was written.

    A change in an old file, in a row that was copied or in one that was left out, breaks this equation too. Gives back
    the hashes of the marked keys that the old files had.
    """
    meant, keys = marks.live, [np.zeros(0, np.int64)]
    for file in held:
        rows, named = fingerprint.of_keys(file.path, piece.table, marks.keys)
        meant += fingerprint_now(piece.table, file) - rows
        keys.append(named)
    actual = sum((file.fingerprint for file in written), start=NO_ROWS)
    if actual != meant:
        blame(piece.table, held)
        raise different(piece.table, actual, meant, "fold")
    _require_once(piece, held, keys[1:])
    return np.concatenate(keys)


def _require_once(piece: Piece, held: Sequence[RecordedFile], keys: Sequence[Hashes]) -> None:
    """CorruptionError when the lake has two rows of one marked key: which of them was meant, nobody can tell."""
    hashes = np.concatenate([np.zeros(0, np.int64), *keys])
    unique, count = np.unique(hashes, return_counts=True)
    if len(unique) == len(hashes):
        return
    twice = unique[count > 1]
    where = ", ".join(file.path for file, own in zip(held, keys, strict=True) if np.isin(own, twice).any())
    raise CorruptionError(
        f"fold of {piece.table.name}: {len(twice)} marked keys have more than one row in the lake: {where}",
        hint=f"nothing was changed; frostline verify {piece.table.name}",
    )


def _prove_absence(piece: Piece, rest: Sequence[RecordedFile], places: tuple[Hashes, Hashes], in_lake: Hashes) -> None:
    """A mark whose key was not found is a new row, if every file that could have it is what was recorded.

    A damaged file may hide a key: the change would be written as a new row, and the restored file have the old one.
    The files that did have marked keys are proved already.
    """
    hashes, values = places
    unfound = values[~np.isin(hashes, in_lake)]
    for file in rest:
        if ((unfound >= file.lower) & (unfound <= file.upper)).any():
            sound(file, piece.table)


def _prove_the_rest(piece: Piece, rest: Sequence[RecordedFile], marks: Marks) -> None:
    """The files that stay must have no marked key, by other code than that which looked: a row would be there twice."""
    for file in rest:
        if fingerprint.count_keys(file.path, piece.table, marks.keys):
            raise CorruptionError(
                f"fold of {piece.table.name}: lake file {file.path} holds a marked key that was not found in it",
                hint=f"nothing was changed; frostline verify {piece.table.name}",
            )
