"""How large and how deep a statement may be.

What is written out costs a tree, and time in the parser that others wait for. A string costs next to nothing, however
long it is: an array of 100,000 keys is one. So what counts is the text outside of strings, which is looked over before
the parser gets it, and the number of tokens. The parser's tree is built on the C stack, and running over its end would
end the server.
"""

import re
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.errors import UsageError

MAX_CODE_CHARS = 500_000
"""Of a text, without its strings. Scanning so much takes a fraction of a second, whatever it is."""
MAX_TOKENS = 250_000
"""A list of 125,000 numbers, or 40,000 conditions such as `(id = 1) OR`. The tree takes seconds and 100 MB at most."""
HINT = "pass a long list as one array: id = any ($1), or id = any ('{1,2,3}')"

_QUIET = r"""
    (?<![\w$\x80-\U0010ffff]) [eE]' (?: [^'\\]++ | '' | \\. )*+ '
    | ' [^']*+ '
    | " [^"]*+ "
    | -- [^\n\r]*+
    | (?P<tag> \$ (?: [A-Za-z_\x80-\U0010ffff] [\w\x80-\U0010ffff]* )? \$ ) .*? (?P=tag)
"""
_PIECE = re.compile(rf"(?P<quiet>{_QUIET}) | (?P<comment> /\* ) | [^'\"$/eE-]++ | .", re.VERBOSE | re.DOTALL | re.ASCII)
"""Comments of the form /* */ may be inside each other, so what follows one counts as a whole."""

MAX_DEPTH = 5_000
"""Links of one chain. The parser itself refuses some 10 000 things inside each other, but not `1 + 1 + 1 + ...`."""
STACK_BYTES = 8 << 20
"""Four times what a thread needs that parses a chain of that length, as measured."""

_OPENS: set[int] = {pb.ASCII_40, pb.ASCII_91}
_CLOSES: set[int] = {pb.ASCII_41, pb.ASCII_93}
_SEPARATES: set[int] = {pb.AND, pb.OR, pb.ASCII_44, pb.ASCII_59}
"""AND, OR, comma and semicolon put things beside each other."""
_CHAINS: set[int] = {pb.UNION, pb.INTERSECT, pb.EXCEPT, pb.JOIN}
"""They make the tree deeper with each link, whatever separates things between two of them."""


class TooComplex(UsageError):
    """There is more of the SQL, or it is deeper, than the parser is given."""

    sqlstate = "54001"


def code_chars(sql: str, enough: int) -> int:
    """At least as many as the text has tokens: its characters without strings and comments. Stops above `enough`."""
    counted = 0
    for piece in _PIECE.finditer(sql):
        if piece["comment"]:
            return counted + len(sql) - piece.start()
        counted += 1 if piece["quiet"] else piece.end() - piece.start()
        if counted > enough:
            break
    return counted


def check_text(sql: str) -> None:
    """Raise TooComplex when there is too much outside of the strings."""
    if len(sql) > MAX_CODE_CHARS and code_chars(sql, MAX_CODE_CHARS) > MAX_CODE_CHARS:
        raise TooComplex(f"the statement has more than {MAX_CODE_CHARS} characters outside of strings", hint=HINT)


def check_tokens(count: int) -> None:
    """Raise TooComplex when there are too many."""
    if count > MAX_TOKENS:
        raise TooComplex(f"the statement has {count} tokens, and {MAX_TOKENS} are accepted", hint=HINT)


@contextmanager
def deep_stack() -> Generator[None]:
    """Threads that are started in here have such a stack; on some systems it would be half a megabyte."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


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
