"""Which files of a lake are merged, and when its manifests are written anew: pure functions."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from frostline.model import lake_grid
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


def plan(table: Table, files: Sequence[RecordedFile]) -> list[Bin]:
    """The merges that leave fewer files; none when every lake partition is as it should be."""
    return [merge for small in _small_files(table, files) for merge in _bins(small, table.policy.target_file_size)]


def due(table: Table, files: Sequence[RecordedFile]) -> list[Bin]:
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
