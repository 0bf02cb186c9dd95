"""The statements around a relation's objects: the DEFAULT partition, comments, marking triggers. Values in, SQL out."""

from collections.abc import Iterable, Iterator

from psycopg import sql

from frostline.model.registration import HeapColumn, HeapFacts
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import names, objects
from frostline.relation.names import trusted
from frostline.relation.objects import DatabaseObject, template

DEFAULT_PARTITION_COMMENT = "made by Frostline: rows for which there is no other partition"
"""For people. Removal tells our DEFAULT partition from the user's own by `frostline.made_table`."""
OVERLAY_COLUMNS = ("frostline_live", "frostline_version", "frostline_marked_at")
"""What the overlay has beside the heap's columns, in `objects.sql`."""


def default_partition(table: Table, facts: HeapFacts) -> Iterator[sql.Composed]:
    """Makes the heap's DEFAULT partition, if it has none."""
    if not any(partition.is_default for partition in facts.partitions):
        ours = table.name.default_partition(otherwise=facts.default_name_taken)
        yield template("default_partition").format(
            default_partition=names.identifier(ours),
            heap=names.identifier(table.heap),
            made_by=sql.Literal(DEFAULT_PARTITION_COMMENT),
            owner=sql.Identifier(facts.owner),
        )


def comments(table: Table, facts: HeapFacts) -> Iterator[sql.Composed]:
    """The heap's comments, on the relation."""
    relation = names.identifier(table.relation)
    if facts.comment:
        yield template("comment").format(relation=relation, comment=sql.Literal(facts.comment))
    for column in facts.columns:
        if column.comment:
            yield template("comment_column").format(
                relation=relation, column=sql.Identifier(column.name), comment=sql.Literal(column.comment)
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
