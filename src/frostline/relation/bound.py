"""The bound B: below it Postgres asks the lake server, at or above it never.

`frostline_lake.<table>` is a partitioned table whose foreign partitions end at B. B is raised before T by
attaching one more foreign table, which no reader notices; `merge` makes one of them all in a quiet moment.
docs/design/raising-the-bound.md has the interleavings.
"""

import logging
import time
from collections.abc import Callable, Iterable

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import facts, horizon, lake_files, leases, locks, seams, tables
from frostline.catalog.connect import Connection, first_line, only_value
from frostline.catalog.locks import Lock
from frostline.model.names import MAX_BYTES, Name, RemoteName, cut
from frostline.model.partitions import bounds
from frostline.model.registration import HeapPartition
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import heap, names, views
from frostline.relation.definition import nothing
from frostline.relation.objects import template

_statement = sqlfiles.statements(__name__, "bound")

_log = logging.getLogger(__name__)
_POLL_S = 0.05
_STANDBY_PATIENCE_S = 10
_STANDBY_PAUSE_S = 1
_FETCH_BYTES = 4_000_000
_LEAST_ROWS, _MOST_ROWS = 100, 20_000
_UNKNOWN_ROW_BYTES = 1_000
_STALE_PART = 10


def current(connection: Connection, table: Table) -> int | None:
    """B, or None when nothing was ever archived."""
    uppers = [upper for _, upper in _partitions(connection, table).values() if upper is not None]
    return max(uppers, default=None)


def _partitions(connection: Connection, table: Table) -> dict[Name, tuple[int | None, int | None]]:
    """The foreign tables, with the range of each."""
    return {partition.name: bounds(table.tier_kind, partition.bound) for partition in _foreign(connection, table)}


def _foreign(connection: Connection, table: Table) -> list[HeapPartition]:
    partitions = facts.read_partitions(connection, _oid(connection, table), sizes=False)
    return [partition for partition in partitions if partition.relkind == "f"]


def _is_old_fashioned(connection: Connection, table: Table) -> bool:
    """Whether the empty partition lies at the upper end, where earlier versions put it, in the way of hot queries."""
    partitions = facts.read_partitions(connection, _oid(connection, table), sizes=False)
    empty = [partition for partition in partitions if partition.relkind != "f"]
    return any(bounds(table.tier_kind, partition.bound)[0] is not None for partition in empty)


def _oid(connection: Connection, table: Table) -> int:
    return facts.oid(connection, Name("frostline_lake", table.internal))


def raise_to(connection: Connection, table: Table, upper: int, report: Callable[[str], None]) -> None:
    """Make B at least `upper`, and return when no statement can be left that was planned with the old B.

    Takes SHARE UPDATE EXCLUSIVE on the lake table: readers and writers go on. Harmless to repeat.
    """
    present = current(connection, table)
    if present is None or present < upper:
        with connection.transaction():
            _attach(connection, table, present, upper)
    # Also when somebody else attached it: that may have been a moment ago, by a process that died.
    wait_for_old_plans(connection, table, report)


def _attach(connection: Connection, table: Table, lower: int | None, upper: int) -> None:
    """With the columns of today: attached by name, a column that was renamed since would be asked for as another."""
    locks.take_only(connection, Lock.SHARE_UPDATE_EXCLUSIVE, names.lake(table))
    table = tables.by_id(connection, table.id)
    foreign_table = sql.Identifier("frostline_lake", _foreign_name(table, upper))
    connection.execute(
        template("foreign_table").format(
            foreign_table=foreign_table,
            columns=views.definitions(table),
            schema_name=sql.Literal(cut(str(table.name), MAX_BYTES)),
            table_name=sql.Literal(str(RemoteName(table.id, lower, upper))),
            fetch_size=sql.Literal(str(_fetch_size(connection, table))),
        )
    )
    _attach_as(connection, table, foreign_table, lower, upper)


def _attach_as(
    connection: Connection, table: Table, foreign_table: sql.Identifier, lower: int | None, upper: int
) -> None:
    first = sql.Literal(to_text(table.tier_kind, table.tier_kind.lowest if lower is None else lower))
    connection.execute(
        template("attach").format(
            lake=names.lake(table),
            foreign_table=foreign_table,
            lower=sql.SQL("minvalue") if lower is None and _is_old_fashioned(connection, table) else first,
            upper=sql.Literal(to_text(table.tier_kind, upper)),
        )
    )


def _fetch_size(connection: Connection, table: Table) -> int:
    """Rows a round trip. A backend holds that many at once, so wide rows come in smaller batches."""
    known = [partition for partition in heap.partitions(connection, table) if partition.rows_estimate > 0]
    rows = sum(partition.rows_estimate for partition in known)
    row_bytes = max(1, sum(partition.size_bytes for partition in known) // rows) if rows else _UNKNOWN_ROW_BYTES
    return max(_LEAST_ROWS, min(_MOST_ROWS, _FETCH_BYTES // row_bytes))


def _foreign_name(table: Table, upper: int) -> str:
    """Names are cut; what makes them different from those of other tables is not."""
    suffix = f"_{table.id} until {to_text(table.tier_kind, upper)}"
    return cut(table.name.table, MAX_BYTES - len(suffix)) + suffix


def wait_for_old_plans(connection: Connection, table: Table, report: Callable[[str], None]) -> None:
    """Return when no statement is left that was planned before now.

    Planned before an attach, and with a snapshot from after the frost line moves, it would miss the rows attached.
    """
    statement = _statement("old_plans")
    now = only_value(connection.execute(_statement("clock")))
    values = {"lake": _oid(connection, table), "attached_at": now}
    waited = 0.0
    while True:
        pids = [pid for (pid,) in connection.execute(statement, values).fetchall()]
        if not pids:
            break
        if waited == 0.0 or waited >= 10.0:
            report(f"waiting for statements that began before the attach: pids {pids}")
            waited = 0.0
        time.sleep(_POLL_S)
        waited += _POLL_S
    _wait_for_standbys(connection, report)


def _wait_for_standbys(connection: Connection, report: Callable[[str], None]) -> None:
    """Give standbys the time to replay what was written, and a statement there the time to get from plan to snapshot.

    Nobody can be sure of a standby, so this ends after a while; without one it takes no time.
    """
    written = only_value(connection.execute(_statement("written")))
    standbys, behind = _followed(connection, "standbys_behind", written)
    if behind:
        report(f"goes on without {behind} standbys that are behind or do not show how far they are")
    if standbys:
        time.sleep(_STANDBY_PAUSE_S)


def _followed(connection: Connection, question: str, written: str | None) -> tuple[int, int]:
    """Wait a while for standbys to replay so far; returns how many there are, and how many are still behind."""
    statement = _statement(question)
    deadline = time.monotonic() + _STANDBY_PATIENCE_S
    while True:
        standbys, behind = connection.execute(statement, {"written": written}).fetchone() or (0, 0)
        if not behind or time.monotonic() > deadline:
            return standbys, behind
        time.sleep(_POLL_S)


def settle_standbys(connection: Connection) -> int:
    """End queries on standbys that see a seam which nobody on this server sees any more, and wait until it is done.

    Outside a transaction. Returns how many standbys are behind all the same: there such a query may go on.
    """
    settled = horizon.settle_standbys(connection)
    inserted = only_value(connection.execute(_statement("inserted")))
    standbys, behind = _followed(connection, "queries_behind", inserted)
    return behind if settled else standbys


def restore(connection: Connection, table: Table) -> int:
    """Inside a transaction: where a foreign table is missing, make one for all below the frost line; returns that.

    ACCESS EXCLUSIVE on the lake table if some are left. One of that name that somebody has detached is dropped.
    """
    line = seams.get(connection, table).frost_line
    present = _partitions(connection, table)
    if _reaches(table, present.values(), line):
        return line
    upper = max([line, *(upper for _, upper in present.values() if upper is not None)])
    name = Name("frostline_lake", _foreign_name(table, upper))
    if name not in present:
        connection.execute(_statement("drop_detached").format(foreign_table=names.identifier(name)))
    if present:
        locks.take(connection, Lock.ACCESS_EXCLUSIVE, names.lake(table))
        _replace(connection, table, lambda: upper)
    else:
        _attach(connection, table, None, upper)
    return line


def _reaches(table: Table, ranges: Iterable[tuple[int | None, int | None]], line: int) -> bool:
    """Whether they follow on each other, from the first value to the line or beyond."""
    end = lowest = table.tier_kind.lowest
    for lower, upper in sorted((lowest if lower is None else lower, upper) for lower, upper in ranges):
        if lower != end or upper is None:
            return False
        end = upper
    return end >= line and end > lowest


def merge(connection: Connection, table: Table) -> bool:
    """Make one foreign table of several, if nobody holds the lake table just now; says whether it did.

    The empty partition of an earlier version comes to the lower end. ACCESS EXCLUSIVE for a few milliseconds, never
    queued for: a reader cannot pile up behind it.
    """
    if len(_partitions(connection, table)) < 2 and not _is_old_fashioned(connection, table):
        return False
    return _replace(connection, table, lambda: current(connection, table))


def _replace(connection: Connection, table: Table, upper: Callable[[], int | None]) -> bool:
    """One foreign table, up to what `upper` says under the lock, in place of all; or none, if it says None."""
    try:
        with connection.transaction():
            locks.take(connection, Lock.ACCESS_EXCLUSIVE, names.lake(table), nowait=True)
            bound = upper()
            foreign = sorted(_foreign(connection, table), key=lambda partition: partition.rows_estimate)
            largest = foreign.pop().name if foreign and bound is not None else None
            for partition in foreign:
                connection.execute(sql.SQL("drop foreign table {}").format(names.identifier(partition.name)))
            if largest is not None:
                parts = {"lake": names.lake(table), "foreign_table": names.identifier(largest)}
                connection.execute(_statement("detach").format(**parts))
            if _is_old_fashioned(connection, table):
                connection.execute(_statement("drop_nothing").format(nothing=names.nothing(table)))
                connection.execute(nothing(table))
            if largest is not None and bound is not None:
                _widen(connection, table, largest, bound)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _widen(connection: Connection, table: Table, largest: Name, upper: int) -> None:
    """The one foreign table that is left, detached, is the one for everything below `upper`. What ANALYZE knows stays.

    All locks are on the lake's tables, which we have: waiting for another one here would make every reader wait.
    """
    name = Name(largest.schema, _foreign_name(table, upper))
    if name != largest:
        values = {"foreign_table": names.identifier(largest), "name": sql.Identifier(name.table)}
        connection.execute(_statement("rename").format(**values))
    connection.execute(
        _statement("ask_for").format(
            foreign_table=names.identifier(name),
            table_name=sql.Literal(str(RemoteName(table.id, None, upper))),
        )
    )
    _attach_as(connection, table, names.identifier(name), None, upper)


def lower(connection: Connection, table: Table, *, patience_s: float = 0.0) -> bool:
    """Make B the frost line again after that was lowered, as soon as nobody can need it higher; says whether it did.

    Until then questions about rows at or above T may go to the lake server too, which answers them with none.
    A transaction from before still has the old line, and plans with whatever foreign tables there are. The caller
    holds the table's lease; an archive that raised B and has not published yet would lose rows otherwise.
    """
    deadline = time.monotonic() + patience_s
    while not (is_lowered := _try_to_lower(connection, table)) and _is_above_line(connection, table):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return is_lowered


def _is_above_line(connection: Connection, table: Table) -> bool:
    upper = current(connection, table)
    return upper is not None and upper > seams.get(connection, table).frost_line


def _try_to_lower(connection: Connection, table: Table) -> bool:
    if not _is_above_line(connection, table):
        return False
    lowered = tables.lowered_xid(connection, table)
    if lowered and horizon.older_snapshots(connection, lowered):
        return False
    return horizon.settle_standbys(connection) and _replace(connection, table, lambda: _frost_line(connection, table))


def _frost_line(connection: Connection, table: Table) -> int | None:
    """T, which B may fall to; None while nothing is archived."""
    leases.require(connection, table)
    line = seams.get(connection, table).frost_line
    return None if line == table.tier_kind.lowest else line


def analyze(connection: Connection, table: Table) -> None:
    """Give the planner statistics of the lake. Without them only its plans are worse, so a warning is all if it fails.

    Of all of it when it has grown or shrunk by a tenth since the last time, which is when autovacuum would; otherwise
    of what was attached since, so that an archive does not cost more the more there is in the lake.
    """
    _, rows, _ = lake_files.totals(connection, table)
    foreign = _foreign(connection, table)
    known = sum(max(partition.rows_estimate, 0) for partition in foreign)
    fresh = [names.identifier(partition.name) for partition in foreign if partition.rows_estimate < 0]
    is_stale = abs(rows - known) * _STALE_PART > rows
    try:
        for target in [names.lake(table)] if is_stale else fresh:
            connection.execute(_statement("analyze").format(table=target))
    except psycopg.OperationalError as error:
        warning = f"cannot analyze the lake: {first_line(error)}"
        _log.warning("%s", logs.fields(stage="analyze", table=str(table.name), warning=warning))
