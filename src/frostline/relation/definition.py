"""Writes the SQL that makes a table a relation of two tiers. Pure: values in, statements out."""

from collections.abc import Iterator, Sequence
from typing import LiteralString

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.seams import LINE_COLUMNS, RETAINED_COLUMNS
from frostline.model.registration import HeapColumn, HeapFacts
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import lakecolumns, names
from frostline.relation.clauses import AND, COMMA, identifiers, overriding, prefixed
from frostline.relation.names import trusted
from frostline.relation.writes import Writes, seam_is_current

DEFAULT_PARTITION_COMMENT = "made by Frostline: rows for which there is no other partition"
"""For people. Removal tells our DEFAULT partition from the user's own by `frostline.made_table`."""


def template(name: str) -> sql.SQL:
    """One named template of `sql/objects.sql`."""
    return sql.SQL(sqlfiles.load(__package__ or "", "objects")[name])


class Definition:
    """The statements for one table, in the order they must run."""

    def __init__(self, table: Table, facts: HeapFacts) -> None:
        self.table = table
        self.facts = facts
        self.columns = [column.name for column in table.columns]
        self.rest = [column for column in table.columns if column.name not in table.key]
        self.marked = names.marked(table)
        self.written = [column.name for column in table.columns if not column.generated]
        self.relation = names.identifier(table.name)
        self.heap = names.identifier(table.heap)
        self.heap_name = sql.Literal(str(table.heap))
        self.body = names.dollar_quote([str(table.name), *self.columns])

    def statements(self) -> Iterator[sql.Composed]:
        """Everything registration creates, from the renaming of the heap to the last comment."""
        heap_table = sql.Identifier(self.table.heap.table)
        yield template("rename_heap").format(relation=self.relation, heap_table=heap_table)
        if not any(partition.is_default for partition in self.facts.partitions):
            yield self._default_partition()
        yield self._overlay()
        yield self._lake()
        yield nothing(self.table)
        yield from self._reading()
        yield self._outer_view()
        yield from self._defaults()
        yield from self._writing()
        yield self.mark_trigger(self._default_partition_name())
        yield from self._comments()

    def renewal(self) -> Iterator[sql.Composed]:
        """What puts the objects of this version, for the heap as it is now, in the place of others. Repeatable.

        ACCESS EXCLUSIVE on relation and inner view.
        """
        yield template("forget_extras").format(
            relation=self.relation, inner=names.inner(self.table), table_id=sql.Literal(self.table.id)
        )
        yield from self._reading()
        yield from self._writing()
        if not self.facts.row_security:
            yield template("forget_policies").format(table_id=sql.Literal(self.table.id))

    def _reading(self) -> Iterator[sql.Composed]:
        if self.facts.row_security:
            yield template("follow_policies").format(table_id=sql.Literal(self.table.id))
        yield self._inner_view()

    def _writing(self) -> Iterator[sql.Composed]:
        yield self._insert_rule()
        if self.facts.row_security:
            yield self._policy_function()
            yield template("policy_trigger").format(
                inner=names.inner(self.table), function=names.function(self.table, "policy")
            )
        yield from Writes(self.table, self.facts, self.body).statements()
        yield self.mark_function()

    def _default_partition_name(self) -> sql.Identifier:
        for partition in self.facts.partitions:
            if partition.is_default:
                return names.identifier(partition.name)
        ours = self.table.name.default_partition(otherwise=self.facts.default_name_taken)
        return names.identifier(ours)

    def _default_partition(self) -> sql.Composed:
        return template("default_partition").format(
            default_partition=self._default_partition_name(),
            heap=self.heap,
            made_by=sql.Literal(DEFAULT_PARTITION_COMMENT),
            owner=sql.Identifier(self.facts.owner),
        )

    def _overlay(self) -> sql.Composed:
        return template("overlay").format(
            overlay=names.overlay(self.table),
            columns=sql.SQL(",\n    ").join(self._column(column) for column in self.facts.columns),
            key=identifiers(self.table.key),
            tier_key=sql.Identifier(self.table.tier_key),
        )

    def _column(self, column: HeapColumn) -> sql.Composed:
        parts: list[sql.Composable] = [sql.Identifier(column.name), trusted(column.pg_type.formatted)]
        if column.collation_name:
            parts += [sql.SQL("collate"), trusted(column.collation_name)]
        return sql.SQL(" ").join(parts)

    def _lake(self) -> sql.Composed:
        return template("lake").format(
            lake=names.lake(self.table),
            columns=lakecolumns.definitions(self.table),
            tier_key=sql.Identifier(self.table.tier_key),
        )

    def _inner_view(self) -> sql.Composed:
        return template("inner_view_secured" if self.facts.row_security else "inner_view").format(
            inner=names.inner(self.table),
            arms=self._arms(),
            columns=identifiers(self.columns),
            alias=sql.Identifier(self.table.name.table),
            heap_name=self.heap_name,
            may_select=self._may("select", identifiers(self.columns)),
        )

    def _may(self, verb: str, values: sql.Composable) -> sql.Composed:
        """The function that says whether the caller's policies allow it, asked for these values."""
        return sql.SQL("{}({})").format(names.helper(self.table, f"may_{verb}"), values)

    def _arms(self) -> sql.Composed:
        return template("arms").format(
            columns=COMMA.join(prefixed("u", self.columns)),
            heap=self.heap,
            lake=names.lake(self.table),
            overlay=names.overlay(self.table),
            heap_columns=COMMA.join(prefixed("h", self.columns)),
            lake_columns=COMMA.join(map(lakecolumns.from_lake, self.table.columns)),
            overlay_columns=COMMA.join(prefixed("o", self.columns)),
            tier_key=sql.Identifier(self.table.tier_key),
            line=line(self.table),
            table_id=sql.Literal(self.table.id),
            secret=template("secret").format(table_id=sql.Literal(self.table.id)),
            is_marked=AND.join(self._pairs("m", "u")),
        )

    def _lake_key_equals(self, row: str) -> sql.Composed:
        keys = [self.table.column(name) for name in self.table.key]
        pairs = zip(prefixed(row, self.table.key), map(lakecolumns.from_lake, keys), strict=True)
        return AND.join(sql.SQL("{} = {}").format(left, right) for left, right in pairs)

    def _outer_view(self) -> sql.Composed:
        return template("outer_view").format(
            relation=self.relation,
            columns=identifiers(self.columns),
            inner=names.inner(self.table),
            alias=sql.Identifier(self.table.name.table),
        )

    def _defaults(self) -> Iterator[sql.Composed]:
        for column in self.facts.columns:
            default = column.default
            if column.identity_sequence:
                yield self._default(column.name, sql.SQL("nextval({})").format(sql.Literal(column.identity_sequence)))
            elif default:
                yield self._default(column.name, trusted(default))

    def _default(self, column: str, default: sql.Composable) -> sql.Composed:
        return template("view_default").format(relation=self.relation, column=sql.Identifier(column), default=default)

    def _insert_rule(self) -> sql.Composed:
        generated = [column.name for column in self.table.columns if column.generated]
        is_checked = self.facts.row_security or generated
        returned = map(self._visible, self.columns) if self.facts.row_security else prefixed("h", self.columns)
        return template("insert_rule_checked" if is_checked else "insert_rule").format(
            relation=self.relation,
            heap=self.heap,
            written=identifiers(self.written),
            overriding=overriding(self.facts),
            new_written=COMMA.join(prefixed("new", self.written)),
            written_values=COMMA.join(prefixed("r", self.written)),
            new_as_columns=COMMA.join(
                sql.SQL("{} as {}").format(value, sql.Identifier(name))
                for value, name in zip(prefixed("new", self.columns), self.columns, strict=True)
            ),
            may_write=AND.join(self._conditions(generated)),
            returned=COMMA.join(returned) if is_checked else identifiers(self.columns),
        )

    def _conditions(self, generated: Sequence[str]) -> Iterator[sql.Composed]:
        """What an INSERT must meet before the heap sees it; each raises an error of its own."""
        relation_name = sql.Literal(self.table.name.table)
        for name, value in zip(generated, prefixed("r", generated), strict=True):
            is_null = sql.SQL("{} is null").format(value)
            parts = {"is_null": is_null, "column": sql.Literal(name), "relation_name": relation_name}
            yield template("no_generated").format(**parts)
        if self.facts.row_security:
            may_insert = self._may("insert", COMMA.join(prefixed("r", self.columns)))
            yield template("may_insert").format(
                heap_name=self.heap_name, may_insert=may_insert, relation_name=relation_name
            )

    def _visible(self, column: str) -> sql.Composed:
        return template("returned_checked").format(
            heap_name=self.heap_name,
            may_select=self._may("select", COMMA.join(prefixed("h", self.columns))),
            relation_name=sql.Literal(self.table.name.table),
            column=sql.Identifier(column),
            type=trusted(self.table.column(column).pg_type.formatted),
        )

    def mark_trigger(self, partition: sql.Identifier) -> sql.Composed:
        """Puts the marking triggers on one partition; harmless when they are there already."""
        return mark_trigger(self.table, partition)

    def _policy_function(self) -> sql.Composed:
        old = COMMA.join(prefixed("old", self.columns))
        return template("policy_function").format(
            function=names.function(self.table, "policy"),
            body=self.body,
            heap_name=self.heap_name,
            may_delete=self._may("delete", old),
            may_update=self._may("update", old),
        )

    def mark_function(self) -> sql.Composed:
        """Makes the function of the marking triggers, or puts this one in its place."""
        table = self.table
        return template("mark_function").format(
            function=names.function(table, "mark"),
            body=self.body,
            overlay=names.overlay(table),
            lake=names.lake(table),
            old_key=COMMA.join(prefixed("old", table.key)),
            new_key=COMMA.join(prefixed("new", table.key)),
            truncate=self._truncate(),
            mark_old=self._mark_row("old"),
            mark_new=self._mark_row("new"),
            tier_key=sql.Identifier(table.tier_key),
            line=line(self.table),
            retained=line(table, RETAINED_COLUMNS[table.tier_kind]),
            below_retention=sql.Literal(f"new row of {table.name.table} is older than its retention period"),
            retention=sql.Literal(f"How long rows are kept: frostline table set {table.name} --retention ..."),
            table_id=sql.Literal(table.id),
            mark_is_new=AND.join(self._pairs("m", "new")),
            mark_is_old=AND.join(self._pairs("m", "old")),
            lake_is_new=self._lake_key_equals("new"),
            seam_is_current=seam_is_current(table),
            duplicate=sql.Literal(f"duplicate key value violates the primary key of {table.name.table}"),
            update_instead=sql.Literal(f"Update the row instead: update {table.name} ..."),
            schema_name=sql.Literal(table.name.schema),
            table_name=sql.Literal(table.name.table),
        )

    def _mark_row(self, row: str) -> sql.Composed:
        return template("mark_row").format(
            heap=self.heap,
            overlay=names.overlay(self.table),
            columns=identifiers(self.columns),
            heap_columns=COMMA.join(prefixed("h", self.columns)),
            heap_key_is_row=AND.join(self._pairs("h", row)),
            key=identifiers(self.table.key),
            replace=replace_image(self.table),
            marked=identifiers(self.marked),
            row_marked=COMMA.join(prefixed(row, self.marked)),
            clear=self._clear(),
        )

    def _clear(self) -> sql.Composed:
        cleared = [column.name for column in self.rest if column.name not in self.marked]
        return sql.Composed([sql.SQL("{} = null, ").format(sql.Identifier(name)) for name in cleared])

    def _truncate(self) -> sql.Composed:
        """The table's parts are texts here: only the statement knows which partition it is."""
        return template("truncate").format(
            tier_key_name=sql.Literal(self.table.tier_key),
            line=line(self.table),
            relation_name=sql.Literal(str(self.table.name)),
            overlay_text=sql.Literal(names.overlay(self.table).as_string()),
            marked_text=sql.Literal(identifiers(self.marked).as_string()),
            key_text=sql.Literal(identifiers(self.table.key).as_string()),
            clear_text=sql.Literal(self._clear().as_string()),
        )

    def _pairs(self, left: str, right: str) -> list[sql.Composed]:
        pairs = zip(prefixed(left, self.table.key), prefixed(right, self.table.key), strict=True)
        return [sql.SQL("{} = {}").format(one, other) for one, other in pairs]

    def _comments(self) -> Iterator[sql.Composed]:
        if self.facts.comment:
            yield template("comment").format(relation=self.relation, comment=sql.Literal(self.facts.comment))
        for column in self.facts.columns:
            if column.comment:
                yield template("comment_column").format(
                    relation=self.relation, column=sql.Identifier(column.name), comment=sql.Literal(column.comment)
                )


def mark_trigger(table: Table, partition: sql.Identifier) -> sql.Composed:
    """Puts the marking triggers on one partition; harmless when they are there already.

    Takes SHARE ROW EXCLUSIVE on that partition: waits for its writers, never blocks a reader.
    """
    return template("mark_trigger").format(partition=partition, function=names.function(table, "mark"))


def nothing(table: Table) -> sql.Composed:
    """Makes the partition of the lake table that is always empty."""
    return template("nothing").format(
        nothing=names.nothing(table),
        lake=names.lake(table),
        lowest=sql.Literal(to_text(table.tier_kind, table.tier_kind.lowest)),
    )


def replace_image(table: Table) -> sql.Composed:
    """The assignments with which a mark takes over a new image of its row."""
    rest = [column.name for column in table.columns if column.name not in table.key]
    return sql.Composed([sql.SQL("{0} = excluded.{0}, ").format(sql.Identifier(name)) for name in rest])


def line(table: Table, column: LiteralString | None = None) -> sql.Composed:
    """The frost line, or another of the seam's lines, as the view reads it: Postgres evaluates it once a query."""
    narrow = "::smallint" if table.tier_kind == "smallint" else "::integer" if table.tier_kind == "integer" else ""
    return template("line").format(
        line_column=sql.Identifier(column or LINE_COLUMNS[table.tier_kind]),
        line_cast=sql.SQL(narrow),
        table_id=sql.Literal(table.id),
    )
