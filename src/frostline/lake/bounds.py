"""Bounds of columns: from the statistics in a Parquet footer to the bytes that Iceberg keeps in manifests.

The raw values are used, never Python's dates, which know neither BC nor infinity.
"""

import struct
from collections.abc import Sequence
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    PrimitiveType,
    StringType,
)

from frostline.errors import CorruptionError
from frostline.lake.parquet import Chunk

_CUT = 16
"""Longer texts and byte strings are cut to this many characters or bytes, as Iceberg's own writers do."""
_LAST_CHARACTER = 0x10FFFF


def raw_range(chunks: Sequence[Chunk]) -> tuple[Any, Any] | None:
    """The smallest and largest value as Parquet stores them; None where the footer does not tell or all are NULL."""
    statistics = [chunk.statistics for chunk in chunks if not _all_null(chunk)]
    if not statistics or not all(statistic is not None and statistic.has_min_max for statistic in statistics):
        return None
    if statistics[0].physical_type == "FIXED_LEN_BYTE_ARRAY":
        lows = (int.from_bytes(statistic.min_raw, "big", signed=True) for statistic in statistics)
        highs = (int.from_bytes(statistic.max_raw, "big", signed=True) for statistic in statistics)
        return min(lows), max(highs)
    return min(statistic.min_raw for statistic in statistics), max(statistic.max_raw for statistic in statistics)


def _all_null(chunk: Chunk) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def tier_range(chunks: Sequence[Chunk], location: str) -> tuple[int, int]:
    """The smallest and the largest tier value of a file, on the axis."""
    value_range = raw_range(chunks)
    if value_range is None:
        raise CorruptionError(f"{location} has no statistics of its tier key")
    return value_range


def lower_bytes(value: Any, kind: PrimitiveType) -> bytes:
    """A lower bound as Iceberg writes it; it may be below the smallest value, never above it."""
    match kind:
        case StringType():
            return value.decode()[:_CUT].encode()
        case BinaryType():
            return value[:_CUT]
        case FloatType() | DoubleType() if value == 0:
            return exact_bytes(-0.0, kind)
        case _:
            return exact_bytes(value, kind)


def upper_bytes(value: Any, kind: PrimitiveType) -> bytes | None:
    """An upper bound as Iceberg writes it; it may be above the largest value, never below. None: there is none."""
    match kind:
        case StringType():
            text = value.decode()
            return value if len(text) <= _CUT else _after_text(text[:_CUT])
        case BinaryType():
            return value if len(value) <= _CUT else _after_bytes(value[:_CUT])
        case FloatType() | DoubleType() if value == 0:
            return exact_bytes(0.0, kind)
        case _:
            return exact_bytes(value, kind)


def exact_bytes(value: Any, kind: PrimitiveType) -> bytes:
    """Iceberg's single-value form."""
    match kind:
        case BooleanType():
            return b"\1" if value else b"\0"
        case IntegerType() | DateType():
            return struct.pack("<i", value)
        case FloatType():
            return struct.pack("<f", value)
        case DoubleType():
            return struct.pack("<d", value)
        case DecimalType():
            return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
        case _:
            return struct.pack("<q", value)


def _after_text(text: str) -> bytes | None:
    """The first text of this length or less that all texts with this beginning lie below."""
    while text:
        following = ord(text[-1]) + 1
        if following == 0xD800:
            following = 0xE000  # surrogates are no characters
        if following <= _LAST_CHARACTER:
            return (text[:-1] + chr(following)).encode()
        text = text[:-1]
    return None


def _after_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def tier_value(bound: bytes) -> int:
    """A tier key's bound back on the axis."""
    return int.from_bytes(bound, "little", signed=True)
