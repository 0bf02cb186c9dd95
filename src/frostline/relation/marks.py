"""The marks of a table that a fold carries into the lake: remembered before, taken away when it is published."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import trust
from frostline.catalog.connect import Connection, only_value
from frostline.model.tables import Table
from frostline.relation import columns, names, references

_statement = sqlfiles.statements(__name__, "marks")

LOCK_TRIES = 10
"""How often the rows of a fold are locked anew when one of them is moved to another partition meanwhile."""


def remember(connection: Connection, table: Table, snapshot: str, frost_line: int) -> int:
    """Note key and version of every mark below the line, as of an exported snapshot, and return their number.

    The note is a temporary table: it ends with the session, and a fold that dies leaves nothing.
    """
    connection.execute(_statement("forget"))
    with connection.transaction():
        connection.execute(sql.SQL("set transaction isolation level repeatable read"))
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
        _note(connection, table, frost_line)
    _prepare_to_join(connection, table)
    return only_value(connection.execute(_statement("count")))


def _note(connection: Connection, table: Table, line: int) -> None:
    statement = _statement("remember").format(
        key=names.columns(None, table.key),
        overlay=names.overlay(table),
        below_line=names.within(table, None, line),
    )
    connection.execute(statement)


def take_away_all(connection: Connection, table: Table, line: int) -> int:
    """Delete every mark below the line that nobody holds, and its heap row; returns how many.

    Inside the publishing transaction. Row locks only, none of them waited for. No partition in its grace period
    may reach below the line. UsageError when a column is called otherwise than the relation has it.
    """
    connection.execute(_statement("forget"))
    _note(connection, table, line)
    _prepare_to_join(connection, table)
    return _take_away(connection, table, line, (), checked=False)


def take_away(connection: Connection, table: Table, frost_line: int, in_grace: Iterable[str]) -> int:
    """Delete every remembered mark that is still the same and that nobody holds; returns how many.

    Inside the publishing transaction. Row locks only, none of them waited for. UsageError when the heap has columns
    that the lake has not: a row that goes would lose their values.
    """
    return _take_away(connection, table, frost_line, in_grace, checked=True)


def _take_away(connection: Connection, table: Table, frost_line: int, in_grace: Iterable[str], *, checked: bool) -> int:
    parts = _parts(table, frost_line)
    with marking_disabled(connection, table):
        _lock_heap(connection, parts)
        (columns.require if checked else columns.require_known)(connection, table)
        references.keep(connection, table)
        _analyze(connection, "frostline_locked")
        connection.execute(_statement("lock_overlay").format(**parts))
        with user_triggers_disabled(connection):
            _delete_heap(connection, table, in_grace)
        return connection.execute(_statement("delete_overlay").format(**parts)).rowcount


def _delete_heap(connection: Connection, table: Table, in_grace: Iterable[str]) -> None:
    """Delete the locked heap rows whose marks are locked too, partition by partition.

    UsageError when a trigger of the user would fire. Once we hold a lock of writers, nobody can make another.
    """
    oids = sql.SQL("array[{}]::regclass[]").format(sql.SQL(", ").join(map(sql.Literal, in_grace)))
    partitions = connection.execute(_statement("emptied_partitions").format(in_grace=oids)).fetchall()
    for schema, name, _ in partitions:
        connection.execute(_statement("lock_partition").format(partition=sql.Identifier(schema, name)))
    trust.require_no_user_triggers(connection, table)
    for schema, name, oid in partitions:
        partition = sql.Identifier(schema, name)
        connection.execute(_statement("delete_heap").format(partition=partition, oid=sql.Literal(oid)))


def _lock_heap(connection: Connection, parts: dict[str, sql.Composable]) -> None:
    """Lock the rows that nobody holds. If others move rows between partitions at every try, none: their marks stay."""
    for _ in range(LOCK_TRIES):
        try:
            with connection.transaction():
                connection.execute(_statement("lock_heap").format(**parts))
                return
        except psycopg.errors.SerializationFailure:
            # Postgres cannot follow a row that left its partition after the statement began, SKIP LOCKED or not.
            continue
    nothing = {**parts, "heap_below_line": sql.SQL("false")}
    connection.execute(_statement("lock_heap").format(**nothing))


@contextmanager
def marking_disabled(connection: Connection, table: Table) -> Generator[None]:
    """Inside a transaction: its own changes of this table's heap leave no mark until this ends."""
    table_id = sql.Literal(table.id)
    connection.execute(_statement("disable_marking").format(table_id=table_id))
    connection.execute(_statement("disable_marking_setting"))
    yield
    connection.execute(_statement("enable_marking").format(table_id=table_id))


@contextmanager
def user_triggers_disabled(connection: Connection) -> Generator[None]:
    """Inside a transaction, and where the role may: ordinary triggers of the user do not fire until this ends."""
    before = only_value(connection.execute(_statement("replication_role")))
    try:
        with connection.transaction():
            _set_replication_role(connection, "replica")
    except psycopg.errors.InsufficientPrivilege:
        before = None
    yield
    if before is not None:
        _set_replication_role(connection, before)


def _set_replication_role(connection: Connection, role: str) -> None:
    connection.execute(_statement("set_replication_role").format(role=sql.Literal(role)))


def forget_lost(connection: Connection, table: Table, lower: int, upper: int) -> int:
    """Delete the live marks in [lower, upper) whose heap row is gone without a trace; returns how many.

    DROP and DETACH of a partition take its rows and leave their marks. Inside the publishing transaction, before the
    line rises over them. Row locks on the overlay only, none of them waited for: whoever holds a mark is writing it.
    """
    parts: dict[str, sql.Composable] = {
        "heap": names.identifier(table.heap),
        "overlay": names.overlay(table),
        "overlay_key": names.columns("o", table.key),
        "overlay_is_lost": names.equal("o", "l", table.key),
        "heap_is_overlay": names.equal("h", "o", table.key),
        "overlay_in_range": names.within(table, lower, upper, "o"),
        "heap_in_range": names.within(table, lower, upper, "h"),
    }
    connection.execute(_statement("lock_lost").format(**parts))
    lost = connection.execute(_statement("delete_lost").format(**parts)).rowcount
    connection.execute(_statement("done_with_lost"))
    return lost


def _prepare_to_join(connection: Connection, table: Table) -> None:
    """Index and analyze the note of the marks."""
    connection.execute(_statement("index").format(key=names.columns(None, table.key)))
    _analyze(connection, "frostline_folded")


def _analyze(connection: Connection, note: str) -> None:
    connection.execute(_statement("analyze").format(note=sql.Identifier(note)))


def _parts(table: Table, frost_line: int) -> dict[str, sql.Composable]:
    return {
        "heap": names.identifier(table.heap),
        "overlay": names.overlay(table),
        "heap_is_folded": names.equal("h", "f", table.key),
        "heap_below_line": names.within(table, None, frost_line, "h"),
    }
