"""Columns that `table alter` adds in steps, because each old row needs a value of its own: those not done yet."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/filling")


@dataclass(frozen=True)
class Filling:
    """A column that is being filled, and what comes when all rows have a value."""

    name: str
    change: str
    """What was asked for: saying it again goes on."""
    default_value: str
    """The expression that new rows get, and old ones once; of a generated column what each row must have."""
    sequence_name: str | None
    """Qualified and quoted; of a serial or identity column."""
    is_not_null: bool
    identity: str
    """As `pg_attribute.attidentity`: '' if it is none."""
    becomes: str | None = None
    """What a generated column is called when all rows have its value; None of any other, which has its name at once."""


def begin(connection: Connection, table: Table, filling: Filling) -> None:
    """In the transaction that adds the column."""
    connection.execute(_statement("begin"), {"table_id": table.id, **asdict(filling)})


def list_all(connection: Connection, table: Table) -> Sequence[Filling]:
    """Those of the table, in the order of the columns. What was dropped meanwhile is forgotten."""
    connection.execute(_statement("forget_dropped"), {"table_id": table.id})
    return fetch(connection, Filling, _statement("list_all"), {"table_id": table.id})


def forget(connection: Connection, table: Table, filling: Filling) -> None:
    """In the transaction of the last step."""
    connection.execute(_statement("forget"), {"table_id": table.id, "name": filling.name})
