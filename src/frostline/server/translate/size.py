"""How large a statement may be. What is written out costs a tree, and time in the parser that others wait for.

A string costs next to nothing, however long it is: an array of 100,000 keys is one. So what counts is the text outside
of strings, which is looked over before the parser gets it, and the number of tokens.
"""

import re

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
