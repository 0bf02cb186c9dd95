"""Postgres' own parser (libpg_query), and our tree from its messages: nothing else knows how it hands its tree over.

The parser is called in two threads only: one for short texts, one for long ones. It makes a key for thread-specific
data in each thread that calls it, and never gives it back. A process has 1,024 of them: a server that parsed in the
thread of each session would end all encryption and every query after a thousand sessions. With two threads nobody who
asks for little waits for somebody who asks for much.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import postgast
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message
from postgast import pg_query_pb2 as pb

from frostline.server.translate import changetree, tree
from frostline.server.translate.complexity import deep_stack
from frostline.server.translate.tree import Node, Other, String, names

KINDS = {**tree.KINDS, **changetree.KINDS}
"""All kinds of nodes that the rules know."""
SHORT_BYTES = 16_384
"""Texts up to this size take a few milliseconds, whatever they are."""

_VALUES = ("ival", "fval", "boolval", "sval", "bsval")
"""The parser has a field of its own for each type of constant."""

_Place = tuple[Message, "Node | list[Node | None]", "str | int"]
"""A message of the parser's tree, and where the node that is made of it belongs."""

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
        Raw(_planted(raw.stmt), raw.stmt_location, raw.stmt_location + raw.stmt_len if raw.stmt_len else size)
        for raw in _called(postgast.parse, text).stmts
    ]


def scan(text: str) -> Sequence[pb.ScanToken]:
    """The tokens of a text, with their places in bytes of UTF-8; raises ParseError."""
    return _called(postgast.scan, text).tokens


def _planted(message: Message) -> Node | None:
    """Our tree of a message of the parser's. No recursion: it may be deeper than Python's stack."""
    top: list[Node | None] = [None]
    waiting: list[_Place] = [(message, top, 0)]
    while waiting:
        message, holder, key = waiting.pop()
        made = _made(message, waiting)
        if isinstance(holder, list):
            holder[cast(int, key)] = made
        else:
            setattr(holder, str(key), made)
    return top[0]


def _made(message: Message, waiting: list[_Place]) -> Node | None:
    """One node; what is below it has to wait. None for the parser's NULL."""
    kind = message.DESCRIPTOR.name
    if kind == "Node":
        which = message.WhichOneof("node")
        if which is None:
            return None
        message = getattr(message, which)
        if isinstance(message, pb.String):
            return String(message.sval)  # every name is made of them
        kind = message.DESCRIPTOR.name
    made = KINDS[kind]() if kind in KINDS else Other(kind=kind)
    known = () if isinstance(made, Other) else names(type(made))
    for descriptor, value in message.ListFields():
        name = "val" if kind == "A_Const" and descriptor.name in _VALUES else descriptor.name
        if name == "location" and name not in known:
            continue
        _fill(made, name if name in known else None, value, waiting)
    return made


def _fill(made: Node, name: str | None, value: Any, waiting: list[_Place]) -> None:
    """Put the value of one field into the node; nodes that it has no name for go to the rest."""
    if isinstance(value, (str, bytes, int, float)):
        if name is not None:
            setattr(made, name, value)
    elif name is not None and isinstance(value, Message):
        waiting.append((value, made, name))
    else:
        messages = [value] if isinstance(value, Message) else [item for item in value if isinstance(item, Message)]
        places = _places(made, name)
        for message in messages:
            waiting.append((message, places, len(places)))
            places.append(None)


def _places(made: Node, name: str | None) -> list[Node | None]:
    """The list that a field's nodes go into."""
    held = made.rest if name is None else ()
    places = held if isinstance(held, list) else []
    setattr(made, name or "rest", places)
    return places
