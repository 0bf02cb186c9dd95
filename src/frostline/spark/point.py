"""A point in time of one or more tables: an exported snapshot of Postgres, and what each table consisted of under it.

docs/design/spark-connector.md has the interleavings.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import lake_states, pins, seams, snapshots, tables
from frostline.catalog.connect import Connection, Dsn, connect, only_value
from frostline.errors import ConflictError, UsageError
from frostline.model.names import BadName, Name
from frostline.model.tables import LakeTable, Table
from frostline.relation import heap, names
from frostline.spark import lakefiles

_statement = sqlfiles.statements(__name__, "point")

AsOf: TypeAlias = str | int | datetime | None
"""The name of a snapshot (`name` or `name@version`), a lake snapshot, a time, or now."""

_TRIES = 5
_OWN_COLUMNS = ("frostline_live", "frostline_version", "frostline_marked_at")
"""What an overlay has besides the table's columns."""


@dataclass(frozen=True)
class Moment:
    """What a task needs in order to see Postgres as it was."""

    dsn: Dsn = field(repr=False)
    snapshot: str
    """What `pg_export_snapshot()` gave; it can be joined while its holder lives."""
    horizon: str
    """What `pg_current_snapshot()` says under it: the name of a snapshot may come again, this does not."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of a heap partition, or of the overlay, as it was then."""

    number: int
    """Where a value is in a row: a column that is dropped and made again has another one."""
    name: str
    type_id: int


@dataclass(frozen=True)
class Target:
    """A heap partition, or the overlay, as it was then."""

    name: Name
    filenode: int
    blocks: int
    columns: tuple[TargetColumn, ...]
    lower: int | None = None
    upper: int | None = None
    """The bounds of a partition, on the axis; None is no bound."""


@dataclass(frozen=True)
class TablePoint:
    """One table at the point."""

    table: LakeTable
    metadata_location: str | None
    snapshot_id: int | None
    """Of the lake; None while nothing is archived."""
    line: int | None = None
    """The frost line; None where the lake alone is read, and all of it."""
    heap: tuple[Target, ...] = ()
    """The partitions that can hold rows at or above the frost line."""
    overlay: Target | None = None
    """Only where it has a key below the frost line."""
    marks: int = 0
    dsn: Dsn = field(default_factory=Dsn, repr=False)
    """Where the checksums of its files are."""


@dataclass(frozen=True)
class Point:
    """Several tables at one point, by their names as they were asked for."""

    moment: Moment
    tables: dict[str, TablePoint]


@contextmanager
def taken(dsn: str, wanted: Sequence[str], as_of: AsOf) -> Generator[Point]:
    """Take a point of these tables and hold it: the snapshot is exported and the lakes are pinned meanwhile."""
    with ExitStack() as held:
        yield _taken(held, dsn, wanted, as_of, _TRIES)


def _taken(held: ExitStack, dsn: str, wanted: Sequence[str], as_of: AsOf, tries: int) -> Point:
    """A state that is expired before it is pinned was not the current one any more: look again."""
    try:
        with ExitStack() as attempt:
            point = _attempted(attempt, dsn, wanted, as_of)
            held.push(attempt.pop_all())
            return point
    except ConflictError:
        if tries <= 1 or as_of is not None:
            raise
    return _taken(held, dsn, wanted, as_of, tries - 1)


def _attempted(held: ExitStack, dsn: str, wanted: Sequence[str], as_of: AsOf) -> Point:
    snapshot = held.enter_context(snapshots.exported(dsn))
    with connect(dsn, purpose="spark", for_user=True) as connection:
        connection.execute(_statement("join").format(snapshot=sql.Literal(snapshot)))
        moment = Moment(Dsn(dsn), snapshot, _one(connection, _statement("horizon").format()))
        found = {text: replace(_table_point(connection, text, as_of), dsn=moment.dsn) for text in wanted}
    lakes = [(one.table, one.metadata_location) for one in found.values()]
    pinned = [(table, state) for table, state in lakes if isinstance(table, Table) and state is not None]
    if pinned:
        held.enter_context(pins.held_together(dsn, pinned))
    return Point(moment, found)


def _table_point(connection: Connection, text: str, as_of: AsOf) -> TablePoint:
    try:
        name = Name.parse(text)
    except BadName as error:
        raise UsageError(str(error), hint="say schema.table") from None
    if isinstance(as_of, str):
        return _of_name(connection, name, as_of)
    table = tables.with_lake(connection, name)
    _require_rights(connection, table.heap, name)
    return _now(connection, table) if as_of is None else _earlier(connection, table, as_of)


def _of_name(connection: Connection, name: Name, as_of: str) -> TablePoint:
    """The table as a snapshot of many tables has it. It is no managed table, so only its columns are known."""
    state = lake_states.of_name(connection, as_of, name)
    _require_rights(connection, name, name)
    if name in tables.names(connection):
        _require_rights(connection, name.heap, name)
    return TablePoint(lakefiles.described(name, state.metadata_location), state.metadata_location, state.snapshot_id)


def _earlier(connection: Connection, table: Table, as_of: int | datetime) -> TablePoint:
    """The lake alone: every row of that state lay below the frost line of its time."""
    find = (
        lake_states.of_snapshot(connection, table, as_of)
        if isinstance(as_of, int)
        else lake_states.at(connection, table, as_of)
    )
    return TablePoint(table, find.metadata_location, find.snapshot_id)


def _now(connection: Connection, table: Table) -> TablePoint:
    seam = seams.get(connection, table)
    partitions = heap.partitions(connection, table, sizes=False)
    hot = [partition for partition in partitions if partition.upper is None or partition.upper > seam.frost_line]
    condition = names.within(table, None, seam.frost_line)
    marks = _one(connection, _statement("marks").format(overlay=names.overlay(table), condition=condition))
    targets = tuple(_target(connection, partition.name, partition.lower, partition.upper) for partition in hot)
    overlay = _overlay(connection, table) if marks else None
    return TablePoint(table, seam.metadata_location, seam.snapshot_id, seam.frost_line, targets, overlay, marks)


def _overlay(connection: Connection, table: Table) -> Target:
    """The overlay; UsageError when its columns have other names than the heap's: they are found by name."""
    target = _target(connection, Name("frostline_overlay", table.internal))
    known = [column.name for column in table.columns]
    found = [column.name for column in target.columns if column.name not in _OWN_COLUMNS]
    changed = [(new, old) for new, old in zip_longest(known, found) if new != old]
    if changed:
        raise UsageError(
            f"column {changed[0][0]!r} of {table.name} is {changed[0][1]!r} in its overlay",
            hint="schema changes are not followed: give the column its old name again",
        )
    return target


def _target(connection: Connection, name: Name, lower: int | None = None, upper: int | None = None) -> Target:
    """ConflictError when the table was changed in the moment since the snapshot; then a new one is taken."""
    identifier = names.identifier(name)
    try:
        connection.execute(_statement("lock").format(target=identifier))
    except psycopg.errors.UndefinedTable:
        raise _changed(name) from None
    statement = _statement("target").format(target=sql.Literal(identifier.as_string()))
    row = connection.execute(statement).fetchone()
    if row is None or row[0] != row[1]:
        raise _changed(name)
    _, filenode, blocks, has_policies, *columns = row
    if has_policies:
        raise policies_apply(str(name))
    return Target(name, filenode, blocks, tuple(map(TargetColumn, *columns)), lower, upper)


def _changed(name: Name) -> ConflictError:
    return ConflictError(f"{name} was changed while the point in time was taken", hint="read the table again")


def _require_rights(connection: Connection, relation: Name, asked: Name) -> None:
    """UsageError unless the role may read the relation, and all its rows; one that is gone has nobody's secrets."""
    values = {"schema": sql.Literal(relation.schema), "relation": sql.Literal(relation.table)}
    row = connection.execute(_statement("rights").format(**values)).fetchone()
    may_read, has_policies = row or (None, None)
    if may_read is False:
        raise UsageError(f"this role may not read {asked}", hint=f"grant select on {relation} to it")
    if has_policies:
        raise policies_apply(str(asked))


def policies_apply(relation: str) -> UsageError:
    """What is said where policies would hide rows."""
    return UsageError(
        f"row security of {relation} applies to this role, and lake files have none",
        hint="read as a role that may see every row: the table's owner, or one with BYPASSRLS",
    )


def _one(connection: Connection, statement: sql.Composed) -> Any:
    return only_value(connection.execute(statement))
