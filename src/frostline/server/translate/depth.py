"""How deep a query may be. The parser's tree is built on the C stack, and running over its end would end the server."""

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

MAX_DEPTH = 5_000
"""Links of one chain. The parser itself refuses some 10 000 things inside each other, but not `1 + 1 + 1 + ...`."""
STACK_BYTES = 32 << 20
"""What a thread needs that parses: twice the measured need of both limits together."""


@contextmanager
def deep_stack() -> Generator[None]:
    """Threads that are started in here have such a stack; on some systems it would be half a megabyte."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


_OPENS = {"ASCII_40", "ASCII_91"}
_CLOSES = {"ASCII_41", "ASCII_93"}
_SEPARATES = {"AND", "OR", "ASCII_44", "ASCII_59"}
"""AND, OR, comma and semicolon put things beside each other."""
_CHAINS = {"UNION", "INTERSECT", "EXCEPT", "JOIN"}
"""They make the tree deeper with each link, whatever separates things between two of them."""


class Token(Protocol):
    """A token, as the parser's scanner describes it."""

    @property
    def name(self) -> str:
        """What it is."""
        ...


@dataclass
class _Level:
    """What one pair of parentheses holds so far."""

    chained: int = 0
    operand: int = 0
    betweens: int = 0

    def count(self, name: str) -> None:
        self.operand += 1
        if name in _CHAINS:
            self.chained += 1
        elif name == "BETWEEN":
            self.betweens += 1
        elif name == "AND" and self.betweens:
            self.betweens -= 1
        elif name in _SEPARATES:
            self.operand = self.betweens = 0


def depth(tokens: Iterable[Token]) -> int:
    """At least the length of the longest chain in the tree that the parser makes of the tokens, without making it."""
    outer: list[_Level] = []
    level, below, deepest = _Level(), 0, 0
    for token in tokens:
        if token.name in _OPENS:
            outer.append(level)
            below, level = below + level.chained + level.operand, _Level()
        elif token.name in _CLOSES and outer:
            level = outer.pop()
            below -= level.chained + level.operand
        level.count(token.name)
        deepest = max(deepest, below + level.chained + level.operand)
    return deepest
