"""Column-wise encoding gives the bytes that encoding value by value gives."""

import struct

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.server.protocol import rows

VALUES = st.none() | st.text(max_size=20)


def naive(columns: list[list[str | None]], count: int) -> bytes:
    out = b""
    for number in range(count):
        body = struct.pack("!h", len(columns))
        for column in columns:
            value = column[number]
            raw = b"" if value is None else value.encode()
            body += struct.pack("!i", -1 if value is None else len(raw)) + raw
        out += b"D" + struct.pack("!i", len(body) + 4) + body
    return out


def columns(count: int) -> st.SearchStrategy[list[str | None]]:
    """Of any values, of values of one length, or of nothing: each is put together in another way."""
    kinds = [VALUES, st.text("ab", min_size=3, max_size=3), st.none(), st.just("")]
    return st.one_of([st.lists(kind, min_size=count, max_size=count) for kind in kinds])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str | None]], int]:
    count = draw(st.integers(0, 20))
    width = draw(st.integers(1, 6))
    return [draw(columns(count)) for _ in range(width)], count


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.integers(0, 20), st.sampled_from([pa.string(), pa.binary(), pa.large_string()]), st.booleans())
def test_any_slice_is_encoded_as_value_by_value(
    table: tuple[list[list[str | None]], int], start: int, kind: pa.DataType, by_columns: bool
) -> None:
    columns, count = table
    raw = [
        [value.encode() if value is not None and kind == pa.binary() else value for value in column]
        for column in columns
    ]
    batch = rows.batch([pa.array(column, kind) for column in raw]).slice(start)
    expected = naive([column[start:] for column in columns], max(count - start, 0))
    with pytest.MonkeyPatch.context() as patch:
        if by_columns:
            patch.setattr(rows, "_FEW_VALUES", -1)
        assert b"".join(bytes(piece) for piece in rows.encode(batch)) == expected


def test_rows_without_columns_are_rows_all_the_same() -> None:
    batch = rows.batch([pa.nulls(3, pa.string())]).select([])
    assert b"".join(map(bytes, rows.encode(batch))) == naive([], 3)


def test_a_batch_that_is_too_large_for_one_buffer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MAX_BUFFER_BYTES", 50)
    column: list[str | None] = ["x" * 20, None, "y" * 30, ""] * 5
    pieces = rows.encode(rows.batch([pa.array(column)]))
    assert len(pieces) > 1
    assert b"".join(map(bytes, pieces)) == naive([column], 20)
