"""Foreign keys of a managed table hold for the rows that only the lake has: docs/design/foreign-keys.md.

Triggers on the tables that the heap references ask the lake. They are among the table's objects, and `sql/parents.sql`
makes them. What they do is decided by functions of the catalog when they fire, from the constraints as they are then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.names import Name, quoted
from frostline.model.policy import ForeignKeys
from frostline.model.registration import Refusal
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "foreign_keys")
_ACTIONS = {"a": "no action", "r": "restrict", "c": "cascade", "n": "set null", "d": "set default"}


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of a managed table."""

    constraint: str
    columns: tuple[str, ...]
    parent: Name
    on_delete: str
    on_update: str
    deferrable: bool
    obstacle: str | None
    """Why it cannot be held for rows in the lake, if so."""
    parent_is_managed: bool
    is_looked_up: bool = True
    """Whether the lake server can look for the rows of a key; if not, it reads all of them."""

    def __str__(self) -> str:
        actions = f"on delete {self.on_delete}, on update {self.on_update}"
        deferrable = ", deferrable" if self.deferrable else ""
        listed = ", ".join(map(quoted, self.columns))
        return f"{quoted(self.constraint)} ({listed}) references {self.parent} {actions}{deferrable}"

    def told(self, mode: ForeignKeys) -> str:
        """What it means for rows in the lake, and what it costs."""
        if mode is ForeignKeys.IGNORE:
            return f"{self}: ignored, rows in the lake stay when what they reference goes"
        if self.obstacle is not None:
            return f"{self}: cannot be held for rows in the lake, because {self.obstacle}"
        cost = "one look-up in the lake" if self.is_looked_up else "the lake read as a whole"
        rest = "; rows of it that are referenced stay in its heap" if self.parent_is_managed else ""
        return f"{self}: held, each DELETE of {self.parent} and UPDATE of its key costs {cost}{rest}"


def read(connection: Connection, table: Table) -> list[ForeignKey]:
    """The foreign keys of the heap."""
    pushable = {column.name for column in table.columns if column.encoding.pushable}

    def foreign_key(
        *, columns: list[str], schema: str, parent: str, on_delete: str, on_update: str, **others: Any
    ) -> ForeignKey:
        return ForeignKey(
            columns=tuple(columns),
            parent=Name(schema, parent),
            on_delete=_ACTIONS[on_delete],
            on_update=_ACTIONS[on_update],
            is_looked_up=not pushable.isdisjoint(columns),
            **others,
        )

    return fetch(connection, foreign_key, _statement("read").format(heap=_heap(connection, table)))


def refusals(connection: Connection, heap: Name) -> Iterator[Refusal]:
    """Why the foreign keys of a table that is to be managed cannot be held."""
    literal = sql.Literal(names.identifier(heap).as_string(connection))
    for schema, parent, me in connection.execute(_statement("forbidden").format(heap=literal)).fetchall():
        referenced = Name(schema, parent)
        hint = f"grant trigger on {referenced} to {quoted(me)}, or --foreign-keys ignore"
        yield Refusal(f"it references {referenced}, and {quoted(me)} may not put a trigger there", hint)


def told(connection: Connection, table: Table) -> list[str]:
    """What there is to say of the table's foreign keys, a line for each."""
    return [foreign_key.told(table.foreign_keys) for foreign_key in read(connection, table)]


def strayed(connection: Connection) -> list[Name]:
    """The tables that hold their foreign keys, and of which a trigger is missing or in a wrong place."""
    return [Name(*row) for row in connection.execute(_statement("strayed")).fetchall()]


def _heap(connection: Connection, table: Table) -> sql.Literal:
    return sql.Literal(names.identifier(table.heap).as_string(connection))
