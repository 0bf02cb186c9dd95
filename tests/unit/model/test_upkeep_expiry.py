"""Which states of a lake may go."""

import pytest

from frostline.model.upkeep import NO_EXPIRY, Expiry, LakeState, expiry


def state(location: str, snapshot: int | None, *, over: bool = True, seen: bool = False) -> LakeState:
    return LakeState(location, snapshot, "7" if over or seen else None, over, seen)


CURRENT = state("current", 9, over=False)
CASES = {
    "nothing was replaced": ([CURRENT], set[str](), set[int](), NO_EXPIRY),
    "old and needed by nobody": (
        [state("a", 1), state("b", 2), CURRENT], set[str](), set[int](), Expiry(frozenset("ab"), frozenset({1, 2})),
    ),
    "too young": ([state("a", 1, over=False), CURRENT], set[str](), set[int](), NO_EXPIRY),
    "seen by a live snapshot": ([state("a", 1, seen=True), CURRENT], set[str](), set[int](), NO_EXPIRY),
    "pinned": ([state("a", 1), state("b", 2), CURRENT], {"a"}, set[int](), Expiry(frozenset("b"), frozenset({2}))),
    "another state that stays has the same snapshot": (
        [state("a", 1), state("b", 1, seen=True), state("c", 2), CURRENT],
        set[str](), set[int](), Expiry(frozenset("ac"), frozenset({2})),
    ),
    "the current state has the same snapshot": ([state("a", 9), CURRENT], set[str](), set[int](), NO_EXPIRY),
    "a tag names it": ([state("a", 1), CURRENT], set[str](), {1}, NO_EXPIRY),
    "only metadata files": ([state("a", None), state("b", 9), CURRENT], set[str](), set[int](), NO_EXPIRY),
    "metadata files go along": (
        [state("a", None), state("b", 9), state("c", 1), CURRENT],
        set[str](), set[int](), Expiry(frozenset("abc"), frozenset({1})),
    ),
    "it is not in the metadata any more": ([state("a", 77), CURRENT], set[str](), set[int](), NO_EXPIRY),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_may_go(case: str) -> None:
    states, pinned, needed, expected = CASES[case]
    assert expiry(states, pinned, present={1, 2, 9}, needed=needed) == expected
