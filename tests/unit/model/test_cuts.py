"""Moments of many tables that are looked at one after the other, against all that others may do in between."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from frostline.model import cuts
from frostline.model.cuts import Look

Event = tuple[int, str | None]
"""A table, and None for a look at it or the commit that moves it."""


def histories(tables: int, rounds: int, commits: int) -> Iterator[Sequence[Event]]:
    """All orders of commits between the looks of these rounds, each of which begins at one end or at the other."""
    orders = [range(tables), range(tables - 1, -1, -1)]
    for looks in itertools.product(orders, repeat=rounds):
        flat = [table for order in looks for table in order]
        for moved in itertools.product(range(tables), repeat=commits):
            for places in itertools.combinations_with_replacement(range(len(flat) + 1), commits):
                history = list[Event]()
                for place in range(len(flat) + 1):
                    history += [(moved[n], f"commit {n}") for n, at in enumerate(places) if at == place]
                    history += [(flat[place], None)] if place < len(flat) else []
                yield history


def seen(history: Sequence[Event], tables: int) -> tuple[list[Look], list[Look]]:
    """What the rounds have seen, and all states that there were since the first look."""
    now = dict.fromkeys(range(tables), "start")
    states, rounds, looked = list[Look](), list[Look](), dict[int, str]()
    for table, commit in history:
        if commit is not None:
            now[table] = commit
        else:
            looked[table] = now[table]
        if looked or rounds:
            states.append(dict(now))
        if len(looked) == tables:
            rounds.append(looked)
            looked = {}
    return rounds, states


Choice = Callable[[Sequence[Look]], int | None]


def wrong(choose: Choice) -> Iterator[Look]:
    """The cuts that it makes of states that never were."""
    for tables, commits in ((2, 2), (2, 3), (3, 2)):
        for history in histories(tables, 3, commits):
            rounds, states = seen(history, tables)
            for count in range(1, 4):
                chosen = choose(rounds[:count])
                if chosen is not None and rounds[chosen] not in states:
                    yield rounds[chosen]


def test_a_cut_is_a_state_that_there_was() -> None:
    assert next(wrong(cuts.settled), None) is None


def _last(rounds: Sequence[Look]) -> int | None:
    return len(rounds) - 1


def _last_of_three_with_one_that_moved(rounds: Sequence[Look]) -> int | None:
    return None if cuts.settled(rounds) is None else len(rounds) - 1


def _one_moved_between_two(rounds: Sequence[Look]) -> int | None:
    if len(rounds) < 2:
        return None
    moved = [table for table in rounds[-1] if rounds[-1][table] != rounds[-2][table]]
    return len(rounds) - 1 if len(moved) <= 1 else None


@pytest.mark.parametrize("mistaken", [_last, _last_of_three_with_one_that_moved, _one_moved_between_two])
def test_mistakes_are_found(mistaken: Choice) -> None:
    assert next(wrong(mistaken), None) is not None


@pytest.mark.parametrize(
    ("rounds", "chosen"),
    [
        ([{1: "a"}], None),
        ([{1: "a", 2: "x"}, {1: "a", 2: "x"}], 1),
        ([{1: "a", 2: "x"}, {1: "b", 2: "x"}], None),
        ([{1: "a", 2: "x"}, {1: "b", 2: "x"}, {1: "c", 2: "x"}], 1),
        ([{1: "a", 2: "x"}, {1: "b", 2: "y"}, {1: "c", 2: "y"}], None),
        ([{1: "a", 2: "x"}, {1: "b", 2: "y"}, {1: "b", 2: "y"}], 2),
        ([{1: "a"}, {1: "a", 2: "x"}, {1: "a", 2: "y"}], 1),
        ([{}, {}], 1),
    ],
)
def test_one_table_may_move_all_the_time(rounds: Sequence[Mapping[int, str]], chosen: int | None) -> None:
    assert cuts.settled(rounds) == chosen
