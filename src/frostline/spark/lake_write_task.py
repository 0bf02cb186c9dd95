"""What a Spark task does for an append to a lake table: it writes its rows into files that nothing points to yet.

On their way the rows go through a table of Postgres' own, so they are what an INSERT would have made of them.
"""

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyspark import TaskContext

from frostline import filemode
from frostline.catalog import batches as catalog_batches
from frostline.catalog.connect import Connection, Dsn, connect, first_line
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import lake_commit, lake_rows, objectstore, warehouse
from frostline.lake.objectstore import Access
from frostline.lake.warehouse import Marker
from frostline.model.names import Name
from frostline.model.tables import Column
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Outcome
from frostline.relation import lake_staging
from frostline.server.writes.checks import Checker, Compiled
from frostline.spark import write_task
from frostline.spark.write_task import Batches

REPORT = f"{write_task.REPORT}, files binary"
"""What a task returns, as Spark writes the schema."""
_FILE_BYTES = 256 << 20
"""Rows of a task that are in memory together, and in a file of each partition."""

_arrow: Any = pa


@dataclass(frozen=True)
class Append:
    """What the tasks of one append have in common."""

    dsn: Dsn = field(repr=False)
    foreign_table: Name
    given: tuple[str, ...]
    """The columns of the batch, in its order."""
    metadata: TableMetadata
    """As the table was when the append began, without its history."""
    columns: tuple[Column, ...]
    checks: Compiled | None
    """Those in the metadata: the foreign table has none if it was made for a table that was there, or on a node."""
    access: Access | None = field(repr=False)
    marker: Marker | None
    mask: int


@dataclass(frozen=True)
class Written:
    """What an attempt has written."""

    rows: int
    files: tuple[DataFile, ...]


def task(append: Append) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that Spark calls on an executor for each part of the DataFrame."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        objectstore.use(append.access)
        with filemode.applied(append.mask), warehouse.used(append.marker):
            done = tasks.attempt(lambda given: written(append, given), batches)
        if done.error is not None and done.error.startswith(write_task.LOST):
            raise UnavailableError(done.error)  # Spark tries again
        yield _report(done, context.taskAttemptId())
        tasks.ease_the_next_task()

    return run


def written(append: Append, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows. Nobody but the one who gets the answer knows the files."""
    files = list[DataFile]()
    try:
        with _session(append) as connection, closing(Checker(append.dsn)) as checker:
            catalog_batches.keep_session(connection)
            lake_staging.begin(connection, append.foreign_table)
            for rows in _gathered(_typed(append, connection, checker, batch) for batch in batches if batch.num_rows):
                reached(Failpoint.APPEND_BEFORE_FILE)
                warehouse.prepare(f"{append.metadata.location}/data/-")
                files += lake_rows.write(append.metadata, append.columns, rows)
                reached(Failpoint.APPEND_WROTE_FILE)
    except psycopg.OperationalError as error:
        _discard(files)
        raise UnavailableError(f"{write_task.LOST}: {first_line(error)}", hint="write again") from error
    except psycopg.Error as error:
        _discard(files)
        raise write_task.refused(error) from None
    except FrostlineError:
        _discard(files)
        raise
    return Written(sum(file.record_count for file in files), tuple(files))


def _session(append: Append) -> Connection:
    try:
        return connect(append.dsn, purpose="spark write", for_user=True)
    except UnavailableError as error:
        if tasks.NO_PASSWORD in error.message:
            raise UsageError(f"a task cannot connect to Postgres: {error.message}", hint=tasks.LACKS_PASSWORD) from None
        raise


def _discard(files: Sequence[DataFile]) -> None:
    lake_commit.discard([file.file_path for file in files])


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a file."""
    held, size_bytes = list[pa.Table](), 0
    for table in tables:
        held.append(table)
        size_bytes += table.nbytes
        if size_bytes >= _FILE_BYTES:
            yield _arrow.concat_tables(held)
            held, size_bytes = [], 0
    if held:
        yield _arrow.concat_tables(held)


def _typed(append: Append, connection: Connection, checker: Checker, batch: Any) -> pa.Table:
    """The rows in the lake's types, as Postgres has made them of the batch."""
    given = memoryview(write_task.lines([write_task.texts(column) for column in batch.columns]))
    names = [column.name for column in append.columns]
    made = lake_staging.through(connection, append.given, names, given)
    rows = _parsed(made, len(names))
    if rows.num_rows != batch.num_rows:
        raise UnavailableError(f"Postgres gave {rows.num_rows} of {batch.num_rows} rows back", hint="write again")
    for column, texts in zip(append.columns, rows.columns, strict=True):
        if column.not_null and texts.null_count:
            raise UsageError(f"column {column.name} of {append.foreign_table} must not be null in the lake")
    if append.checks is not None:
        _refuse_broken(append, append.checks, checker, rows)
    return lake_rows.typed(append.columns, rows.columns)


def _refuse_broken(append: Append, checks: Compiled, checker: Checker, rows: Any) -> None:
    """As the lake server does for an INSERT, with sessions of the same kind."""
    try:
        checker.refuse_broken(
            append.foreign_table.table, checks, [rows.column(place).to_pylist() for place in checks.places]
        )
    except UnavailableError as error:
        raise UnavailableError(f"{write_task.LOST}: {error.message}", hint="write again") from error


def _parsed(lines: bytes, width: int) -> Any:
    """The texts of COPY's CSV. A single NULL is an empty line; what is in quotes is never NULL."""
    names = [str(place) for place in range(width)]
    return pacsv.read_csv(
        io.BytesIO(lines),
        pacsv.ReadOptions(column_names=names, block_size=len(lines) + 1, use_threads=False),
        pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _report(done: Outcome[Written], attempt: int) -> pa.RecordBatch:
    """The outcome as the one row that the driver gets."""
    made = done.made or Written(0, ())
    columns = [[attempt], [made.rows], [done.error], [done.hint], [done.kind], [pickle.dumps(made.files)]]
    types = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.binary()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    names = ["attempt", "rows", "error", "hint", "kind", "files"]
    return pa.RecordBatch.from_arrays(arrays, names=names)  # pyright: ignore[reportUnknownMemberType]


def read(report: Any) -> Outcome[Written]:
    """What the driver makes of that row, which one of our own tasks has written."""
    files: tuple[DataFile, ...] = pickle.loads(report.files)  # noqa: S301
    return Outcome(Written(report.rows, files), report.error, report.hint, report.kind)
