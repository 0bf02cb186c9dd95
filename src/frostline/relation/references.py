"""Rows of the heap that other tables reference by foreign keys, where the relation stands beside it: they stay there.

docs/design/registration.md says how a partition goes that such a key points at, and foreign-keys.md what rows count
that another managed table has in the lake.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import jobs, tables, trust
from frostline.catalog.connect import Connection, fetch, first_line, only_value
from frostline.errors import UnavailableError, UsageError
from frostline.model.archive import Plan
from frostline.model.names import Name, quoted
from frostline.model.range import Range
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "references")
_MOST_NAMED = 3
"""An error names this many of the referenced rows."""
_LAKE_IS_DOWN = ("08", "HV")
"""Classes of SQLSTATE."""


@dataclass(frozen=True)
class Reference:
    """A foreign key that points at the heap."""

    constraint: str
    child: Name
    child_oid: int
    parent_columns: tuple[str, ...]
    child_columns: tuple[str, ...]
    same_types: tuple[bool, ...]
    """Whether the two columns of a pair have the same type."""
    cold_rows: str | None
    """The query of the rows that the other table has in the lake, if it is managed and holds this key for them."""

    @property
    def same(self) -> sql.Composed:
        """The condition that row `c` of the other table references row `h` of the heap."""
        pairs = zip(self.parent_columns, self.child_columns, strict=True)
        return names.AND.join(
            sql.SQL("{} = {}").format(names.column("c", theirs), names.column("h", ours)) for ours, theirs in pairs
        )

    @property
    def is_listed(self) -> sql.Composed:
        """The condition that each column of row `c` of the other table is in a list of `keys`, sent to the lake."""
        pairs = zip(self.parent_columns, self.child_columns, strict=True)
        return names.AND.join(
            sql.SQL("{} = any (array(select {} from keys as k))").format(
                names.column("c", theirs), names.column("k", ours)
            )
            for ours, theirs in pairs
        )

    def __str__(self) -> str:
        return f"{quoted(self.constraint)} on {self.child}"


def inbound(connection: Connection, table: Table) -> list[Reference]:
    """The foreign keys that point at the heap; usually none."""
    return fetch(connection, _reference, _statement("inbound").format(heap=_literal(connection, table.heap)))


def _reference(
    *,
    constraint: str,
    schema: str,
    child: str,
    child_oid: int,
    parent_columns: list[str],
    child_columns: list[str],
    same_types: list[bool],
    cold_rows: str | None,
) -> Reference:
    columns = tuple(parent_columns), tuple(child_columns), tuple(same_types)
    return Reference(constraint, Name(schema, child), child_oid, *columns, cold_rows)


def limited(connection: Connection, table: Table, plan: Plan, *, ask_lake: bool) -> tuple[Plan, str | None]:
    """What of a plan may be archived: all before the first partition that has a referenced row.

    And which one that is, with the reason; None when there is none. Without asking, rows in the lake reference nothing.
    """
    foreign_keys = inbound(connection, table)
    for position, partition in enumerate(plan.partitions if foreign_keys else ()):
        reason = reason_to_stay(connection, table, foreign_keys, partition.name, partition.range, ask_lake=ask_lake)
        if reason is not None:
            kept = plan.partitions[:position]
            line = kept[-1].upper if kept else None
            kept_plan = replace(plan, partitions=kept, to_line=plan.from_line if line is None else line)
            return kept_plan, f"{partition.name}: {reason}"
    return plan, None


def reason_to_stay(
    connection: Connection,
    table: Table,
    foreign_keys: Sequence[Reference],
    partition: Name,
    within: Range,
    *,
    ask_lake: bool = True,
) -> str | None:
    """Which rows of a partition with that range are referenced, and by what; None when none is."""
    for foreign_key in foreign_keys:
        if ask_lake and foreign_key.cold_rows is not None:
            rows = _referenced_from_both_tiers(connection, table, foreign_key, partition, within)
        else:
            rows = _rows(connection, "referenced", _parts(table, foreign_key, partition))
        if rows:
            more = " and others" if len(rows) > _MOST_NAMED else ""
            listed = ", ".join(rows[:_MOST_NAMED])
            return f"foreign key {foreign_key} references its rows {listed}{more}"
    return None


def _referenced_from_both_tiers(
    connection: Connection, table: Table, foreign_key: Reference, partition: Name, within: Range
) -> list[str]:
    parts = {
        **_parts(table, foreign_key, partition),
        **_cold_parts(foreign_key),
        "in_range": _in_range(table, foreign_key, within),
    }
    with _explained(connection, foreign_key):
        return _rows(connection, "referenced_from_both_tiers", parts)


def _parts(table: Table, foreign_key: Reference, partition: Name) -> dict[str, sql.Composable]:
    return {
        "key": names.columns("h", table.key),
        "partition": names.identifier(partition),
        "child": names.identifier(foreign_key.child),
        "same": foreign_key.same,
        "most": sql.Literal(_MOST_NAMED + 1),
    }


def _cold_parts(foreign_key: Reference) -> dict[str, sql.Composable]:
    return {
        "cold_rows": names.trusted(foreign_key.cold_rows or ""),
        "their_columns": names.columns("c", dict.fromkeys(foreign_key.child_columns)),
    }


def _in_range(table: Table, foreign_key: Reference, within: Range) -> sql.Composable:
    """The condition that a row can reference one of that range: a unique key of a heap has the tier key in it."""
    place = foreign_key.parent_columns.index(table.tier_key)
    if not foreign_key.same_types[place]:
        return sql.SQL("true")
    called_theirs = replace(table, tier_key=foreign_key.child_columns[place])
    return names.within(called_theirs, within.lower, within.upper, "c")


def _rows(connection: Connection, name: str, parts: dict[str, sql.Composable]) -> list[str]:
    found = connection.execute(_statement(name).format(**parts)).fetchall()
    return list(dict.fromkeys(text for (text,) in found))


@contextmanager
def _explained(connection: Connection, foreign_key: Reference) -> Generator[None]:
    """Around a question to the lake: UsageError if it would run code of others with our rights."""
    question = f"whether rows of {foreign_key.child} in the lake reference others"
    for refusal in trust.refusals(connection, foreign_key.child_oid):
        raise UsageError(f"cannot tell {question}: {refusal.reason}", hint=refusal.hint)
    try:
        yield
    except psycopg.OperationalError as error:
        if (error.sqlstate or "")[:2] not in _LAKE_IS_DOWN:
            raise
        raise UnavailableError(f"cannot tell {question}: {first_line(error)}", hint="frostline doctor") from error


def keep(connection: Connection, table: Table) -> None:
    """Inside a fold's transaction that has locked heap rows: let go of those that are referenced, with their marks.

    Asks the lake of another managed table whose rows may reference one of them.
    """
    for foreign_key in inbound(connection, table):
        parts: dict[str, sql.Composable] = {
            "heap": names.identifier(table.heap),
            "child": names.identifier(foreign_key.child),
            "same": foreign_key.same,
        }
        if foreign_key.cold_rows is None:
            connection.execute(_statement("keep_referenced").format(**parts))
        elif only_value(connection.execute(_statement("has_locked"))):
            parts |= _cold_parts(foreign_key)
            parts["our_columns"] = names.columns("h", foreign_key.parent_columns)
            parts["is_listed"] = foreign_key.is_listed
            with _explained(connection, foreign_key):
                connection.execute(_statement("keep_referenced_from_both_tiers").format(**parts))


@contextmanager
def none_from_the_lake(connection: Connection, table: Table, partition: Name) -> Generator[None]:
    """Around a DETACH, for which Postgres looks at heaps only: ForeignKeyViolation if rows in the lake need its rows.

    Under the leases of the managed tables that may have such rows: no job of theirs brings one there meanwhile.
    """
    heap = _literal(connection, table.heap)
    with ExitStack() as leased:
        for child in connection.execute(_statement("cold_children").format(heap=heap)).fetchall():
            managed = tables.get(connection, Name(*child))
            leased.enter_context(jobs.exclusive(connection, managed))
            looked = _statement("look_for_cold_children")
            table_id, name = sql.Literal(managed.id), _literal(connection, partition)
            connection.execute(looked.format(table_id=table_id, heap=heap, name=name))
        yield


def _literal(connection: Connection, name: Name) -> sql.Literal:
    return sql.Literal(names.identifier(name).as_string(connection))


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
