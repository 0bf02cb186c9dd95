"""The lake's grid: every range is cut into pieces that cover it, and in each the transform has one value."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, LongType, PrimitiveType, TimestampType

from frostline.model import lake_grid
from frostline.model.tiers import MICROS_PER_DAY, TierKind, days_of

HOUR = MICROS_PER_DAY // 24
_OF_TIMESTAMPS = {
    "year": 500 * MICROS_PER_DAY,
    "month": 60 * MICROS_PER_DAY,
    "day": MICROS_PER_DAY,
    "hour": HOUR,
}
TRANSFORMS = {
    TierKind.TIMESTAMPTZ: _OF_TIMESTAMPS,
    TierKind.TIMESTAMP: _OF_TIMESTAMPS,
    TierKind.DATE: {"year": 500, "month": 60, "day": 1},
    TierKind.SMALLINT: {"truncate[1]": 1, "truncate[7]": 7},
    TierKind.INTEGER: {"truncate[1000]": 1000},
    TierKind.BIGINT: {"truncate[1000000]": 1_000_000},
}
"""For each kind its transforms, and about how wide a piece is."""
CASES = [(kind, transform) for kind, transforms in TRANSFORMS.items() for transform in transforms]


@st.composite
def ranges(draw: st.DrawFn, kind: TierKind, transform: str) -> tuple[int, int]:
    width = TRANSFORMS[kind][transform]
    limit = {TierKind.DATE: days_of(3000, 1, 1), TierKind.SMALLINT: 2**15 - 1, TierKind.INTEGER: 2**31 - 1}
    edge = limit.get(kind, days_of(3000, 1, 1) * MICROS_PER_DAY)
    lower = draw(st.integers(-edge, edge))
    return lower, lower + draw(st.integers(0, 20 * width))


def iceberg_value(kind: TierKind, transform: str, number: int) -> object:
    """What Iceberg's own library makes of the value."""
    source: PrimitiveType = LongType()
    if kind.is_time:
        source = DateType() if kind is TierKind.DATE else TimestampType()
    return parse_transform(transform).transform(source)(number)


@pytest.mark.parametrize(("kind", "transform"), CASES)
@given(data=st.data())
def test_the_pieces_cover_the_range_and_each_is_one_iceberg_partition(
    kind: TierKind, transform: str, data: st.DataObject
) -> None:
    lower, upper = data.draw(ranges(kind, transform))
    pieces = list(lake_grid.ranges(transform, kind, lower, upper))
    edges = [lower, *(end for _, end in pieces)]
    assert edges[-1] == upper or not pieces
    assert [start for start, _ in pieces] == edges[:-1]
    values = [(iceberg_value(kind, transform, start), iceberg_value(kind, transform, end - 1)) for start, end in pieces]
    assert all(first == last for first, last in values)
    assert len({first for first, _ in values}) == len(pieces)


def test_an_empty_range_has_no_piece() -> None:
    assert list(lake_grid.ranges("month", TierKind.DATE, 5, 5)) == []


def test_a_month_is_one_piece_and_december_ends_the_year() -> None:
    pieces = list(lake_grid.ranges("month", TierKind.DATE, days_of(2023, 11, 15), days_of(2024, 2, 1)))
    edges = [days_of(2023, 11, 15), days_of(2023, 12, 1), days_of(2024, 1, 1), days_of(2024, 2, 1)]
    assert pieces == list(pairwise(edges))


@pytest.mark.parametrize(("kind", "transform"), CASES)
def test_transforms_that_fit_are_taken(kind: TierKind, transform: str) -> None:
    assert lake_grid.check(transform, kind) is None


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        (TierKind.TIMESTAMPTZ, "truncate[5]"),
        (TierKind.TIMESTAMP, "week"),
        (TierKind.TIMESTAMP, ""),
        (TierKind.DATE, "hour"),
        (TierKind.BIGINT, "month"),
        (TierKind.BIGINT, "truncate[0]"),
        (TierKind.BIGINT, "truncate[-1]"),
        (TierKind.INTEGER, "truncate[1] "),
    ],
)
def test_transforms_that_do_not_fit_are_named_in_the_reason(kind: TierKind, transform: str) -> None:
    reason = lake_grid.check(transform, kind)
    assert reason is not None
    assert repr(transform) in reason


@pytest.mark.parametrize(("kind", "transform"), CASES)
@given(data=st.data())
def test_a_cell_starts_where_the_one_before_it_ends(kind: TierKind, transform: str, data: st.DataObject) -> None:
    number, _ = data.draw(ranges(kind, transform))
    start = lake_grid.cell_start(transform, kind, number)
    assert start <= number < lake_grid.cell_end(transform, kind, start)
    assert lake_grid.cell_end(transform, kind, start - 1) == start


@pytest.mark.parametrize(
    ("transform", "kind", "first"),
    [
        ("truncate[100]", TierKind.SMALLINT, -(2**15)),
        ("truncate[100]", TierKind.INTEGER, -2147483600),
        ("truncate[100]", TierKind.BIGINT, -9223372036854775800),
        ("truncate[128]", TierKind.BIGINT, -(2**63)),
        ("truncate[5000000000]", TierKind.INTEGER, 0),
        ("month", TierKind.TIMESTAMPTZ, TierKind.TIMESTAMPTZ.lowest),
    ],
)
def test_the_smallest_value_of_the_lake_begins_a_partition(transform: str, kind: TierKind, first: int) -> None:
    assert lake_grid.smallest(transform, kind) == first
