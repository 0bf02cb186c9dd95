"""Postgres' hashes of the values of an Arrow column, by the column's lake type."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frostline.lake.parquet import Values
from frostline.model import laketypes, missing
from frostline.tiers.proof import lookup3
from frostline.tiers.proof.lookup3 import U64, Bytes, Positions

_EPOCH_DAYS = 10_957
"""Postgres counts from 2000-01-01."""
_EPOCH_MICROS = _EPOCH_DAYS * 86_400_000_000
_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
_GROUP = np.uint64(10**8)
_NARROW_PRECISION = 18
"""A number of up to this many digits fits into 64 bits."""
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FOUR = np.frombuffer("".join(f"{number:04}" for number in range(10_000)).encode(), np.uint32)
"""The text of 0000 to 9999, four bytes each."""


def hashes(array: Values, lake_type: str) -> U64:
    """One hash a value; zero for NULL, as in a record."""
    if pa.types.is_dictionary(array.type):
        of_values = np.append(hashes(array.dictionary, lake_type), np.uint64(0))
        return of_values[array.indices.fill_null(len(of_values) - 1).to_numpy()]
    result = _BY_TYPE[laketypes.of(lake_type).name](_widened(array, lake_type))
    if array.null_count:
        result[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return result


def _widened(array: Values, lake_type: str) -> Values:
    """As the column is now: the file may be from before its type was changed to a wider one."""
    wide = _WIDER.get((array.type, lake_type))
    return array if wide is None else array.cast(wide)


@lru_cache(maxsize=1024)
def of_missing(text: str, lake_type: str) -> np.uint64:
    """The hash of a missing value."""
    return hashes(pa.array([missing.value(text, lake_type)], _arrow_type(lake_type)), lake_type)[0]


def _arrow_type(lake_type: str) -> pa.DataType:
    """Of the values that `missing.value` gives: dates and timestamps are numbers on their axis."""
    decimal = laketypes.decimal(lake_type)
    return pa.decimal128(*decimal) if decimal else _ARROW[lake_type]


def axis(array: Values) -> npt.NDArray[np.int64]:
    """The values of a tier key on its axis; a tier key has no NULL and is never stored as a dictionary."""
    return _fixed(array, f"<i{array.type.bit_width // 8}").astype(np.int64)


def _fixed(array: Values, dtype: str) -> npt.NDArray[Any]:
    """The values as they lie in memory; what stands under a NULL is anything."""
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def _of_boolean(array: Values) -> U64:
    return lookup3.of_words(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint32))


def _of_int(array: Values) -> U64:
    return lookup3.of_words(_fixed(array, "<u4"))


def _of_long(array: Values) -> U64:
    return _of_eight_bytes(_fixed(array, "<i8"))


def _of_date(array: Values) -> U64:
    days = _fixed(array, "<i4")
    moved = days - np.int32(_EPOCH_DAYS)
    # Postgres' infinities are the ends of the integer; the lake's are symmetric.
    moved[days == _INT32.max] = _INT32.max
    moved[days == -_INT32.max] = _INT32.min
    return lookup3.of_words(moved.view(np.uint32))


def _of_timestamp(array: Values) -> U64:
    micros = _fixed(array, "<i8")
    moved = micros - np.int64(_EPOCH_MICROS)
    moved[micros == _INT64.max] = _INT64.max
    moved[micros == -_INT64.max] = _INT64.min
    return _of_eight_bytes(moved)


def _of_float(array: Values) -> U64:
    return lookup3.of_words(_fixed(array, "<u4").byteswap())


def _of_double(array: Values) -> U64:
    return _of_eight_bytes(_fixed(array, "<u8"))


def _of_eight_bytes(values: npt.NDArray[Any]) -> U64:
    """Hash values as they are sent: in network byte order."""
    sent = values.view(np.uint64).byteswap()
    return lookup3.of_words(sent.astype(np.uint32), (sent >> np.uint64(32)).astype(np.uint32))


def _of_bytes(array: Values) -> U64:
    _, offsets, data = array.buffers()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype("<i8" if wide else "<i4")
    ends = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(np.int64)
    used = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    return lookup3.of_strings(used, ends[:-1] - ends[0], np.diff(ends))


def _of_decimal(array: Values) -> U64:
    wide: Values = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    words = _fixed(wide, "2<u8")
    text = decimal_text(words[:, 0], words[:, 1], wide.type.precision, wide.type.scale)
    return lookup3.of_strings(*text)


def decimal_text(low: U64, high: U64, precision: int, scale: int) -> tuple[Bytes, Positions, Positions]:
    """Print two's complement 128-bit numbers with that many decimals.

    Returns one buffer, where each number's text starts in it, and how long it is.
    """
    negative = high >> np.uint64(63) == 1
    digits = _digits(_groups(*_absolute(low, high, negative), precision))
    integral_digits = digits.shape[1] - scale
    text = _with_signs(digits, integral_digits)
    first = _first_digit(digits, integral_digits)
    text[np.flatnonzero(negative), first[negative]] = ord("-")
    starts = first + ~negative
    width = text.shape[1]
    return text.reshape(-1), np.arange(len(text)) * width + starts, width - starts


def _with_signs(digits: Bytes, integral_digits: int) -> Bytes:
    """One character more in front, for the sign, and one for the point, unless all numbers are whole."""
    rows, width = digits.shape
    text = np.empty((rows, width + (1 if integral_digits == width else 2)), np.uint8)
    text[:, 0] = ord("+")
    text[:, 1 : 1 + integral_digits] = digits[:, :integral_digits]
    if integral_digits < width:
        text[:, 1 + integral_digits] = ord(".")
        text[:, 2 + integral_digits :] = digits[:, integral_digits:]
    return text


def _first_digit(digits: Bytes, integral_digits: int) -> Positions:
    """Where the number begins: at its first digit that is not zero, or at the one before the point."""
    significant = digits[:, : integral_digits - 1] != ord("0")
    return np.where(significant.any(axis=1), significant.argmax(axis=1), integral_digits - 1)


def _absolute(low: U64, high: U64, negative: npt.NDArray[np.bool_]) -> tuple[U64, U64]:
    flipped = ~low + np.uint64(1)
    carry = (flipped == 0).astype(np.uint64)
    return np.where(negative, flipped, low), np.where(negative, ~high + carry, high)


def _groups(low: U64, high: U64, precision: int) -> list[U64]:
    """The number in groups of eight digits, the highest first."""
    if precision <= _NARROW_PRECISION:
        groups = [low]
        for _ in range((precision + 1) // 8):  # two digits more than asked, so that there is one before the point
            groups[:1] = np.divmod(groups[0], _GROUP)
        return groups
    limbs = [high >> _HALF, high & _WORD, low >> _HALF, low & _WORD]
    groups = [_divide(limbs) for _ in range(5)]
    return groups[::-1]


def _divide(limbs: list[U64]) -> U64:
    """Long division by the group size, in place; returns the remainder."""
    rest = np.zeros(len(limbs[0]), np.uint64)
    for index, limb in enumerate(limbs):
        limbs[index], rest = np.divmod(rest << _HALF | limb, _GROUP)
    return rest


def _digits(groups: list[U64]) -> Bytes:
    fours = [four for group in groups for four in np.divmod(group, np.uint64(10_000))]
    return np.stack([_FOUR[four] for four in fours], axis=1).view(np.uint8)


_ARROW = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.int64(),
    "timestamptz": pa.int64(),
}
_WIDER = {(pa.int32(), "long"): pa.int64(), (pa.float32(), "double"): pa.float64()}
_BY_TYPE: dict[str, Callable[[Values], U64]] = {
    "binary": _of_bytes,
    "boolean": _of_boolean,
    "date": _of_date,
    "decimal": _of_decimal,
    "double": _of_double,
    "float": _of_float,
    "int": _of_int,
    "long": _of_long,
    "string": _of_bytes,
    "timestamp": _of_timestamp,
    "timestamptz": _of_timestamp,
}
