"""What a Spark task does for a write: COPY its rows into the staging table, marked with its attempt, and say so."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from pyspark import TaskContext

from frostline import failpoints
from frostline.catalog.connect import Connection, Dsn, connect, first_line
from frostline.errors import FrostlineError, UnavailableError, UsageError, kind_of
from frostline.failpoints import Failpoint
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Outcome
from frostline.relation import staging
from frostline.spark import write_text

REPORT = "attempt bigint, rows bigint, error string, hint string, kind string"
"""What a task returns, as Spark writes the schema."""
LOST = "a task lost Postgres while it copied rows"
"""Spark wraps what a task raises; the driver knows it by these words."""

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
            out.write(memoryview(write_text.csv(batch, attempt)))
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
