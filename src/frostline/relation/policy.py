"""The policy of a managed table: how long rows stay hot and then in the heap too, and when a fold is due."""

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model.tables import Table


def change(
    connection: Connection,
    table: Table,
    *,
    hot: str | None = None,
    grace: str | None = None,
    fold_rows: int | None = None,
    fold_age: str | None = None,
    release: bool = False,
) -> Table:
    """Set what is given, all or nothing, and return the table as it is then."""
    if hot is None and grace is None and fold_rows is None and fold_age is None and not release:
        raise UsageError("nothing to set", hint="say --hot, --grace, --fold-rows, --fold-age or --release")
    _check(connection, table, hot, grace, fold_age)
    with connection.transaction():
        if hot is not None:
            tables.set_hot(connection, table, hot)
        if grace is not None:
            tables.set_grace(connection, table, grace)
        if fold_rows is not None:
            tables.set_fold_rows(connection, table, fold_rows)
        if fold_age is not None:
            tables.set_fold_age(connection, table, fold_age)
        if release:
            tables.release(connection, table)
        return tables.get(connection, table.name)


def _check(connection: Connection, table: Table, hot: str | None, grace: str | None, fold_age: str | None) -> None:
    if hot is not None:
        tables.check_hot(connection, table.tier_kind, hot)
    if grace is not None:
        tables.check_interval(connection, "grace", grace)
    if fold_age is not None:
        tables.check_interval(connection, "fold-age", fold_age, positive=True)
