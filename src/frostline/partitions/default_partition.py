"""The DEFAULT partition of a heap: its guard, and the rows in it that belong to a partition of their own.

The guard proves that DEFAULT has no row of a range, before ATTACH would look under its lock. While it stands, a row of
the range is refused. So it is for ranges that lie in the future, and never stays for long.
"""

from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, leases, tables
from frostline.catalog.connect import Connection, only_row, only_value
from frostline.catalog.patience import patiently
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.partitions import new_partition
from frostline.relation import heap, marks, names

_guard_statement = sqlfiles.statements(__name__, "default_guard")
_strays_statement = sqlfiles.statements(__name__, "strays")


def guard_stands(connection: Connection, table: Table) -> bool:
    """Whether there is one; after a run only if that one died."""
    default = new_partition.default_partition(connection, table)
    return default is not None and _guard_is_on(connection, default)


def _guard_is_on(connection: Connection, default: Name) -> bool:
    target = sql.Literal(names.identifier(default).as_string(connection))
    return only_value(connection.execute(_guard_statement("exists").format(default_partition=target)))


def put_guard(connection: Connection, table: Table, default: Name, bounds: tuple[int, int]) -> None:
    """Refuse rows of the range in DEFAULT from now on. The caller holds the table's lease, or gets ConflictError."""
    low, high = (sql.Literal(to_text(table.tier_kind, value)) for value in bounds)
    statement = _guard_statement("add").format(
        default_partition=names.identifier(default), tier_key=sql.Identifier(table.tier_key), lower=low, upper=high
    )

    def add() -> None:
        leases.require(connection, table)
        connection.execute(statement)

    patiently(connection, default, add)


def guard_proves(connection: Connection, default: Name) -> bool:
    """Read DEFAULT, while others go on; False when it has a row of the range."""
    try:
        connection.execute(_guard_statement("validate").format(default_partition=names.identifier(default)))
    except psycopg.errors.CheckViolation:
        return False
    return True


def drop_guard(connection: Connection, default: Name) -> None:
    """Take it away, inside the transaction of the caller."""
    connection.execute(_guard_statement("drop").format(default_partition=names.identifier(default)))


def clear_guard(connection: Connection, table: Table) -> None:
    """Take away one that was left. The caller holds the table's lease, or gets ConflictError."""
    default = new_partition.default_partition(connection, table)
    if default is None or not _guard_is_on(connection, default):
        return

    def take_away() -> None:
        leases.require(connection, table)
        drop_guard(connection, default)

    patiently(connection, default, take_away)


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
    kind, size_bytes, is_referenced = only_row(connection.execute(_strays_statement("about").format(**literals)))
    return About(kind == "r", size_bytes, is_referenced)


def count_strays(connection: Connection, table: Table, default: Name, condition: sql.Composed, most: int) -> Stray:
    """The rows of DEFAULT for which the condition holds. Counting stops at `most`."""
    statement = _strays_statement("count").format(
        tier_key=sql.Identifier(table.tier_key),
        partition=names.identifier(default),
        condition=condition,
        most=sql.Literal(most),
    )
    rows, lowest, highest = only_row(connection.execute(statement))
    return Stray(rows, lowest, highest)


def move_strays(connection: Connection, table: Table, default: Name, name: Name, bounds: tuple[int, int]) -> None:
    """Move the rows of the range out of DEFAULT, unnoticed by marks and triggers.

    Inside the caller's transaction, which has ACCESS EXCLUSIVE on the heap and on DEFAULT.
    """
    with new_partition.user_triggers_disabled(connection, default):
        if table.has_lake:
            with marks.marking_disabled(connection, table):
                _move_rows(connection, table, default, name, bounds)
            heap.forget_marks(connection, table, *bounds)
        else:
            _move_rows(connection, table, default, name, bounds)


def _move_rows(connection: Connection, table: Table, default: Name, name: Name, bounds: tuple[int, int]) -> None:
    oid = tables.heap_oid(connection, table)
    written = [column.name for column in facts.read_columns(connection, oid) if not column.generated]
    statement = _strays_statement("move").format(
        default_partition=names.identifier(default),
        condition=names.within(table, *bounds),
        columns=names.columns(None, written),
        partition=names.identifier(name),
    )
    connection.execute(sql.SQL("set local row_security = off"))
    connection.execute(statement)
