"""The sockets of the lake server, and nothing else: one thread a session, so that a slow client waits alone."""

import contextlib
import logging
import secrets
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from frostline.errors import FrostlineError
from frostline.lake.filecheck import Checks, FileCheck
from frostline.server.answers import SETTINGS
from frostline.server.authentication import MECHANISM, Credentials
from frostline.server.engine import Engine
from frostline.server.lake_tables import LakeTables
from frostline.server.protocol import backend
from frostline.server.protocol.frontend import (
    CancelRequest,
    GssRequest,
    Later,
    Message,
    MessageReader,
    Password,
    ProtocolError,
    SslRequest,
    Startup,
    Terminate,
)
from frostline.server.queries import Backend
from frostline.server.session import Session
from frostline.server.translate.depth import deep_stack

_log = logging.getLogger(__name__)

_RECEIVE_BYTES = 65_536
_PACKET_BYTES = 16_384
_WATCH_INTERVAL_S = 1.0
_CANCEL_PATIENCE_S = 3.0
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


class _HungUp(Exception):
    """The client is gone."""


class LakeServer:
    """Listens, and gives every client a thread. Loopback unless another host is given."""

    def __init__(
        self,
        host: str,
        port: int,
        tables: LakeTables,
        user: str,
        password: str,
        postgres_dsn: str | None,
        *,
        memory_limit: str = "1GB",
        threads: int = 2,
        warehouse: str | None = None,
        checks: Checks = Checks.FIRST_READ,
        max_sessions: int = 200,
        startup_timeout_s: float = 10.0,
        send_timeout_s: float = 3600.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="frostline-lake-")
        self._engine = Engine(
            memory_limit=memory_limit, threads=threads, temp_directory=Path(self._temporary.name), warehouse=warehouse
        )
        self.backend = Backend(tables, self._engine, postgres_dsn, FileCheck(checks, threads))
        self.credentials = Credentials(user, password)
        self.startup_timeout_s, self.send_timeout_s, self.tls = startup_timeout_s, send_timeout_s, tls
        self._address, self._max_sessions = (host, port), max_sessions
        self._connections: dict[int, _Connection] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._stopped = threading.Event()

    @property
    def port(self) -> int:
        """The port that it listens on; the real one when 0 was asked for."""
        assert self._listener is not None, "not started"
        return int(self._listener.getsockname()[1])

    @property
    def session_count(self) -> int:
        """How many clients are connected, logged in or not."""
        with self._lock:
            return len(self._connections)

    @property
    def memory_bytes(self) -> int:
        """What the engine holds in memory now."""
        return self._engine.memory_bytes()

    def start(self) -> None:
        """Begin to listen, in a thread of its own. Clients can connect when this returns."""
        self._listener = socket.create_server(self._address, backlog=100, reuse_port=False)
        threading.Thread(target=self._accept, name="frostline-lake-accept", daemon=True).start()
        threading.Thread(target=self._watch, name="frostline-lake-watch", daemon=True).start()
        _log.info("lake server listening host=%s port=%d", self._address[0], self.port)

    def serve_forever(self) -> None:
        """Wait until `stop` is called."""
        self._stopped.wait()

    def stop(self) -> None:
        """Hang up on everybody and give everything back."""
        self._stopped.set()
        if self._listener is not None:
            _shut(self._listener)
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.thread.join(timeout=5)
        self._engine.close()
        self._temporary.cleanup()

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._stopped.wait(0.05):
                    return
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._admit(client)

    def _watch(self) -> None:
        """Stop queries whose client is gone: a thread that computes does not look at its socket."""
        while not self._stopped.wait(_WATCH_INTERVAL_S):
            with self._lock:
                connections = list(self._connections.values())
            for connection in connections:
                if connection.is_gone():
                    connection.session.cancel()

    def _admit(self, client: socket.socket) -> None:
        with self._lock:
            if len(self._connections) >= 2 * self._max_sessions:
                _shut(client)  # a crowd at the door gets no thread each to be told so
                return
            full = len(self._connections) >= self._max_sessions
            process_id = next(number for number in _random_numbers() if number not in self._connections)
            connection = _Connection(self, client, process_id, full=full)
            self._connections[process_id] = connection
            with deep_stack():
                connection.thread.start()

    def forget(self, process_id: int) -> None:
        """A connection has ended."""
        with self._lock:
            self._connections.pop(process_id, None)

    def cancel(self, request: CancelRequest) -> None:
        """Stop what the session with that key is doing."""
        with self._lock:
            connection = self._connections.get(request.process_id)
        if connection is not None and connection.secret == request.secret:
            connection.session.cancel()
            connection.hang_up_if_stuck()


def _random_numbers() -> Iterator[int]:
    while True:
        yield secrets.randbelow(2**31 - 1) + 1


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.close()


class _Connection:
    """One client, in one thread."""

    def __init__(self, server: LakeServer, client: socket.socket, process_id: int, *, full: bool) -> None:
        self._server, self._client, self._full = server, client, full
        self._reader = MessageReader()
        self._login_ends, self._welcomed = time.monotonic() + server.startup_timeout_s, False
        self.process_id, self.secret = process_id, secrets.randbelow(2**31 - 1)
        self.session = Session(server.backend)
        self._answering: Later | None = None
        self.thread = threading.Thread(target=self._run, name=f"frostline-lake-{process_id}", daemon=True)

    def hang_up(self) -> None:
        """End the session from outside."""
        self.session.cancel()
        _shut(self._client)

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
        except (_HungUp, OSError):
            _log.debug("client hung up session=%d", self.process_id)
        except (ProtocolError, FrostlineError) as error:
            self._last_words(error.sqlstate, str(error))
        except Exception:  # noqa: BLE001
            _log.exception("session failed session=%d", self.process_id)
            self._last_words("XX000", "the lake server failed; its log says why")
        finally:
            self.session.close()
            self._end_encryption()
            _shut(self._client)
            self._server.forget(self.process_id)

    def _end_encryption(self) -> None:
        """To a client of TLS a connection that just ends is an attack: a cancel request would look failed to it."""
        if isinstance(self._client, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):
                self._client.settimeout(1)
                self._client.unwrap()

    def _last_words(self, sqlstate: str, message: str) -> None:
        _log.warning("session ended session=%d sqlstate=%s error=%r", self.process_id, sqlstate, message)
        try:
            self._client.settimeout(1)
            self._client.sendall(backend.error(sqlstate, message, fatal=True))
        except OSError:
            pass

    def _receive(self) -> Message:
        while (message := self._reader.next()) is None:
            self._limit_waiting()
            data = self._client.recv(_RECEIVE_BYTES)
            if not data:
                raise _HungUp
            self._reader.feed(data)
        return message

    def _limit_waiting(self) -> None:
        """Until it has logged in, a client has so many seconds altogether, however slowly it speaks."""
        if not self._welcomed:
            left = self._login_ends - time.monotonic()
            if left <= 0:
                raise _HungUp
            self._client.settimeout(left)

    def _login(self) -> bool:
        """Startup and authentication. False when the connection was for something else."""
        message = self._receive()
        while isinstance(message, (SslRequest, GssRequest)):
            self._encrypt(wanted=isinstance(message, SslRequest))
            message = self._receive()
        if isinstance(message, CancelRequest):
            self._server.cancel(message)
            return False
        assert isinstance(message, Startup)
        if self._full:
            self._last_words("53300", "sorry, too many clients already")
            return False
        self._authenticate(message)
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
        self._client = self._server.tls.wrap_socket(self._client, server_side=True)

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
            self._client.settimeout(self._server.send_timeout_s)
            self._answering = message
            for chunk in together(self.session.receive(message)):
                self._client.sendall(chunk)
            self._answering = None

    def _receive_later(self) -> Later:
        # postgres_fdw keeps its connections open as long as its own session lives; keepalive finds dead ones.
        self._client.settimeout(None)
        message = self._receive()
        assert not isinstance(message, (SslRequest, GssRequest, CancelRequest, Startup))
        return message


def together(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Small answers joined into one packet; large ones as they are, without a copy."""
    small: list[bytes | memoryview] = []
    size = 0
    for chunk in chunks:
        small.append(chunk)
        size += len(chunk)
        if size >= _PACKET_BYTES:
            yield from small
            small, size = [], 0
    if small:
        yield b"".join(small)
