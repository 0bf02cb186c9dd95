"""The heap of a managed table: its partitions, their capture, and emptying those that are archived."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import archived_partitions, facts, locks, seams, tables, trust
from frostline.catalog.connect import Connection, first_value, only_value
from frostline.catalog.locks import Lock
from frostline.catalog.patience import patiently, set_lock_timeout
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.model import lake_grid
from frostline.model.names import Name
from frostline.model.partitions import Identity, Partition, bounds
from frostline.model.range import Range
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, from_text, to_text
from frostline.partitions import new_partition
from frostline.relation import clock, columns, names, references
from frostline.relation import marks as overlay_marks
from frostline.relation.definition import marking, replace_image
from frostline.relation.views import line

_statement = sqlfiles.statements(__name__, "heap")

CHANGED_JUST_NOW = "a row of its range was changed just now"
"""Why an archived partition is not emptied yet."""
_MOST_RANGES = 1_000
"""A range of more of the lake's partitions is looked at for those that have rows: most of them have none."""


@dataclass(frozen=True)
class Layout:
    """The partitions of a heap and where its hot part begins: read once for all questions that rest on them."""

    partitions: Sequence[Partition]
    frost_line: int
    """The lowest value that there is, of a table without a lake."""


def _value(connection: Connection, statement: sql.Composed) -> Any:
    return only_value(connection.execute(statement))


def partitions(connection: Connection, table: Table, *, sizes: bool = True) -> list[Partition]:
    """All partitions of the heap with their bounds on the axis. Without `sizes` it takes no lock on any of them."""
    listed = facts.read_partitions(connection, tables.heap_oid(connection, table), sizes=sizes)
    result: list[Partition] = []
    for partition in listed:
        lower, upper = (None, None) if partition.is_default else bounds(table.tier_kind, partition.bound)
        about = (partition.is_default, partition.size_bytes, partition.rows_estimate, partition.is_unlogged)
        result.append(Partition(partition.name, lower, upper, *about, partition.oid))
    return result


def frost_line(connection: Connection, table: Table) -> int:
    """T, or the lowest value that there is of a table without a lake."""
    return seams.get(connection, table).frost_line if table.has_line else table.tier_kind.lowest


def layout(connection: Connection, table: Table) -> Layout:
    """The heap as it is now, without the sizes of its partitions: takes no lock on any of them."""
    return Layout(partitions(connection, table, sizes=False), frost_line(connection, table))


def refuse_unlogged(connection: Connection, table: Table) -> None:
    """UsageError when a partition is unlogged. A crash of Postgres would empty it, and an archive would not know."""
    for partition in partitions(connection, table, sizes=False):
        if partition.is_unlogged:
            raise UsageError(
                f"partition {partition.name} of {table.name} is unlogged: a crash of Postgres would empty it",
                hint=f"alter table {partition.name} set logged",
            )


def refuse_smallest(connection: Connection, table: Table, relations: Iterable[Name], *, marks: bool = False) -> None:
    """UsageError when one of these, or of these overlays, has a tier value that is too small for the lake."""
    first = lake_grid.smallest(*table.lake_grid)
    live = sql.SQL("frostline_live" if marks else "true")
    condition = sql.SQL("{} and {}").format(names.within(table, None, first), live)
    for name in relations if first > table.tier_kind.lowest else ():
        parts = (sql.Identifier(table.tier_key), names.identifier(name), condition)
        value = _value(connection, sql.SQL("select min({})::text from only {} where {}").format(*parts))
        if value is not None:
            power = 1 << (lake_grid.finest(*table.lake_grid) - 1).bit_length()
            raise UsageError(
                f"{name} has {table.tier_key} {value}; no lake partition {table.lake_partition} begins below {first}",
                hint=f"change such rows, or register {table.name} with --lake-partition 'truncate[{power}]'",
            )


def may_be_smallest(table: Table, partitions: Iterable[Partition]) -> list[Name]:
    """The partitions that can have such a value; DEFAULT is one of them."""
    first = lake_grid.smallest(*table.lake_grid)
    return [partition.name for partition in partitions if partition.begins_below(first)]


def follow_renames(connection: Connection, table: Table) -> None:
    """Call archived partitions as they are called now: what has their bounds and marks its changes is one of them."""
    present = {
        (partition.lower, partition.upper): partition.name for partition in partitions(connection, table, sizes=False)
    }
    for archived in archived_partitions.uncleaned(connection, table):
        new_name = present.get((archived.lower, archived.upper), archived.name)
        if new_name != archived.name and _is_captured(connection, table, new_name):
            archived_partitions.rename(connection, table, archived.upper, new_name)


def keep(connection: Connection, table: Table, wanted: Iterable[Partition]) -> None:
    """Inside a transaction: nobody drops or detaches these partitions before it ends. ConflictError if somebody has.

    ACCESS SHARE, as a reader has it.
    """
    planned = {partition.identity for partition in wanted}
    try:
        set_lock_timeout(connection)
        for name, *_ in planned:
            locks.take_only(connection, Lock.ACCESS_SHARE, name)
        connection.execute(sql.SQL("set local lock_timeout to default"))
    except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable):
        raise changed(table) from None
    require(connection, table, planned)


def require(connection: Connection, table: Table, planned: Collection[Identity]) -> None:
    """ConflictError unless these partitions are there, as the connection sees the heap."""
    if not {partition.identity for partition in partitions(connection, table, sizes=False)}.issuperset(planned):
        raise changed(table)


def changed(table: Table) -> ConflictError:
    """What is said when a partition is not what it was when the job began."""
    return ConflictError(
        f"a partition of {table.name} was dropped, detached, renamed or made anew while it was archived",
        hint=f"frostline archive {table.name}",
    )


def cutoff(connection: Connection, table: Table) -> int:
    """The tier value below which a row is older than the hot period, now."""
    assert table.policy.hot_period is not None
    return clock.before(connection, table, table.policy.hot_period)


def ripe_at(connection: Connection, table: Table, upper: int) -> datetime | None:
    """When a partition that ends there will be older than the hot period; None for an integer tier key."""
    kind = table.tier_kind
    if not kind.is_time or upper == kind.highest:
        return None
    statement = _statement("ripe_at_timestamptz" if kind is TierKind.TIMESTAMPTZ else "ripe_at_time")
    values = {"upper": sql.Literal(to_text(kind, upper)), "hot": sql.Literal(table.policy.hot_period)}
    try:
        with connection.transaction():
            return _value(connection, statement.format(**values))
    except psycopg.DataError:
        return None  # beyond what Postgres or Python can date


def fold_due_at(connection: Connection, table: Table, upper: int) -> datetime | None:
    """When the oldest mark below that value will be as old as fold_age; None when there is none."""
    statement = _statement("fold_due_at").format(
        age=sql.Literal(table.policy.fold_age), overlay=names.overlay(table), condition=names.within(table, None, upper)
    )
    return _value(connection, statement)


def tier_value(connection: Connection, table: Table, option: str, text: str) -> int:
    """A tier value as a person writes it, on the axis; UsageError when it is none of the tier key's type."""
    kind = table.tier_kind
    statement = _statement("tier_value").format(text=sql.Literal(text), kind=sql.SQL(kind.value))
    try:
        return from_text(kind, _value(connection, statement))
    except psycopg.DataError:
        hint = f"{table.tier_key} is a {kind.value}; times without a zone are UTC"
        raise UsageError(f"{option} {text!r} is not a {kind.value}", hint=hint) from None


def capture(connection: Connection, table: Table, partition: Name) -> None:
    """From now on every change in the partition marks its key, and no mark from before is left. Harmless to repeat.

    SHARE ROW EXCLUSIVE on that partition: waits for its writers in short tries, never blocks a reader.
    """
    if _is_captured(connection, table, partition):
        return
    target = next((candidate for candidate in partitions(connection, table) if candidate.name == partition), None)
    if target is None:
        raise ConflictError(f"{partition} is no partition of {table.name} any more", hint="run frostline archive again")
    complaint = UnavailableError(
        f"partition {partition} is still being written to",
        hint="end the transactions that hold it, then run frostline archive again",
    )

    def act() -> None:
        if not _is_captured(connection, table, partition):
            mark_changes(connection, table, names.identifier(partition))
            forget_marks(connection, table, target.lower, target.upper)

    patiently(connection, partition, act, complaint=lambda: complaint)


def mark_changes(connection: Connection, table: Table, target: sql.Identifier) -> None:
    """Put the marking triggers on a partition, or on a table that is about to become one. SHARE ROW EXCLUSIVE on it."""
    for statement in marking(table, target).create:
        connection.execute(statement)


def forget_marks(connection: Connection, table: Table, lower: int | None, upper: int | None) -> None:
    """Take away the marks of the range that lie above the frost line, where they mean nothing."""
    statement = _statement("forget_marks").format(
        overlay=names.overlay(table),
        condition=names.within(table, lower, upper),
        tier_key=sql.Identifier(table.tier_key),
        line=line(table),
    )
    connection.execute(statement)


def _is_captured(connection: Connection, table: Table, partition: Name) -> bool:
    """By the function, which nobody but us may put on a table; anybody can give a trigger its name."""
    function = sql.Literal(names.function(table, "mark").as_string(connection))
    named = {"schema": sql.Literal(partition.schema), "table": sql.Literal(partition.table)}
    return bool(_value(connection, _statement("is_captured").format(function=function, **named)))


def adopt(connection: Connection, table: Table, frost_line: int) -> list[Name]:
    """Capture partitions that somebody made below the frost line, and mark their rows, which nobody could see.

    SHARE ROW EXCLUSIVE on such a partition for as long as marking takes. Returns their names; usually there are none.
    """
    adopted: list[Name] = []
    for partition in partitions(connection, table) if frost_line > table.tier_kind.lowest else ():
        is_below = not partition.is_default and partition.begins_below(frost_line)
        if not is_below or _is_captured(connection, table, partition.name):
            continue
        target = names.identifier(partition.name)
        patiently(connection, partition.name, lambda target=target: mark_all(connection, table, target))
        adopted.append(partition.name)
    return adopted


def mark_all(connection: Connection, table: Table, target: sql.Identifier) -> None:
    """Capture a partition as it is: every row gets its mark now, and every change from now on."""
    mark_changes(connection, table, target)
    statement = _statement("mark_all").format(
        overlay=names.overlay(table),
        columns=names.columns(None, [column.name for column in table.columns]),
        partition=target,
        key=names.columns(None, table.key),
        replace=replace_image(table),
    )
    connection.execute(statement)


def lake_ranges(connection: Connection, table: Table, partition: Partition) -> Iterator[tuple[int, int]]:
    """Cut the partition's range where the lake's partitions end; only ranges that may hold rows."""
    assert partition.upper is not None
    if partition.lower is not None:
        all_ranges = lake_grid.ranges(*table.lake_grid, partition.lower, partition.upper)
        some = list(islice(all_ranges, _MOST_RANGES + 1))
        if len(some) <= _MOST_RANGES:
            yield from some
            return
    yield from occupied(connection, table, partition.name, partition.upper)


def occupied(connection: Connection, table: Table, target: Name, upper: int) -> Iterator[tuple[int, int]]:
    """The ranges of lake partitions below `upper` in which a table of this tier key has rows.

    It steps from the first row of a range to the first row after it.
    """
    start = _lowest_value(connection, table, target, table.tier_kind.lowest)
    while start is not None and start < upper:
        if table.tier_kind.is_time and start == table.tier_kind.lowest:
            end = table.tier_kind.earliest  # minus infinity, which has no calendar to cut by
        else:
            _, end = next(lake_grid.ranges(*table.lake_grid, start, upper))
        yield start, end
        start = _lowest_value(connection, table, target, end)


def _lowest_value(connection: Connection, table: Table, partition: Name, start: int) -> int | None:
    statement = _statement("lowest_value").format(
        tier_key=sql.Identifier(table.tier_key),
        partition=names.identifier(partition),
        **{"from": sql.Literal(to_text(table.tier_kind, start))},
    )
    text: str | None = _value(connection, statement)
    return None if text is None else from_text(table.tier_kind, text)


def marks(connection: Connection, table: Table, lower: int | None, upper: int | None) -> int:
    """How many keys of the range are in the overlay."""
    statement = _statement("marks_in_range").format(
        overlay=names.overlay(table), condition=names.within(table, lower, upper)
    )
    return int(_value(connection, statement))


def oldest_mark_s(connection: Connection, table: Table, upper: int) -> int | None:
    """How many seconds the oldest mark below that value has been there; None when there is none."""
    statement = _statement("oldest_mark").format(
        overlay=names.overlay(table), condition=names.within(table, None, upper)
    )
    return first_value(connection.execute(statement))


def has_older_mark(connection: Connection, table: Table, upper: int, age: str) -> bool:
    """Whether a mark below that value has been there for that interval."""
    condition = names.within(table, None, upper)
    statement = _statement("has_older_mark").format(
        overlay=names.overlay(table), condition=condition, age=sql.Literal(age)
    )
    return bool(_value(connection, statement))


def count(connection: Connection, partition: Name) -> int:
    """The exact number of rows of a partition."""
    return int(_value(connection, sql.SQL("select count(*) from only {}").format(names.identifier(partition))))


def has_rows(connection: Connection, partition: Name) -> bool:
    """Whether there is any row in it."""
    statement = sql.SQL("select exists (select from only {})").format(names.identifier(partition))
    return bool(_value(connection, statement))


def empty(connection: Connection, table: Table, partition: Name, lower: int | None, upper: int) -> bool:
    """Truncate an archived partition unless a key of its range is in the overlay; says whether it did.

    Inside the caller's transaction. ACCESS EXCLUSIVE on that partition only, tried for a moment; a writer
    that came first has left its mark by the time the lock is ours.
    """
    target = names.identifier(partition)
    set_lock_timeout(connection)
    locks.take_only(connection, Lock.ACCESS_EXCLUSIVE, partition)
    if marks(connection, table, lower, upper):
        return False
    columns.require(connection, table)
    with overlay_marks.marking_disabled(connection, table), new_partition.user_triggers_disabled(connection, partition):
        connection.execute(_statement("empty").format(partition=target))
    return True


def delete_archived(connection: Connection, table: Table, partition: Name, lower: int | None, upper: int) -> str | None:
    """Empty an archived partition of a heap that foreign keys point at; returns why not, if not.

    Postgres truncates no such table, so its rows are deleted. Inside the caller's transaction. EXCLUSIVE on that
    partition only, tried for a moment: readers go on; whoever would reference a row of it waits, and then finds none.
    Asks the lake of another managed table whose rows there may reference one. A new foreign key waits for the lock too.
    """
    set_lock_timeout(connection)
    locks.take_only(connection, Lock.EXCLUSIVE, partition)
    if marks(connection, table, lower, upper):
        return CHANGED_JUST_NOW
    columns.require(connection, table)
    foreign_keys = references.inbound(connection, table)
    reason = references.reason_to_stay(connection, table, foreign_keys, partition, Range(lower, upper))
    if reason is None:
        trust.require_no_user_triggers(connection, table)
        with overlay_marks.marking_disabled(connection, table), overlay_marks.user_triggers_disabled(connection):
            references.delete_rows(connection, partition)
    return reason


def drop(connection: Connection, table: Table, partition: Name) -> bool:
    """Drop an emptied partition if nobody uses the heap just now; says whether it did. Never queues for its lock.

    DROP locks DEFAULT too, so that is locked before. One that got rows since it was emptied stays: they are the heap's
    half of what the overlay shows.
    """
    try:
        with connection.transaction():
            for name in filter(None, (table.heap, new_partition.default_partition(connection, table), partition)):
                locks.take_only(connection, Lock.ACCESS_EXCLUSIVE, name, nowait=True)
            if has_rows(connection, partition):
                return False
            if references.inbound(connection, table) and not references.detach(connection, table, partition):
                return False
            connection.execute(sql.SQL("drop table {}").format(names.identifier(partition)))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist):
        return False
    return True
