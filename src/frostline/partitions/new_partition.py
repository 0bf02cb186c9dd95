"""Tables on their way to become partitions of a heap: made like it, named, and attached."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, leases, locks, made, tables
from frostline.catalog.connect import Connection, first_value
from frostline.catalog.locks import Lock
from frostline.catalog.made import Purpose
from frostline.catalog.patience import patiently
from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "new_partition")


def create(connection: Connection, table: Table, name: Name, bounds: tuple[int | None, int], purpose: Purpose) -> None:
    """Make an empty table like the heap. The catalog knows it until it is attached, and so it is found again.

    The caller holds the table's lease: ConflictError if it was lost.
    """
    heap = facts.relation(connection, table.heap)
    assert heap is not None
    statement = _statement("create").format(
        partition=names.identifier(name),
        heap=names.identifier(table.heap),
        tier_key=sql.Identifier(table.tier_key),
        in_range=names.within(table, *bounds),
        owner=sql.Identifier(heap.owner),
    )
    with connection.transaction():
        leases.require(connection, table)
        connection.execute(statement)
        made.record(connection, table, name, purpose)


def copy_replica_identity(connection: Connection, table: Table, name: Name) -> None:
    """As the heap has it: logical replication asks each partition."""
    heap_name = sql.Literal(names.identifier(table.heap).as_string(connection))
    row = connection.execute(_statement("replica_identity").format(partition=heap_name)).fetchone()
    identity = _REPLICA_IDENTITIES.get(row[0]) if row is not None else None
    if identity is not None:
        parts = {"partition": names.identifier(name), "identity": sql.SQL(identity)}
        connection.execute(_statement("set_replica_identity").format(**parts))


_REPLICA_IDENTITIES: dict[str, LiteralString] = {"f": "full", "n": "nothing"}


def attach(connection: Connection, table: Table, name: Name, lower: int | None, upper: int) -> None:
    """Make it a partition. Inside the caller's transaction, which has the locks already, or waits for them."""
    low, high = (
        sql.SQL("minvalue") if value is None else sql.Literal(to_text(table.tier_kind, value))
        for value in (lower, upper)
    )
    statement = _statement("attach").format(
        heap=names.identifier(table.heap), partition=names.identifier(name), lower=low, upper=high
    )
    connection.execute(statement)
    made.forget(connection, table, name)


def free_name(connection: Connection, wanted: Name) -> Name:
    """The name that is wanted, or one like it if that is taken."""
    name, number = wanted, 0
    while facts.is_taken(connection, name):
        number += 1
        suffix = f"_{number}"
        name = Name(wanted.schema, cut(wanted.table, MAX_BYTES - len(suffix)) + suffix)
    return name


def drop_leftovers(connection: Connection, table: Table, purpose: Purpose, *, patience_s: float = 0.0) -> None:
    """Drop the tables that were made for this and never attached; nobody ever read them.

    UnavailableError when somebody holds one all that time: the session of a task that failed a moment ago does so while
    it ends, and autovacuum while it looks at the rows. ConflictError unless this session has the table's lease: who has
    it now may be about to attach one of them, with rows.
    """
    for oid, name in made.leftovers(connection, table, purpose):
        patiently(
            connection, name, partial(_drop_leftover, connection, table, purpose, oid, name), patience_s=patience_s
        )


def _drop_leftover(connection: Connection, table: Table, purpose: Purpose, oid: int, name: Name) -> None:
    """Look again under the lock: it may have been attached since it was found, and then nobody may wait behind us."""
    leases.require(connection, table)
    target = names.identifier(name)
    with suppress(psycopg.errors.UndefinedTable), connection.transaction():
        locks.take(connection, Lock.ACCESS_EXCLUSIVE, name, nowait=True)
        parts = {"oid": sql.Literal(oid), "name": sql.Literal(target.as_string(connection))}
        if first_value(connection.execute(_statement("is_leftover").format(**parts))):
            connection.execute(sql.SQL("drop table {}").format(target))
    made.forget_gone(connection, table, purpose)


def default_partition(connection: Connection, table: Table) -> Name | None:
    """The DEFAULT partition of the heap, if there is one."""
    return facts.default_partition(connection, tables.heap_oid(connection, table))


@contextmanager
def user_triggers_disabled(connection: Connection, partition: Name) -> Generator[None]:
    """Where the caller has the partition to itself, by ACCESS EXCLUSIVE: no trigger or rule of the user fires there.

    It ends with the block, or with the transaction that an error in it rolls back.
    """
    target = names.identifier(partition)
    query = _statement("triggers").format(partition=sql.Literal(target.as_string(connection)))
    triggers: list[tuple[str, str, str]] = connection.execute(query).fetchall()
    for kind, name, _ in triggers:
        _set_trigger(connection, target, _KINDS[kind], name, "disable")
    yield
    for kind, name, state in triggers:
        _set_trigger(connection, target, _KINDS[kind], name, _ENABLE[state])


_KINDS: dict[str, LiteralString] = {"trigger": "trigger", "rule": "rule"}
_ENABLE: dict[str, LiteralString] = {"O": "enable", "A": "enable always", "R": "enable replica"}


def _set_trigger(
    connection: Connection, partition: sql.Identifier, kind: LiteralString, name: str, state: LiteralString
) -> None:
    parts = {"state": sql.SQL(state), "kind": sql.SQL(kind), "name": sql.Identifier(name)}
    connection.execute(_statement("set_trigger").format(partition=partition, **parts))
