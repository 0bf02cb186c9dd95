"""The bound B: below it Postgres asks the lake server, at or above it never.

`frostline_lake.<table>` is a partitioned table whose foreign partitions end at B. B is raised before T by
attaching one more foreign table, which no reader notices; `merge` makes one of them all in a quiet moment.
docs/design/raising-the-bound.md has the interleavings.
"""

import time
from collections.abc import Callable

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, jobs, leases, queries, seams, tables
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.model.names import MAX_BYTES, Name, RemoteName, cut
from frostline.model.partitions import bounds
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import heap, lakecolumns, names
from frostline.relation.definition import template

_POLL_S = 0.05
_STANDBY_PATIENCE_S = 10
_STANDBY_PAUSE_S = 1
_FETCH_BYTES = 4_000_000
_LEAST_ROWS, _MOST_ROWS = 100, 20_000
_UNKNOWN_ROW_BYTES = 1_000


def current(connection: Connection, table: Table) -> int | None:
    """B, or None when nothing was ever archived."""
    uppers = [upper for _, upper in _partitions(connection, table).values() if upper is not None]
    return max(uppers, default=None)


def _partitions(connection: Connection, table: Table) -> dict[Name, tuple[int | None, int | None]]:
    """The foreign tables, with the range of each."""
    found = facts.read_partitions(connection, _oid(connection, table))
    return {one.name: bounds(table.tier_kind, one.bound) for one in found if one.relkind == "f"}


def _oid(connection: Connection, table: Table) -> int:
    values = {"schema": "frostline_lake", "table": table.internal}
    row = connection.execute(queries.get("table", "heap_oid"), values).fetchone()
    assert row is not None
    return row[0]


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
    foreign_table = sql.Identifier("frostline_lake", _foreign_name(table, upper))
    connection.execute(
        template("foreign_table").format(
            foreign_table=foreign_table,
            columns=lakecolumns.every(table),
            schema_name=sql.Literal(cut(str(table.name), MAX_BYTES)),
            table_name=sql.Literal(str(RemoteName(table.id, lower, upper))),
            fetch_size=sql.Literal(str(_fetch_size(connection, table))),
        )
    )
    connection.execute(
        template("attach").format(
            lake=names.lake(table),
            foreign_table=foreign_table,
            lower=sql.SQL("minvalue") if lower is None else sql.Literal(to_text(table.tier_kind, lower)),
            upper=sql.Literal(to_text(table.tier_kind, upper)),
        )
    )


def _fetch_size(connection: Connection, table: Table) -> int:
    """Rows a round trip. A backend holds that many at once, so wide rows come in smaller batches."""
    known = [one for one in heap.partitions(connection, table) if one.rows_estimate > 0]
    rows = sum(one.rows_estimate for one in known)
    row_bytes = max(1, sum(one.size_bytes for one in known) // rows) if rows else _UNKNOWN_ROW_BYTES
    return max(_LEAST_ROWS, min(_MOST_ROWS, _FETCH_BYTES // row_bytes))


def _foreign_name(table: Table, upper: int) -> str:
    suffix = f" until {to_text(table.tier_kind, upper)}"
    return cut(table.internal, MAX_BYTES - len(suffix)) + suffix


def wait_for_old_plans(connection: Connection, table: Table, report: Callable[[str], None]) -> None:
    """Return when no statement is left that was planned before now.

    Planned before an attach, and with a snapshot from after the frost line moves, it would miss the rows attached.
    """
    statement = sqlfiles.load(__package__ or "", "bound")["old_plans"]
    (now,) = connection.execute(sqlfiles.load(__package__ or "", "bound")["clock"]).fetchone() or (None,)
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
    (written,) = connection.execute(sqlfiles.load(__package__ or "", "bound")["written"]).fetchone() or (None,)
    standbys, behind = _followed(connection, "standbys_behind", written)
    if behind:
        report(f"goes on without {behind} standbys that are behind or do not show how far they are")
    if standbys:
        time.sleep(_STANDBY_PAUSE_S)


def _followed(connection: Connection, question: str, written: str | None) -> tuple[int, int]:
    """Wait a while for standbys to replay so far; returns how many there are, and how many are still behind."""
    statement = sqlfiles.load(__package__ or "", "bound")[question]
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
    settled = jobs.settle_standbys(connection)
    (inserted,) = connection.execute(sqlfiles.load(__package__ or "", "bound")["inserted"]).fetchone() or (None,)
    standbys, behind = _followed(connection, "queries_behind", inserted)
    return behind if settled else standbys


def merge(connection: Connection, table: Table) -> bool:
    """Make one foreign table of several, if nobody holds the lake table just now; says whether it did.

    ACCESS EXCLUSIVE for a few milliseconds, never queued for: a reader cannot pile up behind it.
    """
    if len(_partitions(connection, table)) < 2:
        return False
    return _replace(connection, table, lambda: current(connection, table))


def _replace(connection: Connection, table: Table, upper: Callable[[], int | None]) -> bool:
    """One foreign table, up to what `upper` says under the lock, in place of all; or none, if it says None."""
    try:
        with connection.transaction():
            connection.execute(sql.SQL("lock table {} in access exclusive mode nowait").format(names.lake(table)))
            bound = upper()
            for name in _partitions(connection, table):
                connection.execute(sql.SQL("drop foreign table {}").format(names.identifier(name)))
            if bound is not None:
                _attach(connection, table, None, bound)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def lower(connection: Connection, table: Table) -> bool:
    """Make B the frost line again after that was lowered, if nobody can still need it higher; says whether it did.

    A transaction from before still has the old line, and plans with whatever foreign tables there are. The caller
    holds the table's lease; an archive that raised B and has not published yet would lose rows otherwise.
    """
    upper = current(connection, table)
    if upper is None or upper <= seams.get(connection, table).frost_line:
        return False
    lowered = tables.lowered_xid(connection, table)
    if lowered and jobs.older_snapshots(connection, lowered):
        return False
    return jobs.settle_standbys(connection) and _replace(connection, table, lambda: _frost_line(connection, table))


def _frost_line(connection: Connection, table: Table) -> int | None:
    """T, which B may fall to; None while nothing is archived."""
    leases.require(connection, table)
    line = seams.get(connection, table).frost_line
    return None if line == table.tier_kind.lowest else line


def analyze(connection: Connection, table: Table) -> None:
    """Give the planner statistics of the lake; UnavailableError when the lake server does not answer."""
    try:
        connection.execute(sql.SQL("analyze {}").format(names.lake(table)))
    except psycopg.OperationalError as error:
        reason = str(error).partition("\n")[0]
        raise UnavailableError(f"cannot analyze the lake: {reason}", hint="frostline serve") from None
