"""Lets a relation follow columns that were added to its heap: the views, the overlay and the lake's tables get them.

No file of the lake is written or read. Where a file lacks the column, its missing value is read: what Postgres shows in
old rows, NULL for a column without a default. docs/design/added-columns.md says why it is right.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import facts, jobs, lake_files, leases, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError
from frostline.model import registration as rules
from frostline.model.names import Name
from frostline.model.registration import HeapColumn, HeapFacts, Refusal
from frostline.model.tables import Column, Table
from frostline.model.types import encoding
from frostline.relation import columns, lakecolumns, missing, names, objects, registration, renewal
from frostline.relation.definition import columns_of, comments
from frostline.relation.objects import Kind, template

_statement = sqlfiles.statements(__name__, "columns")
_log = logging.getLogger(__name__)


def follow_all(connection: Connection) -> list[Name]:
    """Follow what can be followed of all tables, and return whose columns those were. The rest is for `status`."""
    return [name for name in tables.names(connection) if tried(connection, name)]


def tried(connection: Connection, name: Name) -> bool:
    """Follow the table's columns if they can be followed, and say whether there were any. Else it goes into the log."""
    try:
        table = tables.get(connection, name)
        if not table.has_lake or columns.difference(connection, table) is None:
            return False
        return bool(follow(connection, table))
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="columns", table=str(name), warning=first_line(error)))
        return False


def follow(connection: Connection, table: Table) -> tuple[str, ...]:
    """Give the relation the columns that the heap has more; returns their names. UsageError for any other change.

    One transaction, under the table's lease: no job runs. ACCESS EXCLUSIVE on the relation, the overlay and the lake's
    tables, and SHARE ROW EXCLUSIVE on the heap, tried for a moment at a time.
    """
    with jobs.exclusive(connection, table):
        added = patiently(connection, table.name, lambda: _followed(connection, table))
    if added:
        _log.info("%s", logs.fields(stage="columns", table=str(table.name), added=", ".join(added)))
    return added


def _followed(connection: Connection, table: Table) -> tuple[str, ...]:
    renewal.let_guard_pass(connection)
    leases.require(connection, table)
    if not _added(connection, table):
        return ()  # nobody is kept waiting for nothing
    _keep_statements_out(connection, table)
    before = tables.get(connection, table.name)
    heap = facts.read(connection, before.heap, catalogs_only=True)
    added = _added(connection, before)
    if not added:
        return ()
    registration.refuse("follow the columns of", table.name, list(_refusals(connection, before, heap, added)))
    lake_files.keep_fields(connection, before)
    # All of them: after a restored dump, the numbers of the others are not those that the heap has now.
    tables.replace_columns(connection, before, [*before.columns, *_numbered(connection, before, added)])
    after = tables.get(connection, table.name)
    for statement in _statements(connection, after, heap, added):
        connection.execute(statement)
    renewal.replace_objects(connection, after)
    return tuple(column.name for column in added)


def _keep_statements_out(connection: Connection, table: Table) -> None:
    """No statement is under way whose trigger function knows the old columns only: it would write NULL into new ones.

    In the order in which statements take them: the relation, then the heap with its partitions.
    """
    for view in (names.identifier(table.relation), names.inner(table)):
        connection.execute(template("keep_statements_out").format(view=view))
    lock = sql.SQL("lock table {} in share row exclusive mode")
    connection.execute(lock.format(names.identifier(table.heap)))


def _added(connection: Connection, table: Table) -> list[HeapColumn]:
    """The columns at the end that the table has more; UsageError when anything else is not as it was."""
    if not columns.only_added(connection, table):
        columns.require(connection, table)
    known = len(tables.by_id(connection, table.id).columns)
    return list(facts.read_columns(connection, tables.heap_oid(connection, table))[known:])


def _numbered(connection: Connection, table: Table, added: Sequence[HeapColumn]) -> Iterator[Column]:
    for field_id, column in enumerate(added, start=tables.last_field_id(connection, table) + 1):
        carried = tables.column(column, field_id, encoding(column.pg_type, column.collation), is_later=True)
        yield replace(carried, missing=missing.of(connection, table, column))


def _refusals(connection: Connection, table: Table, heap: HeapFacts, added: Sequence[HeapColumn]) -> Iterator[Refusal]:
    yield from rules.column_refusals(heap)
    again = f"frostline table sync {table.name}"
    if heap.row_security:
        off, on = (f"frostline table row-security {table.name} {state}" for state in ("off", "on"))
        yield Refusal("it has row security", f"{off}, then {again}, then {on}")
    if not lake_files.totals(connection, table)[1]:
        return
    for column in added:
        yield from missing.refusals(connection, table, heap, column)


def _statements(
    connection: Connection, table: Table, heap: HeapFacts, added: Sequence[HeapColumn]
) -> Iterator[sql.Composed]:
    """What cannot be made by renewal, which puts each object in the place of another, or needs that it is there."""
    fresh = [table.column(column.name) for column in added]
    yield from registration.domains(connection, table)
    for heap_column, column in zip(added, fresh, strict=True):
        yield from _widen_overlay(table, heap_column, column)
        yield template("widen_lake").format(lake=names.lake(table), column=lakecolumns.definition(column))
    yield _fill_images(table, fresh)
    by_name = {listed.addresses[0].name: listed for listed in objects.read(connection, table.id)}
    doors = [listed for name, listed in by_name.items() if name.startswith('"frostline_write".')]
    yield from (door.drop for door in doors if door.addresses[0].kind is Kind.VIEW and door.drop is not None)
    yield from by_name[names.inner(table).as_string()].create
    _, *defaults = by_name[names.identifier(table.relation).as_string()].create
    yield template("widen_view").format(
        relation=names.identifier(table.relation),
        columns=names.columns(None, [column.name for column in table.columns]),
        inner=names.inner(table),
        alias=sql.Identifier(table.name.table),
    )
    yield from defaults
    yield from comments(table, replace(heap, columns=tuple(added), comment=None))


def _widen_overlay(table: Table, heap_column: HeapColumn, column: Column) -> Iterator[sql.Composed]:
    """Images that are there have the missing value, also for readers whose snapshot is older than `fill_images`."""
    overlay, definition = names.overlay(table), columns_of([heap_column])
    if column.missing is not None:
        definition += sql.SQL(" default {}").format(sql.Literal(column.missing))
    yield template("widen_overlay").format(overlay=overlay, column=definition)
    if column.missing is not None:
        yield _statement("forget_default").format(overlay=overlay, column=sql.Identifier(column.name))


def _fill_images(table: Table, fresh: Sequence[Column]) -> sql.Composed:
    named = [sql.Identifier(column.name) for column in fresh]
    return template("fill_images").format(
        overlay=names.overlay(table),
        heap=names.identifier(table.heap),
        assignments=names.COMMA.join(sql.SQL("{0} = h.{0}").format(name) for name in named),
        heap_is_overlay=names.equal("h", "o", table.key),
        has_value=sql.SQL("({})").format(sql.SQL(" or ").join(sql.SQL("h.{} is not null").format(n) for n in named)),
    )
