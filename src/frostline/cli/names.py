"""Names of tables and roles on the command line."""

from collections.abc import Sequence

import click

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.model.names import BadName, Name, parse_identifier
from frostline.model.tables import Table


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


TABLE = TableName()
ROLE = RoleName()
tables_argument = click.argument("names", type=TABLE, nargs=-1, metavar="[[SCHEMA.]TABLE]...")
"""Any number of tables; `chosen` and `managed` say what none means."""


def chosen(connection: Connection, names: Sequence[Name]) -> list[Table]:
    """The managed tables of these names, or when none is named all that have a lake. A named one must have one."""
    return [tables.with_lake(connection, name) for name in names] if names else tables.tiered(connection)


def managed(connection: Connection, names: Sequence[Name]) -> list[Table]:
    """The managed tables of these names, or all of them when none is named, whatever their mode."""
    return [tables.get(connection, name) for name in names] if names else tables.list_all(connection)
