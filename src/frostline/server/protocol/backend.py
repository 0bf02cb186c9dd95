"""What the server says: one function a message, each returns its bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

TEXT_OID = 25


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result as the client sees it. All values are sent as text."""

    name: str
    type_oid: int = TEXT_OID


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.encode(errors="replace").replace(b"\0", b"") + b"\0"


REFUSE_ENCRYPTION = b"N"
ACCEPT_ENCRYPTION = b"S"
AUTHENTICATED = _message(b"R", struct.pack("!i", 0))
PARSE_COMPLETE = _message(b"1", b"")
BIND_COMPLETE = _message(b"2", b"")
CLOSE_COMPLETE = _message(b"3", b"")
NO_DATA = _message(b"n", b"")
EMPTY_QUERY = _message(b"I", b"")
PORTAL_SUSPENDED = _message(b"s", b"")


def sasl(mechanisms: Sequence[str]) -> bytes:
    """Ask for authentication by one of these."""
    return _message(b"R", struct.pack("!i", 10) + b"".join(map(_text, mechanisms)) + b"\0")


def sasl_continue(data: str) -> bytes:
    """The server's part of the exchange."""
    return _message(b"R", struct.pack("!i", 11) + data.encode())


def sasl_final(data: str) -> bytes:
    """The server's proof that it knows the password too."""
    return _message(b"R", struct.pack("!i", 12) + data.encode())


def negotiate_protocol(unknown_options: Sequence[str]) -> bytes:
    """Offer 3.0 to a client that asked for more."""
    return _message(b"v", struct.pack("!ii", 3 << 16, len(unknown_options)) + b"".join(map(_text, unknown_options)))


def parameter_status(name: str, value: str) -> bytes:
    """A setting that clients want to know."""
    return _message(b"S", _text(name) + _text(value))


def backend_key(process_id: int, secret: int) -> bytes:
    """What a CancelRequest must repeat."""
    return _message(b"K", struct.pack("!ii", process_id, secret))


def ready(status: str) -> bytes:
    """Your turn. `status` is I (idle), T (in a transaction) or E (in a failed one)."""
    return _message(b"Z", status.encode())


def command_complete(tag: str) -> bytes:
    """A statement is done."""
    return _message(b"C", _text(tag))


def row_description(columns: Sequence[ResultColumn]) -> bytes:
    """The columns of the rows that follow."""
    body = struct.pack("!h", len(columns))
    for column in columns:
        body += _text(column.name) + struct.pack("!ihihih", 0, 0, column.type_oid, -1, -1, 0)
    return _message(b"T", body)


def parameter_description(count: int) -> bytes:
    """Every parameter is taken as text."""
    return _message(b"t", struct.pack("!H", count) + struct.pack("!i", TEXT_OID) * count)


def error(sqlstate: str, message: str, hint: str | None = None, *, fatal: bool = False) -> bytes:
    """Something went wrong; `fatal` says that the connection ends with it."""
    severity = "FATAL" if fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": sqlstate, "M": " ".join(message.split())}
    if hint:
        fields["H"] = hint
    return _message(b"E", b"".join(code.encode() + _text(value) for code, value in fields.items()) + b"\0")
