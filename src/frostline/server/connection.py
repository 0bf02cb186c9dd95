"""One client, in one thread: login, then one message after the other."""

import contextlib
import logging
import secrets
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from frostline.errors import FrostlineError, message_of
from frostline.server.answers import SETTINGS
from frostline.server.authentication import MECHANISM
from frostline.server.protocol import backend
from frostline.server.protocol.frontend import (
    CancelRequest,
    Flush,
    GssRequest,
    Later,
    Message,
    MessageReader,
    Password,
    ProtocolError,
    Query,
    SslRequest,
    Startup,
    Sync,
    Terminate,
)
from frostline.server.session import Session

if TYPE_CHECKING:
    from frostline.server.listen import LakeServer

_log = logging.getLogger(__name__)

_RECEIVE_BYTES = 65_536
_STRANGER_RECEIVE_BYTES = 4_096
_PACKET_BYTES = 16_384
_CANCEL_PATIENCE_S = 3.0
_LAST_WORDS_S = 1.0
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)
_REPORTED = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "is_superuser",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
)


class HungUp(Exception):
    """The client is gone, or has to go."""


class Connection:
    """One client. Everything but `hang_up`, `is_gone` and the cancel request is done by its own thread."""

    def __init__(self, server: "LakeServer", client: socket.socket, process_id: int) -> None:
        self._server, self._client = server, client
        self._reader = MessageReader()
        self._login_ends, self._welcomed = time.monotonic() + server.startup_timeout_s, False
        self.process_id, self.secret = process_id, secrets.randbelow(2**31 - 1)
        self.session = Session(server.backend)
        self._answering: Later | None = None
        self._unsent = Unsent()
        self._ended = False
        self.thread = threading.Thread(target=self._run, name=f"frostline-lake-{process_id}", daemon=True)

    def hang_up(self) -> None:
        """End it from outside. Its own thread notices, and closes the socket: until then its number is taken."""
        self._ended = True
        self.session.cancel()
        with contextlib.suppress(OSError):
            # Not the method of an encrypted socket, which would forget about the encryption under its reader.
            socket.socket.shutdown(self._client, socket.SHUT_RDWR)

    def hang_up_if_stuck(self) -> None:
        """After a cancel: what waits for a disk that is away does not end, and Postgres would wait for it for 30 s."""
        answering = self._answering

        def end() -> None:
            if answering is not None and self._answering is answering:
                _log.warning("cancelled query does not end: hanging up session=%d", self.process_id)
                self.hang_up()

        patience = threading.Timer(_CANCEL_PATIENCE_S, end)
        patience.daemon = True
        patience.start()

    def is_gone(self) -> bool:
        """Whether the client has hung up, without reading from it."""
        poll = select.poll()
        try:
            poll.register(self._client, _HANG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return False

    def _run(self) -> None:
        try:
            if self._login():
                self._converse()
        except (HungUp, OSError):
            _log.debug("client hung up session=%d", self.process_id)
        except (ProtocolError, FrostlineError) as error:
            self._last_words(error.sqlstate, message_of(error))
        except Exception:  # noqa: BLE001
            _log.exception("session failed session=%d", self.process_id)
            self._last_words("XX000", "the lake server failed; its log says why")
        finally:
            self.session.end()
            self._end_encryption()
            shut(self._client)
            self._server.forget(self.process_id)

    def _end_encryption(self) -> None:
        """To a client of TLS a connection that just ends is an attack: a cancel request would look failed to it."""
        if isinstance(self._client, ssl.SSLSocket) and not self._ended:
            with contextlib.suppress(OSError, ValueError):
                self._client.settimeout(1)
                self._client.unwrap()

    def _last_words(self, sqlstate: str, message: str) -> None:
        _log.warning("session ended session=%d sqlstate=%s error=%r", self.process_id, sqlstate, message)
        with contextlib.suppress(OSError):
            self._client.settimeout(_LAST_WORDS_S)
            self._client.sendall(self._unsent.take() + backend.error(sqlstate, message, fatal=True))
            self._hear_out()

    def _hear_out(self) -> None:
        """Take what the client is still sending: closed with bytes unread, a socket is reset, last words lost."""
        if not isinstance(self._client, ssl.SSLSocket):
            self._client.shutdown(socket.SHUT_WR)
        ends = time.monotonic() + _LAST_WORDS_S
        while not self._ended and (left := ends - time.monotonic()) > 0:
            self._client.settimeout(left)
            if not self._client.recv(_RECEIVE_BYTES):
                return

    def _receive(self) -> Message:
        while (message := self._reader.next()) is None:
            self._limit_waiting()
            data = self._client.recv(_RECEIVE_BYTES if self._welcomed else _STRANGER_RECEIVE_BYTES)
            if not data:
                raise HungUp
            self._reader.feed(data)
        return message

    def _limit_waiting(self) -> None:
        """Until it has logged in, a client has so many seconds altogether, however slowly it speaks."""
        if not self._welcomed:
            left = self._login_ends - time.monotonic()
            if left <= 0 or self._ended:
                raise HungUp
            self._client.settimeout(left)

    def _login(self) -> bool:
        """Startup and authentication. False when the connection was for something else."""
        message, asked = self._receive(), list[type[Message]]()
        while isinstance(message, (SslRequest, GssRequest)):
            if type(message) in asked:
                raise ProtocolError("encryption was asked for twice")
            asked.append(type(message))
            self._encrypt(wanted=isinstance(message, SslRequest))
            message = self._receive()
        if isinstance(message, CancelRequest):
            self._server.cancel(message)
            return False
        assert isinstance(message, Startup)
        self._authenticate(message)
        self._server.welcome(self)
        self._welcome()
        return True

    def _encrypt(self, *, wanted: bool) -> None:
        if not wanted or self._server.tls is None or isinstance(self._client, ssl.SSLSocket):
            self._client.sendall(backend.REFUSE_ENCRYPTION)
            return
        if self._reader.pending_bytes:
            raise ProtocolError("unencrypted data after the request for encryption")
        self._limit_waiting()
        self._client.sendall(backend.ACCEPT_ENCRYPTION)
        # In two steps: in between, `hang_up` already reaches the socket that the handshake waits for.
        self._client = self._server.tls.wrap_socket(self._client, server_side=True, do_handshake_on_connect=False)
        self._limit_waiting()
        self._client.do_handshake()

    def _authenticate(self, startup: Startup) -> None:
        unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
        if startup.minor_version > 0 or unknown:
            self._client.sendall(backend.negotiate_protocol(unknown))
        exchange = self._server.credentials.exchange(startup.parameters.get("user", ""))
        self._client.sendall(backend.sasl([MECHANISM]))
        self._client.sendall(exchange.first(self._password()))
        self._client.sendall(exchange.last(self._password()))

    def _password(self) -> bytes:
        message = self._receive()
        if not isinstance(message, Password):
            raise ProtocolError("expected a password message")
        return message.body

    def _welcome(self) -> None:
        self._reader.trust()
        self._welcomed = True
        status = b"".join(backend.parameter_status(name, SETTINGS[name.lower()]) for name in _REPORTED)
        key = backend.backend_key(self.process_id, self.secret)
        self._client.sendall(backend.AUTHENTICATED + status + key + backend.ready("I"))

    def _converse(self) -> None:
        while not isinstance(message := self._receive_later(), Terminate):
            self._answering = message
            for chunk in self.session.receive(message):
                if self._unsent.add(chunk):
                    self._send()
            self._answering = None
            if isinstance(message, (Sync, Query, Flush)):
                self._send()

    def _send(self) -> None:
        for piece in self._unsent.pieces():
            self._client.sendall(piece)

    def _receive_later(self) -> Later:
        """The next message. Where the client has to be waited for, it has all answers first."""
        message = self._reader.next()
        if message is None:
            self._send()
            # postgres_fdw keeps its connections open as long as its own session lives; keepalive finds dead ones.
            self._client.settimeout(None)
            message = self._receive()
            self._client.settimeout(self._server.send_timeout_s)
        assert not isinstance(message, (SslRequest, GssRequest, CancelRequest, Startup))
        return message


def shut(sock: socket.socket) -> None:
    """Hang up and close."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.close()


class Unsent:
    """Answers that wait for others. Small ones go as one packet; large ones as they are, without a copy."""

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = []
        self._size = 0

    def add(self, chunk: bytes | memoryview) -> bool:
        """Keep it. True when they are enough to be sent."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        return self._size >= _PACKET_BYTES

    def pieces(self) -> list[bytes | memoryview]:
        """What is to be sent, one after the other; nothing of it waits any more."""
        if self._size < _PACKET_BYTES:
            small = self.take()
            return [small] if small else []
        chunks, self._chunks, self._size = self._chunks, [], 0
        return chunks

    def take(self) -> bytes:
        """All of it in one piece."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        return b"".join(chunks)
