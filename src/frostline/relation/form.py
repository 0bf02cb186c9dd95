"""Moves a relation between the two places that it can have: in its table's, under the table's name, or beside it."""

from collections.abc import Iterator
from dataclasses import replace

from psycopg import sql

from frostline.catalog import facts, generator, jobs, locks, tables
from frostline.catalog.connect import Connection
from frostline.catalog.locks import Lock
from frostline.errors import CorruptionError, UsageError
from frostline.model.tables import Table
from frostline.relation import dependents, names, objects, renewal
from frostline.relation.registration import changing, form_refusals, grants, refuse


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
    with jobs.exclusive(connection, table), changing(connection, table, table.name):
        return _change(connection, table, wanted)


def _change(connection: Connection, table: Table, wanted: str | None) -> Table:
    for name in (table.relation, table.heap):
        locks.take(connection, Lock.ACCESS_EXCLUSIVE, name)
    view = facts.relation(connection, table.relation)
    if view is None:
        raise CorruptionError(f"the view {table.relation} is gone", hint=f"frostline table adopt {table.name}")
    heap = facts.read(connection, table.heap, catalogs_only=True)
    # Refuse what registration would.
    as_new = replace(heap, name=table.name, heap_name_taken=facts.exists(connection, table.name.heap))
    refuse("move the relation of", table.name, form_refusals(connection, as_new, wanted))
    after = tables.set_relation(connection, table, wanted)
    for statement in _statements(connection, table, after, (view.oid, heap.oid)):
        connection.execute(statement)
    renewal.replace_objects(connection, after)
    generator.note_rights(connection, after.id)
    return after


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
    yield objects.rename_view(before.relation, aside)
    if before.heap != after.heap:
        yield objects.rename_table(before.heap, after.heap)
    yield objects.rename_view(aside, after.relation)
    yield from given
    yield from dependents.statements(readers)
