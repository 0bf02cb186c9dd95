"""Arrow batches to DataRow messages, column by column.

Python touches columns, never values: the lengths are numpy arrays, and Arrow's element-wise join copies
header, length, value, length, value ... of all rows into one buffer, which is what goes over the wire.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

_MAX_BUFFER_BYTES = 1 << 30
"""Arrow's plain binary arrays end at 2 GiB; batches near it are cut in two."""

_FEW_VALUES = 200
_ROW, _LENGTH = struct.Struct(">cih"), struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

Lengths = npt.NDArray[np.int64]
Fixed = tuple[str, Any]
"""Bytes of one width in each row: numpy's word for it, and their values."""
Column = Any
"""An Arrow array of strings or bytes; Arrow's own types say less than nothing about its functions."""
_compute = cast("Any", pyarrow.compute)


def batch(columns: Sequence[Column]) -> pa.RecordBatch:
    """Columns of equal length as a batch; their names do not matter here."""
    make = cast("Any", pa.RecordBatch).from_arrays
    return make(list(columns), names=[f"c{position}" for position in range(len(columns))])


class Printed:
    """Rows that are DataRow messages already. Pieces of it share the memory of the whole."""

    def __init__(self, batches: Sequence[pa.RecordBatch] = ()) -> None:
        self._messages: list[bytes] = []
        """Those of each batch, in one piece."""
        self._ends: list[npt.NDArray[np.uint32]] = []
        """Where each message of a batch ends in it."""
        self._firsts: list[int] = []
        """How many rows there are before each batch."""
        self.size_bytes, self._first, self._last = 0, 0, 0
        for batch in batches:
            self.append(batch)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return self._last - self._first

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end; not to a piece, and less than 4 GiB at once."""
        if batch.num_rows:
            joined, sizes = _joined(batch)
            self._messages.append(joined.to_pybytes())
            self._ends.append(np.cumsum(sizes + 1).astype(np.uint32))
            self._firsts.append(self._last)
            self._last += batch.num_rows
            self.size_bytes += len(self._messages[-1]) + self._ends[-1].nbytes

    def slice(self, offset: int, length: int | None = None) -> "Printed":
        """A piece of it: so many rows, or all, after so many."""
        piece = Printed()
        piece._messages, piece._ends, piece._firsts = self._messages, self._ends, self._firsts
        piece._first = min(self._first + offset, self._last)
        piece._last = self._last if length is None else min(piece._first + length, self._last)
        return piece

    def messages(self) -> Iterator[memoryview]:
        """The bytes to send, in order."""
        at, place = self._first, bisect_right(self._firsts, self._first) - 1
        while at < self._last:
            first, ends = self._firsts[place], self._ends[place]
            until = min(self._last - first, len(ends))
            begin = int(ends[at - first - 1]) if at > first else 0
            yield memoryview(self._messages[place])[begin : int(ends[until - 1])]
            at, place = first + until, place + 1


def encode(batch: pa.RecordBatch | Printed) -> Sequence[pa.Buffer | memoryview]:
    """The rows of a batch of text or binary columns as DataRow messages, ready to send in order."""
    return list(batch.messages()) if isinstance(batch, Printed) else _encoded(batch)


def _encoded(batch: pa.RecordBatch) -> list[pa.Buffer]:
    if batch.num_rows == 0:
        return []
    if batch.nbytes > _MAX_BUFFER_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        return _encoded(batch.slice(0, half)) + _encoded(batch.slice(half))
    if batch.num_rows * batch.num_columns <= _FEW_VALUES:
        return [_one_by_one(batch)]
    return [_joined(batch)[0]]


def _one_by_one(batch: pa.RecordBatch) -> pa.Buffer:
    """The same for a few rows: each of Arrow's functions takes longer than these values one by one."""
    columns = [_raw(column).to_pylist() for column in cast("list[Column]", batch.columns)]
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    return pa.py_buffer(b"".join(_row(values) for values in rows))


def _raw(column: Column) -> Column:
    return column.view(pa.binary()) if column.type == pa.string() else column.cast(pa.binary())


def _row(values: Sequence[bytes | None]) -> bytes:
    parts = [_NULL if value is None else _LENGTH.pack(len(value)) + value for value in values]
    body = b"".join(parts)
    return _ROW.pack(b"D", _ROW.size - 1 + len(body), len(values)) + body


def _joined(batch: pa.RecordBatch) -> tuple[pa.Buffer, Lengths]:
    """All messages, and what each says its size is."""
    columns = [_bytes(column) for column in cast("list[Column]", batch.columns)]
    lengths = [_lengths(column) for column in cast("list[Column]", batch.columns)]
    sizes = _sizes(lengths, batch.num_rows)
    parts: list[Column] = []
    # What has the same width in each row is put together first: each further part of the join takes 10 ns a row.
    fixed: list[Fixed] = [("S1", b"D"), (">i4", sizes), (">i2", batch.num_columns)]
    for column, each in zip(columns, lengths, strict=True):
        fixed.append((">i4", each))
        shortest, longest = int(each.min()), int(each.max())
        if shortest == longest > 0:
            fixed.append((f"V{longest}", np.frombuffer(cast("Any", content(column)), f"V{longest}")))
        elif longest > 0:
            parts += [_strings(fixed, batch.num_rows), column]
            fixed = []
    if fixed:
        parts.append(_strings(fixed, batch.num_rows))
    return content(parts[0] if len(parts) == 1 else _compute.binary_join_element_wise(*parts, b"")), sizes


def _sizes(lengths: Sequence[Lengths], rows: int) -> Lengths:
    """What each message says its size is: itself and the column count, then four bytes of length for every value."""
    sizes: Lengths = np.full(rows, 4 + 2 + 4 * len(lengths), dtype=np.int64)
    for known in lengths:
        sizes += np.maximum(known, 0)
    return sizes


def _lengths(column: Column) -> Lengths:
    """Bytes of each value, -1 for NULL, as the protocol counts them."""
    lengths: Column = _compute.binary_length(column)
    if column.null_count:
        lengths = lengths.fill_null(-1)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _bytes(column: Column) -> Column:
    column = column.cast(pa.binary())
    return column.fill_null(b"") if column.null_count else column


def _strings(fixed: Sequence[Fixed], rows: int) -> Column:
    """What stands side by side in each row, as a column of byte strings of one width."""
    side_by_side = np.empty(rows, np.dtype([(f"f{place}", kind) for place, (kind, _) in enumerate(fixed)]))
    for place, (_, values) in enumerate(fixed):
        side_by_side[f"f{place}"] = values
    width = side_by_side.dtype.itemsize
    ends = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    make = cast("Any", pa.Array).from_buffers
    return make(pa.binary(), rows, [None, pa.py_buffer(cast("Any", ends)), pa.py_buffer(cast("Any", side_by_side))])


def content(column: Column) -> pa.Buffer:
    """All values of a binary column in one piece, without a copy."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=column.offset * 4)
    return column.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
