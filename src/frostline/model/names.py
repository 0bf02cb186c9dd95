"""Names of tables, and of the objects that belong to one managed table."""

import re
from dataclasses import dataclass
from typing import Protocol

from frostline.model.range import Range

MAX_BYTES = 63
"""Postgres cuts identifiers at this many bytes."""
OWN_SCHEMAS = (
    "frostline",
    "frostline_lake",
    "frostline_overlay",
    "frostline_relation",
    "frostline_stage",
    "frostline_write",
)
"""What the migrations make. Another schema that begins like these is the user's, or a conversion's."""

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s".]+))\s*')
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_REMOTE = re.compile(r"(\d+)\[((?:-?\d+)?),(-?\d+)\)")


class BadName(ValueError):
    """The text is not a table name."""


@dataclass(frozen=True, order=True)
class Name:
    """A schema-qualified table name, exactly as Postgres stores it."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Read `table`, `schema.table` or the same with quotes; unquoted parts fold to lower case as in SQL."""
        parts = _split(text)
        if len(parts) == 1:
            return cls("public", parts[0])
        if len(parts) == 2:
            return cls(parts[0], parts[1])
        raise BadName(f"not a table name: {text!r}")

    @property
    def heap(self) -> "Name":
        """Where the user's own table goes when the relation takes its name."""
        return Name(self.schema, "_" + self.table)

    def default_partition(self, *, otherwise: bool = False) -> "Name":
        """What registration calls the DEFAULT partition it makes. Errors name it, so it looks like the table.

        `otherwise` is its name when somebody else has the usual one.
        """
        stem, suffix = ("_" + self.table, "_frostline_default") if otherwise else (self.table, "_default")
        return Name(self.schema, cut(stem, MAX_BYTES - len(suffix)) + suffix)

    def __str__(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"


class Named(Protocol):
    """A managed table or a lake table, as far as a report on it goes."""

    @property
    def name(self) -> Name: ...  # noqa: D102


def _split(text: str) -> list[str]:
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if not match:
            raise BadName(f"not a table name: {text!r}")
        inside, bare = match.groups()
        parts.append(inside.replace('""', '"') if inside is not None else bare.lower())
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise BadName(f"not a table name: {text!r}")
        position += 1


def parse_identifier(text: str) -> str:
    """Read one name, such as a role's, with quotes or without; without them it folds to lower case as in SQL."""
    try:
        (name,) = _split(text)
    except ValueError:
        raise BadName(f"not a name: {text!r}") from None
    return name


def quoted(identifier: str) -> str:
    """The identifier as a person types it: quotes only where they are needed. For display, never for SQL."""
    if _PLAIN.fullmatch(identifier):
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


def cut(text: str, max_bytes: int) -> str:
    """The longest prefix of whole characters that fits into `max_bytes` of UTF-8."""
    return text.encode()[:max_bytes].decode(errors="ignore")


def internal(table: str, table_id: int) -> str:
    """The name that the overlay, the inner view and the lake tables of one managed table share."""
    suffix = f"_{table_id}"
    return cut(table, MAX_BYTES - len(suffix)) + suffix


@dataclass(frozen=True)
class RemoteName:
    """What a foreign table of a managed table asks the lake server for: the table between two tier values.

    `lower` is None for "from the beginning". The text form is the foreign table's `table_name`
    option, so it shows in EXPLAIN VERBOSE; the bounds are axis values (see `model.tiers`).
    """

    table_id: int
    lower: int | None
    upper: int

    @property
    def range(self) -> Range:
        """The tier values that it asks for."""
        return Range(self.lower, self.upper)

    def __str__(self) -> str:
        return f"{self.table_id}[{'' if self.lower is None else self.lower},{self.upper})"

    @classmethod
    def parse(cls, text: str) -> "RemoteName":
        """Read the text form back; raises ValueError for anything else."""
        match = _REMOTE.fullmatch(text)
        if not match:
            raise BadName(f"not a lake table: {text!r}")
        table_id, lower, upper = match.groups()
        return cls(int(table_id), int(lower) if lower else None, int(upper))
