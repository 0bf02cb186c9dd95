"""What an archive would move: a pure function of the partitions, the frost line and the cutoff."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frostline.model.partitions import Partition

BLOCK_BYTES = 8192
"""Of Postgres' heap."""


@dataclass(frozen=True)
class Plan:
    """The partitions to move, oldest first, and the frost line after that."""

    partitions: tuple[Partition, ...]
    from_line: int
    to_line: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.to_line <= self.from_line


def plan(partitions: Sequence[Partition], frost_line: int, cutoff: int) -> Plan:
    """Every partition wholly at or below the cutoff and above the frost line.

    The line rises to the last one's end; gaps in between can only have rows in the DEFAULT partition, and
    those are all in the overlay. A partition that reaches below the line is left alone.
    """
    ripe = [
        partition
        for partition in partitions
        if not partition.is_default
        and partition.upper is not None
        and frost_line < partition.upper <= cutoff
        and (partition.lower is None or partition.lower >= frost_line)
    ]
    ripe.sort(key=lambda partition: partition.upper or 0)
    line = ripe[-1].upper if ripe else None
    return Plan(tuple(ripe), frost_line, frost_line if line is None else line)


def batches(planned: Plan, max_bytes: int) -> Iterator[Plan]:
    """Cut a long plan into jobs of about that many heap bytes, so that a backlog is published piece by piece."""
    start, size = 0, 0
    line = planned.from_line
    for index, partition in enumerate(planned.partitions):
        size += partition.size_bytes
        is_last = index + 1 == len(planned.partitions)
        if partition.upper is not None and (size >= max_bytes or is_last):
            yield Plan(planned.partitions[start : index + 1], line, partition.upper)
            start, size, line = index + 1, 0, partition.upper


def block_ranges(blocks: int, shard_blocks: int) -> list[tuple[int, int | None]]:
    """Cut a partition into even ranges of blocks, first and last included; the last is open, for blocks added since."""
    count = max(1, -(-blocks // shard_blocks))
    edges = [blocks * number // count for number in range(count)]
    return [(first, edges[number + 1] - 1 if number + 1 < count else None) for number, first in enumerate(edges)]
