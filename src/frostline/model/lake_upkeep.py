"""The upkeep of lake tables as pure decisions: which files to write anew, and which snapshots nobody needs any more.

docs/design/lake-tables.md, "Upkeep". The policy is in the table's own metadata, in properties that Iceberg has for it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from frostline.model.lake_tables import FILE_ROWS

TARGET_FILE_SIZE = "write.target-file-size-bytes"
SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
SNAPSHOTS_KEPT = "history.expire.min-snapshots-to-keep"
FORMER_METADATA = "write.metadata.previous-versions-max"
POLICY = {
    "snapshot-retention": SNAPSHOT_AGE,
    "min-snapshots": SNAPSHOTS_KEPT,
    "target-file-size": TARGET_FILE_SIZE,
    "former-metadata": FORMER_METADATA,
}
"""The table properties of a policy, by the options that set them."""
MANY_STATES = 1000
"""Of more states, without a policy, the older ones stay for `_SHORT_AGE` only: each commit writes them all."""
LEAST_AGE = timedelta(minutes=10)
"""A commit whose answer was lost looks for itself in the history for half a minute."""
_USUAL_AGE, _SHORT_AGE = timedelta(days=5), timedelta(hours=1)
_MOST_AGE = timedelta(days=36_500)
_DEFAULT_FILE_SIZE = 256_000_000
_LEAST_FILE_SIZE = 1_000_000
_SMALL_FILES_DUE = 5
_GONE_DUE = 10
"""One row in so many."""
_MOST_FILES = 1000
"""That one task opens."""


def target_file_size(properties: Mapping[str, str]) -> int:
    """As the table's metadata has it. Other engines may write nonsense there; it counts as nothing."""
    known = number(properties, TARGET_FILE_SIZE)
    return _DEFAULT_FILE_SIZE if known is None else max(known, _LEAST_FILE_SIZE)


def number(properties: Mapping[str, str], name: str) -> int | None:
    """A property that is a whole number; None for one that is not there, or nonsense."""
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


@dataclass(frozen=True)
class Keeping:
    """What of its past a table keeps."""

    age: timedelta
    """For so long a state can be read after it was replaced."""
    short_age: timedelta
    """The same of what comes before the newest `MANY_STATES` states."""
    snapshots: int
    """So many of each branch stay however old they are."""


def keeping(properties: Mapping[str, str]) -> Keeping:
    """As the table's metadata has it, or as is usual."""
    age_ms, least = number(properties, SNAPSHOT_AGE), number(properties, SNAPSHOTS_KEPT)
    if age_ms is None:
        return Keeping(_USUAL_AGE, _SHORT_AGE, least or 1)
    age = min(max(timedelta(milliseconds=age_ms), LEAST_AGE), _MOST_AGE)
    return Keeping(age, age, least or 1)


class Known(NamedTuple):
    """A snapshot of a table's metadata."""

    id: int
    parent: int | None
    sequence: int
    made_ms: int


class Ref(NamedTuple):
    """A branch or a tag, with what it says of its own snapshots."""

    name: str
    id: int
    is_branch: bool
    age_ms: int | None = None
    snapshots: int | None = None


class Since(NamedTuple):
    """The oldest state that somebody may read: its snapshot, and which had been made and been current by then."""

    id: int | None
    sequence: int
    log: tuple[int, int] | None
    """The last entry."""


@dataclass(frozen=True)
class Past:
    """What a table's metadata says of its past."""

    snapshots: Sequence[Known]
    refs: Sequence[Ref]
    log: Sequence[tuple[int, int]]
    """Which snapshots were current, each with the time when it became so, in milliseconds."""
    now_ms: int
    """When the metadata was written."""


def expired(past: Past, since: Since, keeping: Keeping) -> frozenset[int]:
    """The snapshots that no state has which somebody may read, that no ref names, and that are not to be kept."""
    begin = past.log.index(since.log) if since.log in past.log else 0
    needed = {since.id} | {ref.id for ref in past.refs}
    needed |= {known.id for known in past.snapshots if known.sequence > since.sequence}
    needed |= {snapshot for snapshot, _ in past.log[begin:]}
    for ref in past.refs:
        if ref.is_branch:
            needed |= _kept_of_branch(past, ref, keeping)
    return frozenset(known.id for known in past.snapshots) - needed


def _kept_of_branch(past: Past, ref: Ref, keeping: Keeping) -> set[int]:
    known = {snapshot.id: snapshot for snapshot in past.snapshots}

    def ancestors() -> Iterator[Known]:
        current = known.get(ref.id)
        while current is not None:
            yield current
            current = known.get(current.parent) if current.parent is not None else None

    kept = {snapshot.id for snapshot in islice(ancestors(), ref.snapshots or keeping.snapshots)}
    if ref.age_ms is None and ref.name == "main":
        return kept  # its states were read one after the other, and go by when they were replaced
    age_ms = keeping.age // timedelta(milliseconds=1) if ref.age_ms is None else ref.age_ms
    return kept | {snapshot.id for snapshot in ancestors() if snapshot.made_ms > past.now_ms - age_ms}


_NUMBER = re.compile(r"(?:.*/)?v?(\d{1,9})[-.][^/]*$")


def commits_between(earlier: str, later: str) -> int:
    """How many commits lie between two metadata files, as far as their numbers tell; at least one if they differ."""
    if earlier == later:
        return 0
    before, after = _NUMBER.fullmatch(earlier), _NUMBER.fullmatch(later)
    return max(int(after[1]) - int(before[1]), 1) if before and after else 1


_OF_ICEBERG = re.compile(r".*\.(parquet|orc|avro|metadata\.json|gz\.metadata\.json|metadata\.json\.gz|puffin|stats)")


def is_of_iceberg(location: str) -> bool:
    """Whether a file's name ends as those do that engines write for a table."""
    return _OF_ICEBERG.fullmatch(location) is not None


class KeptFile(NamedTuple):
    """A data file of a lake table."""

    path: str
    size_bytes: int
    rows: int
    gone: int
    """How many of its rows delete files name."""
    partition: Hashable
    """Equal for files of one partition."""


Rewrite = tuple[KeptFile, ...]
"""Files of one partition that become one, or none if all their rows are gone."""


def rewrites(files: Iterable[KeptFile], target: int, *, only_due: bool = False) -> list[Rewrite]:
    """Small files together, and files with rows that are gone; with `only_due` where it is worth the while.

    Files come oldest first, and neighbours stay together.
    """
    partitions = defaultdict[Hashable, list[KeptFile]](list)
    for file in files:
        if file.gone or is_small(file.size_bytes, target):
            partitions[file.partition].append(file)
    chosen = (within for within in partitions.values() if not only_due or _is_due(within, target))
    return [rewrite for within in chosen for rewrite in _bins(within, target)]


def is_small(size_bytes: int, target: int) -> bool:
    """Whether a file is worth being merged with others."""
    return 4 * size_bytes < 3 * target


def _is_due(files: Sequence[KeptFile], target: int) -> bool:
    small = [file for file in files if is_small(file.size_bytes, target)]
    is_worn = any(file.gone * _GONE_DUE >= file.rows for file in files if file.gone)
    return is_worn or len(small) >= _SMALL_FILES_DUE or sum(file.size_bytes for file in small) >= target


def _bins(files: Sequence[KeptFile], target: int) -> Iterator[Rewrite]:
    current, size, rows = list[KeptFile](), 0, 0
    for file in files:
        is_full = size + file.size_bytes > target or rows + file.rows > FILE_ROWS or len(current) == _MOST_FILES
        if current and is_full:
            yield from _worth(current)
            current, size, rows = [], 0, 0
        current.append(file)
        size += file.size_bytes
        rows += file.rows
    yield from _worth(current)


def _worth(files: Sequence[KeptFile]) -> Iterator[Rewrite]:
    if len(files) > 1 or any(file.gone for file in files):
        yield tuple(files)


def is_overtaken(rewrite: Rewrite, present: Collection[str], changed: Collection[str]) -> bool:
    """Whether what was written in the place of these files has no use any more.

    `present` are the files that the table has now, `changed` those of which rows went since the rewrite read them.
    """
    return any(file.path not in present or file.path in changed for file in rewrite)
