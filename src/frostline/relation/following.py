"""Lets a relation follow its heap: new columns, names and defaults, in all that lists the table's columns.

No file of the lake is written or read. Where a file lacks the column, its missing value is read: what Postgres shows in
old rows, NULL for a column without a default. docs/design/added-columns.md says why it is right.
"""

import logging
from collections.abc import Iterator, Sequence

import psycopg

from frostline import logs, sqlfiles
from frostline.catalog import facts, generator, jobs, lake_files, leases, locks, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.locks import Lock
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError
from frostline.model import registration as rules
from frostline.model.names import Name
from frostline.model.registration import HeapColumn, HeapFacts, Refusal
from frostline.model.tables import Table
from frostline.relation import columns, foreign_keys, missing, names, registration, renewal
from frostline.relation.objects import template

_statement = sqlfiles.statements(__name__, "columns")
_log = logging.getLogger(__name__)


def follow_all(connection: Connection) -> list[Name]:
    """Follow what can be followed of all tables, and return whose columns those were. The rest is for `status`."""
    return [name for name in tables.names(connection) if tried(connection, name)]


def tried(connection: Connection, name: Name) -> bool:
    """Follow the table's columns if they can be followed, and say whether there were any. Else it goes into the log."""
    try:
        table = tables.get(connection, name)
        if not table.has_lake:
            return False
        if columns.difference(connection, table) is None and not _stale(connection, table):
            return False
        return bool(follow(connection, table))
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="columns", table=str(name), warning=first_line(error)))
        return False


def follow(connection: Connection, table: Table) -> tuple[str, ...]:
    """Give the relation the heap's new columns, names and defaults; says which. UsageError for any other change.

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
    stale = _stale(connection, table)
    if columns.difference(connection, table) is None:  # nobody is kept waiting for nothing
        generator.follow_descriptions(connection, table.id)
        return tuple(stale)
    if columns.has_lost(connection, table):
        columns.require(connection, table)
    _keep_statements_out(connection, table)
    renamed = generator.follow_renames(connection, table.id)
    before = tables.get(connection, table.name)
    added = _added(connection, before)
    if added:
        _follow_added(connection, before, added)
    plain = [f"{name} is not computed any more" for name in generator.note_generations(connection, table.id)]
    if renamed or added or plain:
        renewal.replace_objects(connection, tables.get(connection, table.name))
        generator.follow_descriptions(connection, table.id)
    return (*renamed, *(column.name for column in added), *plain)


def _stale(connection: Connection, table: Table) -> list[str]:
    stale = [f"{name} has another default" for name in generator.stale_defaults(connection, table.id)]
    if generator.is_stale(connection, table.id):
        stale.append("owner or rights")
    if table.name in foreign_keys.strayed(connection):
        stale.append("foreign keys")
    return stale


def _follow_added(connection: Connection, before: Table, added: Sequence[HeapColumn]) -> None:
    heap = facts.read(connection, before.heap, catalogs_only=True)
    registration.refuse("follow the columns of", before.name, list(_refusals(connection, before, heap, added)))
    older = {column.name: missing.of(connection, before, column) for column in added}
    generator.add_columns(connection, before.id, older)
    generator.widen_relation(connection, before.id)


def _keep_statements_out(connection: Connection, table: Table) -> None:
    """No statement is under way whose trigger function knows the old columns only: it would write NULL into new ones.

    In the order in which statements take them: the relation, then the heap with its partitions.
    """
    for view in (names.identifier(table.relation), names.inner(table)):
        connection.execute(template("keep_statements_out").format(view=view))
    locks.take(connection, Lock.SHARE_ROW_EXCLUSIVE, table.heap)


def _added(connection: Connection, table: Table) -> list[HeapColumn]:
    """The columns at the end that the table has more; UsageError when anything else is not as it was."""
    if not columns.only_added(connection, table):
        columns.require(connection, table)
    known = len(tables.by_id(connection, table.id).columns)
    return list(facts.read_columns(connection, tables.heap_oid(connection, table))[known:])


def _refusals(connection: Connection, table: Table, heap: HeapFacts, added: Sequence[HeapColumn]) -> Iterator[Refusal]:
    yield from rules.column_refusals(heap)
    if not lake_files.totals(connection, table)[1]:
        return
    for column in added:
        yield from missing.refusals(connection, table, heap, column)
