"""Missing values: what rows of a lake file have in a column that is younger than the file, if that is not NULL.

It is what Postgres gave the rows that were there when the column was added. The catalog keeps it as canonical text;
here it becomes a value for what hashes it or hands it to Spark. DuckDB casts the text by itself.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TypeAlias

from frostline.model import laketypes
from frostline.model.tiers import TierKind, from_text

Value: TypeAlias = bool | int | float | Decimal | str | bytes


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
