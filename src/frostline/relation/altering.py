"""Alters the heap of a managed table where Postgres would refuse because of our own objects: they stand aside.

With event triggers a plain ALTER TABLE does the same; this is for databases that have none.
docs/design/schema-changes.md says why it is right.
"""

import psycopg

from frostline import sqlfiles
from frostline.catalog import generator
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import UsageError
from frostline.model.tables import Table
from frostline.relation import names, renewal

_statement = sqlfiles.statements(__name__, "columns")
_REFUSED = (
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.DependentObjectsStillExist,
)


def alter(connection: Connection, table: Table, change: str) -> bool:
    """Run `alter table HEAP change`, and let the relation follow. UsageError when Postgres or the relation refuses.

    One transaction. ACCESS EXCLUSIVE on relation, heap, overlay and lake tables, tried for a moment at a time.
    False, with nothing changed, where each row of the lake would need a value of its own: `filling` does that.
    """
    try:
        patiently(connection, table.name, lambda: alter_inside(connection, table, change))
    except _REFUSED as error:
        if isinstance(error, psycopg.NotSupportedError) and error.diag.column_name:
            return False
        detail = error.diag.message_detail
        raise UsageError(
            f"{table.heap} cannot be altered: {first_line(error)}" + (f" ({detail})" if detail else ""),
            hint=error.diag.message_hint or "what can be followed: docs/guides/schema-changes.md",
        ) from None
    return True


def alter_inside(connection: Connection, table: Table, change: str) -> None:
    """The same inside of a transaction, which fails with psycopg's error if it is refused."""
    renewal.let_guard_pass(connection)
    statement = _statement("alter").format(heap=names.identifier(table.heap), change=names.trusted(change))
    generator.stand_aside(connection, table.id, statement.as_string(connection))
    connection.execute(statement)
    generator.follow_heap(connection, table.id)
