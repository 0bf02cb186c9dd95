"""The policy of a managed table: how long rows stay hot, and how long they also stay in the heap after that."""

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model.tables import Table


def change(connection: Connection, table: Table, *, hot: str | None, grace: str | None) -> Table:
    """Set what is given, all or nothing, and return the table as it is then."""
    if hot is None and grace is None:
        raise UsageError("nothing to set", hint="say --hot or --grace")
    if hot is not None:
        tables.check_hot(connection, table.tier_kind, hot)
    if grace is not None:
        tables.check_interval(connection, "grace", grace)
    with connection.transaction():
        if hot is not None:
            tables.set_hot(connection, table, hot)
        if grace is not None:
            tables.set_grace(connection, table, grace)
        return tables.get(connection, table.name)
