"""SQL identifiers of the objects that make up one managed table."""

from typing import LiteralString, cast

from psycopg import sql

from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tables import Table
from frostline.model.tiers import TierKind

LINE_COLUMNS: dict[TierKind, LiteralString] = {
    TierKind.TIMESTAMPTZ: "line_timestamptz",
    TierKind.TIMESTAMP: "line_timestamp",
    TierKind.DATE: "line_date",
    TierKind.SMALLINT: "line_integer",
    TierKind.INTEGER: "line_integer",
    TierKind.BIGINT: "line_integer",
}


def identifier(name: Name) -> sql.Identifier:
    """A user's table."""
    return sql.Identifier(name.schema, name.table)


def inner(table: Table) -> sql.Identifier:
    """The inner view."""
    return sql.Identifier("frostline_relation", table.internal)


def overlay(table: Table) -> sql.Identifier:
    """The overlay."""
    return sql.Identifier("frostline_overlay", table.internal)


def lake(table: Table) -> sql.Identifier:
    """The partitioned parent of the lake's foreign tables."""
    return sql.Identifier("frostline_lake", table.internal)


def function(table: Table, verb: str) -> sql.Identifier:
    """The table's trigger function for that verb: mark, update, delete, copy, policy."""
    return sql.Identifier("frostline_relation", f"{verb}_{table.id}")


def default_partition(heap: Name) -> Name:
    """The DEFAULT partition that registration makes when the heap has none."""
    suffix = "_frostline_default"
    return Name(heap.schema, cut(heap.table, MAX_BYTES - len(suffix)) + suffix)


def trusted(text: str) -> sql.SQL:
    """SQL text that Postgres itself printed (types, expressions, view definitions), to be sent back as it is."""
    return sql.SQL(cast(LiteralString, text))
