"""Row security of the heap, which the relation applies: where the two differ, and how the relation follows."""

import logging

import psycopg
from psycopg import sql

from frostline import logs
from frostline.catalog import tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError, UsageError
from frostline.model.names import Name
from frostline.model.registration import MOST_SECURED_COLUMNS
from frostline.model.tables import Table
from frostline.relation import names, renewal

_log = logging.getLogger(__name__)


def strayed(connection: Connection, only: Table | None = None) -> dict[Name, str]:
    """The tables whose row security is not what their relation applies, and how it differs; of all, or of one."""
    return tables.strayed_row_security(connection, only)


def follow(connection: Connection) -> list[Name]:
    """Let each relation apply what its heap says now; returns those that did not before.

    Where event triggers are, policies are followed at once, and there is nothing to do here. A table that is in use all
    the time is left to the next time.
    """
    return [name for name in strayed(connection) if _tried(connection, name)]


def _tried(connection: Connection, name: Name) -> bool:
    try:
        patiently(connection, name, lambda: renewal.replace_objects(connection, tables.get(connection, name)))
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="row security", table=str(name), warning=first_line(error)))
        return False
    return True


def switch(connection: Connection, table: Table, *, on: bool) -> bool:
    """Switch row security of the heap, and with it the relation's; says whether that changed anything.

    ACCESS EXCLUSIVE on relation, inner view and heap, tried for a moment at a time.
    """
    if tables.has_row_security(connection, table) == on:
        return False
    if on and len(table.columns) > MOST_SECURED_COLUMNS:
        reason = f"{table.name} has more than {MOST_SECURED_COLUMNS} columns: its policies cannot be asked for a row"
        raise UsageError(reason, hint="let roles read it through views with conditions of their own")
    patiently(connection, table.name, lambda: _switch(connection, table, on=on))
    return True


def _switch(connection: Connection, table: Table, *, on: bool) -> None:
    renewal.let_guard_pass(connection)
    statement = sql.SQL("alter table {} {} row level security")
    verb = sql.SQL("enable" if on else "disable")
    connection.execute(statement.format(names.identifier(table.heap), verb))
    renewal.replace_objects(connection, table)
