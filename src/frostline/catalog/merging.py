"""What is worth merging in a lake, told without reading the records of all of its files.

The catalog knows which files came or went since nothing was worth merging. Only in their lake partitions can it be
otherwise now.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog import jobs
from frostline.catalog.connect import Connection
from frostline.model import compaction, lake_grid
from frostline.model.compaction import Bin
from frostline.model.range import Range
from frostline.model.tables import RecordedFile, Table

_statement = sqlfiles.statements(__name__, "queries/job")


@dataclass(frozen=True)
class _Changed:
    """The smallest and the largest tier value of what changed, and the target size for which the rest was looked at."""

    lower: int | None
    upper: int | None
    settled_for: int | None


def due(connection: Connection, table: Table) -> list[Bin]:
    """The merges that are worth doing now."""
    return compaction.due(table, _unsettled(connection, table, _changed(connection, table)))


def settle(connection: Connection, table: Table) -> None:
    """Write down that nothing is worth merging, if so. For whoever holds the table's lease; harmless to repeat."""
    seen = _changed(connection, table)
    if compaction.due(table, _unsettled(connection, table, seen)):
        return
    values = {"changed_from": seen.lower, "changed_to": seen.upper, "target": table.policy.target_file_size}
    connection.execute(_statement("settle"), {"table_id": table.id, **values})


def _changed(connection: Connection, table: Table) -> _Changed:
    row = connection.execute(_statement("changed_files"), {"table_id": table.id}).fetchone()
    return _Changed(*row) if row else _Changed(None, None, None)


def _unsettled(connection: Connection, table: Table, changed: _Changed) -> Sequence[RecordedFile]:
    """The files of the lake partitions where anything may be otherwise than when nothing was worth merging."""
    if changed.settled_for != table.policy.target_file_size:
        return jobs.recorded_files(connection, table)
    if changed.lower is None or changed.upper is None:
        return ()
    transform, kind = table.lake_partition, table.tier_kind
    lower = max(kind.lowest, lake_grid.cell_start(transform, kind, changed.lower))
    return jobs.recorded_within(connection, table, Range(lower, lake_grid.cell_end(transform, kind, changed.upper)))
