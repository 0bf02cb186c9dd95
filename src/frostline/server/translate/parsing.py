"""Postgres' own parser (libpg_query), called in two threads only: one for short texts, one for long ones.

libpg_query makes a key for thread-specific data in each thread that calls it, and never gives it back. A process has
1,024 of them: a server that parsed in the thread of each session would end all encryption and every query after a
thousand sessions. With two threads nobody who asks for little waits for somebody who asks for much.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import postgast
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from postgast import pg_query_pb2 as pb

from frostline.server.translate.depth import deep_stack
from frostline.server.translate.planting import planted
from frostline.server.translate.tree import Node

SHORT_BYTES = 16_384
"""Texts up to this size take a few milliseconds, whatever they are."""

ParseError = postgast.PgQueryError
Answer = TypeVar("Answer")


class TooDeep(Exception):
    """The parser gave up because of how much of the text is inside something else."""


@dataclass(frozen=True)
class Raw:
    """One statement of a text: its tree, and the part of the text that it is, in bytes of UTF-8."""

    node: Node | None
    start: int
    end: int


@cache
def _thread(*, short: bool) -> ThreadPoolExecutor:
    with deep_stack():
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"parser-{'short' if short else 'long'}")
        pool.submit(_allow_depth).result()  # the thread starts now
    return pool


def _allow_depth() -> None:
    """The decoder of the parser's messages stops at 100 levels unless it is told otherwise, for the whole process."""
    decoder: Any = getattr(api_implementation, "_c_module", None)
    with suppress(AttributeError):  # another decoder may keep its limit: then 45 things inside each other are too deep
        decoder.SetAllowOversizeProtos(True)  # noqa: FBT003


def _called(function: Callable[[str], Answer], text: str) -> Answer:
    if "\0" in text:
        raise ParseError("a null byte")
    try:
        return _thread(short=len(text) <= SHORT_BYTES).submit(function, text).result()
    except DecodeError as error:
        raise TooDeep from error
    except ParseError as error:
        if error.message.startswith("memory exhausted"):
            raise TooDeep from error
        raise


def parse_sql(text: str) -> Sequence[Raw]:
    """The statements of a text; raises ParseError or TooDeep."""
    size = len(text.encode())
    return [
        Raw(planted(raw.stmt), raw.stmt_location, raw.stmt_location + raw.stmt_len if raw.stmt_len else size)
        for raw in _called(postgast.parse, text).stmts
    ]


def scan(text: str) -> Sequence[pb.ScanToken]:
    """The tokens of a text, with their places in bytes of UTF-8; raises ParseError."""
    return _called(postgast.scan, text).tokens
