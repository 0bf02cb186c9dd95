"""Whether the foreign keys of a managed table hold for rows in the lake: switched by the user, followed by the worker.

What holds them is listed in `foreign_keys`, and made by `renewal`.
"""

import logging

import psycopg

from frostline import logs
from frostline.catalog import jobs, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError, UsageError
from frostline.model.names import Name
from frostline.model.policy import ForeignKeys
from frostline.model.tables import Table
from frostline.relation import foreign_keys, renewal

_log = logging.getLogger(__name__)


def follow(connection: Connection) -> list[Name]:
    """Put triggers where foreign keys lead now, of tables that hold theirs; returns the tables that it was done for.

    A table that stays in use is left to the next time.
    """
    return [name for name in foreign_keys.strayed(connection) if _tried(connection, name)]


def _tried(connection: Connection, name: Name) -> bool:
    try:
        patiently(connection, name, lambda: renewal.replace_objects(connection, tables.get(connection, name)))
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="foreign keys", table=str(name), warning=first_line(error)))
        return False
    return True


def switch(connection: Connection, table: Table, mode: ForeignKeys) -> Table:
    """Hold the table's foreign keys for rows in the lake, or ignore them; returns the table as it is then.

    One transaction, under the table's lease. SHARE ROW EXCLUSIVE on the referenced tables to hold, ACCESS EXCLUSIVE to
    ignore, tried for a moment at a time.
    """
    if not table.has_lake:
        raise UsageError(f"{table.name} is in partition mode and has no lake", hint="leave --foreign-keys out")
    if table.foreign_keys is mode:
        return table
    with jobs.exclusive(connection, table):
        return patiently(connection, table.name, lambda: _switched(connection, table, mode))


def _switched(connection: Connection, table: Table, mode: ForeignKeys) -> Table:
    after = tables.set_foreign_keys(connection, table, mode)
    renewal.replace_objects(connection, after)
    return after
