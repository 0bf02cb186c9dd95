"""Files of a lake give way to others: how fold, undo, compact and retain publish what they wrote."""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.catalog import jobs, leases
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.lake import commit, foreign, paths
from frostline.lake.commit import Rows, StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.model.tables import Seam, Table
from frostline.pipeline import turn
from frostline.settings import Settings


@dataclass(frozen=True)
class Exchange:
    """What a job does to the files of a table."""

    table: Table
    job_id: int
    replaced: Sequence[str]
    """Paths."""
    written: Sequence[WrittenFile]
    rows: Rows = Rows.OTHERS


def stage(connection: Connection, settings: Settings, one: Exchange) -> StagedCommit | None:
    """Write the Iceberg metadata; nothing points at it yet. None when the lake does not change."""
    if not one.replaced and not one.written and one.rows is not Rows.SAME_PACKED:
        return None
    return stage_upon(foreign.base(connection, one.table), settings, one)


def stage_upon(base: str | None, settings: Settings, one: Exchange) -> StagedCommit:
    """The same upon this metadata, which the caller has found to be the seam's."""
    return commit.stage(
        one.table,
        location=paths.table_location(settings.warehouse, one.table),
        base=base,
        add=one.written,
        replace=frozenset(one.replaced),
        summary={commit.JOB_ID: str(one.job_id)},
        rows=one.rows,
    )


def swap(connection: Connection, one: Exchange, staged: StagedCommit | None, seam: Seam, line: int) -> None:
    """Inside a publishing transaction: pointer, S, T, the records of the files and the job's state change together."""
    if staged is None and line == seam.frost_line:
        leases.require(connection, one.table)
        foreign.refuse(connection, one.table)
    else:
        turn.move_seam(connection, one.table, seam, staged, line)
    jobs.replace_files(connection, one.table, one.job_id, one.replaced, [file.recorded for file in one.written])
    jobs.advance(connection, one.job_id, State.PUBLISHED)
