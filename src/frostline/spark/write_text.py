"""Arrow columns as the text that Postgres reads, column by column, and as lines of CSV for COPY."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from frostline.model.tiers import MICROS_PER_DAY, TierKind, days_of, to_text

_FIRST_DAY, _END_DAY = days_of(1, 1, 1), days_of(10000, 1, 1)
_OPTIONS = pacsv.WriteOptions(include_header=False)

_arrow: Any = pa
Column = Any
"""A pyarrow Array; its stubs know one class for each type."""


def csv(batch: Any, attempt: int) -> pa.Buffer:
    """The batch as COPY takes it, with the attempt before each row. NULL is nothing, and every text is in quotes."""
    columns = [pa.array([str(attempt)] * batch.num_rows, pa.string()), *(texts(column) for column in batch.columns)]
    sink = pa.BufferOutputStream()
    names = [str(number) for number in range(len(columns))]
    pacsv.write_csv(_arrow.RecordBatch.from_arrays(columns, names=names), sink, _OPTIONS)
    return sink.getvalue()


def texts(column: Column) -> Column:
    """The column as text that Postgres' input function for its type reads as the same value."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column, TierKind.TIMESTAMPTZ if kind.tz else TierKind.TIMESTAMP)
    if pa.types.is_date32(kind):
        return _times(column, TierKind.DATE)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(column, lambda value: "\\x" + value.hex())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    return column.cast(pa.string())


def _each(column: Column, text: Callable[[Any], str]) -> Column:
    return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())


def _times(column: Column, kind: TierKind) -> Column:
    """Arrow writes years of four digits as Postgres does. Others, and the infinities, are written one by one."""
    numbers = _numbers(column, kind)
    unit = 1 if kind is TierKind.DATE else MICROS_PER_DAY
    found: Any = pc.min_max(numbers).as_py()
    if found["min"] is not None and not _FIRST_DAY * unit <= found["min"] <= found["max"] < _END_DAY * unit:
        return _each(numbers, lambda value: to_text(kind, value))
    if kind is not TierKind.TIMESTAMPTZ:
        return column.cast(pa.string())
    # Without its zone Arrow writes the instant as UTC has it, which is what the session of the COPY reads.
    return numbers.cast(pa.timestamp("us")).cast(pa.string())


def _numbers(column: Column, kind: TierKind) -> Column:
    """Days or microseconds since 1970, as the tier axes count."""
    if kind is TierKind.DATE:
        return column.cast(pa.int32())
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _lists(column: Column) -> Column:
    """Array literals: `{"1",NULL,{"a"}}`. The elements are written as those of a column are."""
    items = texts(column.flatten()).to_pylist()
    is_nested = pa.types.is_list(column.type.value_type)
    written = ["NULL" if item is None else item if is_nested else _quoted(item) for item in items]
    lengths = [None if one is None else len(one) for one in column.to_pylist()]
    literals: list[str | None] = []
    start = 0
    for length in lengths:
        literals.append(None if length is None else "{" + ",".join(written[start : start + length]) + "}")
        start += length or 0
    return pa.array(literals, pa.string())


def _quoted(item: str) -> str:
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
