"""Writes the SQL of the two views and of the rule for INSERT. Pure: values in, statements out.

The template `arms` is what a query of the relation becomes: the heap, the lake and the overlay at one frost line.
"""

from collections.abc import Iterator, Sequence
from typing import LiteralString

from psycopg import sql

from frostline.catalog.seams import LINE_COLUMNS
from frostline.model.registration import HeapFacts
from frostline.model.tables import Table
from frostline.relation import lakecolumns, names
from frostline.relation.names import AND, COMMA, trusted
from frostline.relation.objects import template


class Views:
    """How one table is read, and what an INSERT into it becomes."""

    def __init__(self, table: Table, facts: HeapFacts) -> None:
        self.table = table
        self.facts = facts
        self.columns = [column.name for column in table.columns]
        self.written = [column.name for column in table.columns if not column.generated]
        self.relation = names.identifier(table.relation)
        self.heap = names.identifier(table.heap)
        self.heap_name = sql.Literal(str(table.heap))

    def inner_view(self) -> sql.Composed:
        """The union of the tiers, behind the heap's policies where it has any."""
        return template("inner_view_secured" if self.facts.row_security else "inner_view").format(
            inner=names.inner(self.table),
            arms=self._arms(),
            first=self._first(None),
            later=self._later(None),
            alias=sql.Identifier(self.table.name.table),
            heap_name=self.heap_name,
            may_select=self.may("select", names.columns(None, self.columns)),
        )

    def may(self, verb: str, values: sql.Composable) -> sql.Composed:
        """The function that says whether the caller's policies allow it, asked for these values."""
        return sql.SQL("{}({})").format(names.helper(self.table, f"may_{verb}"), values)

    def _arms(self) -> sql.Composed:
        return template("arms").format(
            first=self._first("u"),
            later=self._later("u"),
            heap=self.heap,
            lake=names.lake(self.table),
            overlay=names.overlay(self.table),
            heap_columns=names.columns("h", self.columns),
            lake_columns=COMMA.join(map(lakecolumns.from_lake, self.table.columns)),
            overlay_columns=names.columns("o", self.columns),
            tier_key=sql.Identifier(self.table.tier_key),
            line=line(self.table),
            table_id=sql.Literal(self.table.id),
            secret=template("secret").format(table_id=sql.Literal(self.table.id)),
            key=COMMA.join(self._hashed_key("u")),
            marked_key=COMMA.join(self._hashed_key("m")),
        )

    def _first(self, alias: LiteralString | None) -> sql.Composed:
        return names.columns(alias, [column.name for column in self.table.columns if not column.is_later])

    def _later(self, alias: LiteralString | None) -> sql.Composed:
        """A view takes new columns at its end only, so those that came later are behind the view's own."""
        later = [column.name for column in self.table.columns if column.is_later]
        return sql.Composed([sql.SQL(", ") + names.column(alias, name) for name in later])

    def _hashed_key(self, row: LiteralString) -> Iterator[sql.Composable]:
        """The key in types that Postgres can hash. Of the others, `bit` is one, equal values are written alike."""
        for name in self.table.key:
            value = names.column(row, name)
            as_text = self.table.column(name).encoding.as_text
            yield sql.SQL("{}::pg_catalog.text").format(value) if as_text else value

    def lake_key_equals(self, row: LiteralString) -> sql.Composed:
        """The condition that the lake's row `c` has the key of another row."""
        return AND.join(
            sql.SQL("{} = {}").format(names.column(row, name), lakecolumns.from_lake(self.table.column(name)))
            for name in self.table.key
        )

    def outer_view(self, create: sql.SQL) -> sql.Composed:
        """The relation itself, made anew or in the place of a narrower one."""
        return create.format(
            relation=self.relation,
            columns=names.columns(None, self.columns),
            inner=names.inner(self.table),
            alias=sql.Identifier(self.table.name.table),
        )

    def defaults(self) -> Iterator[sql.Composed]:
        """The heap's defaults, which an INSERT into the relation needs there: the view would send NULL."""
        for column in self.facts.columns:
            default = column.default
            if column.identity_sequence:
                yield self._default(column.name, sql.SQL("nextval({})").format(sql.Literal(column.identity_sequence)))
            elif default:
                yield self._default(column.name, trusted(default))

    def _default(self, column: str, default: sql.Composable) -> sql.Composed:
        return template("view_default").format(relation=self.relation, column=sql.Identifier(column), default=default)

    def insert_rule(self) -> sql.Composed:
        """What sends an INSERT into the relation to the heap."""
        generated = [column.name for column in self.table.columns if column.generated]
        is_checked = self.facts.row_security or generated
        returned = names.columns("h" if is_checked else None, self.columns)
        if self.facts.row_security:
            returned = COMMA.join(map(self._visible, self.columns))
        return template("insert_rule_checked" if is_checked else "insert_rule").format(
            relation=self.relation,
            heap=self.heap,
            written=names.columns(None, self.written),
            overriding=overriding(self.facts),
            new_written=names.columns("new", self.written),
            written_values=names.columns("r", self.written),
            new_as_columns=COMMA.join(
                sql.SQL("{} as {}").format(names.column("new", name), sql.Identifier(name)) for name in self.columns
            ),
            may_write=AND.join(self._conditions(generated)),
            returned=returned,
        )

    def _conditions(self, generated: Sequence[str]) -> Iterator[sql.Composed]:
        """What an INSERT must meet before the heap sees it; each raises an error of its own."""
        relation_name = sql.Literal(self.table.relation.table)
        for name in generated:
            is_null = sql.SQL("{} is null").format(names.column("r", name))
            parts = {"is_null": is_null, "column": sql.Literal(name), "relation_name": relation_name}
            yield template("no_generated").format(**parts)
        if self.facts.row_security:
            may_insert = self.may("insert", names.columns("r", self.columns))
            yield template("may_insert").format(
                heap_name=self.heap_name, may_insert=may_insert, relation_name=relation_name
            )

    def _visible(self, column: str) -> sql.Composed:
        return template("returned_checked").format(
            heap_name=self.heap_name,
            may_select=self.may("select", names.columns("h", self.columns)),
            relation_name=sql.Literal(self.table.relation.table),
            column=sql.Identifier(column),
            type=trusted(self.table.column(column).pg_type.formatted),
        )


def overriding(facts: HeapFacts) -> sql.SQL:
    """What an INSERT into the heap needs when its identity columns get the values of the relation."""
    return sql.SQL(" overriding system value" if any(column.identity for column in facts.columns) else "")


def line(table: Table, column: LiteralString | None = None) -> sql.Composed:
    """The frost line, or another of the seam's lines, as the view reads it: Postgres evaluates it once a query."""
    narrow = "::smallint" if table.tier_kind == "smallint" else "::integer" if table.tier_kind == "integer" else ""
    return template("line").format(
        line_column=sql.Identifier(column or LINE_COLUMNS[table.tier_kind]),
        line_cast=sql.SQL(narrow),
        table_id=sql.Literal(table.id),
    )
