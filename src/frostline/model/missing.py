"""Missing values: what rows of a lake file have in a column that is younger than the file, if that is not NULL.

It is what Postgres gave the rows that were there when the column was added. The catalog keeps it as canonical text;
here it becomes a value for what hashes it or hands it to Spark. DuckDB casts the text by itself.

A column of type uuid may have a value of its own in each row: then the text says how it is computed from the row's key,
`uuid4:SALT:1i,2z`, and is no uuid. docs/design/added-columns.md says why that is right.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from frostline.model import laketypes
from frostline.model.tables import Column
from frostline.model.tiers import TierKind, from_text

Value: TypeAlias = bool | int | float | Decimal | str | bytes


_OWN = re.compile(r"uuid([47])([0-9a-f]{12})?:([0-9a-f]{24}):((?:\d+[a-z]\d*,?)+)")
_PART = re.compile(r"(\d+)([a-z])(\d*)")
_LAKE_TYPES = {
    "b": "boolean",
    "d": "date",
    "i": "long",
    "n": "decimal(38, {})",
    "s": "string",
    "t": "timestamp",
    "x": "binary",
    "z": "timestamptz",
}
_VARIANT = str.maketrans("0123456789abcdef", "89ab89ab89ab89ab")


@dataclass(frozen=True)
class OwnValue:
    """How the value of each row is computed from its key: a random uuid, always the same one."""

    version: int
    prefix: str
    """The digits of the time when the column was added, of version 7."""
    salt: str
    key: tuple[tuple[int, str], ...]
    """The fields of the key in its order, each with the widest lake type that it can be read as."""

    def of(self, parts: Sequence[str]) -> str:
        """The value of the row that has this key, given in canonical text."""
        key = chr(31).join(part.replace("\\", "\\\\").replace(chr(31), "\\u") for part in parts)
        digits = self.prefix + sha256((self.salt + key).encode()).hexdigest()
        fourth = digits[16].translate(_VARIANT) + digits[17:20]
        return f"{digits[:8]}-{digits[8:12]}-{self.version}{digits[13:16]}-{fourth}-{digits[20:32]}"


def own(column: Column) -> OwnValue | None:
    """How rows of files that lack the column get a value of their own each; None when all have one."""
    if column.missing is None or column.pg_type.name != "uuid" or not column.pg_type.builtin:
        return None
    match = _OWN.fullmatch(column.missing)
    if match is None:
        return None
    key = tuple((int(field), _LAKE_TYPES[kind].format(scale)) for field, kind, scale in _PART.findall(match[4]))
    return OwnValue(int(match[1]), match[2] or "", match[3], key)


def value(text: str, lake_type: str) -> Value:
    """The value that the canonical text stands for; a date or a timestamp on its axis, as a tier value is."""
    return _READERS[laketypes.of(lake_type).name](text)


def _boolean(text: str) -> bool:
    return text == "true"


def _binary(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_READERS: dict[str, Callable[[str], Value]] = {
    "binary": _binary,
    "boolean": _boolean,
    "date": partial(from_text, TierKind.DATE),
    "decimal": Decimal,
    "double": float,
    "float": float,
    "int": int,
    "long": int,
    "string": str,
    "timestamp": partial(from_text, TierKind.TIMESTAMP),
    "timestamptz": partial(from_text, TierKind.TIMESTAMPTZ),
}
