"""Tables that become heap partitions again: made like the heap, caught up with the overlay, and attached.

docs/design/thaw.md has the steps and why they are safe.
"""

import re
from collections.abc import Iterator
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, locks, made, tables
from frostline.catalog.connect import Connection, first_line, only_value
from frostline.catalog.locks import Lock
from frostline.catalog.made import Purpose
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import CorruptionError, UsageError
from frostline.model.names import MAX_BYTES, Name, cut, quoted
from frostline.model.tables import Table
from frostline.model.thaw import ColdRange
from frostline.partitions import new_partition
from frostline.relation import columns, heap, marks, names

_statement = sqlfiles.statements(__name__, "refill")

_JOB = re.compile(r"_thaw_\d+_\d+")


def create(connection: Connection, table: Table, cold_range: ColdRange, job: str) -> Name:
    """Make an empty table like the heap for the range, next to the heap, and return its name.

    The name has the job in it: a paused thaw that wakes up when another has taken over finds nothing to write to.
    """
    suffix = f"_thaw_{job}"
    name = Name(table.name.schema, cut(_wanted_name(table, cold_range).table, MAX_BYTES - len(suffix)) + suffix)
    new_partition.create(connection, table, name, (_lower(table, cold_range), cold_range.upper), Purpose.THAW)
    return name


def _wanted_name(table: Table, cold_range: ColdRange) -> Name:
    return cold_range.name or Name(table.name.schema, cut(table.name.table, MAX_BYTES - 7) + "_thawed")


def drop_leftovers(connection: Connection, table: Table, *, patience_s: float = 0.0) -> None:
    """Drop the tables that a thaw which died has left; nobody ever read them. UnavailableError if one is held."""
    new_partition.drop_leftovers(connection, table, Purpose.THAW, patience_s=patience_s)


def drop(connection: Connection, table: Table, name: Name) -> None:
    """Drop a refill table."""
    with connection.transaction():
        connection.execute(sql.SQL("drop table {}").format(names.identifier(name)))
        made.forget(connection, table, name)


def analyze(connection: Connection, name: Name) -> None:
    """Give the planner statistics before anybody plans with the table."""
    connection.execute(sql.SQL("analyze {}").format(names.identifier(name)))


def begin_notes(connection: Connection, table: Table) -> None:
    """Start with no mark applied to any refill table of this session."""
    key = names.columns(None, table.key)
    connection.execute(_statement("forget"))
    connection.execute(_statement("note").format(key=key, overlay=names.overlay(table)))
    connection.execute(_statement("index_note").format(key=key))


def catch_up(connection: Connection, table: Table, cold_range: ColdRange, refill: Name) -> None:
    """Bring the marks of the range that are new or have changed since the last time into the refill table."""
    parts = _parts(table, cold_range, refill)
    with connection.transaction():
        connection.execute(_statement("fresh").format(**parts))
        connection.execute(_statement("analyze_fresh"))
        connection.execute(_statement("take_out").format(**parts))
        connection.execute(_statement("put_in").format(**parts))
        connection.execute(_statement("remember"))
        connection.execute(_statement("done_with_fresh"))


def attach(connection: Connection, table: Table, cold_range: ColdRange, refill: Name) -> Name:
    """Make the refill table a partition of the heap that marks its changes; returns the name it has then.

    Inside the caller's transaction. ACCESS EXCLUSIVE on the DEFAULT partition, and on the whole heap if there is none
    or an emptied partition of the range is still there; SHARE on the overlay. Each is tried for a moment:
    LockNotAvailable. UsageError when a column is called otherwise than the relation has it.
    """
    default = new_partition.default_partition(connection, table)
    _lock(connection, table, cold_range, default)
    catch_up(connection, table, cold_range, refill)
    with marks.marking_disabled(connection, table):
        for partition in filter(None, (default, cold_range.partition)):
            with new_partition.user_triggers_disabled(connection, partition):
                _keep_added(connection, table, cold_range, refill, partition)
                _take_rows_from(connection, table, cold_range, partition)
    if cold_range.partition is not None:
        _drop_partition(connection, cold_range.partition)
    made.forget(connection, table, refill)
    name = _rename(connection, refill, _wanted_name(table, cold_range))
    heap.mark_changes(connection, table, names.identifier(name))
    new_partition.attach(connection, table, name, _lower(table, cold_range), cold_range.upper)
    return name


def _lock(connection: Connection, table: Table, cold_range: ColdRange, default: Name | None) -> None:
    """In the order in which writers take them: heap, partition, overlay. None is raised later."""
    set_lock_timeout(connection)
    # A writer that has looked for its row and not yet marked it holds DEFAULT. Without one, it holds only the heap.
    is_shared = cold_range.partition is None and default is not None
    mode = Lock.SHARE_UPDATE_EXCLUSIVE if is_shared else Lock.ACCESS_EXCLUSIVE
    locks.take_only(connection, mode, table.heap)
    for partition in filter(None, (default, cold_range.partition)):
        locks.take_only(connection, Lock.ACCESS_EXCLUSIVE, partition)
    locks.take(connection, Lock.SHARE, names.overlay(table))
    columns.require_known(connection, table)


def _keep_added(connection: Connection, table: Table, cold_range: ColdRange, refill: Name, partition: Name) -> None:
    """Before rows are deleted from a partition: what a column has that came after the table was added."""
    known = {column.name for column in table.columns}
    heap_columns = facts.read_columns(connection, tables.heap_oid(connection, table))
    added = [column.name for column in heap_columns if column.name not in known and not column.generated]
    if added:
        assignments = (sql.SQL("{0} = h.{0}").format(sql.Identifier(name)) for name in added)
        statement = _statement("keep_added").format(
            partition=names.identifier(partition),
            assignments=names.COMMA.join(assignments),
            refill_is_heap=names.equal("r", "h", table.key),
            **_parts(table, cold_range, refill),
        )
        connection.execute(statement)


def _take_rows_from(connection: Connection, table: Table, cold_range: ColdRange, partition: Name) -> None:
    """Delete the rows of the range from a partition; each must have its image in the overlay."""
    parts = _parts(table, cold_range, partition)
    connection.execute(_statement("leave_default").format(partition=names.identifier(partition), **parts))
    rest = _statement("has_rows_in_range").format(partition=names.identifier(partition), **parts)
    left = only_value(connection.execute(rest))
    if left:
        raise CorruptionError(
            f"{partition} has rows below the frost line of {table.name} that are not in the overlay",
            hint=f"frostline archive {table.name} adopts partitions that were made there; then try again",
        )


def _drop_partition(connection: Connection, partition: Name) -> None:
    """Drop an emptied partition, in whose place the refill table comes."""
    try:
        connection.execute(sql.SQL("drop table {}").format(names.identifier(partition)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise UsageError(
            f"partition {partition} cannot be replaced: {error.diag.message_detail}", hint="drop what depends on it"
        ) from None


def _rename(connection: Connection, refill: Name, wanted: Name) -> Name:
    """Give the refill table the name that its partition had, in the schema where that was, or one like it."""
    name = new_partition.free_name(connection, wanted)
    target = names.identifier(refill)
    if name.schema != refill.schema:
        connection.execute(sql.SQL("alter table {} set schema {}").format(target, sql.Identifier(name.schema)))
        target = sql.Identifier(name.schema, refill.table)
    connection.execute(sql.SQL("alter table {} rename to {}").format(target, sql.Identifier(name.table)))
    _rename_indexes(connection, name)
    return name


def _rename_indexes(connection: Connection, name: Name) -> None:
    """Errors name the index of the primary key, so it should not remind of the thaw; others follow."""
    literal = sql.Literal(names.identifier(name).as_string(connection))
    for (index,) in connection.execute(_statement("indexes").format(refill=literal)).fetchall():
        wanted = _JOB.sub("", index, count=1)
        if wanted != index and not facts.exists(connection, Name(name.schema, wanted)):
            old, new = sql.Identifier(name.schema, index), sql.Identifier(wanted)
            connection.execute(sql.SQL("alter index {} rename to {}").format(old, new))


def missing_parents(connection: Connection, table: Table, refill: Name, error: psycopg.Error) -> UsageError:
    """The error for a refill table whose rows break a foreign key of the heap: which one, how many rows, what to do.

    While they lay in the lake, no key kept the row of the other table that they need.
    """
    orphans = list(_orphans(connection, table, refill)) or [(str(error.diag.constraint_name), "the other table", 0)]
    reasons = [
        f"{count or 'some'} rows have no row in {parent} ({constraint})" for constraint, parent, count in orphans
    ]
    drops = [f"alter table {table.heap} drop constraint {quoted(constraint)}" for constraint, _, _ in orphans]
    detail = error.diag.message_detail or first_line(error)
    return UsageError(
        f"rows of {table.name} cannot come back, because a foreign key is against it: {'; '.join(reasons)}. {detail}",
        hint=f"insert what is missing there again, or: {'; '.join(drops)}\nthen run frostline thaw again",
    )


def _orphans(connection: Connection, table: Table, refill: Name) -> Iterator[tuple[str, str, int]]:
    heap_name = sql.Literal(names.identifier(table.heap).as_string(connection))
    for constraint, parent, has_key, is_parent in connection.execute(_statement("foreign_keys").format(heap=heap_name)):
        query = _statement("orphans").format(
            refill=names.identifier(refill),
            parent=names.trusted(parent),
            has_key=names.trusted(has_key),
            is_parent=names.trusted(is_parent),
        )
        count = only_value(connection.execute(query))
        if count:
            yield constraint, parent, count


def holders(connection: Connection, table: Table) -> list[int]:
    """Who holds what an attach needs: process ids."""
    default = new_partition.default_partition(connection, table)
    relations = [Name("frostline_overlay", table.internal), default or table.heap]
    listed = sql.SQL(", ").join(sql.Literal(names.identifier(name).as_string(connection)) for name in relations)
    return [pid for (pid,) in connection.execute(_statement("holders").format(relations=listed)).fetchall()]


def _parts(table: Table, cold_range: ColdRange, refill: Name) -> dict[str, sql.Composable]:
    written = [column.name for column in table.columns if not column.generated]
    return {
        "refill": names.identifier(refill),
        "overlay": names.overlay(table),
        "written": names.columns(None, written),
        "overlay_written": names.columns("o", written),
        "overlay_key": names.columns("o", table.key),
        "in_range": _in_range(table, "o", cold_range),
        "heap_in_range": _in_range(table, "h", cold_range),
        "applied_is_overlay": names.equal("a", "o", table.key),
        "refill_is_fresh": names.equal("r", "f", table.key),
        "overlay_is_fresh": names.equal("o", "f", table.key),
        "overlay_is_heap": names.equal("o", "h", table.key),
    }


def _in_range(table: Table, alias: LiteralString | None, cold_range: ColdRange) -> sql.Composed:
    return names.within(table, _lower(table, cold_range), cold_range.upper, alias)


def _lower(table: Table, cold_range: ColdRange) -> int | None:
    return None if cold_range.lower == table.tier_kind.lowest else cold_range.lower
