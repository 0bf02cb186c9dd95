"""A job's turn on a table: nobody else runs one, and what failed jobs left is gone."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from frostline import logs
from frostline.catalog import jobs, tables
from frostline.catalog.connect import Connection, gives_up
from frostline.errors import FrostlineError
from frostline.lake import paths, store
from frostline.model.tables import Table
from frostline.settings import Settings

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


@contextmanager
def taken(connection: Connection, settings: Settings, table: Table, command: str, doing: str) -> Generator[Table]:
    """Hold the table's lease, and begin with a lake that has no file of a failed job. Yields the table as it is now."""
    hint = f"frostline status; then run frostline {command} {table.name}"
    with gives_up(f"{doing} {table.name}", hint=hint), jobs.exclusive(connection, table, settings.lease_seconds):
        _remove_leftovers(connection, settings, table)
        yield tables.get(connection, table.name)


def for_each(
    chosen: Sequence[Table],
    command: str,
    job: Callable[[Table], Result],
    failed: Callable[[Table, FrostlineError], Result],
) -> list[Result]:
    """Do the job on each table in turn. One table's failure does not stop the others; it is in its result."""
    results: list[Result] = []
    for table in chosen:
        try:
            results.append(job(table))
        except FrostlineError as error:
            _log.error("%s", logs.fields(stage=command, table=str(table.name), error=str(error)))
            results.append(failed(table, error))
    return results


@contextmanager
def failure_recorded(connection: Connection, job_id: int) -> Generator[None]:
    """Write down why the job stopped, if Postgres is still there."""
    try:
        yield
    except Exception as error:
        try:
            jobs.fail(connection, job_id, str(error))
        except psycopg.Error:
            _log.warning("%s", logs.fields(job=job_id, warning="could not record the failure"))
        raise


def _remove_leftovers(connection: Connection, settings: Settings, table: Table) -> None:
    """Delete what failed jobs of this table left in the lake. No snapshot has it."""
    location = paths.table_location(settings.warehouse, table)
    for job_id in jobs.untidied(connection, table):
        with store.reachable(f"delete what job {job_id} left in the lake"):
            found = paths.written_by(location, job_id)
            for file in found:
                paths.delete(file)
        jobs.set_tidied(connection, job_id)
        _log.info("%s", logs.fields(stage="leftovers", table=str(table.name), job=job_id, files=len(found)))
