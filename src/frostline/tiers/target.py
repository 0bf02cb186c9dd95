"""Targets: heap partitions, overlays and tables as they are at a moment, and the check that they still are.

A name in a statement means the table and the columns of today, whatever the snapshot is, and a table that was rewritten
or emptied has other rows in its blocks. So every session that reads a target locks it as a reader does, compares it
with what the plan saw, takes rows of that very table only, and looks at the name once more when it has read.
docs/design/tiers.md has the interleavings.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import tables
from frostline.catalog.connect import Connection, first_line, local_settings
from frostline.errors import ConflictError, UsageError
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.tables import Table
from frostline.relation import heap, names
from frostline.relation.definition import OVERLAY_COLUMNS
from frostline.tiers.moment import Moment

_statement = sqlfiles.statements(__name__, "target")

Ask: TypeAlias = Callable[[sql.Composed], tuple[Any, ...]]
"""Gives the one row of a query, in the session that reads."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of a target."""

    number: int
    """Where a value is in a row: a column that is dropped and made again has another one."""
    name: str
    type_id: int


@dataclass(frozen=True)
class Target:
    """A table with rows of its own, as it is at a moment."""

    name: Name
    oid: int
    filenode: int
    blocks: int
    columns: tuple[TargetColumn, ...]
    has_policies: bool = False
    """Row security applies to the role that looked."""
    lower: int | None = None
    upper: int | None = None
    """The bounds of a partition, on the axis; None is no bound."""


@dataclass(frozen=True)
class Reader:
    """How a session reads targets, and what it says where it cannot."""

    moment: Moment
    purpose: str
    """Shows in pg_stat_activity."""
    again: str
    """What to do after a conflict."""
    gone: str = "the point in time is no longer exported: the connection that held it was lost"
    lock_timeout_s: int | None = 0
    """How long to wait for the right to read, which somebody else may wait to take away. 0 is without end, None what
    the role has."""


def find(connection: Connection, wanted: Iterable[Name]) -> dict[Name, Target]:
    """The targets of these names, in a session that has joined the moment.

    ACCESS SHARE on each until its transaction ends. ConflictError when one was changed since the moment: another may
    be taken.
    """
    chosen = list(wanted)
    if not chosen:
        return {}
    only = [sql.SQL("only {}").format(names.identifier(name)) for name in chosen]
    try:
        connection.execute(_statement("lock").format(targets=sql.SQL(", ").join(only)))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise _changed(first_line(error)) from None
    texts = sql.SQL(", ").join(sql.Literal(names.identifier(name).as_string()) for name in chosen)
    targets: dict[Name, Target] = {}
    for schema, table, then, filenode, oid, blocks, has_policies, *columns in connection.execute(
        _statement("targets").format(names=texts)
    ):
        if then == filenode:
            target = Target(
                Name(schema, table), oid, filenode, blocks, tuple(map(TargetColumn, *columns)), has_policies
            )
            targets[target.name] = target
    for name in chosen:
        if name not in targets:
            raise _changed(str(name))
    return targets


def _changed(what: str) -> ConflictError:
    return ConflictError(f"a table was changed while the point in time was taken: {what}", hint="try again")


def of_plan(connection: Connection, table: Table, planned: Iterable[Partition]) -> dict[Name, Target]:
    """The partitions of a plan; ConflictError unless they and the table's columns are, at the moment, what it saw."""
    require_columns(connection, table)
    chosen = list(planned)
    heap.require(connection, table, [partition.identity for partition in chosen])
    return find(connection, [partition.name for partition in chosen])


def overlay_of(connection: Connection, table: Table) -> Target:
    """The overlay; UsageError when its columns have other names than the heap's."""
    name = Name("frostline_overlay", table.internal)
    overlay = find(connection, [name])[name]
    require_same_names(table, overlay)
    return overlay


def require_same_names(table: Table, overlay: Target) -> None:
    """UsageError when the columns of the overlay have other names than the heap's: they are found by name."""
    in_heap = [column.name for column in table.columns]
    in_overlay = [column.name for column in overlay.columns if column.name not in OVERLAY_COLUMNS]
    changed = [(new, old) for new, old in zip_longest(in_heap, in_overlay) if new != old]
    if changed:
        raise UsageError(
            f"column {changed[0][0]!r} of {table.name} is {changed[0][1]!r} in its overlay",
            hint=f"frostline table sync {table.name}",
        )


def require_columns(connection: Connection, table: Table) -> None:
    """ConflictError unless the columns and the key of the table are, at the moment, those that the plan has.

    All that is known of them counts here: what could be NULL at the moment is not in files that say it cannot.
    """
    current = tables.require_unaltered(connection, table)
    if (current.name, current.columns) != (table.name, table.columns):
        raise tables.altered(table)


def join(reader: Reader, target: Target) -> sql.Composed:
    """The statements that come first in every transaction that reads the target."""
    settings = local_settings()
    if reader.lock_timeout_s is not None:
        timeout = sql.SQL("set local lock_timeout = {}").format(sql.Literal(f"{reader.lock_timeout_s}s"))
        settings = sql.SQL("; ").join([settings, timeout])
    snapshot = sql.Literal(reader.moment.snapshot)
    return _statement("join").format(snapshot=snapshot, settings=settings, target=names.identifier(target.name))


def check(ask: Ask, reader: Reader, target: Target) -> None:
    """After `join`: ConflictError unless the session sees the moment, and the target is the one that was there."""
    horizon, oid, filenode, has_its_columns = ask(_check(target))
    if horizon != reader.moment.horizon:
        raise gone(reader)
    if oid != target.oid:
        raise another(reader, target)
    if filenode != target.filenode:
        raise ConflictError(f"{target.name} was emptied or rewritten after the point in time", hint=reader.again)
    if not has_its_columns or not ask(_types(target))[0]:
        raise ConflictError(f"the columns of {target.name} have changed since the point in time", hint=reader.again)


def check_again(ask: Ask, reader: Reader, target: Target) -> None:
    """When the rows were read, in the same transaction: ConflictError when the name means another table by now."""
    if ask(_statement("named").format(name=_text(target)))[0] != target.oid:
        raise another(reader, target)


def gone(reader: Reader) -> ConflictError:
    """The session that held the moment has ended, and the snapshot with it."""
    return ConflictError(reader.gone, hint=reader.again)


def another(reader: Reader, target: Target) -> ConflictError:
    """The name means another table, or none."""
    return ConflictError(
        f"{target.name} is not the table it was at the point in time: it, or its schema, was dropped or renamed",
        hint=reader.again,
    )


def _check(target: Target) -> sql.Composed:
    is_called, oid = _statement("is_called"), sql.Literal(target.oid)
    schema, relation = sql.Literal(target.name.schema), sql.Literal(target.name.table)
    columns = [
        is_called.format(
            oid=oid, number=column.number, schema=schema, relation=relation, column=sql.Literal(column.name)
        )
        for column in target.columns
    ]
    return _statement("check").format(name=_text(target), oid=oid, is_as_it_was=_all(columns))


def _types(target: Target) -> sql.Composed:
    name, is_of_type = names.identifier(target.name), _statement("is_of_type")
    columns = [
        is_of_type.format(target=name, column=sql.Identifier(column.name), type_id=column.type_id)
        for column in target.columns
    ]
    return _statement("types").format(is_as_it_was=_all(columns))


def _text(target: Target) -> sql.Literal:
    return sql.Literal(names.identifier(target.name).as_string())


def _all(conditions: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(" and ").join([sql.SQL("true"), *conditions])
