"""Rows of lake files become a new lake file, inside DuckDB and sorted by the tier key.

Fold, undo, compact and retain do it, each for its own reason.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import duckdb

from frostline.errors import CorruptionError, FrostlineError, UnavailableError
from frostline.lake import datafiles, duck, ducksql, schema, store, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model import laketypes
from frostline.model.range import EVERYTHING
from frostline.model.tables import Fingerprint, LakeTable, RecordedFile, Table
from frostline.pipeline import export, fingerprint
from frostline.pipeline.refill import checked

_ANY = "select 1 from {rows} where {condition} limit 1"
_TWINS = "(isnan({name}) or ({name} = 0 and signbit({name})))"
_SELECT = "select * from {rows} where {condition}"
_COPY = "copy ({rows} order by {tier_key}) to {location} ({options})"


def rows(table: Table, files: Sequence[RecordedFile]) -> str:
    """The rows of these files, as something to select from."""
    columns = zip(schema.parquet_names(table), table.columns, strict=True)
    return ducksql.read_parquet([ducksql.literal(file.path) for file in files], columns)


def column_name(table: Table, column: str) -> str:
    """The column's name inside data files, quoted."""
    position = [one.name for one in table.columns].index(column)
    return ducksql.identifier(schema.parquet_names(table)[position])


def has_twin_floats(connection: duckdb.DuckDBPyConnection, table: Table, files: Sequence[RecordedFile]) -> bool:
    """Whether a dictionary could take one float for another of other bits: negative zero for zero, NaN for NaN."""
    floats = [column.name for column in table.columns if laketypes.of(column.carriage.lake_type).twins]
    if not floats or not files:
        return False
    tests = " or ".join(_TWINS.format(name=column_name(table, name)) for name in floats)
    return connection.execute(_ANY.format(condition=tests, rows=rows(table, files))).fetchone() is not None


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
        options=export.options(table, dictionaries=dictionaries),
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
            twins = has_twin_floats(connection, table, files)
            query = _SELECT.format(rows=rows(table, files), condition=condition)
            write(connection, table, query, location, dictionaries=not twins)
    except duckdb.OutOfMemoryException:
        raise UnavailableError(
            f"sorting a lake file of {table.name} needs more memory than {memory_limit}",
            hint="set export_memory higher, then run the command again",
        ) from None
    except UnavailableError:
        blame(table, files)
        raise


@contextmanager
def blamed(table: Table, files: Sequence[RecordedFile]) -> Generator[None]:
    """Where something fails while these files are read, name the one that is damaged, if one is."""
    try:
        yield
    except (FrostlineError, duckdb.OutOfMemoryException):
        raise
    except Exception:
        blame(table, files)
        raise


def blame(table: Table, files: Sequence[RecordedFile]) -> None:
    """Raise CorruptionError for the first file that is not what was recorded. Reads every byte of them."""
    for file in files:
        checked(file, table, EVERYTHING)


def proved(table: LakeTable, location: str, meant: Fingerprint, doing: str, *, in_order: bool = True) -> WrittenFile:
    """Describe the new file if it holds what it must, by other code than that which wrote it."""
    seal = fingerprint.sealed(location, table)
    if seal.fingerprint != meant:
        raise different(table, seal.fingerprint, meant, doing)
    return datafiles.describe(location, table, seal, in_order=in_order)


def different(table: LakeTable, found: Fingerprint, meant: Fingerprint, doing: str) -> CorruptionError:
    """The error for new files that do not hold what they must, while no old one is to blame."""
    return CorruptionError(
        f"{doing} of {table.name}: {found.rows} rows with hash sum {found.hash_sum} were written, "
        f"but {meant.rows} with {meant.hash_sum} were meant"
    )
