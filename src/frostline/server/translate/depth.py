"""How deep a query may be. The parser's tree is built on the C stack, and running over its end would end the server."""

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

MAX_DEPTH = 5_000
"""Links of one chain. The parser itself refuses some 10 000 things inside each other, but not `1 + 1 + 1 + ...`."""
STACK_BYTES = 8 << 20
"""Four times what a thread needs that parses a chain of that length, as measured."""


@contextmanager
def deep_stack() -> Generator[None]:
    """Threads that are started in here have such a stack; on some systems it would be half a megabyte."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


_OPENS: set[int] = {pb.ASCII_40, pb.ASCII_91}
_CLOSES: set[int] = {pb.ASCII_41, pb.ASCII_93}
_SEPARATES: set[int] = {pb.AND, pb.OR, pb.ASCII_44, pb.ASCII_59}
"""AND, OR, comma and semicolon put things beside each other."""
_CHAINS: set[int] = {pb.UNION, pb.INTERSECT, pb.EXCEPT, pb.JOIN}
"""They make the tree deeper with each link, whatever separates things between two of them."""


@dataclass
class _Level:
    """What one pair of parentheses holds so far."""

    chained: int = 0
    operand: int = 0
    betweens: int = 0

    def count(self, token: int) -> None:
        self.operand += 1
        if token in _CHAINS:
            self.chained += 1
        elif token == pb.BETWEEN:
            self.betweens += 1
        elif token == pb.AND and self.betweens:
            self.betweens -= 1
        elif token in _SEPARATES:
            self.operand = self.betweens = 0


def depth(tokens: Iterable[pb.ScanToken]) -> int:
    """At least the length of the longest chain in the tree that the parser makes of the tokens, without making it."""
    outer: list[_Level] = []
    level, below, deepest = _Level(), 0, 0
    for token in tokens:
        kind = token.token
        if kind in _OPENS:
            outer.append(level)
            below, level = below + level.chained + level.operand, _Level()
        elif kind in _CLOSES and outer:
            level = outer.pop()
            below -= level.chained + level.operand
        level.count(kind)
        deepest = max(deepest, below + level.chained + level.operand)
    return deepest
