"""Jobs, the partitions they archived and the files they wrote."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from frostline.catalog import queries
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError
from frostline.model.names import Name
from frostline.model.tables import Fingerprint, RecordedFile, Table


class State(StrEnum):
    """How far a job has come. Every step may be repeated; `failed` may follow any state before `published`."""

    PLANNED = "planned"
    CAPTURED = "captured"
    EXPORTED = "exported"
    PUBLISHED = "published"
    CLEANED = "cleaned"
    FAILED = "failed"


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


@contextmanager
def exclusive(connection: Connection, table: Table) -> Generator[None]:
    """Be the only one who runs a job on the table; ConflictError when somebody else does.

    Held by the session, so it ends with the process. Jobs that a dead process left behind are abandoned first.
    """
    values = {"table_id": table.id}
    (locked,) = connection.execute(queries.get("job", "try_lock"), values).fetchone() or (False,)
    if not locked:
        raise ConflictError(f"another job is running on {table.name}", hint="frostline status")
    try:
        connection.execute(queries.get("job", "abandon_unfinished"), values)
        yield
    finally:
        if not connection.closed:
            connection.execute(queries.get("job", "unlock"), values)


def start(connection: Connection, table: Table, kind: str, from_line: int, to_line: int) -> int:
    """Write down a planned job and give it its number."""
    values = {"table_id": table.id, "kind": kind, "from_line": from_line, "to_line": to_line}
    row = connection.execute(queries.get("job", "insert"), values).fetchone()
    assert row is not None
    return row[0]


def advance(
    connection: Connection, job_id: int, state: State, *, rows: int | None = None, size_bytes: int | None = None
) -> None:
    """Write down that a step is done."""
    values = {"job_id": job_id, "state": state.value, "rows": rows, "size_bytes": size_bytes}
    connection.execute(queries.get("job", "advance"), values)


def fail(connection: Connection, job_id: int, error: str) -> None:
    """Write down why the job stopped."""
    connection.execute(queries.get("job", "fail"), {"job_id": job_id, "error": error})


def last(connection: Connection, table: Table) -> Job | None:
    """The newest job of the table."""
    row = connection.execute(queries.get("job", "last"), {"table_id": table.id}).fetchone()
    return None if row is None else Job(row[0], row[1], State(row[2]), *row[3:])


def record_partition(
    connection: Connection, table: Table, job_id: int, name: Name, lower: int | None, upper: int
) -> None:
    """Write down, in the publishing transaction, that the partition left the hot tier."""
    values = {"table_id": table.id, "job_id": job_id, "partition_name": str(name), "lower": lower, "upper": upper}
    connection.execute(queries.get("job", "insert_partition"), values)


def uncleaned(connection: Connection, table: Table) -> list[ArchivedPartition]:
    """Archived partitions that still hold their rows, oldest first."""
    rows = connection.execute(queries.get("job", "uncleaned"), {"table_id": table.id}).fetchall()
    return [ArchivedPartition(Name.parse(row[0]), *row[1:]) for row in rows]


def emptied(connection: Connection, table: Table) -> list[Name]:
    """Cleaned partitions that are still there."""
    rows = connection.execute(queries.get("job", "emptied"), {"table_id": table.id}).fetchall()
    return [Name.parse(name) for (name,) in rows]


def set_cleaned(connection: Connection, table: Table, upper: int) -> None:
    """Write down, in the transaction that empties it, that the partition's rows are only in the lake now."""
    connection.execute(queries.get("job", "set_cleaned"), {"table_id": table.id, "upper": upper})
    connection.execute(queries.get("job", "finish_cleaned_jobs"), {"table_id": table.id})


def older_snapshots(connection: Connection, xid: str) -> list[str]:
    """Who may still read the database as it was before that transaction: process ids and slot names."""
    return [who for (who,) in connection.execute(queries.get("job", "older_snapshots"), {"xid": xid}).fetchall()]


def replace_range(
    connection: Connection, table: Table, job_id: int, lower: int, upper: int, files: Sequence[RecordedFile]
) -> None:
    """Record the files that now hold [lower, upper), in the publishing transaction."""
    values = {"table_id": table.id, "lower": lower, "upper": upper}
    connection.execute(queries.get("job", "delete_files"), values)
    _insert_files(connection, table, job_id, files)


def replace_files(
    connection: Connection, table: Table, job_id: int, gone: Sequence[str], files: Sequence[RecordedFile]
) -> None:
    """Record files in place of others, in the publishing transaction."""
    for path in gone:
        connection.execute(queries.get("job", "delete_file"), {"table_id": table.id, "path": path})
    _insert_files(connection, table, job_id, files)


def _insert_files(connection: Connection, table: Table, job_id: int, files: Sequence[RecordedFile]) -> None:
    for file in files:
        connection.execute(
            queries.get("job", "insert_file"),
            {
                "table_id": table.id,
                "path": file.path,
                "rows": file.fingerprint.rows,
                "size_bytes": file.size_bytes,
                "lower": file.lower,
                "upper": file.upper,
                "hash_sum": file.fingerprint.hash_sum,
                "job_id": job_id,
            },
        )


def recorded_files(connection: Connection, table: Table) -> list[RecordedFile]:
    """Every file of the current lake snapshot with the fingerprint it must have."""
    rows = connection.execute(queries.get("job", "files"), {"table_id": table.id}).fetchall()
    return [
        RecordedFile(path, size_bytes, lower, upper, Fingerprint(count, int(hash_sum)))
        for path, count, size_bytes, lower, upper, hash_sum in rows
    ]


def lake_totals(connection: Connection, table: Table) -> tuple[int, int, int]:
    """Files, rows and bytes of the table in the lake."""
    row = connection.execute(queries.get("job", "lake_totals"), {"table_id": table.id}).fetchone()
    assert row is not None
    files, rows, size_bytes = row
    return files, rows, size_bytes
