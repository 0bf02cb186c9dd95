"""Pieces of SQL that the definitions of a relation's objects are put together from."""

from collections.abc import Iterable
from typing import LiteralString

from psycopg import sql

from frostline.model.registration import HeapFacts
from frostline.model.tables import Table

COMMA = sql.SQL(", ")
AND = sql.SQL(" and ")
_ROWS: dict[str, LiteralString] = {
    "new": "new",
    "old": "old",
    "h": "h",
    "c": "c",
    "o": "o",
    "m": "m",
    "r": "r",
    "u": "u",
    "frostline_old": "frostline_old",
}


def prefixed(prefix: str, columns: Iterable[str]) -> list[sql.Composable]:
    """Each column behind a row's name: `new.id`, `h.id`."""
    return [sql.SQL(".").join((sql.SQL(_ROWS[prefix]), sql.Identifier(column))) for column in columns]


def same_key(table: Table, left: str, right: str) -> sql.Composed:
    """The condition that two rows have the same key: `m.id = new.id and ...`."""
    pairs = zip(prefixed(left, table.key), prefixed(right, table.key), strict=True)
    return AND.join(sql.SQL("{} = {}").format(*pair) for pair in pairs)


def identifiers(columns: Iterable[str]) -> sql.Composed:
    """A comma list of column names."""
    return COMMA.join(map(sql.Identifier, columns))


def overriding(facts: HeapFacts) -> sql.SQL:
    """What an INSERT into the heap needs when its identity columns get the values of the relation."""
    return sql.SQL(" overriding system value" if any(column.identity for column in facts.columns) else "")
