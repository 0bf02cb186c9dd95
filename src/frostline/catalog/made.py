"""The tables that we made and that lie among the user's: our catalog knows them. Anybody can write a comment."""

from enum import StrEnum

from frostline import sqlfiles
from frostline.catalog.connect import Connection, first_value
from frostline.model.names import Name
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/made")


class Purpose(StrEnum):
    """What such a table is for."""

    DEFAULT = "default"
    """It is the heap's DEFAULT partition."""
    PREMAKE = "premake"
    """It is to become a partition, ahead of time."""
    THAW = "thaw"
    """It is to become one again, with rows of the lake."""


def record(connection: Connection, table: Table, name: Name, purpose: Purpose) -> None:
    """Write down, in the transaction that makes it, that this table is ours."""
    values = {**_named(table, name), "purpose": purpose.value}
    connection.execute(_statement("record"), values)


def forget(connection: Connection, table: Table, name: Name) -> None:
    """Write down, in the transaction that attaches or drops it, that it is not ours any more."""
    connection.execute(_statement("forget"), _named(table, name))


def leftovers(connection: Connection, table: Table, purpose: Purpose) -> list[tuple[int, Name]]:
    """Those that never became partitions: oid and name."""
    values = {"table_id": table.id, "purpose": purpose.value}
    rows = connection.execute(_statement("leftovers"), values).fetchall()
    return [(oid, Name(schema, name)) for oid, schema, name in rows]


def forget_gone(connection: Connection, table: Table, purpose: Purpose) -> None:
    """Forget those that are gone, or were renamed or attached by somebody: they are not ours to drop."""
    connection.execute(_statement("forget_gone"), {"table_id": table.id, "purpose": purpose.value})


def is_default(connection: Connection, table: Table, name: Name) -> bool:
    """Whether we made the DEFAULT partition that has this name."""
    return bool(first_value(connection.execute(_statement("is_default"), _named(table, name))))


def _named(table: Table, name: Name) -> dict[str, int | str]:
    return {"table_id": table.id, "schema": name.schema, "table": name.table}
