"""What an archive moves: whole partitions between the frost line and the cutoff, in jobs and shards of bounded size."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frostline.model import archive
from frostline.model.archive import Plan
from frostline.model.names import Name
from frostline.model.partitions import Partition


def partition(lower: int | None, upper: int | None, *, is_default: bool = False, size_bytes: int = 10) -> Partition:
    name = Name("public", f"p {lower} {upper}")
    return Partition(name, lower, upper, is_default, size_bytes, rows_estimate=-1)


FIRST, SECOND, THIRD = partition(0, 10), partition(10, 20), partition(20, 30)
LOWEST = -1000


@st.composite
def heaps(draw: st.DrawFn) -> list[Partition]:
    """Partitions that do not overlap, with gaps, in any order; some open at an end, and perhaps a DEFAULT."""
    edges = sorted(draw(st.sets(st.integers(-50, 50), min_size=2, max_size=12)))
    pairs = [pair for pair in pairwise(edges) if draw(st.booleans())]
    made = [partition(lower, upper, size_bytes=draw(st.integers(0, 100))) for lower, upper in pairs]
    extra = [partition(None, edges[0]), partition(edges[-1], None), partition(None, None, is_default=True)]
    return draw(st.permutations(made + [optional for optional in extra if draw(st.booleans())]))


def test_only_partitions_wholly_older_than_the_cutoff_move() -> None:
    assert archive.plan([THIRD, FIRST, SECOND], LOWEST, 29) == Plan((FIRST, SECOND), LOWEST, 20)
    assert archive.plan([THIRD, FIRST, SECOND], LOWEST, 30) == Plan((FIRST, SECOND, THIRD), LOWEST, 30)


def test_nothing_ripe_leaves_the_line_where_it_is() -> None:
    planned = archive.plan([FIRST, SECOND], LOWEST, 9)
    assert planned == Plan((), LOWEST, LOWEST)
    assert planned.is_empty


def test_what_is_below_the_line_was_archived_before() -> None:
    assert archive.plan([FIRST, SECOND, THIRD], 10, 100) == Plan((SECOND, THIRD), 10, 30)
    assert archive.plan([FIRST, SECOND, THIRD], 30, 100).is_empty


def test_a_partition_that_reaches_below_the_line_is_left_alone() -> None:
    assert archive.plan([partition(5, 15), SECOND], 10, 100) == Plan((SECOND,), 10, 20)


def test_a_gap_is_crossed() -> None:
    assert archive.plan([FIRST, THIRD], LOWEST, 100) == Plan((FIRST, THIRD), LOWEST, 30)


def test_a_partition_from_minvalue_moves_and_one_to_maxvalue_or_default_never_does() -> None:
    low, high, rest = partition(None, 0), partition(30, None), partition(None, None, is_default=True)
    assert archive.plan([low, FIRST, high, rest], LOWEST, 1000) == Plan((low, FIRST), LOWEST, 10)


@given(heaps(), st.integers(-60, 60), st.integers(-60, 60))
def test_the_line_never_falls_and_no_row_is_jumped_over(heap: list[Partition], line: int, cutoff: int) -> None:
    planned = archive.plan(heap, line, cutoff)
    assert planned.to_line >= planned.from_line == line
    assert planned.to_line == line or planned.to_line <= cutoff
    jumped = [
        in_heap
        for in_heap in heap
        if in_heap not in planned.partitions
        and in_heap.upper is not None
        and line < in_heap.upper <= planned.to_line
        and (in_heap.lower is None or in_heap.lower >= line)
    ]
    assert jumped == []


@given(heaps(), st.integers(1, 300))
def test_jobs_together_are_the_plan(heap: list[Partition], max_bytes: int) -> None:
    whole = archive.plan(heap, LOWEST, 60)
    pieces = list(archive.batches(whole, max_bytes))
    assert tuple(moved for piece in pieces for moved in piece.partitions) == whole.partitions
    lines = [whole.from_line, *(piece.to_line for piece in pieces)]
    assert [piece.from_line for piece in pieces] == lines[:-1]
    assert lines[-1] == whole.to_line
    assert all(sum(moved.size_bytes for moved in piece.partitions[:-1]) < max_bytes for piece in pieces)


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_block_ranges_cover_every_block_once_and_the_last_is_open(blocks: int, shard_blocks: int) -> None:
    ranges = archive.block_ranges(blocks, shard_blocks)
    assert ranges[0][0] == 0
    assert ranges[-1][1] is None
    assert all(last is not None and last + 1 == following for (_, last), (following, _) in pairwise(ranges))
    closed = [last - first + 1 for first, last in ranges if last is not None]
    assert all(1 <= size <= shard_blocks for size in [*closed, max(1, blocks - ranges[-1][0])])


def test_block_ranges_are_even() -> None:
    assert archive.block_ranges(10, 4) == [(0, 2), (3, 5), (6, None)]
    assert archive.block_ranges(0, 4) == [(0, None)]
    assert archive.block_ranges(4, 4) == [(0, None)]
