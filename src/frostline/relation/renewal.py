"""Makes the functions that an older version made at registration as this one makes them."""

import logging

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import facts, tables
from frostline.catalog.connect import Connection, first_line
from frostline.errors import CorruptionError
from frostline.model.names import Name
from frostline.model.policy import Mode
from frostline.model.tables import Table
from frostline.relation import names, plans
from frostline.relation.definition import Definition

_log = logging.getLogger(__name__)


def renew(connection: Connection) -> list[Name]:
    """Renew what is not of this version, and return whose it was. No lock on a table: who writes just now goes on.

    A table that is broken, or another role's, keeps its function; Frostline must start all the same.
    """
    return [name for name in tables.names(connection) if _tried(connection, name)]


def _tried(connection: Connection, name: Name) -> bool:
    try:
        table = tables.get(connection, name)
        return table.mode is Mode.TIERED and _renewed(connection, table)
    except (CorruptionError, psycopg.errors.InsufficientPrivilege) as error:
        _log.warning("%s", logs.fields(stage="renew", table=str(name), warning=first_line(error)))
        return False


def is_current(connection: Connection, table: Table) -> bool:
    """Whether the table's marking function is of this version."""
    _, is_same = _compared(connection, table)
    return is_same


def _renewed(connection: Connection, table: Table) -> bool:
    statement, is_same = _compared(connection, table)
    changes = [*([] if is_same else [statement]), *plans.statements(connection, table)]
    for change in changes:
        connection.execute(change)
    return bool(changes)


def _compared(connection: Connection, table: Table) -> tuple[sql.Composed, bool]:
    """The statement that makes the function, and whether it would change nothing."""
    definition = Definition(table, facts.read(connection, table.heap))
    statement = definition.mark_function()
    _, body, _ = statement.as_string(connection).split(definition.body.as_string(connection))
    source = sql.SQL(sqlfiles.load(__package__ or "", "renewal")["source"])
    function = sql.Literal(names.function(table, "mark").as_string(connection) + "()")
    (present,) = connection.execute(source.format(function=function)).fetchone() or (None,)
    return statement, present == body
