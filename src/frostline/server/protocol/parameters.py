"""The parameters of a large INSERT: those of a column become one Arrow array, and Python touches only their lengths."""

import struct
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LENGTH = struct.Struct("!i")
_arrow: Any = pa


class Malformed(ValueError):
    """A value is longer than the message, or has a length that there is not."""


class Many(Sequence[bytes | None]):
    """Values as a message has them one after the other, each behind its length. They stay where they are."""

    def __init__(self, data: bytes, start: int, count: int) -> None:
        """Malformed where they are not in the data."""
        places, at, unpack = list[int](), start, _LENGTH.unpack_from
        try:
            for _ in range(count):
                places.append(at)
                (size,) = unpack(data, at)
                at += size + 4 if size >= 0 else 4
        except struct.error:
            raise Malformed from None
        self._data, self._places, self.end = data, np.array([*places, at], np.int64), at
        raw = np.frombuffer(data, np.uint8)
        negative = raw[self._places[:-1]] >= 128 if count else np.zeros(0, np.bool_)
        self._is_null: npt.NDArray[np.bool_] = negative
        if at > len(data) or any(
            data[place : place + 4] != b"\xff\xff\xff\xff" for place in self._places[:-1][negative]
        ):
            raise Malformed

    def __len__(self) -> int:
        return len(self._is_null)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes | None] | None:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if self._is_null[index]:
            return None
        number = range(len(self))[index]
        return self._data[self._places[number] + 4 : self._places[number + 1]]

    def columns(self, width: int) -> list[Any]:
        """Arrays of bytes: the first, second ... of each `width` values."""
        count = len(self)
        edges = np.empty(2 * count + 1, np.int32)  # of lengths and values in turn
        edges[0::2], edges[1::2] = self._places, self._places[:-1] + 4
        is_there = np.repeat(~self._is_null, 2)
        validity = pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes()) if self._is_null.any() else None
        buffers = [validity, pa.py_buffer(edges.tobytes()), pa.py_buffer(self._data)]
        both = _arrow.Array.from_buffers(pa.binary(), 2 * count, buffers)
        return [both.take(_arrow.array(np.arange(2 * place + 1, 2 * count, 2 * width))) for place in range(width)]
