"""The generator of a relation's objects, which is in the database: its templates, its functions, and what it writes."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, only_value

_statement = sqlfiles.statements(__name__, "queries/generator")


def ensure(connection: Connection, functions: Iterable[LiteralString], templates: Mapping[str, str]) -> bool:
    """Bring it to what this program has; says whether it was another. Nothing that a reader needs is locked."""
    functions = tuple(functions)
    digest = hashlib.sha256(repr((functions, dict(templates))).encode()).hexdigest()
    with connection.transaction():
        if only_value(connection.execute(_statement("digest"))) == digest:
            return False
        for function in functions:
            connection.execute(function)
        connection.execute(_statement("keep_for_us"))
        connection.execute(_statement("forget_templates"))
        for name, text in templates.items():
            connection.execute(_statement("insert_template"), {"name": name, "text": text})
        connection.execute(_statement("set_digest"), {"digest": digest})
    return True


def objects(connection: Connection, table_id: int) -> list[dict[str, Any]]:
    """What a managed table has in Postgres, or could have, each after what it needs; for the heap as it is now."""
    rows = connection.execute(_statement("objects"), {"table_id": table_id}).fetchall()
    return [described for (described,) in rows]


@dataclass(frozen=True)
class State:
    """An object that can be put in the place of another, as it is there."""

    object: dict[str, Any]
    key: str
    is_present: bool
    digest: str
    """Stands for the statements of this version, for the server, and for the object as Postgres has it."""


def state(connection: Connection, table_id: int) -> list[State]:
    """What a managed table has of those, or could have, each after what it needs."""
    return fetch(connection, State, _statement("state"), {"table_id": table_id})


def follow_renames(connection: Connection, table_id: int) -> list[str]:
    """Inside a transaction: let overlay, lake tables and views call their columns as the heap does; says which.

    ACCESS EXCLUSIVE on all of them. What else names the columns must be made anew.
    """
    return only_value(connection.execute(_statement("follow_renames"), {"table_id": table_id}))


def add_columns(connection: Connection, table_id: int, older: Mapping[str, str | None]) -> None:
    """Inside a transaction: catalog, overlay and lake tables get what the heap has more.

    `older` has the missing value of each by name. ACCESS EXCLUSIVE on overlay and lake tables.
    """
    connection.execute(_statement("add_columns"), {"table_id": table_id, "older": json.dumps(older)})


def widen_relation(connection: Connection, table_id: int) -> None:
    """Inside a transaction: the views get the columns that the catalog has more. All else must be made anew."""
    connection.execute(_statement("widen_relation"), {"table_id": table_id})


def follow_descriptions(connection: Connection, table_id: int) -> None:
    """Inside a transaction: defaults, comments and owner of the relation become the heap's."""
    connection.execute(_statement("follow_descriptions"), {"table_id": table_id})


def stand_aside(connection: Connection, table_id: int, statement: str) -> None:
    """Inside a transaction that goes on to run the statement: no object of ours uses a column of the heap any more.

    ACCESS EXCLUSIVE on the views. `follow_heap` must come behind the statement.
    """
    connection.execute(_statement("stand_aside"), {"table_id": table_id, "statement": statement})


def follow_heap(connection: Connection, table_id: int) -> None:
    """Inside a transaction that has altered the heap: what stands aside is made anew, with all that can be followed."""
    connection.execute(_statement("follow_heap"), {"table_id": table_id})


def record_constraints(connection: Connection, table_id: int | None = None) -> None:
    """Write down which constraints the heap has now, of one managed table or of all: docs/design/constraints.md."""
    connection.execute(_statement("record_constraints"), {"table_id": table_id})


@dataclass(frozen=True)
class Constraint:
    """A CHECK of a heap, or a column that is NOT NULL."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"constraint {self.name}" if self.kind == "check" else f"NOT NULL of {self.name}"


def unseen_constraints(connection: Connection, table_id: int) -> list[Constraint]:
    """What the heap holds, and rows in the lake were not looked at for. Takes no lock."""
    return fetch(connection, Constraint, _statement("unseen_constraints"), {"table_id": table_id})


def look_at_cold_rows(connection: Connection, table_id: int, constraint: Constraint) -> None:
    """Ask the lake whether its rows hold a constraint, and write that down; psycopg's error if some do not."""
    values = {"table_id": table_id, "kind": constraint.kind, "name": constraint.name}
    connection.execute(_statement("look_at_cold_rows"), values)


def stale_defaults(connection: Connection, table_id: int) -> list[str]:
    """The columns that have another default in the relation than in the heap. Takes no lock."""
    return [name for (name,) in connection.execute(_statement("stale_defaults"), {"table_id": table_id})]
