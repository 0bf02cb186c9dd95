"""What a session keeps from one message to the next: prepared statements, their parameters, and savepoints."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline.errors import UsageError
from frostline.server.protocol.parameters import Many
from frostline.server.translate import parsing
from frostline.server.translate.changes import InsertBatch
from frostline.server.translate.complexity import TooComplex
from frostline.server.translate.statements import NotServed, Statement, Write
from frostline.server.writes.definitions import Mark

_compute: Any = pc
MAX_NAMED = 1_000
"""Prepared statements, portals or cursors one session may have."""
MAX_CHARS = 4 << 20
"""Of all statements with a name together: each has its tree, and they stay as long as the client likes."""
_ANY_TYPE = ("text", "varchar", "unknown")
"""Declared by clients that do not know the type; then the other side decides, as for a constant in quotes."""


class NoSuchThing(UsageError):
    """A cursor, portal or prepared statement that is not there."""

    sqlstate = "34000"


class Prepared:
    """Statements by name. The one without a name is replaced by the next, and may be as long as any other query."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, list[Statement]]] = {"": (0, [])}

    def keep(self, name: str, sql: str, parsed: list[Statement]) -> None:
        """Keep what the text was parsed to; NotServed or TooComplex when that is too much."""
        others = [size for other, (size, _) in self._kept.items() if other not in ("", name)]
        if name and len(others) >= MAX_NAMED:
            raise NotServed(f"more than {MAX_NAMED} prepared statements in one session")
        if name and sum(others) + len(sql) > MAX_CHARS:
            raise TooComplex(
                f"the prepared statements of this session have more than {MAX_CHARS} characters", hint="DEALLOCATE ALL"
            )
        self._kept[name] = (len(sql), parsed)

    def get(self, name: str) -> list[Statement]:
        """The statement, in a list; none for an empty text."""
        if name not in self._kept:
            raise NoSuchThing(f"prepared statement {name!r} does not exist")
        return self._kept[name][1]

    def close(self, name: str) -> None:
        """Forget it, if it is there."""
        self._kept.pop(name, None)

    def deallocate(self, name: str | None) -> None:
        """Forget it, or with no name all of them."""
        if name is None:
            self._kept = {"": (0, [])}
        elif self._kept.pop(name, None) is None:
            raise NoSuchThing(f"prepared statement {name!r} does not exist")


class NotText(UsageError):
    """Bytes that no text of a UTF8 database has."""

    sqlstate = "22021"


def given(statement: Statement, values: Sequence[bytes | None]) -> tuple[Statement, tuple[str | None, ...]]:
    """The statement with its parameters. Those of many rows to insert stay as they are, in the statement."""
    if isinstance(values, Many) and isinstance(statement, Write) and isinstance(statement.change, InsertBatch):
        return replace(statement, change=replace(statement.change, given=values)), ()
    return statement, tuple(map(decoded, values))


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


def decoded_column(values: Any) -> Any:
    """The same for an array of bytes."""
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        raise NotText("a parameter is not UTF-8") from None
    if _compute.any(_compute.match_substring(texts, "\0")).as_py():
        raise NotText("a parameter has a null byte in it")
    return texts


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
    if known is None or known.name in _ANY_TYPE:
        return None
    name = sql.Identifier("pg_catalog", known.name).as_string(None)
    return name + ("[]" if oid == known.array_oid else "")


class NoSuchSavepoint(UsageError):
    """A savepoint that is not there."""

    sqlstate = "3B001"


class Savepoints:
    """Names may repeat; the latest counts, as in Postgres."""

    def __init__(self) -> None:
        self._set: list[tuple[str, frozenset[str], Mark]] = []

    def set(self, name: str, cursors: Iterable[str], mark: Mark) -> None:
        """SAVEPOINT, while these cursors are open; `mark` is where the changes of lake tables are."""
        self._set.append((name, frozenset(cursors), mark))

    def release(self, name: str) -> None:
        """RELEASE: the savepoint and those after it are gone."""
        del self._set[self._position(name) :]

    def back(self, name: str) -> tuple[frozenset[str], Mark]:
        """ROLLBACK TO: those after it are gone. Answers with the cursors that stay open, and the mark."""
        position = self._position(name)
        del self._set[position + 1 :]
        return self._set[position][1:]

    def clear(self) -> None:
        """The transaction is over."""
        self._set.clear()

    def _position(self, name: str) -> int:
        for position in reversed(range(len(self._set))):
            if self._set[position][0] == name:
                return position
        raise NoSuchSavepoint(f"savepoint {name!r} does not exist")
