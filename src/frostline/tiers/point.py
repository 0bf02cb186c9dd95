"""A point in time of one or more managed tables: a moment of Postgres, and what each table consisted of at it.

docs/design/spark-connector.md has the interleavings.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import lake_states, lake_tables, pins, seams, tables
from frostline.catalog.connect import Connection, Dsn, only_value
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, UsageError
from frostline.lake import lake_table, pg_types, snapshots
from frostline.model.names import BadName, Name
from frostline.model.tables import StoredTable, Table, TableCopy
from frostline.relation import heap, lake_foreign, names
from frostline.tiers import files, target
from frostline.tiers import moment as moments
from frostline.tiers.moment import Moment
from frostline.tiers.shards import policies_apply
from frostline.tiers.target import Target

_statement = sqlfiles.statements(__name__, "point")

AsOf: TypeAlias = str | int | datetime | None
"""The name of a snapshot (`name` or `name@version`), a lake snapshot, a time, or now."""

_TRIES = 5


@dataclass(frozen=True)
class TablePoint:
    """One table at the point."""

    table: StoredTable
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
    is_lake_table: bool = False
    """It lives in the lake alone, and its files may have rows that are gone."""
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
    moment = held.enter_context(moments.exported(dsn))
    with moments.joined(moment, purpose="point") as connection:
        points = {text: replace(_table_point(connection, text, as_of), dsn=moment.dsn) for text in wanted}
    lakes = [(at.table, at.metadata_location) for at in points.values()]
    pinned = [(table, state) for table, state in lakes if isinstance(table, Table) and state is not None]
    if pinned:
        held.enter_context(pins.held_together(dsn, pinned))
    return Point(moment, points)


def _table_point(connection: Connection, text: str, as_of: AsOf) -> TablePoint:
    try:
        name = Name.parse(text)
    except BadName as error:
        raise UsageError(str(error), hint="say schema.table") from None
    if isinstance(as_of, str):
        return _of_name(connection, name, as_of)
    lake_table_id = lake_foreign.asked_for(connection, name)
    if lake_table_id is not None:
        require_rights(connection, name, name)
        return _of_lake_table(lake_tables.of_foreign_table(connection, lake_table_id), name, as_of)
    table = tables.with_lake(connection, name)
    require_rights(connection, table.heap, name)
    return _now(connection, table) if as_of is None else _earlier(connection, table, as_of)


def _of_name(connection: Connection, name: Name, as_of: str) -> TablePoint:
    """The table as a named snapshot has it. It is no managed table, so only its columns are known."""
    name = tables.own_name(connection, name)
    state = lake_states.of_name(connection, as_of, name)
    require_rights(connection, name, name)
    heap_name = tables.heaps(connection).get(name)
    if heap_name is not None:
        require_rights(connection, heap_name, name)
    return TablePoint(files.described(name, state.metadata_location), state.metadata_location, state.snapshot_id)


def _of_lake_table(pointer: LakePointer, name: Name, as_of: int | datetime | None) -> TablePoint:
    """A table that lives in the lake alone, where the session's snapshot has its pointer."""
    metadata = snapshots.read_metadata(pointer.metadata_location)
    snapshot_id = metadata.current_snapshot_id
    if as_of is not None:
        snapshot_id = lake_table.snapshot_of(metadata, as_of)
        if snapshot_id is None:
            what = f"lake snapshot {as_of}" if isinstance(as_of, int) else f"state of {as_of.isoformat()}"
            hint = "it had no row yet, or the snapshot has expired: frostline lake show tells the current one"
            raise UsageError(f"the lake of {name} does not have the {what}", hint=hint)
    table = TableCopy(name, pg_types.columns(metadata))
    return TablePoint(table, pointer.metadata_location, snapshot_id, is_lake_table=True)


def _earlier(connection: Connection, table: Table, as_of: int | datetime) -> TablePoint:
    """The lake alone: every row of that state lay below the frost line of its time."""
    state = (
        lake_states.of_snapshot(connection, table, as_of)
        if isinstance(as_of, int)
        else lake_states.at(connection, table, as_of)
    )
    return TablePoint(table, state.metadata_location, state.snapshot_id)


def _now(connection: Connection, table: Table) -> TablePoint:
    seam = seams.get(connection, table)
    partitions = heap.partitions(connection, table, sizes=False)
    hot = [partition for partition in partitions if partition.reaches_above(seam.frost_line)]
    statement = _statement("marks").format(
        overlay=names.overlay(table), condition=names.within(table, None, seam.frost_line)
    )
    marks = only_value(connection.execute(statement))
    by_name = target.find(connection, [partition.name for partition in hot])
    targets = tuple(replace(by_name[partition.name], lower=partition.lower, upper=partition.upper) for partition in hot)
    overlay = target.overlay_of(connection, table) if marks else None
    for read in (*targets, *([overlay] if overlay else [])):
        if read.has_policies:
            raise policies_apply(str(read.name))
    return TablePoint(table, seam.metadata_location, seam.snapshot_id, seam.frost_line, targets, overlay, marks)


def require_rights(connection: Connection, relation: Name, asked: Name) -> None:
    """UsageError unless the role may read the relation, and all its rows; one that is gone has nobody's secrets."""
    values = {"schema": sql.Literal(relation.schema), "relation": sql.Literal(relation.table)}
    row = connection.execute(_statement("rights").format(**values)).fetchone()
    may_read, has_policies = row or (None, None)
    if may_read is False:
        raise UsageError(f"this role may not read {asked}", hint=f"grant select on {relation} to it")
    if has_policies:
        raise policies_apply(str(asked))
