"""SQL identifiers of the objects that make up one managed table, and lists and conditions of columns."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import LiteralString, cast

from psycopg import sql

from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tables import Table
from frostline.model.tiers import to_text

COMMA = sql.SQL(", ")
AND = sql.SQL(" and ")


def identifier(name: Name) -> sql.Identifier:
    """A user's table."""
    return sql.Identifier(name.schema, name.table)


def inner(table: Table) -> sql.Identifier:
    """The inner view."""
    return sql.Identifier("frostline_relation", table.internal)


def aside(table: Table) -> Name:
    """What the relation is called from when the heap takes its name back until it is dropped."""
    return Name(table.name.schema, f"frostline_{table.id}")


def overlay(table: Table) -> sql.Identifier:
    """The overlay."""
    return sql.Identifier("frostline_overlay", table.internal)


def lake(table: Table) -> sql.Identifier:
    """The partitioned parent of the lake's foreign tables."""
    return sql.Identifier("frostline_lake", table.internal)


def nothing(table: Table) -> sql.Identifier:
    """The partition of the lake's parent that never has a row."""
    suffix = " nothing"
    return sql.Identifier("frostline_lake", cut(table.internal, MAX_BYTES - len(suffix)) + suffix)


def function(table: Table, verb: str) -> sql.Identifier:
    """The table's trigger function for that verb: mark, update, delete, copy, policy."""
    return sql.Identifier("frostline_relation", f"{verb}_{table.id}")


def door(table: Table, verb: str) -> sql.Identifier:
    """The view through which the relation's triggers write the heap as the caller: `update hot`, `insert`, ..."""
    return sql.Identifier("frostline_write", f"{verb} {table.id}")


def helper(table: Table, verb: str) -> sql.Identifier:
    """A function that the relation calls as the caller: `claim`, `may_select`, ..."""
    return sql.Identifier("frostline_write", f"{verb}_{table.id}")


def column(alias: LiteralString | None, name: str) -> sql.Composable:
    """A column, behind the alias of its table if there is one."""
    return sql.SQL("{}.{}").format(sql.SQL(alias), sql.Identifier(name)) if alias else sql.Identifier(name)


def columns(alias: LiteralString | None, listed: Iterable[str]) -> sql.Composed:
    """A comma list of columns."""
    return COMMA.join(column(alias, name) for name in listed)


def equal(left: LiteralString, right: LiteralString, listed: Iterable[str]) -> sql.Composed:
    """The condition that two tables agree in these columns."""
    pairs = (sql.SQL("{} = {}").format(column(left, name), column(right, name)) for name in listed)
    return AND.join(pairs)


def within(table: Table, lower: int | None, upper: int | None, alias: LiteralString | None = None) -> sql.Composed:
    """The condition that a row's tier key lies in [lower, upper); None is no limit.

    In constants, from which Postgres can tell which partitions it concerns.
    """
    key = column(alias, table.tier_key)
    parts: list[sql.Composable] = []
    if lower is not None:
        parts.append(sql.SQL("{} >= {}").format(key, sql.Literal(to_text(table.tier_kind, lower))))
    if upper is not None:
        parts.append(sql.SQL("{} < {}").format(key, sql.Literal(to_text(table.tier_kind, upper))))
    return AND.join(parts or [sql.SQL("true")])


def marked(table: Table) -> list[str]:
    """What a mark without an image holds. A type that is not Postgres' own may be a domain that refuses NULL."""
    rest = (column for column in table.columns if column.name not in table.key)
    return [*table.key, *(column.name for column in rest if not column.pg_type.builtin)]


def trusted(text: str) -> sql.SQL:
    """SQL text that Postgres itself printed (types, expressions, view definitions), to be sent back as it is."""
    return sql.SQL(cast(LiteralString, text))


def dollar_quote(texts: Sequence[str]) -> sql.SQL:
    """A dollar quote for a function body that may contain these texts: none of them can end it."""
    together = "\n".join(texts)
    return trusted(next(tag for tag in (f"$body{number or ''}$" for number in count()) if tag not in together))
