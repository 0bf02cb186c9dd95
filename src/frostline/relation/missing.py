"""What Postgres gave the rows that were there when a column was added: rows in the lake have it too.

For a default that has one value, Postgres writes no row: each partition remembers the value for its older rows
(`pg_attribute.attmissingval`), whatever becomes of the default. DEFAULT is the partition that is asked: it has been
there since the table was added. Others may be younger, and then remember nothing, or have a past of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.model import laketypes
from frostline.model.names import quoted
from frostline.model.registration import HeapColumn, HeapFacts, Refusal
from frostline.model.tables import Table
from frostline.model.types import encoding
from frostline.relation import names
from frostline.relation.names import trusted
from frostline.relation.views import line

_statement = sqlfiles.statements(__name__, "columns")
_NANS = ("7fc00000", "7ff8000000000000")
"""The bits of the NaN that its text is read as."""


@dataclass(frozen=True)
class _Remembered:
    """What a partition shows in its older rows."""

    is_default: bool
    text: str
    sent: str | None
    """Of floats: its bytes in the end, in hexadecimal digits."""
    is_unholdable: bool

    @property
    def has_odd_bits(self) -> bool:
        """A NaN with other bits than the common one, which no text tells."""
        return self.text == "NaN" and self.sent is not None and not self.sent.endswith(_NANS)


@dataclass(frozen=True)
class _Domain:
    """What the domains have that a type is made of; nothing, of another type."""

    has_default: bool
    refuses_null: bool
    inside: str


def of(connection: Connection, table: Table, column: HeapColumn) -> str | None:
    """What rows have in the new column that are older than it, as canonical text; None is NULL.

    Only certain where there are no `refusals`. Reads catalogs only.
    """
    values = _remembered(connection, table, column)
    return next((value.text for value in values if value.is_default and not value.is_unholdable), None)


def refusals(connection: Connection, table: Table, heap: HeapFacts, column: HeapColumn) -> Iterator[Refusal]:
    """What is against the column if the lake has rows, each of which needs the value that Postgres would show."""
    name, again = quoted(column.name), f"frostline table sync {table.name}"
    domain = _domain(connection, heap, column)
    fresh = f"alter table {heap.name} drop column {name}; alter table {heap.name} add column {name} {domain.inside}"
    to_null = f"to have NULL in them: {fresh}; {again}"
    then = f"{to_null}; then set the default, and give old rows values: {_update(table, column)}"
    computed = (
        f"{to_null}; then let a trigger of {heap.name} compute it, and give old rows values: {_update(table, column)}"
    )
    values = _remembered(connection, table, column)
    has_default = column.default is not None or domain.has_default
    if column.generated:
        yield Refusal(f"column {name} is computed, and rows in the lake have no value for it", computed)
    elif any(value.is_unholdable or value.has_odd_bits for value in values):
        yield Refusal(f"the lake cannot hold what rows have in column {name}, {values[0].text}", to_null)
    elif values and (len({value.text for value in values}) > 1 or not any(value.is_default for value in values)):
        yield Refusal(f"partitions differ in what their older rows have in column {name}", then)
    elif not values and (column.identity or has_default):
        what = "was computed for each row, or set after the column was added"
        yield Refusal(f"the default of column {name} {what}: what rows in the lake have is not known", then)
    elif not values and (column.not_null or domain.refuses_null):
        nullable = f"alter table {heap.name} alter column {name} drop not null; {again}"
        hint = to_null if domain.refuses_null else nullable
        yield Refusal(f"column {name} is NOT NULL, and rows in the lake have no value for it", hint)
    elif _has_other_values(connection, table, column, values[0].text if values else None):
        yield Refusal(f"rows that are in the lake, too, got other values in column {name}", then)


def _update(table: Table, column: HeapColumn) -> str:
    """What gives rows that have none a value, range by range if there are many."""
    name = quoted(column.name)
    return f"update {table.relation} set {name} = {column.default or '...'} where {name} is null"  # noqa: S608  (for people)


def _remembered(connection: Connection, table: Table, column: HeapColumn) -> list[_Remembered]:
    lake_type = laketypes.of(encoding(column.pg_type, column.collation).lake_type)
    sent = "right(encode(array_send(a.attmissingval), 'hex'), 16)" if lake_type.twins else "null"
    statement = _statement("remembered").format(
        heap_name=sql.Literal(names.identifier(table.heap).as_string()),
        column_name=sql.Literal(column.name),
        type=trusted(column.pg_type.formatted),
        sent=sql.SQL(sent),
        unholdable=sql.SQL(lake_type.unholdable or "false").format(sql.SQL("m.value")),
    )
    return fetch(connection, _Remembered, statement)


def _domain(connection: Connection, heap: HeapFacts, column: HeapColumn) -> _Domain:
    statement = _statement("domain").format(oid=sql.Literal(heap.oid), attnum=sql.Literal(column.attnum))
    return fetch(connection, _Domain, statement)[0]


def _has_other_values(connection: Connection, table: Table, column: HeapColumn, missing: str | None) -> bool:
    """Whether Postgres has written values into rows when the column was added, though it has no default any more.

    In partitions below the frost line whatever was written later has a mark.
    """
    statement = _statement("has_other_values").format(
        heap=names.identifier(table.heap),
        overlay=names.overlay(table),
        column=sql.Identifier(column.name),
        missing=sql.Literal(missing),
        below_line=sql.SQL("h.{} < {}").format(sql.Identifier(table.tier_key), line(table)),
        heap_is_overlay=names.equal("h", "o", table.key),
    )
    return only_value(connection.execute(statement))
