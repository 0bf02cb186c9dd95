"""Bytes to messages: known bytes, every split of them, and anything at all."""

import contextlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.server.protocol.frontend import (
    MAX_STARTUP_BYTES,
    Bind,
    CancelRequest,
    Close,
    Describe,
    Execute,
    Flush,
    GssRequest,
    Message,
    MessageReader,
    Parse,
    Password,
    ProtocolError,
    Query,
    SslRequest,
    Startup,
    Sync,
    Terminate,
)

STARTUP = b"\0\0\0\x17\0\x03\0\0user\0lake\0a\0b\0\0"
GOLDEN: list[tuple[bytes, Message]] = [
    (b"Q\0\0\0\x0dselect 1\0", Query("select 1")),
    (b"P\0\0\0\x0cs\0abc\0\0\0", Parse("s", "abc")),
    (b"P\0\0\0\x0f\0abc\0\0\x01\0\0\0\x17", Parse("", "abc", (23,))),
    (b"B\0\0\0\x17p\0s\0\0\0\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0", Bind("p", "s", (), (b"x", None), ())),
    (b"B\0\0\0\x10\0\0\0\x01\0\0\0\0\0\x01\0\0", Bind("", "", (0,), (), (0,))),
    (b"D\0\0\0\x07Pc\0", Describe("P", "c")),
    (b"E\0\0\0\x09\0\0\0\0\x05", Execute("", 5)),
    (b"C\0\0\0\x06S\0", Close("S", "")),
    (b"S\0\0\0\x04", Sync()),
    (b"H\0\0\0\x04", Flush()),
    (b"X\0\0\0\x04", Terminate()),
    (b"p\0\0\0\x07abc", Password(b"abc")),
]


def started() -> MessageReader:
    reader = MessageReader()
    reader.feed(STARTUP)
    assert reader.next() == Startup(0, {"user": "lake", "a": "b"})
    reader.trust()
    return reader


@pytest.mark.parametrize(("data", "message"), GOLDEN, ids=[type(message).__name__ for _, message in GOLDEN])
def test_each_message_is_read_however_it_is_cut(data: bytes, message: Message) -> None:
    for cut in range(len(data)):
        reader = started()
        reader.feed(data[:cut])
        assert reader.next() is None
        reader.feed(data[cut:] + data)
        assert reader.next() == message
        assert reader.next() == message
        assert reader.next() is None


@pytest.mark.parametrize(("code", "message"), [(80877103, SslRequest()), (80877104, GssRequest())], ids=["ssl", "gss"])
def test_requests_for_encryption_come_before_the_startup(code: int, message: Message) -> None:
    reader = MessageReader()
    reader.feed(struct.pack("!ii", 8, code) + STARTUP)
    assert reader.next() == message
    assert isinstance(reader.next(), Startup)


def test_a_cancel_request_carries_its_key() -> None:
    reader = MessageReader()
    reader.feed(struct.pack("!iiii", 16, 80877102, 7, 9))
    assert reader.next() == CancelRequest(7, 9)


@pytest.mark.parametrize("size", [0, 3, -1, MAX_STARTUP_BYTES + 1, 2**31 - 1])
def test_a_startup_of_impossible_size_is_refused_at_once(size: int) -> None:
    reader = MessageReader()
    reader.feed(struct.pack("!i", size))
    with pytest.raises(ProtocolError):
        reader.next()


def test_large_messages_are_for_those_who_logged_in() -> None:
    reader = MessageReader()
    reader.feed(STARTUP)
    reader.next()
    reader.feed(b"Q" + struct.pack("!i", MAX_STARTUP_BYTES + 1))
    with pytest.raises(ProtocolError):
        reader.next()


@pytest.mark.parametrize(
    "data",
    [
        b"Q\0\0\0\x05a",
        b"Q\0\0\0\x06\xff\0",
        b"Q\0\0\0\x07a\0b",
        b"D\0\0\0\x06X\0",
        b"B\0\0\0\x0a\0\0\0\0\x7f\xff",
        b"B\0\0\0\x0e\0\0\0\0\0\x01\xff\xff\xff\xfe",
        b"z\0\0\0\x04",
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    reader = started()
    reader.feed(data)
    with pytest.raises(ProtocolError):
        reader.next()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=200)), st.booleans())
def test_any_bytes_give_messages_or_one_clean_error(chunks: list[bytes], begun: bool) -> None:
    reader = started() if begun else MessageReader()
    with contextlib.suppress(ProtocolError):
        for chunk in chunks:
            reader.feed(chunk)
            while reader.next() is not None:
                pass
