"""The scaffolding of all table jobs: lease, clean-up of leftovers, the job's row, recorded failures.

A job holds the table's lease (`on_table`), starts a row in the catalog (`start`, `begun`), writes files that nothing
points at (`JobContext.run_tasks`, `commit.stage`), and publishes them in one transaction (`lake.publish`). Nothing here
needs Spark until a job has work for it.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import psycopg

from frostline import failpoints, logs
from frostline.catalog import faults, jobs, lake_files, lake_upkeep, leases, tables
from frostline.catalog.connect import Connection, operational_errors
from frostline.catalog.pointers import LakePointer
from frostline.errors import FrostlineError, message_of
from frostline.failpoints import Failpoint
from frostline.lake import expected, foreign, paths, store, warehouse
from frostline.model.names import Named
from frostline.model.tables import Table
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Progress, Report
from frostline.relation import heap
from frostline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")
AnyTable = TypeVar("AnyTable", bound=Named)


def ignore_progress(_table: Named, _progress: Progress) -> None:
    """Progress is for people."""


@dataclass(frozen=True)
class JobContext:
    """What a job with Spark tasks works with."""

    connection: Connection
    settings: Settings
    spark: "Callable[[], SparkSession]"
    """Starts Spark when it is first called."""
    report: Report = ignore_progress

    def run_tasks(self, table: Named, function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """Call the function for each item as a Spark task. Spark starts only if there is an item."""
        if not items:
            return []
        return tasks.run(self.spark(), function, items, lambda progress: self.report(table, progress))


def for_each(
    chosen: Sequence[AnyTable], command: str, job: Callable[[AnyTable], Result], result: Callable[..., Result]
) -> list[Result]:
    """Do the job on each table in turn. One table's failure does not stop the others.

    It is in the table's result, which is made as `result(table, error=error)`.
    """
    results: list[Result] = []
    for table in chosen:
        try:
            results.append(job(table))
        except (FrostlineError, psycopg.Error) as raised:
            error = raised if isinstance(raised, FrostlineError) else faults.understood(raised)
            if error is None:
                raise
            _log.error("%s", logs.fields(stage=command, table=str(table.name), error=error.message))
            results.append(result(table, error=error))
    return results


@contextmanager
def on_table(connection: Connection, settings: Settings, table: Table, command: str, doing: str) -> Generator[Table]:
    """Hold the table's lease, and begin with a lake that has no commit of others and no file of a failed job.

    Yields the table as it is now. UnavailableError when the warehouse is not there or not this database's; it is asked
    again before a publish.
    """
    with (
        leased(connection, settings, table, command, doing),
        warehouse.guarded(connection, settings.warehouse),
    ):
        foreign.refuse(connection, table)
        remove_leftovers(connection, settings, table)
        expected.add(lake_files.metadata_checksums(connection, table))
        with settled_names(connection, table):
            yield tables.get(connection, table.name)


@contextmanager
def leased(connection: Connection, settings: Settings, table: Table, command: str, doing: str) -> Generator[None]:
    """Hold the table's lease, wherever its lake is."""
    hint = f"frostline status; then run frostline {command} {table.name}"
    with (
        operational_errors(f"{doing} {table.name}", hint=hint),
        jobs.exclusive(connection, table, settings.lease_seconds),
    ):
        yield


@contextmanager
def settled_names(connection: Connection, table: Table) -> Generator[None]:
    """Begin with the names that partitions have now. One that changes meanwhile is a ConflictError: run it again."""
    try:
        with connection.transaction():
            leases.require(connection, table)
            heap.follow_renames(connection, table)
        yield
    except psycopg.errors.UndefinedTable as error:
        raise heap.changed(table) from error
    except (psycopg.errors.UndefinedColumn, psycopg.errors.DatatypeMismatch, psycopg.errors.UndefinedFunction) as error:
        changed = tables.by_id(connection, table.id).difference(table)
        if changed is None:
            raise
        raise tables.altered(table, changed) from error


def remove_leftovers(connection: Connection, settings: Settings, table: Table) -> None:
    """Delete what failed jobs of this table left in the lake. No snapshot has it."""
    location = paths.table_location(settings.warehouse, table)
    for job_id in jobs.untidied(connection, table):
        with store.reachable(f"delete what job {job_id} left in the lake"):
            leftovers = paths.written_by(location, job_id)
            for file in leftovers:
                paths.delete(file)
        jobs.set_tidied(connection, job_id)
        _log.info("%s", logs.fields(stage="leftovers", table=str(table.name), job=job_id, files=len(leftovers)))


def start(
    connection: Connection, table: Table, kind: str, from_line: int | None = None, to_line: int | None = None
) -> int:
    """Begin the job's row, between the two failpoints of its kind."""
    failpoints.reached(Failpoint(f"{kind}_before_start"))
    job_id = jobs.start(connection, table, kind, from_line, to_line)
    failpoints.reached(Failpoint(f"{kind}_started"))
    return job_id


@contextmanager
def begun(
    logger: logging.Logger,
    connection: Connection,
    table: Table,
    kind: str,
    from_line: int | None = None,
    to_line: int | None = None,
    **values: logs.Value,
) -> Generator[tuple[int, dict[str, logs.Value]]]:
    """Start the job; when the block ends, record why it failed, if it did, and log one line.

    Yields the job's id, and what the line is to say if all goes well.
    """
    job_id = start(connection, table, kind, from_line, to_line)
    said = logs.stage(logger, kind, table=str(table.name), job=job_id, **values)
    with failure_recorded(connection, job_id), said as line:
        yield job_id, line


@contextmanager
def begun_on_lake(
    logger: logging.Logger, connection: Connection, table: LakePointer, kind: str, **values: logs.Value
) -> Generator[tuple[int, dict[str, logs.Value]]]:
    """The same for a lake table, which has no lease: two jobs at once are harmless."""
    failpoints.reached(Failpoint(f"{kind}_before_start"))
    job_id = lake_upkeep.start(connection, table, kind)
    failpoints.reached(Failpoint(f"{kind}_started"))
    said = logs.stage(logger, kind, table=str(table.name), job=job_id, **values)
    with failure_recorded(connection, job_id), said as line:
        yield job_id, line


@contextmanager
def failure_recorded(connection: Connection, job_id: int) -> Generator[None]:
    """Write down why the job stopped, if Postgres is still there."""
    try:
        yield
    except KeyboardInterrupt:
        _record(connection, job_id, jobs.STOPPED, interrupted=True)
        raise
    except Exception as error:
        _record(connection, job_id, message_of(faults.understood(error) or error), interrupted=False)
        raise


def _record(connection: Connection, job_id: int, error: str, *, interrupted: bool) -> None:
    try:
        jobs.fail(connection, job_id, error, interrupted=interrupted)
    except psycopg.Error:
        _log.warning("%s", logs.fields(job=job_id, warning="could not record the failure"))
