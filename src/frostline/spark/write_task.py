"""What a Spark task does for a write: COPY its rows into the staging table, marked with its attempt, and say so.

They go as lines of CSV, made column by column, with values as Postgres reads them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from pyspark import TaskContext

from frostline import failpoints
from frostline.catalog.connect import Connection, Dsn, connect, first_line
from frostline.errors import FrostlineError, UnavailableError, UsageError, kind_of
from frostline.failpoints import Failpoint
from frostline.model.tiers import MICROS_PER_DAY, TierKind, days_of, to_text
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Outcome
from frostline.relation import staging

REPORT = "attempt bigint, rows bigint, error string, hint string, kind string"
"""What a task returns, as Spark writes the schema."""
LOST = "a task lost Postgres while it copied rows"
"""Spark wraps what a task raises; the driver knows it by these words."""
_FIRST_DAY, _END_DAY = days_of(1, 1, 1), days_of(10000, 1, 1)
_OPTIONS = pacsv.WriteOptions(include_header=False)

_arrow: Any = pa
Column = Any
"""A pyarrow Array; its stubs know one class for each type."""
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Copied:
    """The rows of one attempt are in the staging table."""

    attempt: int
    rows: int


def task(dsn: Dsn, table: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that Spark calls on an executor for each part of the DataFrame."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        # No other attempt of any task of this Spark has the same number.
        yield report(outcome(dsn, table, batches, context.taskAttemptId()))

    return run


def outcome(dsn: str, table: str, batches: Batches, attempt: int) -> Outcome[Copied]:
    """Copy the rows. What Postgres refuses is an outcome; a lost Postgres is raised, so that Spark tries again."""
    try:
        return Outcome(Copied(attempt, copy(dsn, table, batches, attempt)))
    except UsageError as error:
        return Outcome(error=error.message, hint=error.hint, kind=kind_of(error))


def report(done: Outcome[Copied]) -> pa.RecordBatch:
    """The outcome as the one row that the driver gets."""
    made = done.made or Copied(-1, 0)
    columns = [[made.attempt], [made.rows], [done.error], [done.hint], [done.kind]]
    types = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    names = ["attempt", "rows", "error", "hint", "kind"]
    return pa.RecordBatch.from_arrays(arrays, names=names)  # pyright: ignore[reportUnknownMemberType]


def copy(dsn: str, table: str, batches: Batches, attempt: int) -> int:
    """Copy the rows in one transaction, and say how many they are. What an attempt before it has left stays there."""
    failpoints.reached(Failpoint.WRITE_BEFORE_COPY)
    try:
        with connect(dsn, purpose="spark write", for_user=True) as connection:
            rows = _send(connection, table, batches, attempt)
    except (psycopg.OperationalError, UnavailableError) as error:
        if tasks.NO_PASSWORD in str(error):
            raise UsageError(
                f"a task cannot connect to Postgres: {first_line(error)}", hint=tasks.LACKS_PASSWORD
            ) from None
        raise UnavailableError(f"{LOST}: {first_line(error)}") from error
    except psycopg.errors.UndefinedTable:
        raise UnavailableError(f"{LOST}: its staging table is gone") from None
    except psycopg.Error as error:
        raise refused(error) from None
    failpoints.reached(Failpoint.WRITE_COPIED)
    return rows


def _send(connection: Connection, table: str, batches: Batches, attempt: int) -> int:
    rows = 0
    statement = staging.statement("copy").format(stage=staging.identifier(table))
    with connection.cursor() as cursor, cursor.copy(statement) as out:
        for batch in batches:
            out.write(memoryview(csv(batch, attempt)))
            rows += batch.num_rows
    return rows


def refused(error: psycopg.Error) -> FrostlineError:
    """The error for rows that Postgres does not take, with what it said of them."""
    said = error.diag.message_primary or first_line(error)
    detail = error.diag.message_detail
    return UsageError(
        f"Postgres refused a row of the batch: {said}" + (f" ({detail})" if detail else ""),
        hint=error.diag.message_hint or "correct the DataFrame, then write again; nothing was written",
    )


def csv(batch: Any, attempt: int) -> pa.Buffer:
    """The batch as COPY takes it, with the attempt before each row."""
    return lines([pa.array([str(attempt)] * batch.num_rows, pa.string()), *map(texts, batch.columns)])


def lines(columns: Sequence[Column]) -> pa.Buffer:
    """Columns of texts as COPY takes them. NULL is nothing, and every text is in quotes."""
    sink = pa.BufferOutputStream()
    names = [str(number) for number in range(len(columns))]
    pacsv.write_csv(_arrow.RecordBatch.from_arrays(columns, names=names), sink, _OPTIONS)
    return sink.getvalue()


def texts(column: Column) -> Column:
    """The column as text that Postgres' input function for its type reads as the same value."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column, TierKind.TIMESTAMPTZ if kind.tz else TierKind.TIMESTAMP)
    if pa.types.is_date32(kind):
        return _times(column, TierKind.DATE)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(column, lambda value: "\\x" + value.hex())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    return column.cast(pa.string())


def _each(column: Column, text: Callable[[Any], str]) -> Column:
    return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())


def _times(column: Column, kind: TierKind) -> Column:
    """Arrow writes years of four digits as Postgres does. Others, and the infinities, are written one by one."""
    numbers = _numbers(column, kind)
    unit = 1 if kind is TierKind.DATE else MICROS_PER_DAY
    extremes: Any = pc.min_max(numbers).as_py()
    if extremes["min"] is not None and not _FIRST_DAY * unit <= extremes["min"] <= extremes["max"] < _END_DAY * unit:
        return _each(numbers, lambda value: to_text(kind, value))
    if kind is not TierKind.TIMESTAMPTZ:
        return column.cast(pa.string())
    # Without its zone Arrow writes the instant as UTC has it, which is what the session of the COPY reads.
    return numbers.cast(pa.timestamp("us")).cast(pa.string())


def _numbers(column: Column, kind: TierKind) -> Column:
    """Days or microseconds since 1970, as the tier axes count."""
    if kind is TierKind.DATE:
        return column.cast(pa.int32())
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _lists(column: Column) -> Column:
    """Array literals: `{"1",NULL,{"a"}}`. The elements are written as those of a column are."""
    items = texts(column.flatten()).to_pylist()
    is_nested = pa.types.is_list(column.type.value_type)
    written = ["NULL" if item is None else item if is_nested else _quoted(item) for item in items]
    lengths = [None if value is None else len(value) for value in column.to_pylist()]
    literals: list[str | None] = []
    start = 0
    for length in lengths:
        literals.append(None if length is None else "{" + ",".join(written[start : start + length]) + "}")
        start += length or 0
    return pa.array(literals, pa.string())


def _quoted(item: str) -> str:
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
