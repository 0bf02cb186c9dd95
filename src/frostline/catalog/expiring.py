"""Partitions that are on their way out: which step each has come to, so that the next run goes on."""

from dataclasses import dataclass
from typing import Any

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.names import Name
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/expiring")


@dataclass(frozen=True)
class Expiring:
    """A partition that an expiry has begun with."""

    oid: int
    upper: int
    drops: bool
    """It was to be dropped, not only detached."""
    is_detached: bool
    """That expiry has detached it."""
    name: Name | None
    """None when it is gone, or has another name by now."""
    kind: str | None
    """`pg_class.relkind`."""
    is_partition: bool


def begin(connection: Connection, table: Table, oid: int, name: Name, upper: int, *, drops: bool) -> None:
    """Write down, before anything is done to it, that this partition is about to go."""
    values = {"table_id": table.id, "oid": oid, "name": str(name), "upper": upper, "drops": drops}
    connection.execute(_statement("begin"), values)


def set_detached(connection: Connection, table: Table, oid: int) -> None:
    """Write down that it was detached by us."""
    connection.execute(_statement("set_detached"), {"table_id": table.id, "oid": oid})


def forget(connection: Connection, table: Table, oid: int) -> None:
    """It is dropped, or stays."""
    connection.execute(_statement("forget"), {"table_id": table.id, "oid": oid})


def list_all(connection: Connection, table: Table) -> list[Expiring]:
    """All that were begun with and not ended, oldest first."""
    return fetch(connection, _expiring, _statement("list_all"), {"table_id": table.id})


def _expiring(*, known_as: str, schema: str | None, table: str | None, **others: Any) -> Expiring:
    name = Name(schema, table) if schema is not None and table is not None else None
    return Expiring(name=name if name is not None and str(name) == known_as else None, **others)
