"""Namespaces of the built-in Iceberg catalog, and what is in them, as the catalog server shows them to a role.

A namespace's levels are kept with dots between them, as other engines' SQL catalogs do, so a level has no dot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, first_value, only_value
from frostline.catalog.pointers import Pointer

_statement = sqlfiles.statements(__name__, "queries/namespace")


@dataclass(frozen=True)
class Entry:
    """A table of the catalog."""

    metadata_location: str
    kind: str
    """`tiered`, `copy` of a named snapshot, `lake`, or `other`: somebody else's, of which only the pointer is known."""
    belongs_to: str | None
    """The managed table or the named snapshot."""
    lake_table_id: int | None
    is_readable: bool
    """By the role that was asked for."""
    is_writable: bool
    """Any row of it may be changed."""
    is_owned: bool
    """What it is called and consists of may be changed."""


def children(connection: Connection, parent: Sequence[str], *, after: str | None, most: int | None) -> list[str]:
    """The names of the next level below a namespace, in order."""
    values = {"parent": list(parent), "after": after, "most": most}
    return [level for (level,) in connection.execute(_statement("children"), values).fetchall()]


def exists(connection: Connection, namespace: str) -> bool:
    """Whether the namespace is there, or anything in it."""
    return only_value(connection.execute(_statement("exists"), {"namespace": namespace}))


def properties(connection: Connection, namespace: str) -> dict[str, str]:
    """What others have written down about a namespace."""
    return dict(connection.execute(_statement("properties"), {"namespace": namespace}).fetchall())  # pyright: ignore[reportArgumentType]


def lock(connection: Connection) -> None:
    """Inside a transaction: no other request makes, fills or drops a namespace until it ends."""
    connection.execute(_statement("lock"))


def put(connection: Connection, namespace: str, values: Mapping[str, str]) -> None:
    """Inside a transaction: the namespace is there, with these properties among its others."""
    with connection.cursor() as cursor:
        pairs = {"exists": "true", **values}.items()
        rows = [{"namespace": namespace, "key": key, "value": value} for key, value in pairs]
        cursor.executemany(_statement("put_property"), rows)


def remove_properties(connection: Connection, namespace: str, keys: Sequence[str]) -> None:
    """Inside a transaction: the namespace has these properties no more."""
    connection.execute(_statement("remove_properties"), {"namespace": namespace, "keys": list(keys)})


def drop(connection: Connection, namespace: str) -> None:
    """Inside a transaction: forget a namespace. The caller has seen that nothing is in it."""
    connection.execute(_statement("drop"), {"namespace": namespace})


def is_of_a_snapshot(connection: Connection, namespace: str) -> bool:
    """Whether it belongs to a named snapshot, which alone puts tables into it."""
    return only_value(connection.execute(_statement("is_of_a_snapshot"), {"namespace": namespace}))


def tables(connection: Connection, namespace: str, role: str, *, after: str | None, most: int | None) -> list[str]:
    """The names of the tables of a namespace that the role may read, in order."""
    values = {"namespace": namespace, "role": role, "after": after, "most": most}
    return [name for (name,) in connection.execute(_statement("tables"), values).fetchall()]


def table(connection: Connection, pointer: Pointer, role: str) -> Entry | None:
    """What the catalog has under that name, and whether the role may read it; None when there is nothing."""
    values = {"namespace": pointer.namespace, "table": pointer.table, "role": role}
    entries = fetch(connection, Entry, _statement("table"), values)
    return entries[0] if entries else None


def owner_of_name(connection: Connection, pointer: Pointer) -> str | None:
    """The managed table or named snapshot that the name is kept for, whether or not it has anything in the lake."""
    return first_value(
        connection.execute(_statement("owner_of_name"), {"namespace": pointer.namespace, "table": pointer.table})
    )


def overlapping(connection: Connection, pointer: Pointer, folder: str) -> Pointer | None:
    """A table other than this one that has files in that folder, or in one around it or inside of it."""
    values = {"namespace": pointer.namespace, "table": pointer.table, "folder": folder}
    row = connection.execute(_statement("overlapping"), values).fetchone()
    return Pointer(*row) if row else None
