"""Postgres' extended hash functions over whole Arrow columns.

This is `hash_bytes_extended` of src/common/hashfn.c with seed 0 (Bob Jenkins' lookup3) as a little-endian server
computes it, done for all values of a column at once with numpy: one round of twelve bytes at a time, over the values
that are still long enough to need it.
"""

import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]
Blocks: TypeAlias = npt.NDArray[np.void]

_ROUND = 12
_BLOCK = np.dtype("V12")
"""The bytes of one round as one item: numpy fetches it at any address in one go."""
_START = (0x9E3779B9 + 3923095) & 0xFFFFFFFF
_FEW = 8
"""Below this many values a plain loop over each of them beats numpy's cost per call."""
_WORD = 0xFFFFFFFF


def _tail_masks() -> Blocks:
    """Which bits of the last three words belong to a value that has 0..11 bytes left."""
    masks = [[(1 << 8 * min(max(left - 4 * word, 0), 4)) - 1 for word in range(3)] for left in range(_ROUND)]
    return np.array(masks, "<u4").view(_BLOCK).reshape(-1)


_MASKS = _tail_masks()


def of_words(first: U32, second: U32 | None = None) -> U64:
    """Hash values of four bytes, or of eight when there is a second word."""
    a, b, c = (np.full(len(first), (_START + (4 if second is None else 8)) & _WORD, np.uint32) for _ in range(3))
    a += first
    if second is not None:
        b += second
    return _final(a, b, c)


def of_strings(data: Bytes, starts: Positions, lengths: Positions) -> U64:
    """Hash byte strings that lie in one buffer."""
    padded = np.concatenate([data, np.zeros(_ROUND, np.uint8)])
    blocks: Blocks = np.ndarray((len(data) + 1,), _BLOCK, padded, strides=(1,))
    a, b, c = ((lengths + _START).astype(np.uint32) for _ in range(3))
    rounds = lengths // _ROUND
    slow = _whole_rounds(blocks, starts, rounds, a, b, c)
    left = lengths - rounds * _ROUND
    words = _words(blocks, starts + rounds * _ROUND) & _words(_MASKS, left)
    a += words[:, 0]
    b += words[:, 1]
    # The lowest byte of the last word stands for the length, which is already in the starting value.
    c += words[:, 2] << np.uint32(8)
    hashes = _final(a, b, c)
    for index in slow:
        start = int(starts[index])
        hashes[index] = of_bytes(data[start : start + int(lengths[index])].tobytes())
    return hashes


def _words(blocks: Blocks, at: Positions) -> U32:
    """The three words of each of these blocks."""
    return blocks[at].view("<u4").reshape(-1, 3)


def _whole_rounds(blocks: Blocks, starts: Positions, rounds: Positions, a: U32, b: U32, c: U32) -> list[int]:
    """Take in all whole rounds, in place; returns the few longest values, which it leaves undone."""
    done = _common_rounds(blocks, starts, rounds, a, b, c)
    active = np.flatnonzero(rounds > done)
    at = starts[active] + done * _ROUND
    while len(active) > (_FEW if done > _FEW else 0):
        words = _words(blocks, at)
        x, y, z = a[active] + words[:, 0], b[active] + words[:, 1], c[active] + words[:, 2]
        _mix(x, y, z)
        a[active], b[active], c[active] = x, y, z
        done += 1
        still = rounds[active] > done
        active = active[still]
        at = at[still] + _ROUND
    return [int(index) for index in active]


def _common_rounds(blocks: Blocks, starts: Positions, rounds: Positions, a: U32, b: U32, c: U32) -> int:
    """Take in the rounds that every value has, in place; returns how many. No value has to be picked out for them."""
    common = int(rounds.min()) if len(rounds) > _FEW else 0
    for done in range(common):
        words = _words(blocks, starts + done * _ROUND)
        a += words[:, 0]
        b += words[:, 1]
        c += words[:, 2]
        _mix(a, b, c)
    return common


def _final(a: U32, b: U32, c: U32) -> U64:
    for x, y, bits in ((c, b, 14), (a, c, 11), (b, a, 25), (c, b, 16), (a, c, 4), (b, a, 14), (c, b, 24)):
        np.bitwise_xor(x, y, out=x)
        np.subtract(x, _rotated(y, bits), out=x)
    return b.astype(np.uint64) << np.uint64(32) | c


def _mix(a: U32, b: U32, c: U32) -> None:
    for x, y, z, bits in ((a, c, b, 4), (b, a, c, 6), (c, b, a, 8), (a, c, b, 16), (b, a, c, 19), (c, b, a, 4)):
        np.subtract(x, y, out=x)
        np.bitwise_xor(x, _rotated(y, bits), out=x)
        np.add(y, z, out=y)


def _rotated(x: U32, bits: int) -> U32:
    turned = x << np.uint32(bits)
    turned |= x >> np.uint32(32 - bits)
    return turned


def of_bytes(value: bytes) -> int:
    """Hash one byte string, in plain Python: for values so long that few others have as many rounds."""
    a = b = c = (_START + len(value)) & _WORD
    rounds_bytes = len(value) // _ROUND * _ROUND
    for x, y, z in struct.iter_unpack("<3I", memoryview(value)[:rounds_bytes]):
        a, b, c = _mixed(a + x & _WORD, b + y & _WORD, c + z & _WORD)
    x, y, z = struct.unpack("<3I", value[rounds_bytes:].ljust(_ROUND, b"\0"))
    words = (np.array([word & _WORD], np.uint32) for word in (a + x, b + y, c + (z << 8)))
    return int(_final(*words)[0])


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a = (a - c ^ (c << bits | c >> 32 - bits)) & _WORD
        a, b, c = b, c + b & _WORD, a
    return a, b, c
