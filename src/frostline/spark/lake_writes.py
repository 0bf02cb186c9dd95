"""Appends a DataFrame to a lake table: tasks write files, one commit adds them. docs/design/spark-writes.md."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame

from frostline import filemode
from frostline.catalog import batches, lake_batches, lake_tables, warehouses
from frostline.catalog.batches import Relation
from frostline.catalog.connect import Connection, Dsn, connect, dsn_of, first_line
from frostline.errors import ConflictError, OutcomeUnknown, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import (
    lake_commit,
    lake_format,
    lake_publish,
    lake_table,
    lake_upkeep,
    objectstore,
    pg_types,
    warehouse,
)
from frostline.lake.lake_commit import Added
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import State
from frostline.model.tables import Column
from frostline.pipeline import tasks
from frostline.server.writes import checks
from frostline.server.writes.checks import Compiled
from frostline.spark import database, lake_write_task, types
from frostline.spark.lake_write_task import Append
from frostline.spark.write_apply import Batch, Written
from frostline.spark.write_task import Batches

Collect = Callable[[DataFrame, Callable[[Batches], Any], str], list[Any]]
"""Runs a task for each part of a DataFrame, and gives what they report."""


def write(
    connection: Connection, lake_table_id: int, df: DataFrame, batch: Batch, home: str | Path | None, collect: Collect
) -> Written:
    """Append the rows in one commit, and with a label only once."""
    if batch.mode != "append":
        hint = "update and delete it with SQL in Postgres, or mode='append'"
        raise UsageError(f"{batch.table} is a lake table, which takes no batches of mode {batch.mode}", hint=hint)
    oid, relation = lake_batches.relation(connection, batch.table)
    types.targets(relation, df.schema, batch.mode)
    lake_batches.require_insert(connection, oid, batch.table, df.schema.names)
    run = _Run(connection, Dsn(dsn_of(connection)), lake_table_id, batch, relation)
    try:
        return run.write(df, home, collect)
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(
            f"only Frostline's role may put files into a lake table: {first_line(error)}",
            hint=f"write as that role, or insert into {batch.table} in Postgres",
        ) from None
    finally:
        run.connection.close()


@dataclass
class _Run:
    """One append."""

    connection: Connection
    """Another one after a loss."""
    dsn: Dsn
    id: int
    batch: Batch
    relation: Relation

    def write(self, df: DataFrame, home: str | Path | None, collect: Collect) -> Written:
        lake_tables.of_foreign_table(self.connection, self.id)
        known = lake_batches.applied(self.connection, self.id, self.batch.label)
        if known is not None:
            return Written(known, applied=False)
        batches.keep_session(self.connection)
        place = warehouses.find(self.connection)
        settings = database.settings_for(home, self.dsn, place.location if place else ".")
        with warehouse.guarded(self.connection, settings.warehouse), filemode.applied(settings.file_mask):
            base = self._now()
            columns = _matching(self.relation, base)
            append = Append(
                self.dsn,
                self.batch.table,
                tuple(df.schema.names),
                _without_history(base),
                columns,
                _checks(base, columns),
                objectstore.in_use(),
                warehouse.in_use(),
                settings.file_mask,
            )
            reports = collect(df, lake_write_task.task(append), lake_write_task.REPORT)
            return self._committed(base, [lake_write_task.read(report) for report in reports])

    def _committed(self, base: State, outcomes: Sequence[tasks.Outcome[lake_write_task.Written]]) -> Written:
        """Spark gives the result of one attempt for each task; the files of the others are swept."""
        files = [file for outcome in outcomes if outcome.made for file in outcome.made.files]
        try:
            rows = sum(tasks.unwrap(outcome).rows for outcome in outcomes)
            reached(Failpoint.APPEND_WRITTEN)
            done = self._commit(base, files, rows)
        except OutcomeUnknown:
            raise  # the files may be needed; if not, they are swept, as after an interrupt
        except Exception:
            _discard(files)
            raise
        if not done.applied:
            _discard(files)
        reached(Failpoint.APPEND_PUBLISHED)
        return done

    def _now(self) -> State:
        return lake_table.state(lake_tables.by_id(self.connection, self.id).metadata_location)

    def _commit(self, base: State, files: Sequence[DataFile], rows: int) -> Written:
        """Add the files to what is there, whoever else commits meanwhile, and the label with them."""
        staged = partial(self._staged, base, files, rows)
        outcome, _ = lake_publish.commit(staged, self._transaction, reconnects=True)
        match outcome:
            case Outcome.DONE:
                return Written(rows, inserted=rows, as_files=rows)
            case Outcome.KNOWN:
                return Written(self._label_has(), applied=False)
            case Outcome.LOST:
                raise ConflictError(f"others keep committing to {self.batch.table}", hint="write again")

    def _staged(self, base: State, files: Sequence[DataFile], rows: int) -> tuple[Change, None]:
        warehouse.check()
        table, label, now = self.batch.table, self.batch.label, self._now()
        if _shape(now) != _shape(base):
            hint = "write again; nothing was written"
            raise ConflictError(f"the columns of {table} have changed meanwhile", hint=hint)
        lake_upkeep.refuse_swept(base, now, [file.file_path for file in files])
        staged = [lake_commit.stage(self.id, now, Added(list(files)))] if files else []
        reached(Failpoint.APPEND_STAGED)
        change = Change(
            moves=[each.move for each in staged],
            written=[path for each in staged for path in each.written],
            claim=lambda connection: lake_batches.claim(connection, self.id, label, rows),
            what=f"it committed the batch for {table}",
            look="write again with the same label" if label is not None else f"look into {table} for the rows",
        )
        return change, None

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        if self.connection.closed:
            self.connection = connect(self.dsn, purpose="spark write", for_user=True)
        with self.connection.transaction():
            yield self.connection
            reached(Failpoint.APPEND_BEFORE_COMMIT)

    def _label_has(self) -> int:
        return lake_batches.applied(self.connection, self.id, self.batch.label) or 0


def _discard(files: Sequence[DataFile]) -> None:
    lake_commit.discard([file.file_path for file in files])


def _matching(relation: Relation, base: State) -> tuple[Column, ...]:
    """The lake's columns; UsageError when the foreign table has others."""
    columns = pg_types.columns(lake_format.written(base.metadata))
    there = [(column.name, column.formatted) for column in relation.columns]
    if sorted(there) != sorted((column.name, column.pg_type.formatted) for column in columns):
        hint = f"alter the foreign table: frostline lake show {relation.name} tells the columns of the lake"
        raise UsageError(f"the foreign table {relation.name} has other columns than its lake", hint=hint)
    return columns


def _shape(state: State) -> tuple[Any, ...]:
    metadata = state.metadata
    return (
        metadata.format_version,
        metadata.current_schema_id,
        pg_types.columns(metadata),
        lake_table.checks(metadata),
    )


def _checks(state: State, columns: tuple[Column, ...]) -> Compiled | None:
    held = lake_table.checks(state.metadata)
    return checks.compiled(columns, held) if held else None


def _without_history(base: State) -> Any:
    """What a task has to know of the table."""
    nothing: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
    return base.metadata.model_copy(update=nothing | {"current_snapshot_id": None})
