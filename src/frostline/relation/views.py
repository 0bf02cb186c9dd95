"""Pieces of SQL that say how the tiers of a table meet: the frost line, the lake's columns. Values in, SQL out."""

from typing import LiteralString

from psycopg import sql

from frostline.catalog.seams import LINE_COLUMNS
from frostline.model.tables import Column, Table
from frostline.relation import names
from frostline.relation.names import AND, trusted
from frostline.relation.objects import template

_NO_OPTIONS = sql.SQL("")


def lake_key_equals(table: Table, row: LiteralString) -> sql.Composed:
    """The condition that the lake's row `c` has the key of another row."""
    return AND.join(
        sql.SQL("{} = {}").format(names.column(row, name), from_lake(table.column(name))) for name in table.key
    )


def line(table: Table, column: LiteralString | None = None) -> sql.Composed:
    """The frost line, or another of the seam's lines, as the view reads it: Postgres evaluates it once a query."""
    narrow = "::smallint" if table.tier_kind == "smallint" else "::integer" if table.tier_kind == "integer" else ""
    return template("line").format(
        line_column=sql.Identifier(column or LINE_COLUMNS[table.tier_kind]),
        line_cast=sql.SQL(narrow),
        table_id=sql.Literal(table.id),
    )


def definitions(table: Table) -> sql.Composed:
    """Column list of the lake's foreign tables: of a renamed column, the lake server knows the first name."""
    return sql.SQL(",\n    ").join(definition(column, _asked_for(column)) for column in table.columns)


def _asked_for(column: Column) -> sql.Composable:
    if column.remote_name in (None, column.name):
        return _NO_OPTIONS
    return sql.SQL(" options (column_name {})").format(sql.Literal(column.remote_name))


def definition(column: Column, options: sql.Composable = _NO_OPTIONS) -> sql.Composed:
    """One column of the lake's tables. A domain keeps postgres_fdw from sending conditions on it."""
    own_type = trusted(column.pg_type.formatted)
    lake_type = sql.Identifier("frostline_lake", domain_name(column)) if needs_domain(column) else own_type
    parts: list[sql.Composable] = [sql.Identifier(column.name), lake_type + options]
    if column.collation_name:
        parts += [sql.SQL("collate"), trusted(column.collation_name)]
    return sql.SQL(" ").join(parts)


def needs_domain(column: Column) -> bool:
    """Whether postgres_fdw would send conditions on the column's own type that the lake cannot judge."""
    return column.pg_type.builtin and not column.encoding.pushable


def domain_name(column: Column) -> str:
    """The domain that stands for the column's type in the lake's tables."""
    return f"lake {column.pg_type.formatted}"


def from_lake(column: Column) -> sql.Composable:
    """The column of the lake's row `c`, in the type that the heap has."""
    value = names.column("c", column.name)
    if not needs_domain(column):
        return value
    return sql.SQL("{}::{}").format(value, trusted(column.pg_type.formatted))
