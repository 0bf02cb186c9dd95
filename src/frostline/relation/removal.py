"""Gives a managed table back as the plain table it was, in one transaction."""

from collections.abc import Iterator

from psycopg import sql

from frostline.catalog import facts, generator, jobs, lake_files, left_folders, made, pointers, tables, warehouses
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.lake import foreign, paths, publish
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.partitions import partition_mode, premake
from frostline.relation import dependents, heap, names, objects, refill
from frostline.relation.objects import template
from frostline.relation.registration import changing, grantee, grants, revocations


def remove(connection: Connection, name: Name, *, keep_lake: bool = False, dry_run: bool = False) -> tuple[str, ...]:
    """Put the heap back under its own name, if it has another, and forget the table; returns the statements.

    Refuses while a job runs, and while rows are only reachable through the relation, unless `keep_lake` says to leave
    them behind in the lake. ACCESS EXCLUSIVE on the view and then on the heap, the order in which readers take them,
    and on the tables that its foreign keys reference, after a wait of at most 5 s for each.
    """
    table = tables.get(connection, name)
    if not table.has_lake:
        return partition_mode.remove(connection, table, dry_run=dry_run)
    with jobs.exclusive(connection, table):
        if keep_lake:
            foreign.refuse(connection, table)  # the pointer is all that will lead to the rows
        else:
            _refuse_cold_rows(connection, table)
        with changing(connection, table, name, dry_run=dry_run):
            refill.drop_leftovers(connection, table)
            premake.clean_up(connection, table)
            done = [_run(connection, statement) for statement in _statements(connection, table)]
            if not keep_lake and not pointers.standing(connection, table).is_foreign:
                publish.leave_none(connection, table)  # it leads to no row
                _leave_folder(connection, table)
            tables.delete(connection, table)
            return tuple(done)


def _leave_folder(connection: Connection, table: Table) -> None:
    """Nobody needs it any more: `pipeline.leaving` deletes it when nobody can read it either."""
    claimed = warehouses.find(connection)
    if claimed is not None:
        left_folders.leave(connection, table, paths.table_location(claimed.location, table))


def _run(connection: Connection, statement: sql.Composed) -> str:
    connection.execute(statement)
    return statement.as_string(connection)


def _refuse_cold_rows(connection: Connection, table: Table) -> None:
    rows = sum(file.fingerprint.rows for file in lake_files.recorded(connection, table))
    if rows:
        raise UsageError(
            f"{table.name} has {rows} rows in the lake, and the plain table would not show them",
            hint=f"to bring them back: frostline table remove {table.name} --thaw; to leave them there: --keep-lake",
        )


def _refuse_materialized_views(connection: Connection, table: Table, oid: int) -> None:
    for view in facts.materialized_views(connection, oid):
        raise UsageError(
            f"materialized view {view} reads {table.relation}", hint="drop it, remove the table, and create it again"
        )


def _statements(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """Whatever is still there of the relation goes: somebody may have dropped the view by hand."""
    view = facts.relation(connection, table.relation)
    heap_facts = facts.read(connection, table.heap, catalogs_only=True)
    ours = objects.read(connection, table.id)
    back = [objects.rename_table(table.heap, table.name)] if table.relation_name is None else []
    given: list[sql.Composed] = []
    if view is not None:
        _refuse_materialized_views(connection, table, view.oid)
        before = dependents.read(connection, view.oid)
        if table.relation_name is None:
            name = names.identifier(table.name)
            # The rights on the name are those of the relation: what was revoked there does not come back.
            given = [
                *revocations(connection, heap_facts.oid, view.oid, name),
                *grants(connection, view.oid, name),
            ]
        else:
            _refuse_dependents(table, before)
        yield objects.rename_view(table.relation, names.aside(table))
        yield from back
        yield from dependents.statements(before)
    else:
        yield from back
    for database_object in reversed(ours):
        if database_object.drop is not None:
            yield database_object.drop
    yield from given
    yield from _drop_our_default(connection, table, heap_facts.oid)
    yield from _drop_unused_domains(connection)
    yield from _revoke(connection, table)


def _refuse_dependents(table: Table, readers: dependents.Dependents) -> None:
    """Of a relation beside its table nothing takes the place, so what reads it cannot stay."""
    for view in readers.views:
        hint = f"drop it, or let it read {table.name}"
        raise UsageError(f"view {view.name} reads {table.relation}", hint=hint)
    if readers.functions:
        first = readers.functions[0].splitlines()[0].strip()
        raise UsageError(f"a function reads {table.relation}: {first}", hint=f"drop it, or let it read {table.name}")


def _drop_our_default(connection: Connection, table: Table, oid: int) -> Iterator[sql.Composed]:
    default = facts.default_partition(connection, oid)
    if default and made.is_default(connection, table, default) and not heap.has_rows(connection, default):
        yield sql.SQL("drop table {}").format(names.identifier(default))


def _drop_unused_domains(connection: Connection) -> Iterator[sql.Composed]:
    for (domain,) in facts.rows(connection, "unused_domains"):
        yield template("drop_domain").format(domain=sql.Identifier(domain))


def _revoke(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """What registration gave; not what somebody had before, or has taken back."""
    for right in objects.recorded_rights(generator.object_digests(connection, table.id)):
        if (right.role,) in facts.rows(connection, "sequence_users", sequence=right.sequence):
            parts = {"sequence": names.trusted(right.sequence), "grantee": grantee(right.role)}
            yield template("revoke_sequence").format(**parts)
