"""From the parser's messages to our tree. The only place that knows how the parser hands its tree over."""

from typing import Any, cast

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pb

from frostline.server.translate.tree import KINDS, Node, Other, String, names

_VALUES = ("ival", "fval", "boolval", "sval", "bsval")
"""The parser has a field of its own for each type of constant."""

_Place = tuple[Message, "Node | list[Node | None]", "str | int"]
"""A message of the parser's tree, and where the node that is made of it belongs."""


def planted(message: Message) -> Node | None:
    """The tree of a message of the parser's. No recursion: it may be deeper than Python's stack."""
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
        messages = [value] if isinstance(value, Message) else [one for one in value if isinstance(one, Message)]
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
