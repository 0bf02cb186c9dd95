"""Status: where every managed table stands. Asks Postgres only, so it works when the lake is down."""

from dataclasses import dataclass

from psycopg import sql

from frostline.catalog import jobs, seams, tables
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import Job
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import heap


@dataclass(frozen=True)
class TableStatus:
    """One table on one line."""

    table: Table
    frost_line: str | None
    """T as Postgres prints it; None while everything is hot."""
    held_from: str | None
    """Where archive stops because of an undo or a thaw; None while it does not."""
    snapshot_id: int | None
    hot_rows_estimate: int
    hot_bytes: int
    cold_rows: int
    cold_bytes: int
    cold_files: int
    overlay_rows: int
    overlay_age_s: int | None
    """How long the oldest mark has been waiting to be folded."""
    fold_due: str | None
    """Why the table should be folded now; None while it need not be."""
    uncleaned_partitions: int
    uncleaned_bytes: int
    last_job: Job | None


def every(connection: Connection) -> list[TableStatus]:
    """The status of all managed tables at one point in time."""
    with connection.transaction():
        connection.execute(sql.SQL("set transaction isolation level repeatable read, read only"))
        return [of_table(connection, table) for table in tables.every(connection)]


def of_table(connection: Connection, table: Table) -> TableStatus:
    """The status of one table."""
    seam = seams.get(connection, table)
    line = seam.frost_line
    partitions = heap.partitions(connection, table)
    hot = [one for one in partitions if one.is_default or one.upper is None or one.upper > line]
    waiting = {one.name for one in jobs.uncleaned(connection, table)}
    files, cold_rows, cold_bytes = jobs.lake_totals(connection, table)
    marks = heap.marks(connection, table, None, line)
    return TableStatus(
        table=table,
        frost_line=None if line == table.tier_kind.lowest else to_text(table.tier_kind, line),
        held_from=None if table.held_from is None else to_text(table.tier_kind, table.held_from),
        snapshot_id=seam.snapshot_id,
        hot_rows_estimate=sum(max(one.rows_estimate, 0) for one in hot),
        hot_bytes=sum(one.size_bytes for one in hot),
        cold_rows=cold_rows,
        cold_bytes=cold_bytes,
        cold_files=files,
        overlay_rows=marks,
        overlay_age_s=heap.oldest_mark_s(connection, table, line),
        fold_due=_fold_due(connection, table, marks, line),
        uncleaned_partitions=len(waiting),
        uncleaned_bytes=sum(one.size_bytes for one in partitions if one.name in waiting),
        last_job=jobs.last(connection, table),
    )


def _fold_due(connection: Connection, table: Table, marks: int, line: int) -> str | None:
    if marks >= table.policy.fold_rows:
        return f"{table.policy.fold_rows} rows or more"
    return f"older than {table.policy.fold_age}" if heap.has_older_mark(connection, table, line, table.policy.fold_age) else None
