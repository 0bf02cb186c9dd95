"""Half-open ranges of tier values: each answer is the one that its values, one by one, would give."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.range import EVERYTHING, Range, gaps, overlapping

AXIS = range(-12, 13)
"""Wider than any bound below, so that ranges without a limit have values beyond all of them."""


@dataclass(frozen=True)
class File:
    """As far as ranges are concerned."""

    lower: int
    upper: int


def values(of: Range) -> set[int]:
    return {value for value in AXIS if value in of}


bounds = st.none() | st.integers(-9, 9)
ranges = st.builds(Range, bounds, bounds)
files = st.tuples(st.integers(-9, 9), st.integers(0, 5)).map(lambda drawn: File(drawn[0], drawn[0] + drawn[1]))


@pytest.mark.parametrize(
    ("of", "inside", "outside"),
    [
        (Range(0, 10), (0, 9), (-1, 10)),
        (Range(None, 10), (-(2**70), 9), (10,)),
        (Range(0, None), (0, 2**70), (-1,)),
        (EVERYTHING, (-(2**70), 2**70), ()),
        (Range(5, 5), (), (4, 5, 6)),
        (Range.closed(5, 5), (5,), (4, 6)),
    ],
)
def test_the_lower_end_belongs_to_it_and_the_upper_does_not(
    of: Range, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    assert all(value in of for value in inside)
    assert not any(value in of for value in outside)


@given(ranges)
def test_an_empty_range_is_one_without_values(one: Range) -> None:
    assert one.is_empty == (not values(one))


@given(ranges, ranges)
def test_two_ranges_are_compared_by_their_values(one: Range, other: Range) -> None:
    assert values(one.clip(other)) == values(one) & values(other)
    assert one.overlaps(other) == bool(values(one) & values(other))
    assert one.covers(other) == (values(one) >= values(other))


@given(st.lists(files), ranges)
def test_a_file_overlaps_by_its_largest_value_too(some: list[File], wanted: Range) -> None:
    held = [file for file in some if values(Range.closed(file.lower, file.upper)) & values(wanted)]
    assert overlapping(some, wanted) == held


@given(ranges, st.lists(ranges))
def test_gaps_are_what_none_of_the_others_has(whole: Range, taken: list[Range]) -> None:
    ordered = sorted(taken, key=lambda part: -100 if part.lower is None else part.lower)
    free_parts = list(gaps(whole, ordered))
    assert all(not free_part.is_empty for free_part in free_parts)
    free = [value for free_part in free_parts for value in sorted(values(free_part))]
    assert free == sorted(values(whole) - {value for covered in taken for value in values(covered)})


def test_gaps_lie_between_neighbours() -> None:
    assert list(gaps(Range(0, 30), [Range(0, 10), Range(10, 20)])) == [Range(20, 30)]
    assert list(gaps(Range(0, 30), [Range(5, 10), Range(20, 40)])) == [Range(0, 5), Range(10, 20)]
    assert list(gaps(Range(0, 30), [])) == [Range(0, 30)]
