"""The generator of a relation's objects, which is in the database: its templates, its functions, and what it writes."""

import hashlib
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
