"""The archived partitions of a table: which have left the hot tier, and which of them still hold their rows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.names import Name
from frostline.model.range import Range
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/archived_partition")


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
    is_cleaned: bool

    @property
    def range(self) -> Range:
        """What it holds rows of."""
        return Range(self.lower, self.upper)


def record(connection: Connection, table: Table, job_id: int, name: Name, lower: int | None, upper: int) -> None:
    """Write down, in the publishing transaction, that the partition left the hot tier."""
    values = {"table_id": table.id, "job_id": job_id, "partition_name": str(name), "lower": lower, "upper": upper}
    connection.execute(_statement("record"), values)


def rename(connection: Connection, table: Table, upper: int, name: Name) -> None:
    """Write down that the archived partition that ends there has another name."""
    values = {"table_id": table.id, "upper": upper, "partition_name": str(name)}
    connection.execute(_statement("rename"), values)


def uncleaned(connection: Connection, table: Table) -> list[ArchivedPartition]:
    """Archived partitions that still hold their rows, oldest first."""
    return fetch(connection, _archived, _statement("list"), {"table_id": table.id, "only_uncleaned": True})


def list_all(connection: Connection, table: Table) -> list[ArchivedPartition]:
    """Every archived partition, cleaned or not, oldest first."""
    return fetch(connection, _archived, _statement("list"), {"table_id": table.id, "only_uncleaned": False})


def _archived(*, name: str, **others: Any) -> ArchivedPartition:
    return ArchivedPartition(name=Name.parse(name), **others)


def forget_above(connection: Connection, table: Table, line: int) -> None:
    """Write down, in the transaction that lowers the frost line, that what lies above it is hot again."""
    connection.execute(_statement("forget_above"), {"table_id": table.id, "line": line})


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
