"""A point in time of one or more tables: an exported snapshot of Postgres, and what each table consisted of under it.

docs/design/spark-connector.md has the interleavings.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import asof, pins, seams, snapshots, tables
from frostline.catalog.connect import Connection, connect
from frostline.errors import ConflictError, UsageError
from frostline.model.names import BadName, Name
from frostline.model.tables import Seam, Table
from frostline.relation import heap, names
from frostline.spark import lakefiles

AsOf: TypeAlias = str | int | datetime | None
"""The name of a snapshot (`name` or `name@version`), a lake snapshot, a time, or now."""

_TRIES = 5


@dataclass(frozen=True)
class Moment:
    """What a task needs in order to see Postgres as it was."""

    dsn: str = field(repr=False)
    snapshot: str
    """What `pg_export_snapshot()` gave; it can be joined while its holder lives."""
    horizon: str
    """What `pg_current_snapshot()` says under it: the name of a snapshot may come again, this does not."""


@dataclass(frozen=True)
class Target:
    """A heap partition, or the overlay, as it was then."""

    name: Name
    filenode: int
    blocks: int
    lower: int | None = None
    upper: int | None = None
    """The bounds of a partition, on the axis; None is no bound."""


@dataclass(frozen=True)
class TablePoint:
    """One table at the point."""

    table: Table
    seam: Seam
    heap: tuple[Target, ...] = ()
    """The partitions that can hold rows at or above the frost line."""
    overlay: Target | None = None
    """Only where it has a key below the frost line."""
    marks: int = 0


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
    with connect(dsn, purpose="spark") as connection:
        connection.execute(_statement("join").format(snapshot=sql.Literal(snapshot)))
        moment = Moment(dsn, snapshot, _one(connection, _statement("horizon").format()))
        found = {text: _table_point(connection, text, as_of) for text in wanted}
    for one in found.values():
        if one.seam.metadata_location is not None and one.table.id:
            held.enter_context(pins.held(dsn, one.table, one.seam.metadata_location))
    return Point(moment, found)


def _table_point(connection: Connection, text: str, as_of: AsOf) -> TablePoint:
    try:
        name = Name.parse(text)
    except BadName as error:
        raise UsageError(str(error), hint="say schema.table") from None
    if isinstance(as_of, str):
        return _of_name(connection, name, as_of)
    table = tables.with_lake(connection, name)
    _require_no_policies(connection, table)
    return _now(connection, table) if as_of is None else _earlier(connection, table, as_of)


def _of_name(connection: Connection, name: Name, as_of: str) -> TablePoint:
    """The table as a snapshot of many tables has it. It is no managed table, so only its columns are known."""
    state = asof.of_name(connection, as_of, name)
    table = lakefiles.described(name, state.metadata_location)
    return TablePoint(table, Seam(0, table.tier_kind.highest, state.snapshot_id, state.metadata_location))


def _earlier(connection: Connection, table: Table, as_of: int | datetime) -> TablePoint:
    """The lake alone: every row of that state lay below the frost line of its time."""
    find = asof.of_snapshot(connection, table, as_of) if isinstance(as_of, int) else asof.at(connection, table, as_of)
    return TablePoint(table, Seam(table.id, table.tier_kind.highest, find.snapshot_id, find.metadata_location))


def _now(connection: Connection, table: Table) -> TablePoint:
    seam = seams.get(connection, table)
    partitions = heap.partitions(connection, table, sizes=False)
    hot = [one for one in partitions if one.upper is None or one.upper > seam.frost_line]
    condition = names.within(table, None, seam.frost_line)
    marks = _one(connection, _statement("marks").format(overlay=names.overlay(table), condition=condition))
    return TablePoint(
        table,
        seam,
        tuple(_target(connection, one.name, one.lower, one.upper) for one in hot),
        _target(connection, Name("frostline_overlay", table.internal)) if marks else None,
        marks,
    )


def _target(connection: Connection, name: Name, lower: int | None = None, upper: int | None = None) -> Target:
    statement = _statement("target").format(target=sql.Literal(names.identifier(name).as_string()))
    row = connection.execute(statement).fetchone()
    assert row is not None
    return Target(name, row[0], row[1], lower, upper)


def _require_no_policies(connection: Connection, table: Table) -> None:
    heap_name = sql.Literal(names.identifier(table.heap).as_string())
    if _one(connection, _statement("row_security").format(heap=heap_name)):
        raise UsageError(
            f"row security of {table.name} applies to this role, and lake files have none",
            hint="read as a role that may see every row: the table's owner, or one with BYPASSRLS",
        )


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "point")[name])


def _one(connection: Connection, statement: sql.Composed) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]
