"""A job's turn on a table: nobody else runs one, what failed jobs left is gone, and its publish is one transaction."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import psycopg

from frostline import logs
from frostline.catalog import checksums, faults, jobs, leases, pointers, seams, tables
from frostline.catalog.connect import Connection, first_line, gives_up
from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, message_of
from frostline.lake import expected, foreign, paths, store, warehouse
from frostline.lake.commit import StagedCommit
from frostline.model.tables import Seam, Table
from frostline.relation import heap
from frostline.settings import Settings

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


@contextmanager
def taken(connection: Connection, settings: Settings, table: Table, command: str, doing: str) -> Generator[Table]:
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
        expected.add(checksums.of_metadata(connection, table))
        with settled_names(connection, table):
            yield tables.get(connection, table.name)


@contextmanager
def leased(connection: Connection, settings: Settings, table: Table, command: str, doing: str) -> Generator[None]:
    """Hold the table's lease, wherever its lake is."""
    hint = f"frostline status; then run frostline {command} {table.name}"
    with gives_up(f"{doing} {table.name}", hint=hint), jobs.exclusive(connection, table, settings.lease_seconds):
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
        except (FrostlineError, psycopg.Error) as raised:
            error = raised if isinstance(raised, FrostlineError) else faults.understood(raised)
            if error is None:
                raise
            _log.error("%s", logs.fields(stage=command, table=str(table.name), error=error.message))
            results.append(failed(table, error))
    return results


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


@contextmanager
def publishing(connection: Connection, what: str, *, hint: str) -> Generator[None]:
    """The transaction that readers notice. When Postgres is lost in it, nobody knows whether it was committed.

    What was written is of no use when the warehouse went away since the job began.
    """
    warehouse.check()
    try:
        with connection.transaction():
            yield
    except psycopg.OperationalError as error:
        if not connection.closed:
            raise  # a server that answers has rolled it back
        raise OutcomeUnknown(f"lost Postgres while {what}: {first_line(error)}", hint=hint) from error


def move_seam(connection: Connection, table: Table, old: Seam, staged: StagedCommit | None, line: int) -> None:
    """Inside a publishing transaction: the staged lake becomes the current one, and this the frost line.

    ConflictError when the job has lost its lease, the seam is not the old one any more, or somebody else has committed
    to the lake. What was staged must have been built upon the old seam's state: the pointer moves from there only.
    """
    leases.require(connection, table)
    foreign.refuse(connection, table)
    new, manifests = replace(old, frost_line=line), None
    if staged is not None and staged.changes:
        if staged.previous_location != old.metadata_location:
            raise ConflictError(f"the lake of {table.name} has changed since it was read", hint="run the command again")
        pointers.swap(connection, table, old.metadata_location, staged.metadata_location)
        new = Seam(table.id, line, staged.snapshot_id, staged.metadata_location)
        manifests = staged.manifests
        checksums.record(connection, table, staged.checksums)
    seams.move(connection, table, old, new, manifests)


def remove_leftovers(connection: Connection, settings: Settings, table: Table) -> None:
    """Delete what failed jobs of this table left in the lake. No snapshot has it."""
    location = paths.table_location(settings.warehouse, table)
    for job_id in jobs.untidied(connection, table):
        with store.reachable(f"delete what job {job_id} left in the lake"):
            found = paths.written_by(location, job_id)
            for file in found:
                paths.delete(file)
        jobs.set_tidied(connection, job_id)
        _log.info("%s", logs.fields(stage="leftovers", table=str(table.name), job=job_id, files=len(found)))
