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
from frostline.catalog import facts, queries
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.model.names import MAX_BYTES, Name, RemoteName, cut
from frostline.model.partitions import bounds
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import heap, names
from frostline.relation.definition import lake_columns, template

_POLL_S = 0.05
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
    if present is not None and present >= upper:
        return
    with connection.transaction():
        _attach(connection, table, present, upper)
    _wait_for_old_plans(connection, table, report)


def _attach(connection: Connection, table: Table, lower: int | None, upper: int) -> None:
    foreign_table = sql.Identifier("frostline_lake", _foreign_name(table, upper))
    connection.execute(
        template("foreign_table").format(
            foreign_table=foreign_table,
            columns=lake_columns(table),
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


def _wait_for_old_plans(connection: Connection, table: Table, report: Callable[[str], None]) -> None:
    """A statement planned before the attach but whose snapshot is taken after the publish would miss rows."""
    statement = sqlfiles.load(__package__ or "", "bound")["old_plans"]
    (now,) = connection.execute(sqlfiles.load(__package__ or "", "bound")["clock"]).fetchone() or (None,)
    values = {"lake": _oid(connection, table), "attached_at": now}
    waited = 0.0
    while True:
        pids = [pid for (pid,) in connection.execute(statement, values).fetchall()]
        if not pids:
            return
        if waited == 0.0 or waited >= 10.0:
            report(f"waiting for statements that began before the lake's bound moved: pids {pids}")
            waited = 0.0
        time.sleep(_POLL_S)
        waited += _POLL_S


def merge(connection: Connection, table: Table) -> bool:
    """Make one foreign table of several, if nobody holds the lake table just now; says whether it did.

    ACCESS EXCLUSIVE for a few milliseconds, never queued for: a reader cannot pile up behind it.
    """
    present = _partitions(connection, table)
    upper = current(connection, table)
    if len(present) < 2 or upper is None:
        return False
    try:
        with connection.transaction():
            connection.execute(sql.SQL("lock table {} in access exclusive mode nowait").format(names.lake(table)))
            for name in present:
                connection.execute(sql.SQL("drop foreign table {}").format(names.identifier(name)))
            _attach(connection, table, None, upper)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def analyze(connection: Connection, table: Table) -> None:
    """Give the planner statistics of the lake; UnavailableError when the lake server does not answer."""
    try:
        connection.execute(sql.SQL("analyze {}").format(names.lake(table)))
    except psycopg.OperationalError as error:
        reason = str(error).partition("\n")[0]
        raise UnavailableError(f"cannot analyze the lake: {reason}", hint="frostline serve") from None
