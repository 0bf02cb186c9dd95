"""Thaw: what runs inside one Spark task. The rows that one lake file has of a range are copied into a Postgres table.

They move as columns to the end: DuckDB makes each row a line of COPY's text, and the lines go to Postgres as they lie
in memory. Python never touches a value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import psycopg
from psycopg import sql

from frostline import failpoints
from frostline.catalog.connect import Connection, Dsn, connect, first_line
from frostline.errors import UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import duck, duckfiles, ducksql, ducktext, schema, store
from frostline.model.names import Name
from frostline.model.range import Range
from frostline.model.tables import Column, Fingerprint, RecordedFile, Table
from frostline.tiers.proof.files import checked

_LINES = "select {fields} || chr(10) from {rows} where {in_range}"
_COPY = sql.SQL("copy {refill} ({columns}) from stdin")
_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Piece:
    """The part of one lake file that goes into one refill table."""

    table: Table
    dsn: Dsn = field(repr=False)
    refill: Name
    range: Range
    file: RecordedFile
    memory_limit: str


@dataclass(frozen=True)
class Filled:
    """What a task has copied."""

    refill: Name
    fingerprint: Fingerprint
    rows: int
    size_bytes: int


def fill(piece: Piece) -> Filled:
    """Copy the file's rows of the range into the refill table, in one transaction.

    Raises CorruptionError when the file is not what was recorded. Whether Postgres then has these rows is for the
    caller to compare, by the fingerprint.
    """
    meant = checked(piece.file, piece.table, piece.range)
    if meant.rows:
        failpoints.reached(Failpoint.THAW_BEFORE_COPY)
        with connect(piece.dsn, purpose="thaw") as connection:
            _copy(connection, piece)
        failpoints.reached(Failpoint.THAW_COPIED)
    return Filled(piece.refill, meant, meant.rows, piece.file.size_bytes)


def _copy(connection: Connection, piece: Piece) -> None:
    table = piece.table
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in _written(table))
    statement = _COPY.format(refill=sql.Identifier(piece.refill.schema, piece.refill.table), columns=columns)
    try:
        with connection.cursor().copy(statement) as copy, store.reachable(f"read {piece.file.path}"):
            for some in lines(piece):
                copy.write(some)
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        raise UsageError(
            f"a row of {piece.file.path} does not fit the heap of {table.name}: {first_line(error)}",
            hint="the heap's constraints must hold for cold rows too: change the constraint, then thaw again",
        ) from None
    except psycopg.Error as error:
        message = f"thaw of {table.name} lost Postgres: {first_line(error)}"
        raise UnavailableError(message, hint="run frostline thaw again") from None


def _written(table: Table) -> list[Column]:
    """The heap computes the others."""
    return [column for column in table.columns if not column.generated]


def lines(piece: Piece) -> Iterator[memoryview]:
    """The file's rows of the range as COPY wants them, many at a time."""
    with duck.borrowed(piece.memory_limit) as connection:
        connection.execute("begin")
        try:
            for batch in connection.execute(_query(piece)).to_arrow_reader(_BATCH_ROWS):
                yield _content(batch.column(0))
        except duckdb.OutOfMemoryException:
            raise UnavailableError(
                f"thaw of {piece.table.name} needs more memory than {piece.memory_limit}",
                hint="set export_memory higher, then thaw again",
            ) from None


def _query(piece: Piece) -> str:
    table = piece.table
    names = dict(zip((column.name for column in table.columns), schema.parquet_names(table), strict=True))
    fields = " || chr(9) || ".join(
        ducktext.copied_value(ducksql.identifier(names[column.name]), column.encoding.lake_type)
        for column in _written(table)
    )
    return _LINES.format(
        fields=fields,
        rows=duckfiles.read_parquet(
            [ducksql.literal(piece.file.path)], zip(names.values(), table.columns, strict=True)
        ),
        in_range=ducktext.within(ducksql.identifier(names[table.tier_key]), table.tier_kind, piece.range),
    )


def _content(texts: Any) -> memoryview:
    """All texts of a pyarrow array behind each other, without a copy."""
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content)[int(ends[0]) : int(ends[-1])]
