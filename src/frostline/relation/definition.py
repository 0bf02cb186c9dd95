"""Writes the SQL that makes a table a relation of two tiers. Pure: values in, statements out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import LiteralString

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.seams import LINE_COLUMNS, RETAINED_COLUMNS
from frostline.model.registration import HeapColumn, HeapFacts
from frostline.model.tables import Column, Table
from frostline.model.tiers import to_text
from frostline.relation import lakecolumns, names, policies
from frostline.relation.names import trusted

DEFAULT_PARTITION_COMMENT = "made by Frostline: rows for which there is no other partition"
"""How removal tells our DEFAULT partition from the user's own."""
COMMA = sql.SQL(", ")
AND = sql.SQL(" and ")


def template(name: str) -> sql.SQL:
    """One named template of `sql/objects.sql`."""
    return sql.SQL(sqlfiles.load(__package__ or "", "objects")[name])


def prefixed(prefix: str, columns: Iterable[str]) -> list[sql.Composable]:
    """Each column behind a row's name: `new.id`, `h.id`."""
    return [sql.SQL(".").join((sql.SQL(_ROWS[prefix]), sql.Identifier(column))) for column in columns]


_ROWS: dict[str, LiteralString] = {"new": "new", "old": "old", "h": "h", "c": "c", "o": "o", "m": "m"}


def identifiers(columns: Iterable[str]) -> sql.Composed:
    """A comma list of column names."""
    return COMMA.join(map(sql.Identifier, columns))


def _expressions(facts: HeapFacts) -> Iterator[str]:
    """What of the table's own SQL goes into our functions."""
    for policy in facts.policies:
        yield from (policy.using or "", policy.check or "", *policy.roles)


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
        self.body = names.dollar_quote([str(table.name), *self.columns, *_expressions(facts)])

    def statements(self) -> Iterator[sql.Composed]:
        """Everything registration creates, from the renaming of the heap to the last comment."""
        heap_table = sql.Identifier(self.table.heap.table)
        yield template("rename_heap").format(relation=self.relation, heap_table=heap_table)
        if not any(partition.is_default for partition in self.facts.partitions):
            yield self._default_partition()
        yield self._overlay()
        yield self._lake()
        yield self._inner_view()
        yield self._outer_view()
        yield from self._defaults()
        yield self._insert_rule()
        yield from self._triggers()
        yield self.mark_trigger(self._default_partition_name())
        yield from self._comments()

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
            nothing=names.nothing(self.table),
            columns=lakecolumns.every(self.table),
            tier_key=sql.Identifier(self.table.tier_key),
            highest=sql.Literal(to_text(self.table.tier_kind, self.table.tier_kind.highest)),
        )

    def _inner_view(self) -> sql.Composed:
        return template("inner_view_secured" if self.facts.row_security else "inner_view").format(
            inner=names.inner(self.table),
            arms=self._arms(),
            columns=identifiers(self.columns),
            alias=sql.Identifier(self.table.name.table),
            heap_name=self.heap_name,
            policy=policies.using(self.facts.policies, "r"),
        )

    def _arms(self) -> sql.Composed:
        return template("arms").format(
            heap=self.heap,
            lake=names.lake(self.table),
            overlay=names.overlay(self.table),
            heap_columns=COMMA.join(prefixed("h", self.columns)),
            lake_columns=COMMA.join(map(lakecolumns.from_lake, self.table.columns)),
            overlay_columns=COMMA.join(prefixed("o", self.columns)),
            tier_key=sql.Identifier(self.table.tier_key),
            line=line(self.table),
            table_id=sql.Literal(self.table.id),
            lake_key_is_marked=self._lake_key_equals("m"),
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

    def _overriding(self) -> sql.SQL:
        has_identity = any(column.identity for column in self.facts.columns)
        return sql.SQL(" overriding system value" if has_identity else "")

    def _insert_rule(self) -> sql.Composed:
        name = "insert_rule_checked" if self.facts.row_security else "insert_rule"
        return template(name).format(
            relation=self.relation,
            heap=self.heap,
            heap_name=self.heap_name,
            relation_name=sql.Literal(self.table.name.table),
            written=identifiers(self.written),
            overriding=self._overriding(),
            new_written=COMMA.join(prefixed("new", self.written)),
            new_as_columns=self._as_columns("new"),
            alias=sql.Identifier(self.table.name.table),
            policy=policies.check(self.facts.policies, "a"),
            returned=identifiers(self.columns),
        )

    def _as_columns(self, row: str) -> sql.Composed:
        pairs = zip(prefixed(row, self.columns), map(sql.Identifier, self.columns), strict=True)
        return COMMA.join(sql.SQL("{} as {}").format(value, name) for value, name in pairs)

    def _triggers(self) -> Iterator[sql.Composed]:
        if self.facts.row_security:
            yield self._policy_function()
            yield self._trigger("policy_trigger", "policy")
        else:
            # Postgres refuses COPY FROM on a table with row security; without this trigger it refuses it here too.
            yield self._copy_function()
            yield self._trigger("copy_trigger", "copy")
        yield self._update_function()
        yield self._trigger("update_trigger", "update")
        yield self._delete_function()
        yield self._trigger("delete_trigger", "delete")
        yield self.mark_function()

    def _trigger(self, name: str, verb: str) -> sql.Composed:
        return template(name).format(
            relation=self.relation, inner=names.inner(self.table), function=names.function(self.table, verb)
        )

    def mark_trigger(self, partition: sql.Identifier) -> sql.Composed:
        """Puts the marking triggers on one partition; harmless when they are there already."""
        return mark_trigger(self.table, partition)

    def _policy_function(self) -> sql.Composed:
        return template("policy_function").format(
            function=names.function(self.table, "policy"),
            body=self.body,
            heap_name=self.heap_name,
            relation_name=sql.Literal(self.table.name.table),
            alias=sql.Identifier(self.table.name.table),
            old_as_columns=self._as_columns("old"),
            new_as_columns=self._as_columns("new"),
            delete_using=policies.using(self.facts.policies, "d"),
            update_using=policies.using(self.facts.policies, "w"),
            update_check=policies.check_of_update(self.facts.policies),
        )

    def _copy_function(self) -> sql.Composed:
        return template("copy_function").format(
            function=names.function(self.table, "copy"),
            body=self.body,
            heap=self.heap,
            written=identifiers(self.written),
            overriding=self._overriding(),
            new_written=COMMA.join(prefixed("new", self.written)),
        )

    def _update_function(self) -> sql.Composed:
        always = {column.name for column in self.facts.columns if column.identity == "a"}
        assigned = [name for name in self.written if name not in always]
        pairs = zip(map(sql.Identifier, assigned), prefixed("new", assigned), strict=True)
        return template("update_function").format(
            function=names.function(self.table, "update"),
            body=self.body,
            heap=self.heap,
            refuse_identity_change=self._identity_guard(sorted(always)),
            assignments=COMMA.join(sql.SQL("{} = {}").format(name, value) for name, value in pairs),
            heap_columns=COMMA.join(prefixed("h", self.columns)),
            written=identifiers(self.written),
            overriding=self._overriding(),
            new_written=COMMA.join(prefixed("new", self.written)),
            heap_key_is_old=self._heap_key_is_old(),
            heap_rest_is_old=self._heap_rest_is_old(),
            claim=self._claim(),
        )

    def _identity_guard(self, always: Sequence[str]) -> sql.Composable:
        if not always:
            return sql.SQL("")
        pairs = zip(prefixed("new", always), prefixed("old", always), strict=True)
        changed = sql.SQL(" or ").join(sql.SQL("{} is distinct from {}").format(new, old) for new, old in pairs)
        message = f"column {', '.join(always)} of {self.table.name.table} can only be updated to DEFAULT"
        hint = sql.Literal("It is GENERATED ALWAYS: leave it out of the UPDATE.")
        return template("identity_guard").format(changed=changed, message=sql.Literal(message), hint=hint)

    def _delete_function(self) -> sql.Composed:
        return template("delete_function").format(
            function=names.function(self.table, "delete"),
            body=self.body,
            heap=self.heap,
            heap_key_is_old=self._heap_key_is_old(),
            heap_rest_is_old=self._heap_rest_is_old(),
            claim=self._claim(),
        )

    def _claim(self) -> sql.Composed:
        message = f"could not serialize access to {self.table.name.table} due to concurrent update"
        return template("claim").format(
            heap=self.heap,
            overlay=names.overlay(self.table),
            marked=identifiers(self.marked),
            old_marked=COMMA.join(prefixed("old", self.marked)),
            heap_key_is_old=self._heap_key_is_old(),
            concurrent=sql.Literal(message),
            run_again=sql.Literal("Run the transaction again."),
            seam_is_current=self._seam_is_current(),
            table_id=sql.Literal(self.table.id),
        )

    def _seam_is_current(self) -> sql.Composed:
        return template("seam_is_current").format(table_id=sql.Literal(self.table.id))

    def _heap_key_is_old(self) -> sql.Composed:
        pairs = zip(prefixed("h", self.table.key), prefixed("old", self.table.key), strict=True)
        return AND.join(sql.SQL("{} = {}").format(left, right) for left, right in pairs)

    def _heap_rest_is_old(self) -> sql.Composable:
        if not self.rest:
            return sql.SQL("true")
        left = COMMA.join(_comparable("h", column) for column in self.rest)
        right = COMMA.join(_comparable("old", column) for column in self.rest)
        return sql.SQL("row({}) is not distinct from row({})").format(left, right)

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
            lake_is_new=self._lake_key_equals("new"),
            seam_is_current=self._seam_is_current(),
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


def _comparable(row: str, column: Column) -> sql.Composable:
    """Text-carried types compare by their text: some have no equality, and some call different values equal."""
    (value,) = prefixed(row, [column.name])
    return sql.SQL("{}::text").format(value) if column.carriage.as_text else value
