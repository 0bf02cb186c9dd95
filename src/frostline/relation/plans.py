"""The functions that write a row into the heap keep one plan for all rows, where Postgres prunes it well."""

from collections.abc import Iterator

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "plans")

PRUNED_SINCE = 18_00_00
"""Before, the executor prepares every partition that a kept plan may write. With many that costs more than planning."""
WRITING = ("update", "delete")
"""Not the marking function: it asks the lake, and a plan for known values may ask less of it."""


def statements(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """What makes the table's functions keep their plans; nothing for those that do."""
    if connection.info.server_version < PRUNED_SINCE:
        return
    for verb in WRITING:
        function = names.function(table, verb)
        literal = sql.Literal(function.as_string(connection) + "()")
        if connection.execute(_statement("plans_anew").format(function=literal)).fetchone() is not None:
            yield _statement("keep_plan").format(function=function)
