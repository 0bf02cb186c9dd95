"""The guard of a DEFAULT partition: proves that it has no row of a range, before ATTACH would look under its lock.

While it stands, a row of the range is refused. So it is for ranges that lie in the future, and never stays for long.
"""

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import leases
from frostline.catalog.connect import Connection, only_value
from frostline.catalog.patience import patiently
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.partitions import new_partition
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "default_guard")


def stands(connection: Connection, table: Table) -> bool:
    """Whether there is one; after a run only if that one died."""
    default = new_partition.default_partition(connection, table)
    return default is not None and _is_on(connection, default)


def _is_on(connection: Connection, default: Name) -> bool:
    target = sql.Literal(names.identifier(default).as_string(connection))
    return only_value(connection.execute(_statement("exists").format(default_partition=target)))


def put(connection: Connection, table: Table, default: Name, bounds: tuple[int, int]) -> None:
    """Refuse rows of the range in DEFAULT from now on. The caller holds the table's lease, or gets ConflictError."""
    low, high = (sql.Literal(to_text(table.tier_kind, value)) for value in bounds)
    statement = _statement("add").format(
        default_partition=names.identifier(default), tier_key=sql.Identifier(table.tier_key), lower=low, upper=high
    )

    def add() -> None:
        leases.require(connection, table)
        connection.execute(statement)

    patiently(connection, default, add)


def proves(connection: Connection, default: Name) -> bool:
    """Read DEFAULT, while others go on; False when it has a row of the range."""
    try:
        connection.execute(_statement("validate").format(default_partition=names.identifier(default)))
    except psycopg.errors.CheckViolation:
        return False
    return True


def drop(connection: Connection, default: Name) -> None:
    """Take it away, inside the transaction of the caller."""
    connection.execute(_statement("drop").format(default_partition=names.identifier(default)))


def clear(connection: Connection, table: Table) -> None:
    """Take away one that was left. The caller holds the table's lease, or gets ConflictError."""
    default = new_partition.default_partition(connection, table)
    if default is None or not _is_on(connection, default):
        return

    def take_away() -> None:
        leases.require(connection, table)
        drop(connection, default)

    patiently(connection, default, take_away)
