"""A moment of many tables, of a catalog that shows one table at a time: docs/design/rest-nodes.md, "A cut"."""

from collections.abc import Mapping, Sequence

Look = Mapping[int, str]
"""Where the tables were in one round, by their ids; those that were not there are left out."""

ROUNDS = 3
"""So many of the last rounds tell all that there is to know."""


def settled(rounds: Sequence[Look]) -> int | None:
    """The round that shows where all tables were at one moment since the first began; None when nobody can tell.

    A table never comes back to a place that it has left. So whatever is at the same place in two rounds was there all
    the time in between, and a table that alone has moved was where the round in between has found it.
    """
    if len(rounds) >= 2 and rounds[-1] == rounds[-2]:
        return len(rounds) - 1
    if len(rounds) < ROUNDS:
        return None
    first, middle, last = rounds[-ROUNDS:]
    tables = first.keys() | middle.keys() | last.keys()
    moved = [table for table in tables if not first.get(table) == middle.get(table) == last.get(table)]
    return len(rounds) - 2 if len(moved) <= 1 else None
