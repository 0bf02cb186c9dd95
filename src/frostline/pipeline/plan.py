"""Plan: what an archive would move and a retention remove now, and how much.

Asks Postgres only, unless an archive begins that has to know which rows the lake of another table references.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.catalog import archived_partitions, lake_files, seams, trust
from frostline.catalog.connect import Connection
from frostline.model import archive
from frostline.model import upkeep as rules
from frostline.model.partitions import Partition
from frostline.model.range import Range
from frostline.model.tables import RecordedFile, Seam, Table
from frostline.model.upkeep import RetentionLine, UncleanedPartition
from frostline.relation import clock, heap, references
from frostline.relation.heap import Layout

GUESSED_RATIO = 8
"""Heap bytes to lake bytes, until the table's own lake tells better."""


@dataclass(frozen=True)
class TablePlan:
    """The plan of one table, with the facts it rests on."""

    table: Table
    seam: Seam
    cutoff: int
    plan: archive.Plan
    stays: str | None
    """Which partition it ends before although that is old enough, and why: rows of it are referenced."""
    rows_estimate: int
    size_bytes: int
    lake_bytes_estimate: int


def of_table(connection: Connection, table: Table, *, ask_lake: bool = False) -> TablePlan:
    """Plan one table. Reads catalogs, and rows where Postgres has no estimate of their number or keys point at them."""
    trust.require(connection, table)
    seam = seams.get(connection, table)
    cutoff = heap.cutoff(connection, table)
    old_enough = ripe(table, heap.partitions(connection, table), seam.frost_line, cutoff)
    moved, stays = references.limited(connection, table, old_enough, ask_lake=ask_lake)
    rows = sum(
        # A partition that was never analyzed is counted.
        partition.rows_estimate if partition.rows_estimate >= 0 else heap.count(connection, partition.name)
        for partition in moved.partitions
    )
    size = sum(partition.size_bytes for partition in moved.partitions)
    _, lake_rows, lake_bytes = lake_files.totals(connection, table)
    estimate = rows * lake_bytes // lake_rows if lake_rows else size // GUESSED_RATIO
    return TablePlan(table, seam, cutoff, moved, stays, rows, size, estimate)


def ripe(table: Table, partitions: Sequence[Partition], frost_line: int, cutoff: int) -> archive.Plan:
    """What an archive would move; nothing that an undo or a thaw holds back."""
    limit = cutoff if table.held_from is None else min(cutoff, table.held_from)
    return archive.plan(partitions, frost_line, limit)


@dataclass(frozen=True)
class RetentionPlan:
    """What there is to remove from a table."""

    from_line: int | None
    """R as it is; None while there is none."""
    to: RetentionLine
    gone: Sequence[RecordedFile] = ()
    """Files below R."""
    across: Sequence[RecordedFile] = ()
    """Files that reach across R."""
    marks: int = 0
    """Rows of the overlay below R."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.from_line == self.to.value and not (self.gone or self.across or self.marks)


def retention(connection: Connection, table: Table, layout: Layout | None = None) -> RetentionPlan:
    """What a retention would do now. `layout` is the heap, if the caller has read it already."""
    layout = layout or heap.layout(connection, table)
    period, current = table.policy.retention_period, seams.retained(connection, table)
    uncleaned = [
        UncleanedPartition(partition.name, partition.lower)
        for partition in archived_partitions.uncleaned(connection, table)
    ]
    cutoff = clock.before(connection, table, period, layout.partitions) if period else None
    wanted = rules.retention_line(table, cutoff, layout.frost_line, uncleaned, current)
    if wanted.value is None:
        return RetentionPlan(current, wanted)
    gone, across = rules.files_below(lake_files.within(connection, table, Range(None, wanted.reach)), wanted.reach)
    return RetentionPlan(current, wanted, gone, across, heap.marks(connection, table, None, wanted.reach))
