"""Pieces of SQL that say how the tiers of a table meet: the frost line, the lake's columns. Values in, SQL out."""

from typing import LiteralString

from psycopg import sql

from frostline.catalog.seams import LINE_COLUMNS
from frostline.model.tables import Table
from frostline.relation import lakecolumns, names
from frostline.relation.names import AND
from frostline.relation.objects import template


def lake_key_equals(table: Table, row: LiteralString) -> sql.Composed:
    """The condition that the lake's row `c` has the key of another row."""
    return AND.join(
        sql.SQL("{} = {}").format(names.column(row, name), lakecolumns.from_lake(table.column(name)))
        for name in table.key
    )


def line(table: Table, column: LiteralString | None = None) -> sql.Composed:
    """The frost line, or another of the seam's lines, as the view reads it: Postgres evaluates it once a query."""
    narrow = "::smallint" if table.tier_kind == "smallint" else "::integer" if table.tier_kind == "integer" else ""
    return template("line").format(
        line_column=sql.Identifier(column or LINE_COLUMNS[table.tier_kind]),
        line_cast=sql.SQL(narrow),
        table_id=sql.Literal(table.id),
    )
