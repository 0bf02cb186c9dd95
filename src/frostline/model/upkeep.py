"""What compact, expire and retain do: pure functions of what the catalog and the lake's metadata say."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from frostline.model import lake_grid
from frostline.model.names import Name
from frostline.model.range import Range, overlapping
from frostline.model.tables import RecordedFile, Table

MANY_MANIFESTS = 100
"""More than this make a reader's start slow."""
MANIFEST_BYTES = 8 << 20
"""About how large a new manifest becomes."""
_SMALL_FILES_DUE = 5
_MOST_FILES = 1000
"""That one task opens."""

Bin = tuple[RecordedFile, ...]
"""Files of one lake partition that become one."""


def merges(table: Table, files: Sequence[RecordedFile]) -> list[Bin]:
    """The merges that leave fewer files; none when every lake partition is as it should be."""
    return [merge for small in _small_files(table, files) for merge in _bins(small, table.policy.target_file_size)]


def due_merges(table: Table, files: Sequence[RecordedFile]) -> list[Bin]:
    """Those of them that are worth doing now: where small files are many, or enough for a whole one."""
    target = table.policy.target_file_size
    return [merge for small in _small_files(table, files) if _is_due(small, target) for merge in _bins(small, target)]


def _small_files(table: Table, files: Sequence[RecordedFile]) -> Iterator[list[RecordedFile]]:
    """The files of each lake partition that are well below the target size, in the order of their rows."""
    cells: defaultdict[int, list[RecordedFile]] = defaultdict(list)
    for file in files:
        if 4 * file.size_bytes < 3 * table.policy.target_file_size:
            cells[lake_grid.cell_end(*table.lake_grid, file.lower)].append(file)
    for _, small in sorted(cells.items()):
        yield sorted(small, key=lambda file: (file.lower, file.upper, file.path))


def _bins(small: Sequence[RecordedFile], target: int) -> Iterator[Bin]:
    """Neighbours together, up to the target size. What finds no partner is left alone."""
    current: list[RecordedFile] = []
    size = 0
    for file in small:
        if current and (size + file.size_bytes > target or len(current) == _MOST_FILES):
            yield from _worth(current)
            current, size = [], 0
        current.append(file)
        size += file.size_bytes
    yield from _worth(current)


def _worth(files: Sequence[RecordedFile]) -> Iterator[Bin]:
    if len(files) > 1:
        yield tuple(files)


def _is_due(small: Sequence[RecordedFile], target: int) -> bool:
    return len(small) >= _SMALL_FILES_DUE or sum(file.size_bytes for file in small) >= target


def manifests_are_many(sizes_bytes: Sequence[int]) -> bool:
    """Whether a snapshot with manifests of these sizes should get fewer; not if they must be that many."""
    needed = -(-sum(sizes_bytes) // MANIFEST_BYTES)
    return len(sizes_bytes) > max(MANY_MANIFESTS, 2 * needed)


@dataclass(frozen=True)
class LakeState:
    """A state that the lake of a table has, or has had."""

    metadata_location: str
    snapshot_id: int | None
    replaced_xid: str | None
    """The transaction that put another in its place; None for the current one."""
    is_over: bool
    """It was replaced longer ago than the table's policy keeps it."""
    is_seen: bool
    """A live Postgres snapshot may be older than that transaction."""


@dataclass(frozen=True)
class Expiry:
    """What is to go: states by their metadata location, and snapshots of the lake's current metadata."""

    locations: frozenset[str]
    snapshots: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.snapshots)


NO_EXPIRY = Expiry(frozenset(), frozenset())


def expiry(
    states: Iterable[LakeState], pinned: Collection[str], present: Collection[int], needed: Collection[int]
) -> Expiry:
    """The states that nobody can need any more, and the snapshots that no other state has.

    `present` are the snapshots of the current metadata, `needed` those that a branch or a tag of it names. States
    without a snapshot to remove are no reason to commit: each commit leaves one behind, and there would be no end.
    """
    all_states = tuple(states)
    gone = [
        state for state in all_states if state.is_over and not state.is_seen and state.metadata_location not in pinned
    ]
    locations = frozenset(state.metadata_location for state in gone)
    kept = {state.snapshot_id for state in all_states if state.metadata_location not in locations} | set(needed)
    snapshots = frozenset(state.snapshot_id for state in gone if state.snapshot_id is not None) - kept
    snapshots &= frozenset(present)
    return Expiry(locations, snapshots) if snapshots else NO_EXPIRY


@dataclass(frozen=True)
class UncleanedPartition:
    """An archived partition that is not cleaned: the heap still has all its rows."""

    name: Name
    lower: int | None


@dataclass(frozen=True)
class RetentionLine:
    """Where R goes."""

    value: int | None
    """None while there is none."""
    reach: int
    """Rows below this go. It is R, unless a thaw has brought T, or a partition that is not cleaned, below R."""
    waits_for: Name | None = None
    """The partition that must be cleaned before R can go as far as the retention period says."""


def retention_line(
    table: Table, cutoff: int | None, frost_line: int, uncleaned: Sequence[UncleanedPartition], current: int | None
) -> RetentionLine:
    """R rises to the cutoff, rounded down to a day (hour, number), not past T or into a partition that is not cleaned.

    The cutoff is None for a table that keeps its rows for ever. R never falls.
    """
    lowest = table.tier_kind.lowest
    before = lowest if current is None else current
    wanted = before if cutoff is None else min(cutoff - cutoff % lake_grid.finest(*table.lake_grid), frost_line)
    first = min(uncleaned, key=lambda partition: _lower(partition, lowest), default=None)
    limit = frost_line if first is None else min(frost_line, _lower(first, lowest))
    value = max(min(wanted, limit), before)
    waits_for = first.name if first is not None and _lower(first, lowest) < wanted else None
    return RetentionLine(None if value == lowest else value, min(value, limit), waits_for)


def _lower(partition: UncleanedPartition, lowest: int) -> int:
    return lowest if partition.lower is None else partition.lower


def files_below(files: Sequence[RecordedFile], value: int) -> tuple[list[RecordedFile], list[RecordedFile]]:
    """The files that lie wholly below the line, and those that reach across it."""
    expired = Range(None, value)
    touched = overlapping(files, expired)
    gone = [file for file in touched if expired.covers(file.range)]
    return gone, [file for file in touched if not expired.covers(file.range)]
