"""Rows of the heap that other tables reference by foreign keys, where the relation stands beside it: they stay there.

docs/design/registration.md says how a partition goes that such a key points at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.archive import Plan
from frostline.model.names import Name, quoted
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "references")
_MOST_NAMED = 3
"""An error names this many of the referenced rows."""


@dataclass(frozen=True)
class Reference:
    """A foreign key that points at the heap."""

    constraint: str
    child: Name
    parent_columns: tuple[str, ...]
    child_columns: tuple[str, ...]

    @property
    def same(self) -> sql.Composed:
        """The condition that row `c` of the other table references row `h` of the heap."""
        pairs = zip(self.parent_columns, self.child_columns, strict=True)
        return sql.SQL(" and ").join(
            sql.SQL("{} = {}").format(names.column("c", theirs), names.column("h", ours)) for ours, theirs in pairs
        )

    def __str__(self) -> str:
        return f"{quoted(self.constraint)} on {self.child}"


def inbound(connection: Connection, table: Table) -> list[Reference]:
    """The foreign keys that point at the heap; usually none."""
    heap = sql.Literal(names.identifier(table.heap).as_string(connection))
    return fetch(connection, _reference, _statement("inbound").format(heap=heap))


def _reference(
    *, constraint: str, schema: str, child: str, parent_columns: list[str], child_columns: list[str]
) -> Reference:
    return Reference(constraint, Name(schema, child), tuple(parent_columns), tuple(child_columns))


def limited(connection: Connection, table: Table, plan: Plan) -> tuple[Plan, str | None]:
    """What of a plan may be archived: all before the first partition that has a referenced row.

    And which one that is, with the reason; None when there is none.
    """
    foreign_keys = inbound(connection, table)
    for position, partition in enumerate(plan.partitions if foreign_keys else ()):
        reason = reason_to_stay(connection, table, foreign_keys, partition.name)
        if reason is not None:
            kept = plan.partitions[:position]
            line = kept[-1].upper if kept else None
            kept_plan = replace(plan, partitions=kept, to_line=plan.from_line if line is None else line)
            return kept_plan, f"{partition.name}: {reason}"
    return plan, None


def reason_to_stay(
    connection: Connection, table: Table, foreign_keys: Sequence[Reference], partition: Name
) -> str | None:
    """Which rows of a partition are referenced, and by what; None when none is."""
    for foreign_key in foreign_keys:
        rows = list(_referenced(connection, table, foreign_key, partition))
        if rows:
            more = " and others" if len(rows) > _MOST_NAMED else ""
            listed = ", ".join(rows[:_MOST_NAMED])
            return f"foreign key {foreign_key} references its rows {listed}{more}"
    return None


def _referenced(connection: Connection, table: Table, foreign_key: Reference, partition: Name) -> Iterator[str]:
    query = _statement("referenced").format(
        key=names.columns("h", table.key),
        partition=names.identifier(partition),
        child=names.identifier(foreign_key.child),
        same=foreign_key.same,
        most=sql.Literal(_MOST_NAMED + 1),
    )
    yield from (text for (text,) in connection.execute(query).fetchall())


def keep(connection: Connection, table: Table) -> None:
    """Inside a fold's transaction that has locked heap rows: let go of those that are referenced, with their marks."""
    for foreign_key in inbound(connection, table):
        connection.execute(
            _statement("keep_referenced").format(
                heap=names.identifier(table.heap), child=names.identifier(foreign_key.child), same=foreign_key.same
            )
        )


def delete_rows(connection: Connection, partition: Name) -> None:
    """Delete all rows of a partition that is locked, and of which none is referenced.

    EXCLUSIVE is enough: it keeps out writers, and those who would reference one of its rows. Readers go on.
    """
    connection.execute(_statement("delete_rows").format(partition=names.identifier(partition)))


def detach(connection: Connection, table: Table, partition: Name) -> bool:
    """Take an empty partition out of a heap that foreign keys point at; False when a key of one of its rows is found.

    Inside the caller's transaction, which has ACCESS EXCLUSIVE on the heap, on DEFAULT and on the partition.
    """
    statement = _statement("detach").format(heap=names.identifier(table.heap), partition=names.identifier(partition))
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.errors.ForeignKeyViolation:
        return False
    return True
