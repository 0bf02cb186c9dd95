"""How a Postgres type travels to the lake and back.

A type with an exact Iceberg twin goes natively. Every other type travels as its canonical text and is
cast back by the foreign table, so no type is refused and none is approximated.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from frostline.model import laketypes

_TEXT_BUT_COMPARABLE = {"uuid"}
"""Types whose canonical text is equal exactly when the values are, and sorts as they do."""
SQL_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""What `format_type` writes for a type, by `pg_type.typname`, where that is another name. Without modifiers."""
TYPNAMES = {formatted: name for name, formatted in SQL_NAMES.items()}
_PART = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_$]*)'
_FIELD = "(?:year|month|day|hour|minute|second)"
_WORDS = (
    r"character varying|bit varying|double precision|(?:time|timestamp)(?:\(\d\))? with(?:out)? time zone|"
    f"interval {_FIELD}(?: to {_FIELD})?"
)
_NAME = re.compile(rf"{_PART}(?:\.{_PART})?")
_TYPE = re.compile(rf"(?:{_WORDS}|(?P<schema>{_PART}\.)?{_PART})(?:\(-?\w+(?:, ?-?\w+)*\))?(?:\[\])*", re.ASCII)


def is_name(text: str) -> bool:
    """Whether it is a name in SQL, with or without a schema, and nothing else."""
    return _NAME.fullmatch(text) is not None


def is_type(text: str, *, builtin: bool) -> bool:
    """Whether it is a type as `format_type` writes it, and nothing else: safe to be put into a statement.

    Where no schema but Postgres' own is searched, it is one of Postgres' own types exactly when no schema is named.
    """
    match = _TYPE.fullmatch(text)
    return match is not None and (match["schema"] is None) is builtin


class Collation(StrEnum):
    """What a column's collation means for comparisons made outside Postgres."""

    NONE = "none"
    """Not a text column."""
    BYTES = "bytes"
    """Text in byte order (C, POSIX, C.UTF-8, ucs_basic): any engine compares it alike."""
    LINGUISTIC = "linguistic"
    """Equality is byte equality; the order is known only to Postgres."""
    NONDETERMINISTIC = "nondeterministic"
    """Even equality is known only to Postgres."""

    def holds_of(self, here: "Collation") -> bool:
        """Whether what comparisons of a column with this one may rely on is so where the column has that one.

        Only what is no text has NONE, and is compared as its type says, which text of the same name would not be.
        """
        if self is Collation.NONDETERMINISTIC:
            return True
        return here is self or (self, here) == (Collation.LINGUISTIC, Collation.BYTES)


@dataclass(frozen=True)
class PgType:
    """A column's type as the Postgres catalogs describe it."""

    formatted: str
    """As SQL writes it, with modifiers: what `format_type` returns."""
    name: str
    """`pg_type.typname`, without modifiers."""
    builtin: bool
    """Whether the type is one of Postgres' own; postgres_fdw pushes conditions on those only."""
    precision: int | None = None
    scale: int | None = None


@dataclass(frozen=True)
class LakeEncoding:
    """How the values of one type are carried."""

    lake_type: str
    """The Iceberg type, as Iceberg writes it: `long`, `timestamptz`, `decimal(12, 2)`, `string`, ..."""
    as_text: bool
    """The value is cast to text on the way out and back on the way in."""
    pushable: bool
    """Conditions on the column may be sent to the lake server."""


def encoding(pg_type: PgType, collation: Collation) -> LakeEncoding:
    """Decide how a column of this type travels."""
    native = laketypes.native(pg_type.name, pg_type.precision, pg_type.scale) if pg_type.builtin else None
    if native is not None:
        return LakeEncoding(native, as_text=False, pushable=collation is not Collation.NONDETERMINISTIC)
    return LakeEncoding("string", as_text=True, pushable=pg_type.builtin and pg_type.name in _TEXT_BUT_COMPARABLE)
