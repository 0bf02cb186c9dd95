"""What a managed table consists of in Postgres: its objects, each with how it is made and how it goes.

`frostline.relation_objects` writes them, from `sql/generator.sql`. Registration makes them in that order, renewal makes
those anew that differ, and removal drops them in reverse.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, generator
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.relation.names import trusted

_PACKAGE = __package__ or ""


def ensure_generator(connection: Connection) -> bool:
    """Bring what writes the objects to this version; says whether it was another.

    It is in the database so that a schema change is followed in its own transaction: docs/design/schema-changes.md.
    """
    templates = {
        f"{noun}.{name}": text
        for noun in ("objects", "writes", "children")
        for name, text in sqlfiles.load(_PACKAGE, noun).items()
    }
    nouns = (
        "generator",
        "parents",
        "rights",
        "older",
        "follow",
        "unfilled",
        "known",
        "readers",
        "aside",
        "kept",
        "cold_keys",
        "constraints",
        "renames",
        "on_relation",
        "held",
    )
    functions: list[LiteralString] = []
    for noun in nouns:
        functions.extend(_functions(noun))
    return generator.ensure(connection, functions, templates)


def _functions(noun: str) -> list[LiteralString]:
    return list(sqlfiles.load(_PACKAGE, noun).values())


def template(name: str) -> sql.SQL:
    """One named template of `sql/objects.sql`."""
    return sql.SQL(sqlfiles.load(_PACKAGE, "objects")[name])


class Kind(StrEnum):
    """What an object is."""

    TABLE = "table"
    VIEW = "view"
    FUNCTION = "function"
    RULE = "rule"
    TRIGGER = "trigger"


@dataclass(frozen=True)
class Address:
    """Where Postgres has an object."""

    kind: Kind
    name: str
    """Qualified and quoted; of a rule or trigger the plain name."""
    relation: str = ""
    """What a rule or trigger stands on, qualified and quoted."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on {self.relation}" if self.relation else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class DatabaseObject:
    """One object, or a few that are made together."""

    addresses: tuple[Address, ...]
    create: tuple[sql.Composed, ...]
    """The statements that make it. Where `is_replaceable`, they also put it in the place of another."""
    drop: sql.Composed | None = None
    """Harmless when it is gone. None for what falls with another: a rule with its view, a trigger with its function."""
    is_replaceable: bool = True
    """False for what holds rows, or what others have put something on: it is made once, and kept."""
    is_wanted: bool = True
    """False for what the table has only in another state of its heap: with row security, or without."""
    follows: bool = False
    """It is made from what Postgres has, which its statements do not tell: making it anew is never in vain."""
    holds_keys: bool = False
    """It holds foreign keys for rows in the lake, and may stand on a table of others: `follow_keys` makes it anew."""

    @property
    def key(self) -> str:
        """What stands for it in the catalog."""
        return str(self.addresses[0])


@dataclass(frozen=True)
class SequenceRight:
    """USAGE on the sequence of an identity column, which somebody got by registration."""

    sequence: str
    """Qualified and quoted."""
    role: str | None
    """None for all."""

    @property
    def key(self) -> str:
        """What stands for it in the catalog, among the objects."""
        return _RIGHT + json.dumps([self.sequence, self.role], ensure_ascii=False)


_RIGHT = "usage on sequence "


def recorded_rights(keys: Iterable[str]) -> list[SequenceRight]:
    """Those among what the catalog has of a table."""
    return [SequenceRight(*json.loads(key.removeprefix(_RIGHT))) for key in keys if key.startswith(_RIGHT)]


@dataclass(frozen=True)
class Present:
    """An object that is there."""

    catalog: int
    """The oid of the system catalog that it is in: `pg_class`, `pg_proc`, ..."""
    oid: int
    digest: str
    """Stands for it as Postgres would print it."""


def read(connection: Connection, table_id: int) -> tuple[DatabaseObject, ...]:
    """All that the table has in Postgres, or could have, each after what it needs, for the heap as it is now.

    The heap has the name that the catalog knows. Locks nothing.
    """
    return tuple(described(**parts) for parts in generator.objects(connection, table_id))


def described(*, addresses: list[dict[str, str]], create: list[str], drop: str | None, **flags: bool) -> DatabaseObject:
    """An object as the generator describes it."""
    return DatabaseObject(
        tuple(Address(Kind(address["kind"]), address["name"], address["relation"]) for address in addresses),
        tuple(map(_statement, create)),
        None if drop is None else _statement(drop),
        **flags,
    )


def _statement(text: str) -> sql.Composed:
    return sql.Composed([trusted(text)])


def triggers(
    relation: sql.Identifier,
    names: Iterable[str],
    create: sql.Composed,
    *,
    is_replaceable: bool = True,
    is_wanted: bool = True,
) -> DatabaseObject:
    """Triggers that one statement makes. They fall with their functions and with their relation."""
    addresses = tuple(Address(Kind.TRIGGER, name, relation.as_string()) for name in names)
    return DatabaseObject(addresses, (create,), is_replaceable=is_replaceable, is_wanted=is_wanted)


def rename_table(old: Name, new: Name) -> sql.Composed:
    """Gives a table another name in its schema."""
    return template("rename_table").format(old=sql.Identifier(old.schema, old.table), new=sql.Identifier(new.table))


def rename_view(old: Name, new: Name) -> sql.Composed:
    """The same for a view."""
    return template("rename_view").format(old=sql.Identifier(old.schema, old.table), new=sql.Identifier(new.table))


def present(connection: Connection, objects: Iterable[DatabaseObject]) -> dict[Address, Present]:
    """Those that are there. ACCESS SHARE on what a view or rule of them reads, as every reader takes it."""
    wanted = [address for database_object in objects for address in database_object.addresses]
    rows = facts.rows(
        connection,
        "objects",
        kinds=[address.kind.value for address in wanted],
        names=[address.name for address in wanted],
        relations=[address.relation for address in wanted],
    )
    return {wanted[number - 1]: Present(catalog, oid, digest) for number, catalog, oid, digest in rows}
