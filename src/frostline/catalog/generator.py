"""The generator of a relation's objects, which is in the database: its templates, its functions, and what it writes."""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, first_value, only_value

_statement = sqlfiles.statements(__name__, "queries/generator")
_CONSTRAINTS = {"check": "constraint", "not null": "NOT NULL of", "foreign key": "foreign key"}


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


@contextmanager
def making(connection: Connection, table_id: int) -> Generator[None]:
    """Inside a transaction: the block makes the table's objects itself, and event triggers leave it alone."""
    values = {"table_id": table_id}
    connection.execute(_statement("begin_following"), values)
    yield
    connection.execute(_statement("end_following"), values)


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


def follow_keys(connection: Connection, table_id: int) -> None:
    """Inside a transaction: what holds the table's foreign keys for rows in the lake stands where they lead now.

    SHARE ROW EXCLUSIVE on a table that gets a trigger, ACCESS EXCLUSIVE on one that loses it.
    """
    connection.execute(_statement("follow_keys"), {"table_id": table_id})


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
    """A CHECK or foreign key of a heap, or a column that is NOT NULL."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{_CONSTRAINTS[self.kind]} {self.name}"


def unseen_constraints(connection: Connection, table_id: int) -> list[Constraint]:
    """What the heap holds, and rows in the lake were not looked at for. Takes no lock."""
    return fetch(connection, Constraint, _statement("unseen_constraints"), {"table_id": table_id})


def look_at_cold_rows(connection: Connection, table_id: int, constraint: Constraint) -> None:
    """Ask the lake whether its rows hold a constraint, and write that down; psycopg's error if some do not."""
    values = {"table_id": table_id, "kind": constraint.kind, "name": constraint.name}
    connection.execute(_statement("look_at_cold_rows"), values)


def note_generations(connection: Connection, table_id: int) -> list[str]:
    """Write down how generated columns are computed, and return those that are not any more."""
    return only_value(connection.execute(_statement("note_generations"), {"table_id": table_id}))


def changed_generations(connection: Connection, table_id: int) -> dict[str, bool]:
    """The columns that are computed otherwise than when they were looked at; whether one is computed at all."""
    rows = connection.execute(_statement("changed_generations"), {"table_id": table_id})
    return {name: not is_plain for name, is_plain in rows}


def note_rights(connection: Connection, table_id: int) -> None:
    """Write down what others may do with the heap. What they may not do with the relation stays apart from it."""
    connection.execute(_statement("note_rights"), {"table_id": table_id})


def is_stale(connection: Connection, table_id: int) -> bool:
    """Whether the relation has not the owner of the heap, or others not the rights that they have got or lost there."""
    return only_value(connection.execute(_statement("is_stale"), {"table_id": table_id}))


def stale_defaults(connection: Connection, table_id: int) -> list[str]:
    """The columns that have another default in the relation than in the heap. Takes no lock."""
    return [name for (name,) in connection.execute(_statement("stale_defaults"), {"table_id": table_id})]


def object_digests(connection: Connection, table_id: int) -> dict[str, str]:
    """What was written down for each of a managed table's objects when it was made; nothing of older versions."""
    digests = first_value(connection.execute(_statement("object_digests"), {"table_id": table_id}))
    return json.loads(digests) if digests and digests.startswith("{") else {}


def lock_objects(connection: Connection, table_id: int) -> None:
    """Until the end of the transaction nobody else changes a managed table's objects. Readers and writers go on."""
    connection.execute(_statement("lock_objects"), {"table_id": table_id})


def set_object_digests(connection: Connection, table_id: int, digests: Mapping[str, str]) -> None:
    """Write it down, in the transaction that makes them."""
    values = {"table_id": table_id, "digests": json.dumps(digests, ensure_ascii=False)}
    connection.execute(_statement("set_object_digests"), values)
