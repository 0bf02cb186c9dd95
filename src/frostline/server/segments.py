"""Rows in order, a few files at a time: the answer to ORDER BY a column of the key begins with the files at its end.

The values of the column are cut into segments, from the first in order to the last. A segment begins where the one
before it ends, and ends before the next file begins that is not yet open. So within a segment the files that are open
have all rows, and what is left of them comes in the next. The first segment has one new file, and each has twice as
many as the one before: a query of ten rows opens one file or two, and overlapping files are opened a few times at most.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop
from typing import TypeAlias, cast

import pyarrow as pa

from frostline.model.range import Range
from frostline.model.tables import LakeFile
from frostline.server.portals import Batch, Batches
from frostline.server.translate.ordering import Ordered

_MOST_ROWS = 4_000_000
"""New rows of a segment that is sorted as a whole. With a LIMIT nothing is sorted but the rows that are wanted."""


Placed: TypeAlias = tuple[int, int, int, LakeFile]
"""The smallest and the largest value of the column in a file, the file's number, and the file. Plain, so that a heap of
ten thousand is made in a few milliseconds."""


@dataclass(frozen=True)
class Segment:
    """The files that have values in a range, all of them."""

    files: tuple[LakeFile, ...]
    range: Range
    is_whole: bool
    """No file has a value outside of the range."""
    new_files: int
    """How many of the files are not in an earlier segment."""


def placed(files: Sequence[LakeFile], field_id: int, *, is_tier_key: bool) -> list[Placed] | None:
    """The files with their bounds of a column; None unless they are known of all."""
    if is_tier_key:
        return [(file.lower, file.upper, number, file) for number, file in enumerate(files)]
    by_bounds: list[Placed] = []
    for number, file in enumerate(files):
        known = file.bounds(field_id)
        if known is None or isinstance(known.lower, bytes) or isinstance(known.upper, bytes):
            return None
        by_bounds.append((known.lower, known.upper, number, file))
    return by_bounds


def segments(files: Sequence[Placed], *, downward: bool, is_limited: bool) -> Iterator[Segment]:
    """All segments, in the order of their rows. Every value of every file is in exactly one of them."""
    if not downward:
        yield from _upward(list(files), is_limited=is_limited)
        return
    mirrored = [(-upper, -lower, number, file) for lower, upper, number, file in files]
    for segment in _upward(mirrored, is_limited=is_limited):
        yield replace(segment, range=_mirrored(segment.range))


def _upward(waiting: list[Placed], *, is_limited: bool) -> Iterator[Segment]:
    heapify(waiting)  # a query that wants ten rows need not wait until all are sorted
    unfinished: list[Placed] = []
    done: int | None = None
    step = 1
    while waiting:
        new = _taken(waiting, step, is_limited=is_limited)
        ends = waiting[0][0] if waiting else None
        chosen = [*unfinished, *new]
        is_whole = all(
            (done is None or lower >= done) and (ends is None or upper < ends) for lower, upper, *_ in chosen
        )
        yield Segment(tuple(place[-1] for place in chosen), Range(done, ends), is_whole, len(new))
        unfinished = [place for place in chosen if ends is not None and place[1] >= ends]
        done, step = ends, step * 2


def _taken(waiting: list[Placed], step: int, *, is_limited: bool) -> list[Placed]:
    """Take so many files from those that wait, and all that begin with the last of them."""
    new = [heappop(waiting)]
    rows = new[0][-1].rows
    while waiting and (len(new) < step or waiting[0][0] == new[-1][0]):
        rows += waiting[0][-1].rows
        if rows > _MOST_ROWS and not is_limited and waiting[0][0] != new[-1][0]:
            break
        new.append(heappop(waiting))
    return new


def _mirrored(part: Range) -> Range:
    lower = None if part.upper is None else 1 - part.upper
    upper = None if part.lower is None else 1 - part.lower
    return Range(lower, upper)


class InOrder:
    """The rows of segment after segment; the next one is not begun before somebody asks for its rows."""

    def __init__(
        self, wanted: Ordered, parts: Iterator[Segment], run: Callable[[Segment, int | None], Batches]
    ) -> None:
        """`run` gives the rows of a segment, and of them only so many as it is told, if it is."""
        self._wanted, self._parts, self._run = wanted, parts, run
        self._running: Batches | None = None
        self._stopped = False

    def __iter__(self) -> Iterator[Batch]:
        yield from self._extreme() if self._wanted.extreme else self._rows()

    def _extreme(self) -> Iterator[pa.RecordBatch]:
        """One row. What has no rows says NULL, and then the next segment is asked."""
        batches: list[pa.RecordBatch] = []
        for part in self._parts:
            batches = list(cast(Iterable[pa.RecordBatch], self._produced(part, None)))  # so few are never printed
            if any(batch.num_rows and batch.column(0).null_count == 0 for batch in batches):
                break
        yield from batches

    def _rows(self) -> Iterator[Batch]:
        skip, limit = self._wanted.offset, self._wanted.limit
        left = None if limit is None else skip + limit
        for part in self._parts:
            if left == 0:
                return
            for batch in self._produced(part, left):
                left = None if left is None else left - batch.num_rows
                shown = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - shown.num_rows
                if shown.num_rows:
                    yield shown

    def _produced(self, part: Segment, most: int | None) -> Iterator[Batch]:
        self._running = self._run(part, most)
        if self._stopped:
            self._running.interrupt()
        yield from self._running
        self._running.close()
        self._running = None

    def interrupt(self) -> None:
        """Make the running read fail; may be called from another thread."""
        self._stopped = True
        running = self._running
        if running is not None:
            running.interrupt()

    def close(self) -> None:
        """Stop producing and give the memory back."""
        self.interrupt()
        if self._running is not None:
            self._running.close()
