"""Rows of lake files become a new lake file, inside DuckDB and sorted by the tier key.

Fold, undo, compact and retain do it, each for its own reason. Undo and retain trim files; that task is here too. Below
it is what compaction and snapshots do with the files of lake tables, of which delete files name rows that are gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from frostline import failpoints
from frostline.errors import UnavailableError
from frostline.failpoints import Failpoint
from frostline.lake import (
    damage,
    datafiles,
    duck,
    duckfiles,
    ducksql,
    ducktext,
    lake_rows,
    paths,
    schema,
    store,
    warehouse,
)
from frostline.lake.datafiles import WrittenFile
from frostline.model import laketypes
from frostline.model.range import Range
from frostline.model.tables import NO_ROWS, Fingerprint, RecordedFile, StoredTable, Table
from frostline.tiers import shards
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import blame, blamed, checked, proved

_ANY = "select 1 from {rows} where {condition} limit 1"
_TWINS = "(isnan({name}) or ({name} = 0 and signbit({name})))"
_SELECT = "select * from {rows} where {condition}"
_COPY = "copy ({rows} order by {tier_key}) to {location} ({options})"
_COPY_REMAINING = "copy (select {columns} from {rows} as f {order}) to {location} ({options})"


def rows(table: StoredTable, paths: Iterable[str]) -> str:
    """The rows of these files, as something to select from."""
    columns = zip(schema.parquet_names(table), table.columns, strict=True)
    return duckfiles.read_parquet(map(ducksql.literal, paths), columns)


def column_name(table: StoredTable, column: str) -> str:
    """The column's name inside data files, quoted."""
    position = [known.name for known in table.columns].index(column)
    return ducksql.identifier(schema.parquet_names(table)[position])


def named_as(table: StoredTable, to: StoredTable) -> str:
    """The columns of a row `f` of a table's file, under the names that they have in files of another table."""
    names = zip(schema.parquet_names(table), schema.parquet_names(to), strict=True)
    return ", ".join(f"f.{ducksql.identifier(old)} as {ducksql.identifier(new)}" for old, new in names)


def is_marked(table: Table) -> str:
    """That a row `f` of a file has a mark."""
    names = dict(zip((column.name for column in table.columns), schema.parquet_names(table), strict=True))
    return shards.is_marked(names[key] for key in table.key)


def has_twin_floats(connection: duckdb.DuckDBPyConnection, table: StoredTable, paths: Sequence[str]) -> bool:
    """Whether a dictionary could take one float for another of other bits: negative zero for zero, NaN for NaN."""
    floats = [column.name for column in table.columns if laketypes.of(column.encoding.lake_type).twins]
    if not floats or not paths:
        return False
    tests = " or ".join(_TWINS.format(name=column_name(table, name)) for name in floats)
    return connection.execute(_ANY.format(condition=tests, rows=rows(table, paths))).fetchone() is not None


def write(
    connection: duckdb.DuckDBPyConnection, table: Table, query: str, location: str, *, dictionaries: bool
) -> None:
    """Write what the query selects to a new file."""
    warehouse.prepare(location)
    # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
    connection.execute("set preserve_insertion_order = false")
    statement = _COPY.format(
        rows=query,
        tier_key=column_name(table, table.tier_key),
        location=ducksql.literal(location),
        options=datafiles.copy_options(table, dictionaries=dictionaries),
    )
    connection.execute(statement)


def copy(
    table: Table, files: Sequence[RecordedFile], location: str, memory_limit: str, condition: str = "true"
) -> None:
    """Write the rows of these files that meet the condition to a new file.

    Raises CorruptionError when one of the files cannot be read or is not what was recorded of it.
    """
    try:
        written = store.reachable(f"write {location}")
        with blamed(table, files), written, duck.borrowed(memory_limit) as connection:
            connection.execute("begin")
            old = [file.path for file in files]
            twins = has_twin_floats(connection, table, old)
            query = _SELECT.format(rows=rows(table, old), condition=condition)
            write(connection, table, query, location, dictionaries=not twins)
    except duckdb.OutOfMemoryException:
        raise UnavailableError(
            f"sorting a lake file of {table.name} needs more memory than {memory_limit}",
            hint="set export_memory higher, then run the command again",
        ) from None
    except UnavailableError:
        blame(table, files)
        raise


@dataclass(frozen=True)
class Trim:
    """A file that reaches across a line, and the range whose rows it keeps: for undo and retain."""

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
    within = ducktext.within(column_name(piece.table, piece.table.tier_key), piece.table.tier_kind, piece.keep)
    copy(piece.table, [piece.file], location, piece.memory_limit, within)
    failpoints.reached(Failpoint.TRIM_WROTE_FILE)
    return proved(piece.table, location, meant, "trimming a file")


Deletes = Mapping[str, Sequence[str]]
"""Files of a lake table by their paths, and the delete files that name rows of each."""


def remaining(table: StoredTable, files: Deletes) -> Fingerprint:
    """What is left of files of a lake table, by another reader than the one that copies them."""
    return sum((_left(table, path, deletes) for path, deletes in files.items()), start=NO_ROWS)


def _left(table: StoredTable, path: str, deletes: Sequence[str]) -> Fingerprint:
    gone = lake_rows.deleted_places(path, deletes)
    with damage.parsing(f"file {path}", table.name):
        return fingerprint.of_remaining(path, table, gone)


def copy_remaining(
    table: StoredTable, files: Deletes, to: StoredTable, location: str, memory_limit: str, *, order: str = ""
) -> None:
    """Write the rows of files of a lake table that are not gone to a new one, as a file of another table.

    That has the same columns; their field ids may be others.
    """
    deletes = sorted({location for named in files.values() for location in named})
    warehouse.prepare(location)
    try:
        with store.reachable(f"write {location}"), duck.borrowed(memory_limit) as connection:
            connection.execute("begin")
            twins = has_twin_floats(connection, table, list(files))
            connection.execute("set preserve_insertion_order = false")  # row groups can then be limited by size
            columns = dict(zip(schema.parquet_names(table), table.columns, strict=True))
            statement = _COPY_REMAINING.format(
                columns=named_as(table, to),
                rows=lake_rows.relation(columns, list(files), deletes),
                order=order,
                location=ducksql.literal(location),
                options=datafiles.copy_options(to, dictionaries=not twins),
            )
            connection.execute(statement)
    except duckdb.OutOfMemoryException:
        raise UnavailableError(
            f"copying rows of {table.name} needs more memory than {memory_limit}",
            hint="set export_memory higher, then run the command again",
        ) from None
