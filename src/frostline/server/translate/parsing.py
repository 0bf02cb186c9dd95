"""Postgres' own parser, called in one thread only.

libpg_query makes a key for thread-specific data in each thread that calls it, and never gives it back. A process has
1,024 of them: a server that parsed in the thread of each session would end all encryption and every query after a
thousand sessions.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from pglast import ast, parser

from frostline.server.translate.depth import deep_stack

ParseError = parser.ParseError


@cache
def _thread() -> ThreadPoolExecutor:
    with deep_stack():
        pool = ThreadPoolExecutor(1, thread_name_prefix="parser")
        pool.submit(int).result()  # the thread starts now
    return pool


def parse_sql(text: str) -> Sequence[ast.RawStmt]:
    """The statements of a text; raises ParseError."""
    return _thread().submit(parser.parse_sql, text).result()


def scan(text: str) -> Sequence[Any]:
    """The tokens of a text; raises ParseError."""
    return _thread().submit(parser.scan, text).result()
