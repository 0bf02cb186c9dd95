"""Fold: what runs inside one Spark task. The files of one lake partition that hold marked keys are written again."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb
import numpy as np

from frostline.catalog.connect import Dsn
from frostline.errors import CorruptionError
from frostline.failpoints import Failpoint, reached
from frostline.lake import datafiles, duck, ducksql, paths, schema
from frostline.lake.datafiles import WrittenFile
from frostline.model.names import Name
from frostline.model.tables import NO_ROWS, RecordedFile, Table
from frostline.pipeline import copying, export, fingerprint, source
from frostline.pipeline.fingerprint import Hashes
from frostline.pipeline.refill import sound
from frostline.pipeline.source import Shard

_MARKS = "create temp table marks as select {columns}, frostline_live from postgres_query('pg', {query})"
_HELD = "select 1 from {rows} as f where exists (select 1 from marks as m where {same_key}) limit 1"
_KEPT = "select {names} from {rows} as f where not exists (select 1 from marks as m where {same_key})"
_LIVE = "select {names} from marks where frostline_live"
_KEYS = "select {names} from marks"


@dataclass(frozen=True)
class Slice:
    """The part of one lake partition that has marks, and the files that may hold their keys."""

    table: Table
    dsn: Dsn = field(repr=False)
    snapshot: str
    overlay: Name
    lower: int
    upper: int
    files: tuple[RecordedFile, ...]
    location: str
    job_id: int
    memory_limit: str

    @property
    def marks(self) -> Shard:
        """The marks of the slice, read as an export reads a partition."""
        return Shard(
            table=self.table,
            dsn=self.dsn,
            snapshot=self.snapshot,
            partition=self.overlay,
            lower=self.lower,
            upper=self.upper,
            location=self.location,
            job_id=self.job_id,
            memory_limit=self.memory_limit,
        )


@dataclass(frozen=True)
class Rewritten:
    """What a task did: these files are replaced by those."""

    replaced: tuple[str, ...]
    written: tuple[WrittenFile, ...]
    marks: int


def rewrite_slice(piece: Slice) -> Rewritten:
    """Write the slice's files anew with its marks in them, and prove that nothing else changed.

    Raises CorruptionError when an old file is not what was recorded, or a new one not what it must be.
    """
    survey = source.survey_marks(piece.marks)
    with copying.blamed(piece.table, piece.files):
        with marks_loaded(piece.marks) as connection:
            held = [file for file in piece.files if _holds_a_mark(connection, piece, file)]
            twins = survey.has_twin_floats or copying.has_twin_floats(connection, piece.table, held)
            targets = _targets(held, survey.live.rows)
            written = [_write(connection, piece, target, dictionaries=not twins) for target in targets]
            places = _places(connection, piece.table)
        files = [file for file in written if file is not None]
        rest = [file for file in piece.files if file not in held]
        _prove_the_rest(piece, rest, survey)
        found = _prove(piece, held, files, survey)
        _prove_absence(piece, rest, places, found)
    return Rewritten(tuple(file.path for file in held), tuple(files), len(survey.keys))


@contextmanager
def marks_loaded(marks: Shard) -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with an overlay's slice in the table `marks`, read under the job's snapshot."""
    with duck.borrowed(marks.memory_limit) as connection:
        try:
            export.join(connection, marks)
            columns = export.typed_columns(marks.table)
            query = ducksql.literal(source.marks_query(marks).as_string())
            connection.execute(_MARKS.format(columns=columns, query=query))
            export.check_name(connection, marks)
        except duckdb.Error as error:
            raise export.failure(marks, error) from None
        yield connection


def _targets(held: Sequence[RecordedFile], live: int) -> Iterator[tuple[RecordedFile | None, bool]]:
    """Which old file each new one is made of, and whether the live images go into it."""
    if not held:
        if live:
            yield None, True
        return
    for position, file in enumerate(held):
        yield file, position == 0


def _holds_a_mark(connection: duckdb.DuckDBPyConnection, piece: Slice, file: RecordedFile) -> bool:
    rows = copying.rows(piece.table, [file])
    return connection.execute(_HELD.format(rows=rows, same_key=same_key(piece.table))).fetchone() is not None


def _write(
    connection: duckdb.DuckDBPyConnection, piece: Slice, target: tuple[RecordedFile | None, bool], *, dictionaries: bool
) -> WrittenFile | None:
    file, with_images = target
    names = ", ".join(map(ducksql.identifier, schema.parquet_names(piece.table)))
    parts: list[str] = []
    if file:
        rows = copying.rows(piece.table, [file])
        parts.append(_KEPT.format(names=names, rows=rows, same_key=same_key(piece.table)))
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


def same_key(table: Table) -> str:
    """That a mark `m` and a row `f` of a file have one key."""
    names = [copying.column_name(table, key) for key in table.key]
    return " and ".join(f"m.{name} = f.{name}" for name in names)


def _prove(piece: Slice, held: Sequence[RecordedFile], written: Sequence[WrittenFile], survey: source.Marks) -> Hashes:
    """What was recorded of the old files, less their marked rows, plus the live images, must be what was written.

    A change in an old file, in a row that was copied or in one that was left out, breaks this equation too. Gives back
    the hashes of the marked keys that the old files had.
    """
    meant, keys = survey.live, [np.zeros(0, np.int64)]
    for file in held:
        rows, named = fingerprint.of_keys(file.path, piece.table, survey.keys)
        meant += file.fingerprint - rows
        keys.append(named)
    found = sum((file.fingerprint for file in written), start=NO_ROWS)
    if found != meant:
        copying.blame(piece.table, held)
        raise copying.different(piece.table, found, meant, "fold")
    _require_once(piece, held, keys[1:])
    return np.concatenate(keys)


def _require_once(piece: Slice, held: Sequence[RecordedFile], keys: Sequence[Hashes]) -> None:
    """CorruptionError when the lake has two rows of one marked key: which of them was meant, nobody can tell."""
    every = np.concatenate([np.zeros(0, np.int64), *keys])
    unique, count = np.unique(every, return_counts=True)
    if len(unique) == len(every):
        return
    twice = unique[count > 1]
    where = ", ".join(file.path for file, own in zip(held, keys, strict=True) if np.isin(own, twice).any())
    raise CorruptionError(
        f"fold of {piece.table.name}: {len(twice)} marked keys have more than one row in the lake: {where}",
        hint=f"nothing was changed; frostline verify {piece.table.name}",
    )


def _prove_absence(piece: Slice, rest: Sequence[RecordedFile], places: tuple[Hashes, Hashes], found: Hashes) -> None:
    """A mark whose key was not found is a new row, if every file that could have it is what was recorded.

    A damaged file may hide a key: the change would be written as a new row, and the restored file have the old one.
    The files that did have marked keys are proved already.
    """
    hashes, values = places
    unfound = values[~np.isin(hashes, found)]
    for file in rest:
        if ((unfound >= file.lower) & (unfound <= file.upper)).any():
            sound(file, piece.table)


def _prove_the_rest(piece: Slice, rest: Sequence[RecordedFile], survey: source.Marks) -> None:
    """The files that stay must have no marked key, by other code than that which looked: a row would be there twice."""
    for file in rest:
        if fingerprint.count_keys(file.path, piece.table, survey.keys):
            raise CorruptionError(
                f"fold of {piece.table.name}: lake file {file.path} holds a marked key that was not found in it",
                hint=f"nothing was changed; frostline verify {piece.table.name}",
            )
