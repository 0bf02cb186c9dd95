"""Table names on the command line."""

from collections.abc import Sequence

import click

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.model.names import BadName, Name
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


TABLE = TableName()


def chosen(connection: Connection, names: Sequence[Name]) -> list[Table]:
    """The managed tables of these names, or all of them when none is named."""
    return [tables.get(connection, name) for name in names] if names else tables.every(connection)
