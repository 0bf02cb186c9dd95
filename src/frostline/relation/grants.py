"""Gives a role what an application needs on managed tables: the relation itself, and nothing behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, tables
from frostline.catalog.connect import Connection
from frostline.errors import CorruptionError, UsageError
from frostline.model.names import quoted
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "grants")


@dataclass(frozen=True)
class Granted:
    """What one table's grant did, or with `dry_run` would do."""

    table: Table
    statements: tuple[str, ...]
    rights_on_heap: tuple[str, ...]
    """What the role may do with the heap itself. Nothing of it comes from here."""


def grant(connection: Connection, role: str, chosen: Sequence[Table], *, dry_run: bool = False) -> list[Granted]:
    """Let the role select, insert, update and delete through the relations. All tables or none; harmless to repeat."""
    if not _rows(connection, "role", role=role):
        raise UsageError(f"role {quoted(role)} does not exist", hint=f"create role {quoted(role)} login")
    with connection.transaction(force_rollback=dry_run):
        return [_grant(connection, role, table) for table in chosen]


def _grant(connection: Connection, role: str, table: Table) -> Granted:
    done: list[str] = []
    try:
        for statement in _statements(connection, role, table):
            connection.execute(statement)
            done.append(statement.as_string(connection))
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(
            f"cannot grant {table.name} to {quoted(role)}: {error.diag.message_primary}",
            hint="run it as the role that ran frostline init, or let the owner grant it",
        ) from None
    heap = tables.heap_oid(connection, table)
    direct = _rows(connection, "rights_on_heap", role=role, heap=heap)
    return Granted(table, tuple(done), tuple(privilege.lower() for (privilege,) in direct))


def _statements(connection: Connection, role: str, table: Table) -> Iterator[sql.Composed]:
    relation = facts.relation(connection, table.relation)
    if relation is None:
        raise CorruptionError(f"the view {table.relation} is gone", hint=f"frostline table adopt {table.name}")
    oid = relation.oid
    grantee = sql.Identifier(role)
    if _rows(connection, "lacks_schema", role=role, schema=table.name.schema)[0][0]:
        yield _statement("grant_schema").format(schema=sql.Identifier(table.name.schema), role=grantee)
    privileges = _rows(connection, "missing_privileges", role=role, oid=oid)
    missing = [names.trusted(privilege.lower()) for (privilege,) in privileges]
    if missing:
        yield _statement("grant_relation").format(
            privileges=sql.SQL(", ").join(missing), relation=names.identifier(table.relation), role=grantee
        )
    for (sequence,) in _rows(connection, "missing_sequences", role=role, oid=oid):
        yield _statement("grant_sequence").format(sequence=names.trusted(sequence), role=grantee)


def _rows(connection: Connection, name: str, **values: object) -> list[tuple[Any, ...]]:
    return connection.execute(_statement(name), values).fetchall()
