"""Brings a table's objects in Postgres to what this version makes of the heap as it is now."""

import hashlib
import logging

import psycopg
from psycopg import sql

from frostline import logs
from frostline.catalog import facts, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.relation import plans
from frostline.relation.definition import Definition

_log = logging.getLogger(__name__)


def renew(connection: Connection) -> list[Name]:
    """Renew what is not of this version, or not of the heap as it is, and return whose it was.

    A table that is broken, in use all the time, or another role's keeps its objects; Frostline must start all the same.
    """
    return [name for name in tables.names(connection) if _tried(connection, name)]


def _tried(connection: Connection, name: Name) -> bool:
    try:
        table = tables.get(connection, name)
        return table.has_lake and renew_table(connection, table)
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="renew", table=str(name), warning=first_line(error)))
        return False


def renew_table(connection: Connection, table: Table) -> bool:
    """Renew the objects of one table if they are not current; says whether they were not.

    ACCESS EXCLUSIVE on relation and inner view, tried for a moment at a time.
    """
    if is_current(connection, table):
        return False
    patiently(connection, table.name, lambda: replace_objects(connection, table))
    return True


def replace_objects(connection: Connection, table: Table) -> None:
    """Inside a transaction: put the objects of this version, for the heap as it is now, in the place of the others."""
    let_guard_pass(connection)
    definition = _definition(connection, table)
    for statement in definition.renewal():
        connection.execute(statement)
    for statement in plans.statements(connection, table):
        connection.execute(statement)
    record(connection, definition)


def let_guard_pass(connection: Connection) -> None:
    """For the rest of the transaction: the event trigger on row security knows that it is us."""
    connection.execute(sql.SQL("set local frostline.renewing = 'on'"))


def record(connection: Connection, definition: Definition) -> None:
    """Say of which version the objects are that this transaction has made."""
    tables.set_objects_digest(connection, definition.table, _digest(connection, definition))


def is_current(connection: Connection, table: Table) -> bool:
    """Whether the table's objects are of this version, and still what it made."""
    return tables.objects_digest(connection, table) == _digest(connection, _definition(connection, table))


def _digest(connection: Connection, definition: Definition) -> str:
    """What stands for the SQL of this version, for the server, and for the functions as they are there."""
    texts = [statement.as_string(connection) for statement in definition.renewal()]
    texts.append(str(connection.info.server_version >= plans.PRUNED_SINCE))
    texts.append(tables.functions_digest(connection, definition.table))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _definition(connection: Connection, table: Table) -> Definition:
    return Definition(table, facts.read(connection, table.heap))
