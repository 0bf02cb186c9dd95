"""The marks of a table that a fold carries into the lake: remembered before, taken away when it is published."""

from collections.abc import Iterable
from typing import LiteralString

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import names

AND = sql.SQL(" and ")


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "marks")[name])


def remember(connection: Connection, table: Table, snapshot: str, frost_line: int) -> int:
    """Note key and version of every mark below the line, as of an exported snapshot, and return their number.

    The note is a temporary table: it ends with the session, and a fold that dies leaves nothing.
    """
    connection.execute(_statement("forget"))
    with connection.transaction():
        connection.execute(sql.SQL("set transaction isolation level repeatable read"))
        connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
        connection.execute(
            _statement("remember").format(
                key=_list("", table.key), overlay=names.overlay(table), below_line=_below(table, None, frost_line)
            )
        )
    _prepare_to_join(connection, table, "frostline_folded")
    row = connection.execute(_statement("count")).fetchone()
    return 0 if row is None else row[0]


def take_away(connection: Connection, table: Table, frost_line: int, in_grace: Iterable[str]) -> int:
    """Delete every remembered mark that is still the same and that nobody holds; returns how many.

    Inside the publishing transaction. Row locks only, none of them waited for.
    """
    parts = _parts(table, frost_line)
    connection.execute(_statement("be_silent"))
    connection.execute(_statement("be_silent_setting"))
    connection.execute(_statement("lock_heap").format(**parts))
    _prepare_to_join(connection, table, "frostline_locked")
    connection.execute(_statement("lock_overlay").format(**parts))
    _prepare_to_join(connection, table, "frostline_done")
    oids = sql.SQL("array[{}]::regclass[]").format(sql.SQL(", ").join(map(sql.Literal, in_grace)))
    connection.execute(_statement("delete_heap").format(in_grace=oids, **parts))
    taken = connection.execute(_statement("delete_overlay").format(**parts)).rowcount
    connection.execute(_statement("speak_again"))
    return taken


def _prepare_to_join(connection: Connection, table: Table, note: str) -> None:
    """Index and analyze one of the temporary tables."""
    name = sql.Identifier(note)
    connection.execute(_statement("index").format(note=name, key=_list("", table.key)))
    connection.execute(_statement("analyze").format(note=name))


def _parts(table: Table, frost_line: int) -> dict[str, sql.Composable]:
    return {
        "heap": names.identifier(table.name.heap),
        "overlay": names.overlay(table),
        "heap_key": _list("h", table.key),
        "overlay_key": _list("o", table.key),
        "heap_is_folded": _equal("h", "f", table.key),
        "heap_is_overlay": _equal("h", "o", table.key),
        "heap_is_done": _equal("h", "d", table.key),
        "overlay_is_folded": _equal("o", "f", table.key),
        "overlay_is_locked": _equal("o", "l", table.key),
        "overlay_is_done": _equal("o", "d", table.key),
        "done_is_locked": _equal("d", "l", table.key),
        "heap_below_line": _below(table, "h", frost_line),
    }


_Alias = LiteralString


def _column(alias: _Alias | None, column: str) -> sql.Composable:
    name = sql.Identifier(column)
    return sql.SQL("{}.{}").format(sql.SQL(alias), name) if alias else name


def _list(alias: _Alias, columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(_column(alias, column) for column in columns)


def _equal(left: _Alias, right: _Alias, columns: Iterable[str]) -> sql.Composed:
    pairs = [(_column(left, column), _column(right, column)) for column in columns]
    return AND.join(sql.SQL("{} = {}").format(one, other) for one, other in pairs)


def _below(table: Table, alias: _Alias | None, line: int) -> sql.Composed:
    """A constant, so that Postgres leaves the hot partitions out of the plan."""
    value = sql.Literal(to_text(table.tier_kind, line))
    return sql.SQL("{} < {}").format(_column(alias, table.tier_key), value)
