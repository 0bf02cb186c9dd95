"""The parameters of large batches, read by columns: what a value at a time would give."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.server.protocol.frontend import Bind, MessageReader, ProtocolError
from frostline.server.protocol.parameters import Malformed, Many
from frostline.server.session_state import NotText, decoded, decoded_column

VALUES = st.lists(st.none() | st.binary(max_size=20), max_size=60)


def sent(values: list[bytes | None]) -> bytes:
    return b"".join(b"\xff\xff\xff\xff" if v is None else struct.pack("!i", len(v)) + v for v in values)


@given(VALUES, st.integers(1, 7), st.binary(max_size=5), st.binary(max_size=5))
def test_the_columns_are_those_of_the_values_one_by_one(
    rows: list[bytes | None], width: int, before: bytes, after: bytes
) -> None:
    values = rows[: len(rows) - len(rows) % width]
    many = Many(before + sent(values) + after, len(before), len(values))
    assert list(many) == values
    assert many.end == len(before) + len(sent(values))
    assert [column.to_pylist() for column in many.columns(width)] == [values[place::width] for place in range(width)]


@given(VALUES, st.data())
def test_a_message_that_is_too_short_is_found(values: list[bytes | None], data: st.DataObject) -> None:
    body = sent(values)
    cut = data.draw(st.integers(0, len(body)))
    if cut < len(body):
        with pytest.raises(Malformed):
            Many(body[:cut], 0, len(values))


@pytest.mark.parametrize("length", [-2, -(2**31), 2**31 - 1, 100])
def test_a_length_that_no_value_has_is_refused(length: int) -> None:
    with pytest.raises(Malformed):
        Many(sent([b"a"]) + struct.pack("!i", length) + b"abc", 0, 2)


@pytest.mark.parametrize("count", [255, 256, 40_000, 65_535])
def test_a_batch_has_as_many_parameters_as_postgres_sends(count: int) -> None:
    values = [None if place % 5 == 0 else str(place).encode() for place in range(count)]
    body = b"\0\0" + struct.pack("!HH", 0, count) + sent(values) + struct.pack("!H", 0)
    reader = MessageReader()
    reader.feed(b"\0\0\0\x11\0\x03\0\0user\0me\0\0"[:3] + bytes([17]) + b"\0\x03\0\0user\0me\0\0")
    reader.next()
    reader.trust()
    reader.feed(b"B" + struct.pack("!i", len(body) + 4) + body)
    message = reader.next()
    assert isinstance(message, Bind)
    assert list(message.values) == values
    assert (message.parameter_formats, message.result_formats) == ((), ())
    reader.feed(b"B" + struct.pack("!i", len(body) + 3) + body[:-1])
    with pytest.raises(ProtocolError):
        reader.next()


@given(st.lists(st.none() | st.binary(max_size=4) | st.text(max_size=4).map(str.encode), max_size=10))
def test_what_is_no_text_is_refused_as_in_a_single_value(values: list[bytes | None]) -> None:
    (column,) = Many(sent(values), 0, len(values)).columns(1)
    try:
        wanted = [decoded(value) for value in values]
    except NotText:
        with pytest.raises(NotText):
            decoded_column(column)
    else:
        assert decoded_column(column).to_pylist() == wanted
