"""Jobs: the row that each run of a command on a table has, from its start to its end."""

from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from frostline import sqlfiles
from frostline.catalog import leases, trust
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.errors import ConflictError
from frostline.logs import without_passwords
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.work import Failures, Kind

_statement = sqlfiles.statements(__name__, "queries/job")

STOPPED = "somebody stopped it"
"""What is written down about an interrupted job."""


class State(StrEnum):
    """How far a job has come. Every step may be repeated; `failed` may follow any state before `published`."""

    PLANNED = "planned"
    CAPTURED = "captured"
    EXPORTED = "exported"
    PUBLISHED = "published"
    CLEANED = "cleaned"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Failed, because somebody stopped it. Only told, never stored."""


@dataclass(frozen=True)
class Job:
    """The last thing that was done to a table."""

    job_id: int
    kind: str
    state: State
    rows: int
    size_bytes: int
    error: str | None
    started_at: datetime
    changed_at: datetime


@contextmanager
def exclusive(connection: Connection, table: Table, lease_s: float = leases.SECONDS) -> Generator[None]:
    """Be the only one who runs a job on the table; ConflictError when somebody else does.

    Jobs that a dead or paused process left behind are abandoned first. UsageError when code of a role with fewer
    rights would run with ours. Whatever changes what readers see calls `leases.require` in its own transaction.
    """
    with leases.held(connection, table, lease_s):
        with connection.transaction():
            leases.require(connection, table)  # a holder that was paused here must not touch the next one's job
            connection.execute(_statement("abandon_unfinished"), {"table_id": table.id})
            connection.execute(_statement("leave_other_histories"))
            trust.require(connection, table)
        yield


def start(
    connection: Connection, table: Table, kind: str, from_line: int | None = None, to_line: int | None = None
) -> int:
    """Write down a planned job and give it its number."""
    values = {"table_id": table.id, "kind": kind, "from_line": from_line, "to_line": to_line}
    return only_value(connection.execute(_statement("insert"), values))


def advance(
    connection: Connection, job_id: int, state: State, *, rows: int | None = None, size_bytes: int | None = None
) -> None:
    """Write down that a step is done; ConflictError when the job was called failed meanwhile."""
    values = {"job_id": job_id, "state": state.value, "rows": rows, "size_bytes": size_bytes}
    if connection.execute(_statement("advance"), values).rowcount != 1:
        raise ConflictError(f"job {job_id} was abandoned by another worker", hint="frostline status")


def describe(connection: Connection, job_id: int, detail: str) -> None:
    """Write down what the job did, in words."""
    connection.execute(_statement("describe"), {"job_id": job_id, "detail": detail})


def fail(connection: Connection, job_id: int, error: str, *, interrupted: bool = False) -> None:
    """Write down why the job stopped. A connection string in it loses its password: dumps have this table."""
    values = {"job_id": job_id, "error": without_passwords(error), "interrupted": interrupted}
    connection.execute(_statement("fail"), values)


def untidied(connection: Connection, table: Table) -> list[int]:
    """Failed jobs of this server whose files were not deleted yet."""
    return [job_id for (job_id,) in connection.execute(_statement("untidied"), {"table_id": table.id}).fetchall()]


def set_tidied(connection: Connection, job_id: int) -> None:
    """Write down that a failed job has no files any more."""
    connection.execute(_statement("set_tidied"), {"job_id": job_id})


def last(connection: Connection, table: Table) -> Job | None:
    """The newest job of the table."""
    return next(iter(fetch(connection, _job, _statement("last"), {"table_id": table.id})), None)


def _job(*, state: str, **others: Any) -> Job:
    return Job(state=State(state), **others)


def failures(connection: Connection, table: Table) -> dict[Kind, Failures]:
    """Each kind of job that failed when it was run last."""
    rows = connection.execute(_statement("failures"), {"table_id": table.id}).fetchall()
    return {Kind(kind): Failures(count, last_at, error) for kind, count, last_at, error in rows if kind in list(Kind)}


@dataclass(frozen=True)
class JobTotals:
    """All jobs of one kind on one table, ever."""

    table: Name
    kind: str
    done: int
    failed: int
    seconds: float
    rows: int
    size_bytes: int


def totals(connection: Connection) -> list[JobTotals]:
    """What was done, by table and kind."""
    return fetch(connection, _totals, _statement("totals"))


def _totals(*, schema: str, table: str, **others: Any) -> JobTotals:
    return JobTotals(table=Name(schema, table), **others)


def prune(connection: Connection, table: Table, days: int, kept: Collection[int] = ()) -> int:
    """Forget jobs that ended that many days ago and that nothing refers to; says how many. Their totals stay.

    Those of tables that are not managed any more go too.
    `kept` are those of which files lie in the warehouse: `sweep` tells by them whose files they are.
    """
    values = {"table_id": table.id, "days": days, "kept": list(kept)}
    connection.execute(_statement("prune_removed"), {"days": days})
    return only_value(connection.execute(_statement("prune"), values))


def record_done(connection: Connection, table: Table, kind: str, detail: str) -> None:
    """Write down something that was done in one step."""
    values = {"table_id": table.id, "kind": kind, "detail": detail}
    connection.execute(_statement("insert_done"), values)


@dataclass(frozen=True)
class PastJob:
    """One job of the history, of whatever table."""

    job_id: int
    table: Name
    kind: str
    state: State
    rows: int
    size_bytes: int
    error: str | None
    detail: str | None
    started_at: datetime
    duration: timedelta
    """How long it ran, or has been running."""


def is_remembered(connection: Connection, name: Name) -> bool:
    """Whether a table of that name was managed once, or is a lake table, and had jobs."""
    values = {"schema": name.schema, "table": name.table}
    return only_value(connection.execute(_statement("is_remembered"), values))


def history(connection: Connection, name: Name | None, *, limit: int, failed: bool = False) -> list[PastJob]:
    """The newest jobs, newest first: of one name or of all, also of tables that were removed; if asked, only failed."""
    where = {"schema": name.schema if name else None, "table": name.table if name else None}
    values = where | {"limit": limit, "failed": failed}
    return fetch(connection, _past_job, _statement("history"), values)


def _past_job(*, schema: str, table: str, state: str, **others: Any) -> PastJob:
    return PastJob(table=Name(schema, table), state=State(state), **others)
