"""The ends of a range, as Postgres can read them."""

import pytest

from frostline.model.range import EVERYTHING, Range
from frostline.model.tiers import TierKind, from_text, to_text
from frostline.tiers import shards

TIMES = [kind for kind in TierKind if kind.is_time]


@pytest.mark.parametrize("kind", TierKind)
def test_without_limits_there_are_none(kind: TierKind) -> None:
    assert shards.ends(kind, EVERYTHING) == (kind.lowest, kind.highest)


@pytest.mark.parametrize("kind", TierKind)
def test_the_last_value_belongs_to_the_range(kind: TierKind) -> None:
    assert shards.ends(kind, Range(3, 8)) == (3, 7)


@pytest.mark.parametrize("kind", TIMES)
def test_what_lies_below_the_calendar_is_minus_infinity_alone(kind: TierKind) -> None:
    """A day before the first one has no text that Postgres reads."""
    low, last = shards.ends(kind, Range(kind.lowest, kind.earliest))
    assert (low, last) == (kind.lowest, kind.lowest)
    assert from_text(kind, to_text(kind, last)) == last
