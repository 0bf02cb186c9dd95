"""Reads what Postgres' catalogs say about the user's tables."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import trust
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.errors import UsageError
from frostline.model import snapshot
from frostline.model.names import OWN_SCHEMAS, Name
from frostline.model.registration import HeapColumn, HeapFacts, HeapPartition, KeyType
from frostline.model.types import Collation, PgType

_statement = sqlfiles.statements(__name__, "queries/inspect")


@dataclass(frozen=True)
class Relation:
    """A row of `pg_class`, with what is said of a partitioned table."""

    oid: int
    relkind: str
    persistence: str
    owner: str
    strategy: str | None
    key_parts: int
    tier_attnum: int | None
    row_security: bool
    is_partition: bool
    is_typed: bool


@dataclass(frozen=True)
class Member:
    """A relation in which rows of a table are: itself, a partition, or a child by inheritance."""

    oid: int
    name: Name
    kind: str
    """`pg_class.relkind`."""


@dataclass(frozen=True)
class View:
    """A view or materialized view, with the definition that Postgres prints while what it reads has its name."""

    oid: int
    name: Name
    kind: str
    """`pg_class.relkind`."""
    definition: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Grant:
    """A privilege on a relation, or on one of its columns. A grantee of None is PUBLIC."""

    column: str | None
    grantee: str | None
    privilege: str
    is_grantable: bool


def rows(connection: Connection, query: str, **values: Any) -> list[tuple[Any, ...]]:
    """Run one named query of `sql/queries/inspect.sql`."""
    return connection.execute(_statement(query), values).fetchall()


def relation(connection: Connection, name: Name) -> Relation | None:
    """What has that name; None when nothing has. Reads the system catalogs only."""
    values = {"schema": name.schema, "table": name.table}
    return next(iter(fetch(connection, Relation, _statement("relation"), values)), None)


def read(connection: Connection, name: Name, *, catalogs_only: bool = False) -> HeapFacts:
    """All facts about the table of that name. Takes no lock beyond ACCESS SHARE on its partitions.

    With `catalogs_only` it takes none at all: without the partitions' sizes, and without a look into DEFAULT.
    """
    heap = relation(connection, name)
    if heap is None:
        hint = "frostline table list shows the managed ones; check the schema"
        raise UsageError(f"table {name} does not exist", hint=hint)
    oid = heap.oid
    partitions = read_partitions(connection, oid, sizes=not catalogs_only)
    owner_is_ours = rows(connection, "may_use", owner=heap.owner)[0][0]
    dangers = tuple(trust.refusals(connection, oid)) if owner_is_ours else ()
    return HeapFacts(
        name=name,
        oid=oid,
        relkind=heap.relkind,
        persistence=heap.persistence,
        owner=heap.owner,
        owner_is_ours=owner_is_ours,
        strategy=heap.strategy,
        key_parts=heap.key_parts,
        tier_attnum=heap.tier_attnum,
        is_partition=heap.is_partition,
        is_typed=heap.is_typed,
        row_security=heap.row_security,
        columns=read_columns(connection, oid),
        primary_key=primary_key(connection, oid),
        partitions=partitions,
        default_has_rows=not catalogs_only and not dangers and _default_has_rows(connection, partitions),
        inbound_foreign_keys=_texts(connection, "inbound_foreign_keys", oid),
        materialized_views=materialized_views(connection, oid),
        row_type_users=_texts(connection, "row_type_users", oid),
        heap_name_taken=exists(connection, name.heap),
        comment=rows(connection, "comment", oid=oid)[0][0],
        default_name_taken=is_taken(connection, name.default_partition()),
        dangers=dangers,
        loud=tuple(trust.loud(connection, oid)) if owner_is_ours else (),
        key_types=tuple(fetch(connection, KeyType, _statement("key_types"), {"oid": oid})),
        checked_views=_texts(connection, "checked_views", oid),
        grouping_views=_texts(connection, "grouping_views", oid),
        other_policies=_texts(connection, "other_policies", oid),
    )


def primary_key(connection: Connection, oid: int) -> tuple[str, ...]:
    """The columns of a table's primary key, in its order; none when it has no key. Takes no lock."""
    ((key,),) = rows(connection, "primary_key", oid=oid)
    return tuple(key or ())


def read_columns(connection: Connection, oid: int, *, defaults: bool = True) -> tuple[HeapColumn, ...]:
    """The columns in their order, dropped ones left out. Without `defaults`, which take a lock, it takes none."""
    return tuple(fetch(connection, _column, _statement("columns"), {"oid": oid, "defaults": defaults}))


def _column(
    *,
    formatted: str,
    type_name: str,
    builtin: bool,
    precision: int | None,
    scale: int | None,
    collation: str,
    **others: Any,
) -> HeapColumn:
    pg_type = PgType(formatted, type_name, builtin, precision, scale)
    return HeapColumn(pg_type=pg_type, collation=Collation(collation), **others)


def read_partitions(connection: Connection, oid: int, *, sizes: bool = True) -> tuple[HeapPartition, ...]:
    """The partitions of a partitioned table, DEFAULT included. Without `sizes` it takes no lock on any of them."""
    return tuple(fetch(connection, _partition, _statement("partitions"), {"oid": oid, "sizes": sizes}))


def _partition(*, schema: str, table: str, **others: Any) -> HeapPartition:
    return HeapPartition(name=Name(schema, table), **others)


def _default_has_rows(connection: Connection, partitions: tuple[HeapPartition, ...]) -> bool:
    """Whether there are rows that no other partition takes; False if this role may not look: that is refused anyway."""
    query = sql.SQL("select exists (select from only {})")
    for partition in partitions:
        if partition.is_default and partition.relkind == "r" and rows(connection, "may_read", oid=partition.oid)[0][0]:
            target = sql.Identifier(partition.name.schema, partition.name.table)
            return only_value(connection.execute(query.format(target)))
    return False


def dependent_views(connection: Connection, oid: int) -> list[View]:
    """The views and materialized views whose own query names the relation."""
    return fetch(connection, _view, _statement("dependent_views"), {"oid": oid, "own_schemas": list(OWN_SCHEMAS)})


def _view(*, schema: str, view: str, options: list[str] | None, **others: Any) -> View:
    return View(name=Name(schema, view), options=tuple(options or ()), **others)


def materialized_views(connection: Connection, oid: int) -> tuple[str, ...]:
    """The materialized views that read the relation directly; they cannot be replaced in place."""
    return tuple(str(view.name) for view in dependent_views(connection, oid) if view.kind == "m")


def dependent_functions(connection: Connection, oid: int) -> tuple[str, ...]:
    """The definitions of the functions whose body holds the relation by its oid."""
    listed = rows(connection, "dependent_functions", oid=oid, own_schemas=list(OWN_SCHEMAS))
    return tuple(definition for _, definition in listed)


def grants(connection: Connection, oid: int) -> list[Grant]:
    """What was granted on the relation, then what was granted on its columns."""
    on_table = fetch(connection, Grant, _statement("table_grants"), {"oid": oid})
    return on_table + fetch(connection, Grant, _statement("column_grants"), {"oid": oid})


def exists(connection: Connection, name: Name) -> bool:
    """Whether a table, a view, an index or the like has that name."""
    return only_value(connection.execute(_statement("name_exists"), {"schema": name.schema, "name": name.table}))


def is_taken(connection: Connection, name: Name) -> bool:
    """Whether no new table can have that name: it needs it among types too."""
    return only_value(connection.execute(_statement("type_name_exists"), {"schema": name.schema, "name": name.table}))


def default_partition(connection: Connection, oid: int) -> Name | None:
    """The DEFAULT partition of a partitioned table, if it has one."""
    return next((Name(schema, table) for schema, table in rows(connection, "default_partition", oid=oid)), None)


def _texts(connection: Connection, query: str, oid: int) -> tuple[str, ...]:
    return tuple(text for (text,) in rows(connection, query, oid=oid))


def relations(connection: Connection) -> list[snapshot.Relation]:
    """All that has the name of a table."""
    return fetch(connection, _relation, _statement("relations"), {"own_schemas": list(OWN_SCHEMAS)})


def _relation(*, schema: str, table: str, **others: Any) -> snapshot.Relation:
    return snapshot.Relation(name=Name(schema, table), **others)


def members(connection: Connection, oids: Iterable[int]) -> dict[int, tuple[Member, ...]]:
    """By table: the relations that its rows are in, itself among them."""
    by_root: defaultdict[int, list[Member]] = defaultdict(list)
    for root, member in fetch(connection, _member, _statement("members"), {"oids": list(oids)}):
        by_root[root].append(member)
    return {root: tuple(those) for root, those in by_root.items()}


def _member(*, root: int, oid: int, schema: str, table: str, kind: str) -> tuple[int, Member]:
    return root, Member(oid, Name(schema, table), kind)


def oid(connection: Connection, name: Name) -> int:
    """Of a relation of ours."""
    return only_value(connection.execute(_statement("oid"), {"schema": name.schema, "table": name.table}))


def blocks(connection: Connection, oids: Iterable[int]) -> dict[int, int]:
    """How many blocks each relation has now."""
    return dict(connection.execute(_statement("blocks"), {"oids": list(oids)}).fetchall())
