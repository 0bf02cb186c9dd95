"""Names of tables and roles on the command line."""

import re
from collections.abc import Sequence

import click

from frostline.catalog import lake_tables, tables
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer
from frostline.model.names import BadName, Name, parse_identifier
from frostline.model.tables import Table

_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""Outside of quotes."""


class TableName(click.ParamType[Name]):
    """`table`, `schema.table`, or the same with quotes."""

    name = "table"

    def convert(self, value: str | Name, param: click.Parameter | None, ctx: click.Context | None) -> Name:
        """Read the name as SQL would."""
        if isinstance(value, Name):
            return value
        try:
            return Name.parse(value)
        except BadName as error:
            self.fail(str(error), param, ctx)


class RoleName(click.ParamType[str]):
    """`role`, or the same with quotes."""

    name = "role"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the name as SQL would."""
        try:
            return parse_identifier(value)
        except BadName as error:
            self.fail(str(error), param, ctx)


class Columns(click.ParamType[tuple[str, ...]]):
    """`one,"The Other"`: names of columns."""

    name = "columns"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Read the names as SQL would."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(parse_identifier(part) for part in _COMMA.split(value))
        except BadName as error:
            self.fail(str(error), param, ctx)


TABLE = TableName()
ROLE = RoleName()
COLUMNS = Columns()
tables_argument = click.argument("names", type=TABLE, nargs=-1, metavar="[[SCHEMA.]TABLE]...")
"""Any number of tables; `chosen` and `managed` say what none means."""


def chosen(connection: Connection, names: Sequence[Name]) -> list[Table]:
    """The managed tables of these names, or when none is named all that have a lake. A named one must have one."""
    return [tables.with_lake(connection, name) for name in names] if names else tables.tiered(connection)


def managed(connection: Connection, names: Sequence[Name]) -> list[Table]:
    """The managed tables of these names, or all of them when none is named, whatever their mode."""
    return [tables.get(connection, name) for name in names] if names else tables.list_all(connection)


def with_lake_tables(connection: Connection, names: Sequence[Name]) -> tuple[list[Table], list[LakePointer]]:
    """The same as `chosen`, and the lake tables of these names, or all of them. A managed table goes before."""
    lakes = lake_tables.listed(connection)
    if not names:
        return tables.tiered(connection), lakes
    known = {table.name for table in tables.list_all(connection)}
    named_lakes = [table for table in lakes if table.name in names and table.name not in known]
    others = {table.name for table in named_lakes}
    return chosen(connection, left) if (left := [name for name in names if name not in others]) else [], named_lakes
