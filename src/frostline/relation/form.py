"""Moves a relation between the two places that it can have: in its table's, under the table's name, or beside it."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
from psycopg import sql

from frostline.catalog import facts, jobs, leases, tables
from frostline.catalog.connect import Connection
from frostline.errors import CorruptionError, UnavailableError, UsageError
from frostline.model.names import Name
from frostline.model.registration import HeapFacts
from frostline.model.tables import Table
from frostline.relation import dependents, names, renewal
from frostline.relation.objects import template
from frostline.relation.refusal import refuse
from frostline.relation.registration import form_refusals, grants, limit_waiting


def change(connection: Connection, table: Table, relation: str) -> Table:
    """Give the relation this name: the table's own, or another one, beside it. Returns the table as it is then.

    One transaction. ACCESS EXCLUSIVE on the relation and then on the heap, the order in which readers take them, after
    a wait of at most 5 s for each. Refuses while a job runs.
    """
    wanted = None if relation == table.name.table else relation
    if not table.has_lake:
        raise UsageError(f"{table.name} is in partition mode and has no relation", hint="leave --relation out")
    if wanted == table.relation_name:
        return table
    with jobs.exclusive(connection, table):
        try:
            with connection.transaction():
                leases.require(connection, table)
                limit_waiting(connection)
                return _change(connection, table, wanted)
        except psycopg.errors.LockNotAvailable:
            hint = "end the transactions that use it, then try again"
            raise UnavailableError(f"{table.name} is busy", hint=hint) from None


def _change(connection: Connection, table: Table, wanted: str | None) -> Table:
    for one in (table.relation, table.heap):
        connection.execute(sql.SQL("lock table {} in access exclusive mode").format(names.identifier(one)))
    view = facts.relation(connection, table.relation)
    if view is None:
        raise CorruptionError(f"the view {table.relation} is gone", hint=f"frostline table remove {table.name} --thaw")
    found = facts.read(connection, table.heap, catalogs_only=True)
    _check(connection, table, found, wanted)
    after = tables.set_relation(connection, table, wanted)
    for statement in _statements(connection, table, after, (view.oid, found.oid)):
        connection.execute(statement)
    renewal.replace_objects(connection, after)
    return after


def _check(connection: Connection, table: Table, found: HeapFacts, wanted: str | None) -> None:
    """Refuse what registration would."""
    as_new = replace(found, name=table.name, heap_name_taken=_is_taken(connection, table.name.heap))
    refuse("move the relation of", table.name, form_refusals(connection, as_new, wanted))


def _is_taken(connection: Connection, name: Name) -> bool:
    return bool(facts.rows(connection, "name_exists", schema=name.schema, name=name.table)[0][0])


def _statements(connection: Connection, before: Table, after: Table, oids: tuple[int, int]) -> Iterator[sql.Composed]:
    """The view goes out of the way first. What reads the heap by its name reads the relation that takes it."""
    view, heap = oids
    readers = dependents.NONE
    if after.relation_name is None:
        readers = dependents.read(connection, heap)
        given = list(grants(connection, heap, names.identifier(after.relation)))
    else:
        given = list(grants(connection, view, names.identifier(after.heap)))
    aside = names.aside(before)
    yield _rename_view(before.relation, aside)
    if before.heap != after.heap:
        heap_name, own = names.identifier(before.heap), sql.Identifier(after.heap.table)
        yield template("rename_heap_back").format(heap=heap_name, table=own)
    yield _rename_view(aside, after.relation)
    yield from given
    yield from dependents.statements(readers)


def _rename_view(old: Name, new: Name) -> sql.Composed:
    return template("step_aside").format(relation=names.identifier(old), aside=sql.Identifier(new.table))
