"""Makes again what a managed table has lost: somebody dropped its objects, and the files of its lake are still there.

docs/design/guards.md says what comes back, and what cannot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from frostline.catalog import archived_partitions, facts, generator, jobs, lost, made, seams, tables
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection
from frostline.catalog.lost import Lost
from frostline.catalog.made import Purpose
from frostline.errors import CorruptionError, UsageError
from frostline.model.names import Name, quoted
from frostline.model.registration import HeapFacts
from frostline.model.tables import Table
from frostline.relation import bound, foreign_server, heap, marks, names, objects, registration, renewal
from frostline.relation.definition import OVERLAY_COLUMNS, columns_of, comments, default_partition
from frostline.relation.objects import DatabaseObject, Kind, SequenceRight, template
from frostline.relation.views import from_lake, lake_key_equals
from frostline.relation.views import line as frost_line

_SCHEMAS = ("frostline_relation", "frostline_overlay", "frostline_lake")
"""Those that hold nothing but the objects of tables."""
LOSSES = {
    "heap": "its hot rows are lost, with its indexes, defaults, constraints, triggers, policies and grants",
    "DEFAULT partition": "its hot rows are lost",
    "overlay": "cold rows that were deleted, or moved to another key, since the last fold are back",
    "mark": "the overlay was emptied, or did not get them: cold rows that were deleted meanwhile are back",
    "marking trigger": "cold rows that were deleted meanwhile are back",
}
"""What cannot be made again, by what is gone."""


@dataclass(frozen=True)
class Adopted:
    """What `table adopt` did, or with `dry_run` would do."""

    table: Table
    lost: tuple[Lost, ...]
    """What was gone; nothing has changed if that is empty."""
    statements: tuple[str, ...] = ()


def adopt(connection: Connection, name: Name, *, accept_lost_changes: bool = False, dry_run: bool = False) -> Adopted:
    """Make what is gone of the table's objects, in one transaction. Harmless to repeat.

    Refuses while a job runs, and where rows are lost with an object unless `accept_lost_changes`. SHARE ROW EXCLUSIVE
    on partitions whose rows are marked anew, ACCESS EXCLUSIVE on the views, after a wait of at most 5 s for each.
    """
    bare = tables.without_columns(connection, name)
    if not bare.has_lake:
        raise UsageError(f"{bare.name} is in partition mode: nothing is made for it", hint="frostline table list")
    if not lost.read(connection, bare):
        return Adopted(tables.get(connection, bare.name), ())
    foreign_server.require(connection)
    with jobs.exclusive(connection, bare), registration.changing(connection, bare, bare.name, dry_run=dry_run):
        gone = lost.read(connection, bare)
        _refuse_renamed(connection, bare, gone)
        is_archived = seams.get(connection, bare).frost_line > bare.tier_kind.lowest
        if not accept_lost_changes:
            _refuse_losses(bare, gone, is_archived=is_archived)
        granted: list[SequenceRight] = []
        done = [_run(connection, statement) for statement in _statements(connection, bare, gone, granted)]
        table = tables.get(connection, bare.name)
        if is_archived:
            _restore_cold_half(connection, table, gone)
        renewal.record(connection, table, granted)
        generator.note_rights(connection, table.id)
        return Adopted(table, tuple(gone), tuple(done))


def _run(connection: Connection, statement: sql.Composed) -> str:
    connection.execute(statement)
    return statement.as_string(connection)


def _refuse_renamed(connection: Connection, table: Table, gone: Sequence[Lost]) -> None:
    """What only has another name must not be made a second time."""
    names_now = lost.renamed(connection, table)
    wanted = {"heap": ("table", table.heap), "relation": ("view", table.relation)}
    for loss in gone:
        if loss.what in names_now:
            kind, name = wanted[loss.what]
            now = names_now[loss.what]
            hint = f"give it its name back: alter {kind} {now} rename to {quoted(name.table)}"
            raise UsageError(f"the {loss.what} {name} is called {now} now", hint=hint)


def _refuse_losses(table: Table, gone: Sequence[Lost], *, is_archived: bool) -> None:
    """What holds rows, or would have noted their changes; before anything is archived, changes need no note."""
    for loss in gone:
        if loss.what in LOSSES and (is_archived or loss.what in {"heap", "DEFAULT partition"}):
            raise UsageError(
                f"the {loss}: {LOSSES[loss.what]}",
                hint=f"restore a backup of Postgres, or: frostline table adopt {table.name} --accept-lost-changes",
            )


def _statements(
    connection: Connection, bare: Table, those: Sequence[Lost], granted: list[SequenceRight]
) -> Iterator[sql.Composed]:
    """Each is run before the next is asked for: what is made depends on what is there. Notes what it grants."""
    gone = {loss.what for loss in those}
    for schema in _SCHEMAS:
        yield template("schema").format(schema=sql.Identifier(schema))
    if "heap" in gone:
        _refuse_without_columns(bare, gone)
        yield _heap(connection, bare)
    table = tables.get(connection, bare.name)
    heap_facts = _facts(connection, table)
    if not any(partition.is_default for partition in heap_facts.partitions):
        yield from default_partition(table, heap_facts)
        ours = table.name.default_partition(otherwise=heap_facts.default_name_taken)
        made.record(connection, table, ours, Purpose.DEFAULT)
        heap_facts = _facts(connection, table)
    yield from registration.domains(connection, table)
    for database_object in _missing(connection, table):
        yield from database_object.create
    yield from renewal.kept_plans(connection, table)
    if "relation" in gone:
        granted += registration.missing_rights(connection, heap_facts)
        yield from registration.rights(connection, table, heap_facts)
        yield from comments(table, heap_facts)


def _missing(connection: Connection, table: Table) -> list[DatabaseObject]:
    """What is made, each after what it needs; also what is there and can be put in its own place."""
    wanted = [described for described in objects.read(connection, table.id) if described.is_wanted]
    present = objects.present(connection, wanted)
    return [
        described
        for described in wanted
        if described.is_replaceable
        or described.addresses[0].kind is Kind.TRIGGER
        or described.addresses[0] not in present
    ]


def _facts(connection: Connection, table: Table) -> HeapFacts:
    ours = table.name.default_partition()
    is_taken = bool(facts.rows(connection, "type_name_exists", schema=ours.schema, name=ours.table)[0][0])
    return replace(facts.read(connection, table.heap, catalogs_only=True), default_name_taken=is_taken)


def _refuse_without_columns(table: Table, gone: set[str]) -> None:
    if "overlay" in gone:
        raise CorruptionError(
            f"the heap and the overlay of {table.name} are both gone, so its columns are not known",
            hint="restore a backup of Postgres; the rows in the lake are in files that any Iceberg engine reads",
        )


def _heap(connection: Connection, table: Table) -> sql.Composed:
    """Makes an empty heap of the overlay's columns and key."""
    oid = facts.oid(connection, Name("frostline_overlay", table.internal))
    columns = [column for column in facts.read_columns(connection, oid) if column.name not in OVERLAY_COLUMNS]
    ((key,),) = facts.rows(connection, "primary_key", oid=oid)
    return template("heap").format(
        heap=names.identifier(table.heap),
        columns=columns_of(columns),
        key=names.columns(None, key),
        tier_key=sql.Identifier(table.tier_key),
    )


def _restore_cold_half(connection: Connection, table: Table, those: Sequence[Lost]) -> None:
    """The lake can be asked again; the heap has the rows of the marks, and the marks those of the heap."""
    line, gone = bound.restore(connection, table), {loss.what for loss in those}
    if gone & {"heap", "DEFAULT partition"}:
        with marks.marking_disabled(connection, table), marks.user_triggers_disabled(connection):
            connection.execute(_heap_rows(table))
    if gone & {"overlay", "mark", "marking trigger"}:
        _mark_again(connection, table, line)


def _mark_again(connection: Connection, table: Table, line: int) -> None:
    """What the heap has below the frost line is newer than the lake's; what it lacks in a grace period was deleted."""
    below = {
        partition.name for partition in heap.partitions(connection, table, sizes=False) if partition.begins_below(line)
    }
    for name in sorted(below):
        heap.mark_all(connection, table, names.identifier(name))
    for archived in archived_partitions.uncleaned(connection, table):
        if archived.name in below:
            connection.execute(_deleted_marks(table, archived))


def _deleted_marks(table: Table, archived: ArchivedPartition) -> sql.Composed:
    marked = names.marked(table)
    return template("deleted_marks").format(
        overlay=names.overlay(table),
        lake=names.lake(table),
        partition=names.identifier(archived.name),
        table_id=sql.Literal(table.id),
        marked=names.columns(None, marked),
        lake_marked=names.COMMA.join(from_lake(table.column(name)) for name in marked),
        in_range=names.within(table, archived.lower, archived.upper, "c"),
        lake_is_heap=lake_key_equals(table, "h"),
    )


def _heap_rows(table: Table) -> sql.Composed:
    return template("heap_rows").format(
        heap=names.identifier(table.heap),
        overlay=names.overlay(table),
        written=names.columns(None, [column.name for column in table.columns if not column.generated]),
        tier_key=sql.Identifier(table.tier_key),
        line=frost_line(table),
    )
