"""Parameters: their text, and the types that a client declares for them, which become casts in the SQL."""

from collections.abc import Sequence

import psycopg
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline.errors import UsageError
from frostline.server.translate import parsing

_ANY = ("text", "varchar", "unknown")
"""Declared by clients that do not know the type; then the other side decides, as for a constant in quotes."""


class NotText(UsageError):
    """Bytes that no text of a UTF8 database has."""

    sqlstate = "22021"


def decoded(value: bytes | None) -> str | None:
    """The text of a parameter; None for NULL."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise NotText("a parameter is not UTF-8") from None
    if "\0" in text:
        raise NotText("a parameter has a null byte in it")
    return text


def with_types(text: str, oids: Sequence[int]) -> str:
    """The SQL with every parameter cast to the type that was declared for it."""
    casts = {number: cast for number, oid in enumerate(oids, 1) if (cast := _cast(oid))}
    tokens = [token for token in parsing.scan(text) if token.token == pb.PARAM] if casts else []
    raw = text.encode()
    parts, done = list[bytes](), 0
    for token in tokens:
        number = int(raw[token.start + 1 : token.end])
        if number in casts:
            parts += [raw[done : token.start], f"(${number}::{casts[number]})".encode()]
            done = token.end
    return b"".join((*parts, raw[done:])).decode()


def _cast(oid: int) -> str | None:
    known = psycopg.postgres.types.get(oid)
    if known is None or known.name in _ANY:
        return None
    name = sql.Identifier("pg_catalog", known.name).as_string(None)
    return name + ("[]" if oid == known.array_oid else "")
