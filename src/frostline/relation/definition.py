"""Writes the SQL that makes a table a relation of two tiers. Pure: values in, statements out."""

from collections.abc import Iterable, Iterator
from typing import LiteralString

from psycopg import sql

from frostline.catalog.seams import RETAINED_COLUMNS
from frostline.model.registration import HeapColumn, HeapFacts
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import lakecolumns, names, objects
from frostline.relation.names import trusted
from frostline.relation.objects import Address, DatabaseObject, Kind, template
from frostline.relation.views import Views, line
from frostline.relation.writes import Writes, seam_is_current

DEFAULT_PARTITION_COMMENT = "made by Frostline: rows for which there is no other partition"
"""For people. Removal tells our DEFAULT partition from the user's own by `frostline.made_table`."""
OVERLAY_COLUMNS = ("frostline_live", "frostline_version", "frostline_marked_at")
"""What the overlay has beside the heap's columns, in `objects.sql`."""
_POLICY_VERBS = ("select", "insert", "update", "become", "delete")


class Definition:
    """One table's objects, and the statements around them."""

    def __init__(self, table: Table, facts: HeapFacts) -> None:
        self.table = table
        self.facts = facts
        self.columns = [column.name for column in table.columns]
        self.rest = [column for column in table.columns if column.name not in table.key]
        self.marked = names.marked(table)
        self.relation = names.identifier(table.relation)
        self.heap = names.identifier(table.heap)
        self.views = Views(table, facts)
        self.body = names.dollar_quote([str(table.name), str(table.relation), *self.columns])

    def statements(self) -> Iterator[sql.Composed]:
        """Everything registration creates, from the renaming of the heap, if it is renamed, to the last comment."""
        if self.table.relation_name is None:
            yield objects.rename_table(self.table.relation, self.table.heap)
        if not any(partition.is_default for partition in self.facts.partitions):
            yield self.default_partition()
        for database_object in self.objects():
            if database_object.is_wanted:
                yield from database_object.create
        yield from self.comments()

    def objects(self) -> Iterator[DatabaseObject]:
        """All that the table has in Postgres, or could have, each after what it needs.

        What comes and goes in its life is made by these functions too: `marking` when a partition is captured. The
        lake's foreign tables are partitions of the lake table, and fall with it. The DEFAULT partition is the heap's.
        """
        table = self.table
        yield objects.table(names.overlay(table), self._overlay())
        yield objects.table(names.lake(table), self._lake(), nothing(table), parts=(names.nothing(table),))
        yield self._policies()
        yield objects.view(names.inner(table), self.views.inner_view(), cascade=True)
        yield self._relation()
        yield objects.rule(self.relation, "frostline_insert", self.views.insert_rule())
        yield from self._policy_check()
        yield from Writes(table, self.facts, self.body).objects()
        yield objects.function(names.function(table, "mark"), self._mark_function())
        yield marking(table, self.default_partition_name())
        yield from self._truncate_guard()

    def _policies(self) -> DatabaseObject:
        """The functions that say what the heap's policies do. Those called `policy_` are there if one has a query."""
        verbs = [f"{prefix}may_{verb}" for prefix in ("", "policy_") for verb in _POLICY_VERBS]
        table_id = sql.Literal(self.table.id)
        return DatabaseObject(
            tuple(Address(Kind.FUNCTION, names.helper(self.table, verb).as_string()) for verb in verbs),
            (template("follow_policies").format(table_id=table_id),),
            template("forget_policies").format(table_id=table_id),
            is_wanted=self.facts.row_security,
            follows=True,
        )

    def _relation(self) -> DatabaseObject:
        """The outer view, with grants and views of other people on it. Dropped when it has stepped aside."""
        return DatabaseObject(
            (Address(Kind.VIEW, self.relation.as_string()),),
            (self.views.outer_view(template("outer_view")), *self.views.defaults()),
            template("drop_view").format(view=names.identifier(names.aside(self.table))),
            is_replaceable=False,
        )

    def _policy_check(self) -> Iterator[DatabaseObject]:
        function, inner = names.function(self.table, "policy"), names.inner(self.table)
        is_wanted = self.facts.row_security
        yield objects.function(function, self._policy_function(), is_wanted=is_wanted)
        trigger = template("policy_trigger").format(inner=inner, function=function)
        yield objects.triggers(inner, ["frostline_a_policy"], trigger, is_wanted=is_wanted)

    def default_partition_name(self) -> sql.Identifier:
        """What it is called, or will be."""
        for partition in self.facts.partitions:
            if partition.is_default:
                return names.identifier(partition.name)
        ours = self.table.name.default_partition(otherwise=self.facts.default_name_taken)
        return names.identifier(ours)

    def default_partition(self) -> sql.Composed:
        """Makes the heap's DEFAULT partition."""
        return template("default_partition").format(
            default_partition=self.default_partition_name(),
            heap=self.heap,
            made_by=sql.Literal(DEFAULT_PARTITION_COMMENT),
            owner=sql.Identifier(self.facts.owner),
        )

    def _overlay(self) -> sql.Composed:
        return template("overlay").format(
            overlay=names.overlay(self.table),
            columns=columns_of(self.facts.columns),
            key=names.columns(None, self.table.key),
            tier_key=sql.Identifier(self.table.tier_key),
        )

    def _lake(self) -> sql.Composed:
        return template("lake").format(
            lake=names.lake(self.table),
            columns=lakecolumns.definitions(self.table),
            tier_key=sql.Identifier(self.table.tier_key),
        )

    def _policy_function(self) -> sql.Composed:
        old = names.columns("old", self.columns)
        return template("policy_function").format(
            function=names.function(self.table, "policy"),
            body=self.body,
            heap_name=self.views.heap_name,
            may_delete=self.views.may("delete", old),
            may_update=self.views.may("update", old),
        )

    def _mark_function(self) -> sql.Composed:
        table = self.table
        return template("mark_function").format(
            function=names.function(table, "mark"),
            body=self.body,
            overlay=names.overlay(table),
            lake=names.lake(table),
            old_key=names.columns("old", table.key),
            new_key=names.columns("new", table.key),
            truncate=self._truncate(),
            mark_old=self._mark_row("old"),
            mark_new=self._mark_row("new"),
            tier_key=sql.Identifier(table.tier_key),
            line=line(self.table),
            retained=line(table, RETAINED_COLUMNS[table.tier_kind]),
            below_retention=sql.Literal(f"new row of {table.name.table} is older than its retention period"),
            retention=sql.Literal(f"How long rows are kept: frostline table set {table.name} --retention ..."),
            table_id=sql.Literal(table.id),
            mark_is_new=names.equal("m", "new", self.table.key),
            mark_is_old=names.equal("m", "old", self.table.key),
            lake_is_new=self.views.lake_key_equals("new"),
            seam_is_current=seam_is_current(table),
            duplicate=sql.Literal(f"duplicate key value violates the primary key of {table.name.table}"),
            update_instead=sql.Literal(f"Update the row instead: update {table.relation} ..."),
            schema_name=sql.Literal(table.name.schema),
            table_name=sql.Literal(table.name.table),
        )

    def _mark_row(self, row: LiteralString) -> sql.Composed:
        return template("mark_row").format(
            heap=self.heap,
            overlay=names.overlay(self.table),
            columns=names.columns(None, self.columns),
            heap_columns=names.columns("h", self.columns),
            heap_key_is_row=names.equal("h", row, self.table.key),
            key=names.columns(None, self.table.key),
            replace=replace_image(self.table),
            marked=names.columns(None, self.marked),
            row_marked=names.columns(row, self.marked),
            clear=self._clear(),
        )

    def _clear(self) -> sql.Composed:
        cleared = [column.name for column in self.rest if column.name not in self.marked]
        return sql.Composed([sql.SQL("{} = null, ").format(sql.Identifier(name)) for name in cleared])

    def _truncate_guard(self) -> Iterator[DatabaseObject]:
        """What keeps TRUNCATE of the heap from leaving the lake's rows behind."""
        function, relation = names.function(self.table, "truncate"), self.table.relation
        create = template("truncate_function").format(
            function=function,
            body=self.body,
            table_id=sql.Literal(self.table.id),
            message=sql.Literal(f"{relation} has rows in the lake, which TRUNCATE would leave there"),
            hint=sql.Literal(f"A single partition can be truncated; all rows go by DELETE, of {relation}"),
        )
        yield objects.function(function, create)
        trigger = template("truncate_trigger").format(heap=self.heap, function=function)
        yield objects.triggers(self.heap, ["!frostline_truncate_all"], trigger)

    def _truncate(self) -> sql.Composed:
        """The table's parts are texts here: only the statement knows which partition it is."""
        return template("truncate").format(
            tier_key_name=sql.Literal(self.table.tier_key),
            line=line(self.table),
            relation_name=sql.Literal(str(self.table.relation)),
            overlay_text=sql.Literal(names.overlay(self.table).as_string()),
            marked_text=sql.Literal(names.columns(None, self.marked).as_string()),
            key_text=sql.Literal(names.columns(None, self.table.key).as_string()),
            clear_text=sql.Literal(self._clear().as_string()),
        )

    def comments(self) -> Iterator[sql.Composed]:
        """The heap's comments, on the relation."""
        if self.facts.comment:
            yield template("comment").format(relation=self.relation, comment=sql.Literal(self.facts.comment))
        for column in self.facts.columns:
            if column.comment:
                yield template("comment_column").format(
                    relation=self.relation, column=sql.Identifier(column.name), comment=sql.Literal(column.comment)
                )


def columns_of(columns: Iterable[HeapColumn]) -> sql.Composed:
    """Columns of the same names, types and collations, for another table."""
    return sql.SQL(",\n    ").join(_column(column) for column in columns)


def _column(column: HeapColumn) -> sql.Composed:
    parts: list[sql.Composable] = [sql.Identifier(column.name), trusted(column.pg_type.formatted)]
    if column.collation_name:
        parts += [sql.SQL("collate"), trusted(column.collation_name)]
    return sql.SQL(" ").join(parts)


def marking(table: Table, partition: sql.Identifier) -> DatabaseObject:
    """The marking triggers of one partition; harmless to make when they are there already.

    Takes SHARE ROW EXCLUSIVE on that partition: waits for its writers, never blocks a reader.
    """
    create = template("mark_trigger").format(partition=partition, function=names.function(table, "mark"))
    return objects.triggers(partition, ["!frostline_mark", "!frostline_truncate"], create, is_replaceable=False)


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
