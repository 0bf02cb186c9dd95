"""Jobs, the partitions they archived and the files they wrote."""

import logging
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import psycopg

from frostline import logs, sqlfiles
from frostline.catalog import checksums, leases, trust
from frostline.catalog.connect import Connection, only_value
from frostline.errors import ConflictError
from frostline.logs import without_passwords
from frostline.model.names import Name
from frostline.model.range import Range
from frostline.model.tables import Checksum, Fingerprint, RecordedFile, Table
from frostline.model.work import Failures, Kind

_statement = sqlfiles.statements(__name__, "queries/job")

STOPPED = "somebody stopped it"
"""What is written down about an interrupted job."""
_SETTLING_S = 10
_log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class ArchivedPartition:
    """A heap partition whose rows are in the lake and, until it is cleaned, still in the heap."""

    name: Name
    lower: int | None
    upper: int
    job_id: int
    published_xid: str
    grace_is_over: bool
    grace_ends_at: datetime

    @property
    def range(self) -> Range:
        """What it holds rows of."""
        return Range(self.lower, self.upper)


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
    return [one for (one,) in connection.execute(_statement("untidied"), {"table_id": table.id}).fetchall()]


def set_tidied(connection: Connection, job_id: int) -> None:
    """Write down that a failed job has no files any more."""
    connection.execute(_statement("set_tidied"), {"job_id": job_id})


def last(connection: Connection, table: Table) -> Job | None:
    """The newest job of the table."""
    row = connection.execute(_statement("last"), {"table_id": table.id}).fetchone()
    return None if row is None else Job(row[0], row[1], State(row[2]), *row[3:])


def failures(connection: Connection, table: Table) -> dict[Kind, Failures]:
    """Each kind of job that failed when it was run last."""
    rows = connection.execute(_statement("failures"), {"table_id": table.id}).fetchall()
    return {Kind(kind): Failures(*found) for kind, *found in rows if kind in list(Kind)}


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
    rows = connection.execute(_statement("totals")).fetchall()
    return [JobTotals(Name(schema, table), *numbers) for schema, table, *numbers in rows]


def prune(connection: Connection, table: Table, days: int, kept: Collection[int] = ()) -> int:
    """Forget jobs that ended so many days ago and that nothing refers to; says how many. Their totals stay.

    Those of tables that are not managed any more go too.
    `kept` are those of which files lie in the warehouse: `sweep` tells by them whose files they are.
    """
    values = {"table_id": table.id, "days": days, "kept": list(kept)}
    connection.execute(_statement("prune_removed"), {"days": days})
    row = connection.execute(_statement("prune"), values).fetchone()
    return 0 if row is None else row[0]


def record_done(connection: Connection, table: Table, kind: str, detail: str) -> None:
    """Write down something that was done in one step."""
    values = {"table_id": table.id, "kind": kind, "detail": detail}
    connection.execute(_statement("insert_done"), values)


def record_partition(
    connection: Connection, table: Table, job_id: int, name: Name, lower: int | None, upper: int
) -> None:
    """Write down, in the publishing transaction, that the partition left the hot tier."""
    values = {"table_id": table.id, "job_id": job_id, "partition_name": str(name), "lower": lower, "upper": upper}
    connection.execute(_statement("insert_partition"), values)


def rename_partition(connection: Connection, table: Table, upper: int, name: Name) -> None:
    """Write down that the archived partition that ends there has another name."""
    values = {"table_id": table.id, "upper": upper, "partition_name": str(name)}
    connection.execute(_statement("rename_partition"), values)


def uncleaned(connection: Connection, table: Table) -> list[ArchivedPartition]:
    """Archived partitions that still hold their rows, oldest first."""
    rows = connection.execute(_statement("uncleaned"), {"table_id": table.id}).fetchall()
    return [ArchivedPartition(Name.parse(row[0]), *row[1:]) for row in rows]


def archived(connection: Connection, table: Table) -> list[tuple[Name, int | None, int, bool]]:
    """Every archived partition, oldest first: name, bounds, and whether it was cleaned."""
    rows = connection.execute(_statement("archived"), {"table_id": table.id}).fetchall()
    return [(Name.parse(row[0]), row[1], row[2], row[3]) for row in rows]


def forget_archived(connection: Connection, table: Table, line: int) -> None:
    """Write down, in the transaction that lowers the frost line, that what lies above it is hot again."""
    connection.execute(_statement("forget_archived"), {"table_id": table.id, "line": line})


def emptied(connection: Connection, table: Table) -> list[Name]:
    """Cleaned partitions that are still there."""
    rows = connection.execute(_statement("emptied"), {"table_id": table.id}).fetchall()
    return [Name.parse(name) for (name,) in rows]


def set_cleaned(connection: Connection, table: Table, upper: int) -> None:
    """Write down, in the transaction that empties it, that the partition's rows are only in the lake now."""
    connection.execute(_statement("set_cleaned"), {"table_id": table.id, "upper": upper})
    connection.execute(_statement("finish_cleaned_jobs"), {"table_id": table.id})


def adopt_xids(connection: Connection, table: Table) -> None:
    """Give partitions that came from another server by a dump a publishing transaction of this one."""
    connection.execute(_statement("adopt_xids"), {"table_id": table.id})


def settle_standbys(connection: Connection) -> bool:
    """End, on every standby, queries that see a frost line which nobody on this server sees any more.

    Outside a transaction. They end when the standby replays it, so whatever is done next finds them gone. It waits for
    those who have the seam's page in use, as an open cursor on a relation can; False if that takes too long, or if
    Postgres passes over the table because the role may not vacuum it.
    """
    warnings: list[str | None] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        warnings.append(notice.message_primary)

    connection.execute(_statement("limit_settling"), {"limit": f"{_SETTLING_S}s"})
    connection.add_notice_handler(hear)
    try:
        connection.execute(_statement("settle_standbys"))
    except psycopg.errors.QueryCanceled:
        return False
    finally:
        connection.remove_notice_handler(hear)
        connection.execute(_statement("end_limit"))
    for warning in warnings:
        _log.warning("%s", logs.fields(stage="settle", warning=warning))
    return not warnings


def older_snapshots(connection: Connection, xid: str) -> list[str]:
    """Who may still see the database as it was before that transaction: process ids, slots, prepared transactions."""
    return [who for (who,) in connection.execute(_statement("older_snapshots"), {"xid": xid}).fetchall()]


def replace_range(
    connection: Connection, table: Table, job_id: int, lower: int, upper: int, files: Sequence[RecordedFile]
) -> None:
    """Record the files that now hold [lower, upper), in the publishing transaction."""
    values = {"table_id": table.id, "lower": lower, "upper": upper}
    connection.execute(_statement("delete_range"), values)
    _insert_files(connection, table, job_id, files)


def replace_files(
    connection: Connection, table: Table, job_id: int, gone: Sequence[str], files: Sequence[RecordedFile]
) -> None:
    """Record files in place of others, in the publishing transaction."""
    connection.execute(_statement("delete_files"), {"table_id": table.id, "paths": list(gone)})
    _insert_files(connection, table, job_id, files)


def _insert_files(connection: Connection, table: Table, job_id: int, files: Sequence[RecordedFile]) -> None:
    values = {
        "table_id": table.id,
        "job_id": job_id,
        "paths": [file.path for file in files],
        "rows": [file.fingerprint.rows for file in files],
        "sizes": [file.size_bytes for file in files],
        "lowers": [file.lower for file in files],
        "uppers": [file.upper for file in files],
        "hash_sums": [file.fingerprint.hash_sum for file in files],
    }
    connection.execute(_statement("insert_files"), values)
    known = {file.path: Checksum(file.size_bytes, file.sha256) for file in files if file.sha256 is not None}
    checksums.record(connection, table, known)


def recorded_files(connection: Connection, table: Table) -> list[RecordedFile]:
    """Every file of the current lake snapshot with the fingerprint it must have."""
    return _files(connection, "files", {"table_id": table.id})


def recorded_within(connection: Connection, table: Table, wanted: Range) -> list[RecordedFile]:
    """Those of them that may hold a row of the range; as `range.overlapping`, without reading the others' records."""
    return _files(connection, "files_within", {"table_id": table.id, "lower": wanted.lower, "upper": wanted.upper})


def _files(connection: Connection, query: str, values: dict[str, int | None]) -> list[RecordedFile]:
    return [
        RecordedFile(path, size_bytes, lower, upper, Fingerprint(count, int(hash_sum)), sha256)
        for path, count, size_bytes, lower, upper, hash_sum, sha256 in connection.execute(_statement(query), values)
    ]


def lake_totals(connection: Connection, table: Table) -> tuple[int, int, int]:
    """Files, rows and bytes of the table in the lake."""
    row = connection.execute(_statement("lake_totals"), {"table_id": table.id}).fetchone()
    files, rows, size_bytes = row or (0, 0, 0)
    return files, rows, size_bytes


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
    """Whether a table of that name was managed once, and had jobs."""
    values = {"schema": name.schema, "table": name.table}
    row = connection.execute(_statement("is_remembered"), values).fetchone()
    return row is not None and row[0]


def history(connection: Connection, name: Name | None, *, limit: int, failed: bool = False) -> list[PastJob]:
    """The newest jobs, newest first: of one name or of all, also of tables that were removed; if asked, only failed."""
    where = {"schema": name.schema if name else None, "table": name.table if name else None}
    values = where | {"limit": limit, "failed": failed}
    rows = connection.execute(_statement("history"), values).fetchall()
    return [PastJob(row[0], Name(row[1], row[2]), row[3], State(row[4]), *row[5:]) for row in rows]
