"""LOCK TABLE: where a lock has to be there before the statement that needs it, in an order that everybody keeps."""

from enum import Enum

from psycopg import sql

from frostline.catalog.connect import Connection
from frostline.model.names import Name


class Lock(Enum):
    """Postgres' modes, from what a reader takes to what nobody can be beside."""

    ACCESS_SHARE = sql.SQL("access share")
    SHARE_UPDATE_EXCLUSIVE = sql.SQL("share update exclusive")
    SHARE = sql.SQL("share")
    SHARE_ROW_EXCLUSIVE = sql.SQL("share row exclusive")
    EXCLUSIVE = sql.SQL("exclusive")
    ACCESS_EXCLUSIVE = sql.SQL("access exclusive")


def take(connection: Connection, lock: Lock, *tables: Name | sql.Identifier, nowait: bool = False) -> None:
    """Lock the tables with all their partitions, or a view with all that it reads, until the transaction ends.

    One after the other, as they are given. `nowait`: LockNotAvailable when somebody is in the way.
    """
    _take(connection, lock, [sql.SQL("{}").format(_identifier(table)) for table in tables], nowait=nowait)


def take_only(connection: Connection, lock: Lock, *tables: Name | sql.Identifier, nowait: bool = False) -> None:
    """The same without their partitions."""
    _take(connection, lock, [sql.SQL("only {}").format(_identifier(table)) for table in tables], nowait=nowait)


def _take(connection: Connection, lock: Lock, targets: list[sql.Composed], *, nowait: bool) -> None:
    statement = sql.SQL("lock table {} in {} mode nowait") if nowait else sql.SQL("lock table {} in {} mode")
    connection.execute(statement.format(sql.SQL(", ").join(targets), lock.value))


def _identifier(table: Name | sql.Identifier) -> sql.Identifier:
    return sql.Identifier(table.schema, table.table) if isinstance(table, Name) else table
