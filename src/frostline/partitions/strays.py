"""Rows in DEFAULT that belong to a partition of their own: how many there are, and how they are moved there."""

from dataclasses import dataclass

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, tables
from frostline.catalog.connect import Connection, only_row
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.partitions import new_partition
from frostline.relation import heap, marks, names

_statement = sqlfiles.statements(__name__, "strays")


@dataclass(frozen=True)
class Stray:
    """Rows that lie in DEFAULT though they are hot: there was no partition for them."""

    rows: int = 0
    """Counting stops somewhere: there may be more, and the two values are of those that were counted."""
    lowest: str | None = None
    highest: str | None = None


@dataclass(frozen=True)
class About:
    """What a DEFAULT partition is."""

    is_plain: bool
    """It is a table, not partitioned itself and not foreign."""
    size_bytes: int
    is_referenced: bool
    """A foreign key points at it, or at the heap."""


def about(connection: Connection, table: Table, default: Name) -> About:
    """What there is to know before its rows are read or moved. Reads catalogs only."""
    parts = {"default_partition": default, "heap": table.heap}
    literals = {key: sql.Literal(names.identifier(name).as_string(connection)) for key, name in parts.items()}
    kind, size_bytes, is_referenced = only_row(connection.execute(_statement("about").format(**literals)))
    return About(kind == "r", size_bytes, is_referenced)


def count(connection: Connection, table: Table, default: Name, condition: sql.Composed, most: int) -> Stray:
    """The rows of DEFAULT for which the condition holds. Counting stops at `most`."""
    statement = _statement("count").format(
        tier_key=sql.Identifier(table.tier_key),
        partition=names.identifier(default),
        condition=condition,
        most=sql.Literal(most),
    )
    rows, lowest, highest = only_row(connection.execute(statement))
    return Stray(rows, lowest, highest)


def move(connection: Connection, table: Table, default: Name, name: Name, bounds: tuple[int, int]) -> None:
    """Move the rows of the range out of DEFAULT, unnoticed by marks and triggers.

    Inside the caller's transaction, which has ACCESS EXCLUSIVE on the heap and on DEFAULT.
    """
    with new_partition.user_triggers_disabled(connection, default):
        if table.has_lake:
            with marks.marking_disabled(connection, table):
                _move(connection, table, default, name, bounds)
            heap.forget_marks(connection, table, *bounds)
        else:
            _move(connection, table, default, name, bounds)


def _move(connection: Connection, table: Table, default: Name, name: Name, bounds: tuple[int, int]) -> None:
    oid = tables.heap_oid(connection, table)
    written = [column.name for column in facts.read_columns(connection, oid) if not column.generated]
    statement = _statement("move").format(
        default_partition=names.identifier(default),
        condition=names.within(table, *bounds),
        columns=names.columns(None, written),
        partition=names.identifier(name),
    )
    connection.execute(sql.SQL("set local row_security = off"))
    connection.execute(statement)
