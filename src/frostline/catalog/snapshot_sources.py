"""Reads what Postgres' catalogs say about the tables that a snapshot may take."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.model.names import Name
from frostline.model.snapshot import Relation

_statement = sqlfiles.statements(__name__, "queries/snapshot_source")


@dataclass(frozen=True)
class Member:
    """A relation in which rows of a table are: itself, a partition, or a child by inheritance."""

    oid: int
    name: Name
    kind: str
    """`pg_class.relkind`."""


def relations(connection: Connection) -> list[Relation]:
    """All that has the name of a table."""
    return fetch(connection, _relation, _statement("relations"))


def _relation(*, schema: str, table: str, **others: Any) -> Relation:
    return Relation(name=Name(schema, table), **others)


def members(connection: Connection, oids: Iterable[int]) -> dict[int, tuple[Member, ...]]:
    """By table: the relations that its rows are in, itself among them."""
    found: defaultdict[int, list[Member]] = defaultdict(list)
    for root, member in fetch(connection, _member, _statement("members"), {"oids": list(oids)}):
        found[root].append(member)
    return {root: tuple(those) for root, those in found.items()}


def _member(*, root: int, oid: int, schema: str, table: str, kind: str) -> tuple[int, Member]:
    return root, Member(oid, Name(schema, table), kind)


def oid(connection: Connection, name: Name) -> int:
    """Of a relation of ours."""
    return only_value(connection.execute(_statement("oid"), {"schema": name.schema, "table": name.table}))


def blocks(connection: Connection, oids: Iterable[int]) -> dict[int, int]:
    """How many blocks each relation has now."""
    return dict(connection.execute(_statement("blocks"), {"oids": list(oids)}).fetchall())
