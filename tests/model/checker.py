"""A small explicit-state model checker: it walks through every state that a protocol can get into.

A protocol is a function from a state to the steps that are possible in it, each with a name and the state after it.
States are immutable and hashable. An invariant is a function that says what is wrong with a state, or None.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Steps = Callable[[State], Iterable[tuple[str, State]]]


@dataclass(frozen=True)
class Walked(Generic[State]):
    """What was found: how many states there are, and the shortest way to one that must not be."""

    states: int
    problem: str | None = None
    way: tuple[str, ...] = ()


def walk(
    start: State, steps: Steps[State], wrong: Callable[[State], str | None], most: int = 2_000_000
) -> Walked[State]:
    """Breadth first, so that the way to a problem is the shortest there is."""
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        problem = wrong(state)
        if problem is not None:
            return Walked(len(came_from), problem, _way(came_from, state))
        for name, after in steps(state):
            if after not in came_from:
                came_from[after] = (state, name)
                waiting.append(after)
        assert len(came_from) <= most, "the model is too large"
    return Walked(len(came_from))


def _way(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = list[str]()
    while (before := came_from[state]) is not None:
        state, name = before
        names.append(name)
    return tuple(reversed(names))
