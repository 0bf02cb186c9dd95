"""Rows whose row in another table is gone: while they lay in the lake, no foreign key kept that row."""

from collections.abc import Iterator

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, first_line, only_value
from frostline.errors import UsageError
from frostline.model.names import Name, quoted
from frostline.model.tables import Table
from frostline.relation import names
from frostline.relation.names import trusted

_statement = sqlfiles.statements(__name__, "refill")


def missing(connection: Connection, table: Table, refill: Name, error: psycopg.Error) -> UsageError:
    """The error for a refill table whose rows break a foreign key of the heap: which one, how many rows, what to do."""
    found = list(_orphans(connection, table, refill)) or [(str(error.diag.constraint_name), "the other table", 0)]
    reasons = [f"{count or 'some'} rows have no row in {parent} ({constraint})" for constraint, parent, count in found]
    drops = [f"alter table {table.heap} drop constraint {quoted(constraint)}" for constraint, _, _ in found]
    detail = error.diag.message_detail or first_line(error)
    return UsageError(
        f"rows of {table.name} cannot come back, because a foreign key is against it: {'; '.join(reasons)}. {detail}",
        hint=f"insert what is missing there again, or: {'; '.join(drops)}\nthen run frostline thaw again",
    )


def _orphans(connection: Connection, table: Table, refill: Name) -> Iterator[tuple[str, str, int]]:
    heap = sql.Literal(names.identifier(table.heap).as_string(connection))
    for constraint, parent, has_key, is_parent in connection.execute(_statement("foreign_keys").format(heap=heap)):
        query = _statement("orphans").format(
            refill=names.identifier(refill),
            parent=trusted(parent),
            has_key=trusted(has_key),
            is_parent=trusted(is_parent),
        )
        count = only_value(connection.execute(query))
        if count:
            yield constraint, parent, count
