"""Writes a DataFrame into a managed table, all of it or nothing: docs/design/spark-writes.md."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType

from frostline import failpoints, logs
from frostline.catalog import batches
from frostline.catalog.batches import Relation, Target
from frostline.catalog.connect import Connection, Dsn, connect, dsn_of, operational_errors
from frostline.errors import UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.model.names import BadName, Name
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Outcome
from frostline.relation import lake_foreign, staging
from frostline.relation.staging import Stage
from frostline.spark import database, lake_writes, types, write_apply, write_load, write_task
from frostline.spark.write_apply import Batch, Written
from frostline.spark.write_load import Staged
from frostline.spark.write_task import Copied

Mode = Literal["append", "upsert", "delete"]
Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_LABEL_MAX = 1000

_log = logging.getLogger(__name__)


def write(
    df: DataFrame,
    table: str,
    mode: Mode = "append",
    *,
    dsn: str | None = None,
    home: str | Path | None = None,
    label: str | None = None,
    lake_rows: int | None = 100_000,
) -> Written:
    """Write the rows of a DataFrame into a managed table in one transaction, hot and cold ones alike.

    `append` inserts, `upsert` updates the rows whose key exists and inserts the others, `delete` takes away the rows
    with these keys. A batch with a `label` is written once only, however often it is tried. An `append` of at least
    `lake_rows` cold rows puts them into the lake as files, where that is possible; None is never. The database is the
    one of `dsn`, else of the `home` directory, else of the environment.
    """
    batch = _batch(table, mode, label)
    if lake_rows is not None and lake_rows < 1:
        raise UsageError(f"lake_rows is {lake_rows}", hint="use 1 or more, or None for never")
    with (
        operational_errors(f"writing to {batch.table}", hint="write again; nothing was written"),
        connect(database.dsn_of(dsn, home), purpose="spark write", for_user=True) as connection,
    ):
        done = _write(connection, df, batch, _Files(lake_rows, home))
    values = {"rows": done.rows, "inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
    values |= {"as_files": done.as_files}
    _log.info("%s", logs.fields(stage="write", table=str(batch.table), mode=mode, applied=done.applied, **values))
    return done


def _batch(table: str, mode: str, label: str | None) -> Batch:
    if mode not in get_args(Mode):
        raise UsageError(f"there is no mode {mode!r}", hint="use append, upsert or delete")
    if label is not None and (not 0 < len(label) <= _LABEL_MAX or "\0" in label):
        raise UsageError(f"not a label: {label[:50]!r}", hint=f"use 1 to {_LABEL_MAX} characters")
    try:
        return Batch(Name.parse(table), mode, label)
    except BadName as error:
        raise UsageError(str(error), hint="for example public.events") from None


@dataclass(frozen=True)
class _Files:
    """From how many cold rows on they become files of the lake, and whose settings hold for that."""

    lake_rows: int | None
    home: str | Path | None


def _write(connection: Connection, df: DataFrame, batch: Batch, files: _Files) -> Written:
    lake_table_id = lake_foreign.asked_for(connection, batch.table)
    if lake_table_id is not None:
        database.use_the_store(files.home)
        return lake_writes.write(connection, lake_table_id, df, batch, files.home, _reported)
    relation = batches.relation(connection, batch.table)
    chosen = _needed(df, relation, batch.mode)
    columns = types.targets(relation, chosen.schema, batch.mode)
    before = write_apply.applied_before(connection, batch)
    if before is not None:
        return before
    staging.drop_abandoned(connection)
    with _staged(connection, relation, columns) as stage:
        copied = _copied(chosen, dsn_of(connection), stage)
        failpoints.reached(Failpoint.WRITE_STAGED)
        done = _applied(connection, df.sparkSession, Staged(batch, stage, copied), files)
        failpoints.reached(Failpoint.WRITE_APPLIED)
        return done


def _applied(connection: Connection, spark: SparkSession, staged: Staged, files: _Files) -> Written:
    """Take the batch into the table, its cold rows as files if there are enough of them."""
    why: str | None = None
    if files.lake_rows is not None:
        outcome = write_load.apply(connection, spark, staged, files.lake_rows, files.home)
        if isinstance(outcome, Written):
            return outcome
        why = outcome.reason
    done = write_apply.apply(connection, staged.stage, staged.batch, staged.copied)
    if why:
        _log.warning("%s", logs.fields(stage="write", table=str(staged.batch.table), not_as_files=why))
    return replace(done, not_as_files=why)


def _needed(df: DataFrame, relation: Relation, mode: str) -> DataFrame:
    """Of a delete, the key only: nothing else is computed."""
    names = [name for name in df.schema.names if name in relation.key]
    if mode != "delete" or not names or len(names) == len(df.schema.names):
        return df
    return df.select(*(_column(df, name) for name in names))


@contextmanager
def _staged(connection: Connection, relation: Relation, columns: tuple[Target, ...]) -> Generator[Stage]:
    """A staging table. It is dropped afterwards if Postgres is there, and else by a later write or sweep."""
    batches.keep_session(connection)
    stage = staging.make(connection, relation, columns)
    failpoints.reached(Failpoint.WRITE_MADE_STAGE)
    try:
        yield stage
    finally:
        if not connection.closed:
            staging.drop(connection, stage.table)


def _copied(df: DataFrame, dsn: str, stage: Stage) -> list[Copied]:
    """Run the DataFrame, and say which attempts have won: Spark gives back the result of one for each task."""
    rows = _reported(df, write_task.task(Dsn(dsn), stage.table), write_task.REPORT)
    outcomes = (Outcome(Copied(row.attempt, row.rows), row.error, row.hint, row.kind) for row in rows)
    return [tasks.unwrap(outcome) for outcome in outcomes]


def _reported(df: DataFrame, task: Function, schema: str) -> list[Any]:
    """What the tasks say. An error of the DataFrame goes on as it is."""
    try:
        return _collected(mapped(df, task, schema))
    except PythonException as error:
        if write_task.LOST in str(error):
            raise UnavailableError(write_task.LOST, hint="write again; nothing was written") from error
        if "No module named 'frostline" in str(error):
            raise tasks.gave_up(error) from error
        raise


def _column(df: DataFrame, name: str) -> Column:
    """The DataFrame's column of that name, whatever is in it."""
    return df["`" + name.replace("`", "``") + "`"]


def mapped(df: DataFrame, function: Function, schema: str) -> DataFrame:
    """What the function yields for the Arrow batches of each part, as of `DataFrame.mapInArrow`.

    That one refuses to work without pandas, which it does not use, and takes a column name with a dot in it for a path.
    """
    internals: Any = functions
    udf = internals.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    call = udf(*(_column(df, name) for name in df.columns))
    java: Any = getattr(df, "_jdf")  # noqa: B009  (PySpark has no public way to it)
    return DataFrame(java.mapInArrow(getattr(call, "_jc"), False, None), df.sparkSession)  # noqa: B009, FBT003


def _collected(reports: DataFrame) -> list[Any]:
    return reports.collect()
