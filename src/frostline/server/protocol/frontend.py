"""What clients say: bytes in, messages out.

Nothing here waits or reads a socket. `MessageReader` is fed whatever arrived and hands out whole messages;
anything that is not a well-formed message raises `ProtocolError`, after which the connection is of no more use.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frostline.server.protocol.parameters import Malformed, Many

MAX_STARTUP_BYTES = 10_000
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_MANY = 256
"""Values from which on it takes less time to read them by columns."""
_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104
_CANCEL_REQUEST = 80877102


class ProtocolError(Exception):
    """The bytes are not the Postgres protocol, or more of it than is accepted."""

    sqlstate = "08P01"


@dataclass(frozen=True)
class SslRequest:
    """A question whether to encrypt, before anything else."""


@dataclass(frozen=True)
class GssRequest:
    """A question whether to encrypt with GSSAPI."""


@dataclass(frozen=True)
class CancelRequest:
    """Stop what the session with this key is doing. Sent on a connection of its own."""

    process_id: int
    secret: int


@dataclass(frozen=True)
class Startup:
    """The first real message of a session."""

    minor_version: int
    parameters: dict[str, str]


@dataclass(frozen=True)
class Password:
    """A step of the authentication; its form depends on the step."""

    body: bytes


@dataclass(frozen=True)
class Query:
    """SQL without parameters, possibly several statements."""

    sql: str


@dataclass(frozen=True)
class Parse:
    """Prepare a statement under a name ('' is replaced by the next one)."""

    name: str
    sql: str
    types: tuple[int, ...] = ()
    """What the client declares its parameters to be, as type OIDs; 0 leaves one open."""


@dataclass(frozen=True)
class Bind:
    """Give a prepared statement its parameters, and the result a portal name."""

    portal: str
    statement: str
    parameter_formats: tuple[int, ...]
    values: Sequence[bytes | None]
    """`Many` where they are."""
    result_formats: tuple[int, ...]


@dataclass(frozen=True)
class Describe:
    """Which columns will there be? `kind` is 'S' for a statement, 'P' for a portal."""

    kind: str
    name: str


@dataclass(frozen=True)
class Execute:
    """Run a portal, for at most so many rows (0 is all)."""

    portal: str
    max_rows: int


@dataclass(frozen=True)
class Close:
    """Forget a statement ('S') or a portal ('P')."""

    kind: str
    name: str


@dataclass(frozen=True)
class Sync:
    """End of a batch: answer with ReadyForQuery."""


@dataclass(frozen=True)
class Flush:
    """Send what there is."""


@dataclass(frozen=True)
class Terminate:
    """The client hangs up."""


First = SslRequest | GssRequest | CancelRequest | Startup
Later = Password | Query | Parse | Bind | Describe | Execute | Close | Sync | Flush | Terminate
Message = First | Later


class _Body:
    """The body of one message, read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in the message has no end")
        raw, self._at = self._data[self._at : end], end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text in the message is not UTF-8") from None

    def take(self, size: int) -> bytes:
        raw = self._data[self._at : self._at + size]
        if size < 0 or len(raw) < size:
            raise ProtocolError("the message is shorter than it says")
        self._at += size
        return raw

    def count(self) -> int:
        """How many there are: 16 bits, which Postgres reads without a sign. A batch of postgres_fdw has 65,535."""
        return int(struct.unpack("!H", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack("!i", self.take(4))[0])

    def shorts(self) -> tuple[int, ...]:
        return tuple(self.count() for _ in range(self.count()))

    def value(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def values(self, count: int) -> Sequence[bytes | None]:
        if count < _MANY:
            return tuple(self.value() for _ in range(count))
        try:
            many = Many(self._data, self._at, count)
        except Malformed:
            raise ProtocolError("the message is shorter than it says") from None
        self._at = many.end
        return many

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("the message is longer than its content")


def _bind(body: _Body) -> Bind:
    portal, statement, formats = body.text(), body.text(), body.shorts()
    return Bind(portal, statement, formats, body.values(body.count()), body.shorts())


def _kind_and_name(body: _Body) -> tuple[str, str]:
    kind = body.take(1)
    if kind not in (b"S", b"P"):
        raise ProtocolError(f"neither a statement nor a portal: {kind!r}")
    return kind.decode(), body.text()


_LATER: dict[bytes, Callable[[_Body], Later]] = {
    b"Q": lambda body: Query(body.text()),
    b"P": lambda body: Parse(body.text(), body.text(), tuple(body.int32() for _ in range(body.count()))),
    b"B": _bind,
    b"D": lambda body: Describe(*_kind_and_name(body)),
    b"E": lambda body: Execute(body.text(), body.int32()),
    b"C": lambda body: Close(*_kind_and_name(body)),
    b"S": lambda _: Sync(),
    b"H": lambda _: Flush(),
    b"X": lambda _: Terminate(),
}


def _first(data: bytes) -> First:
    body = _Body(data)
    code = body.int32()
    if code == _SSL_REQUEST:
        return SslRequest()
    if code == _GSS_REQUEST:
        return GssRequest()
    if code == _CANCEL_REQUEST:
        return CancelRequest(body.int32(), body.int32())
    if code >> 16 != 3:
        raise ProtocolError(f"unsupported protocol version {code >> 16}.{code & 0xFFFF}")
    parameters: dict[str, str] = {}
    while name := body.text():
        parameters[name] = body.text()
    body.finish()
    return Startup(code & 0xFFFF, parameters)


class MessageReader:
    """Collects bytes and hands out messages. The limits hold before anything is stored for a message."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = bytearray()
        self._started = False
        self._trusted = False
        self._max_message_bytes = max_message_bytes

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        self._buffer += data

    def trust(self) -> None:
        """The client has proved who it is: accept large messages from now on."""
        self._trusted = True

    @property
    def pending_bytes(self) -> int:
        """How much has arrived that is not yet a whole message."""
        return len(self._buffer)

    def next(self) -> Message | None:
        """The next whole message, or None until more bytes are fed."""
        return self._next_later() if self._started else self._next_first()

    def _next_first(self) -> First | None:
        data = self._cut(0)
        if data is None:
            return None
        message = _first(data)
        self._started = isinstance(message, Startup)
        return message

    def _next_later(self) -> Later | None:
        data = self._cut(1)
        if data is None:
            return None
        kind, body = data[:1], _Body(data[1:])
        if kind == b"p":
            return Password(data[1:])
        if kind not in _LATER:
            raise ProtocolError(f"unknown message type {kind!r}")
        message = _LATER[kind](body)
        body.finish()
        return message

    def _cut(self, type_bytes: int) -> bytes | None:
        """Take type and body of the next message off the buffer."""
        if len(self._buffer) < type_bytes + 4:
            return None
        if type_bytes and bytes(self._buffer[:1]) not in (*_LATER, b"p"):
            raise ProtocolError(f"unknown message type {bytes(self._buffer[:1])!r}")
        size = int(struct.unpack_from("!i", self._buffer, type_bytes)[0])
        limit = self._max_message_bytes if self._trusted else MAX_STARTUP_BYTES
        if not 4 <= size <= limit:
            raise ProtocolError(f"message of {size} bytes, accepted are 4 to {limit}")
        if len(self._buffer) < type_bytes + size:
            return None
        data = bytes(self._buffer[:type_bytes] + self._buffer[type_bytes + 4 : type_bytes + size])
        del self._buffer[: type_bytes + size]
        return data
