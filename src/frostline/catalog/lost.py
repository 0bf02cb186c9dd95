"""What managed tables should have in Postgres and have not: somebody has dropped it."""

from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/lost")


@dataclass(frozen=True)
class Lost:
    """An object of a managed table that is gone."""

    table: Name
    what: str
    """The word for it, as the glossary has it."""
    name: str

    def __str__(self) -> str:
        return f"{self.what} {self.name} is gone"

    @property
    def remedy(self) -> str:
        """The command that makes it again."""
        return "init" if self.what == "foreign server" else f"table adopt {self.table}"


def read(connection: Connection, only: Table | None = None) -> list[Lost]:
    """What is gone of tables with a lake, the gravest first; of all, or of one. No heap need be there."""
    rows = connection.execute(_statement("read"), {"table_id": None if only is None else only.id}).fetchall()
    return [Lost(Name(schema, table), what, name) for schema, table, what, name in rows]


def renamed(connection: Connection, table: Table) -> dict[str, str]:
    """Of `heap` and `relation`, what somebody has given another name or schema, and how it is called now."""
    inner = Name("frostline_relation", table.internal)
    values = {"heap": str(table.heap), "relation": str(table.relation), "inner": str(inner), "table_id": table.id}
    return dict(connection.execute(_statement("renamed"), values).fetchall())
