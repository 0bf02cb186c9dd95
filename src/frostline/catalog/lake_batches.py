"""Batches that are appended to lake tables from Spark: the foreign table that says what fits, and the labels.

A label is committed in the transaction that moves the pointer, so it exists exactly when the rows do.
"""

from collections.abc import Sequence

import psycopg

from frostline import sqlfiles
from frostline.catalog import batches
from frostline.catalog.batches import Relation
from frostline.catalog.connect import Connection, first_value, only_value
from frostline.errors import UsageError
from frostline.model.names import Name

_statement = sqlfiles.statements(__name__, "queries/lake_batch")


def relation(connection: Connection, name: Name) -> tuple[int, Relation]:
    """The oid and the columns of a foreign table on a lake table; UsageError when it calls them by other names."""
    row = connection.execute(_statement("relation"), {"schema": name.schema, "table": name.table}).fetchone()
    if row is None:
        raise UsageError(f"there is no foreign table {name}", hint="frostline lake list")
    oid, is_renamed = row
    if is_renamed:
        raise UsageError(f"{name} has options for its columns", hint="alter it: options (drop column_name)")
    return oid, Relation(name, batches.columns(connection, oid, oid), key=())


def require_insert(connection: Connection, oid: int, name: Name, columns: Sequence[str]) -> None:
    """UsageError unless the role may insert these columns into the foreign table."""
    if not only_value(connection.execute(_statement("may_insert"), {"relation": oid, "columns": list(columns)})):
        raise UsageError(f"this role may not insert into {name}", hint=f"grant insert on {name} to it")


def applied(connection: Connection, lake_table_id: int, label: str | None) -> int | None:
    """How many rows the batch with this label had; None when there is none yet."""
    try:
        values = {"lake_table_id": lake_table_id, "label": label}
        return first_value(connection.execute(_statement("applied"), values))
    except psycopg.errors.UndefinedTable:
        raise UsageError(
            "the catalog of this database knows no such writes from Spark", hint="frostline init"
        ) from None


def claim(connection: Connection, lake_table_id: int, label: str | None, rows: int) -> bool:
    """In the transaction that moves the pointer: take the label. False when a batch with it was committed."""
    if label is None:
        return True
    values = {"lake_table_id": lake_table_id, "label": label, "rows": rows}
    return connection.execute(_statement("claim"), values).rowcount == 1
