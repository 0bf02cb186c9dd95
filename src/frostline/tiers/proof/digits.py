"""Decimal numbers as the text that Postgres prints, a whole column at a time."""

import numpy as np
import numpy.typing as npt

from frostline.tiers.proof.lookup3 import U64, Bytes, Positions

_GROUP = np.uint64(10**8)
_NARROW_PRECISION = 18
"""A number of up to this many digits fits into 64 bits."""
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FOUR = np.frombuffer("".join(f"{number:04}" for number in range(10_000)).encode(), np.uint32)
"""The text of 0000 to 9999, four bytes each."""


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
