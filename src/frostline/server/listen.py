"""The sockets of the lake server, and who is let in: one thread a client, so that a slow one waits alone."""

import errno
import logging
import queue
import resource
import secrets
import select
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from frostline.errors import UnavailableError
from frostline.lake.filecheck import Checks, FileCheck
from frostline.server.authentication import Credentials
from frostline.server.connection import Connection, HungUp, shut
from frostline.server.engine import Engine
from frostline.server.protocol.frontend import CancelRequest
from frostline.server.queries import Backend
from frostline.server.served_tables import ManagedTables, OnlyManaged
from frostline.server.translate.complexity import deep_stack
from frostline.server.writes.shared import Lake
from frostline.settings import Settings

_log = logging.getLogger(__name__)

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""The question that Postgres asks first."""
_BACKLOG = 512
_MAX_STRANGERS = 256
_FAIR_S = 0.5
_WATCH_INTERVAL_S = 1.0
_COMPLAINT_INTERVAL_S = 10.0
_OUT_OF_FILES_PAUSE_S = 0.05
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TooManyClients(UnavailableError):
    """Whoever it is, there is no session left."""

    sqlstate = "53300"


@dataclass(frozen=True)
class _Stranger:
    address: str
    since_s: float


class Door:
    """Who may stand at the door: clients that have connected and have not yet proved who they are.

    They have a limit of their own and take no session's place. When there is no room, the newcomer comes in and another
    one goes: the one that has stood there longest, of the address that has most of them. So whoever logs in as soon as
    it is in is never kept out by those who do not. Everyone has some time: until the one to go has had it, newcomers
    wait in line.

    Counts, and decides who goes. Does nothing to a connection itself. Not for several threads at once.
    """

    def __init__(self, room: int, fair_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._room, self._fair_s, self._clock = room, fair_s, clock
        self._strangers: dict[int, _Stranger] = {}

    def __len__(self) -> int:
        return len(self._strangers)

    def pause_s(self) -> float:
        """How long newcomers have to wait."""
        if len(self._strangers) < self._room:
            return 0.0
        return max(0.0, self._strangers[self._next_to_go()].since_s + self._fair_s - self._clock())

    def enter(self, number: int, address: str) -> int | None:
        """A stranger comes in. Answers with the number of the one who goes instead, who is not here any more."""
        goes = self.evict() if len(self._strangers) >= self._room else None
        self._strangers[number] = _Stranger(address, self._clock())
        return goes

    def evict(self) -> int | None:
        """The number of the one who goes, if there is any."""
        if not self._strangers:
            return None
        goes = self._next_to_go()
        del self._strangers[goes]
        return goes

    def leave(self, number: int) -> bool:
        """A stranger is none any more. False when it had been turned out."""
        return self._strangers.pop(number, None) is not None

    def _next_to_go(self) -> int:
        """They are in the order of their coming."""
        most = Counter(stranger.address for stranger in self._strangers.values()).most_common(1)[0][0]
        return next(number for number, stranger in self._strangers.items() if stranger.address == most)


class LakeServer:
    """Listens, and gives every client a thread. Loopback unless another host is given.

    `postgres_dsn` is the Postgres whose queries it answers; the catalog of lake tables may be in another one, or be the
    REST catalog of these settings.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tables: ManagedTables,
        user: str,
        password: str,
        postgres_dsn: str | None,
        *,
        catalog_dsn: str | None = None,
        rest_catalog: Settings | None = None,
        memory_limit: str = "1GB",
        threads: int = 2,
        warehouse: str | None = None,
        checks: Checks = Checks.FIRST_READ,
        max_sessions: int = 200,
        max_strangers: int = _MAX_STRANGERS,
        startup_timeout_s: float = 10.0,
        send_timeout_s: float = 3600.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="frostline-lake-")
        self._engine = Engine(
            memory_limit=memory_limit,
            threads=threads,
            temp_directory=Path(self._temporary.name),
            warehouse=warehouse,
            trusting=checks is not Checks.OFF,
        )
        check = FileCheck(checks, threads, self._engine.forget)
        lake = None
        if postgres_dsn is not None:
            lake = Lake(catalog_dsn or postgres_dsn, warehouse, postgres_dsn, rest_catalog)
        self.backend = Backend(OnlyManaged(tables), self._engine, postgres_dsn, check, lake=lake)
        self.credentials = Credentials(user, password)
        self.startup_timeout_s, self.send_timeout_s, self.tls = startup_timeout_s, send_timeout_s, tls
        self._address, self._max_sessions = (host, port), max_sessions
        self._door = Door(_affordable(max_strangers), _FAIR_S)
        self._connections: dict[int, Connection] = {}
        self._sessions: set[int] = set()
        self._full = False
        self._evicted, self._complained_at, self._complained_of = 0, 0.0, 0
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._ringer, self._bell = socket.socketpair()
        self._inside: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name="frostline-lake-accept", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on; the real one when 0 was asked for."""
        assert self._listener is not None, "not started"
        return int(self._listener.getsockname()[1])

    @property
    def session_count(self) -> int:
        """How many clients are logged in."""
        with self._lock:
            return len(self._sessions)

    @property
    def stranger_count(self) -> int:
        """How many have connected and not logged in."""
        with self._lock:
            return len(self._door)

    @property
    def turned_out_count(self) -> int:
        """How many had to go before they logged in, because others came."""
        return self._evicted

    @property
    def memory_bytes(self) -> int:
        """What the engine holds in memory now."""
        return self._engine.memory_bytes()

    def start(self) -> None:
        """Begin to listen, in a thread of its own. Clients can connect when this returns."""
        self._listener = socket.create_server(self._address, backlog=_BACKLOG, reuse_port=False)
        for sock in (self._listener, self._bell, self._ringer):
            sock.settimeout(0)
        self._accepting.start()
        threading.Thread(target=self._watch, name="frostline-lake-watch", daemon=True).start()
        _log.info("lake server listening host=%s port=%d", self._address[0], self.port)

    def serve_forever(self) -> None:
        """Wait until `stop` is called."""
        self._stopped.wait()

    def stop(self) -> None:
        """Hang up on everybody and give everything back."""
        self._stopped.set()
        if self._listener is not None:
            shut(self._listener)
            self._ring()
            self._accepting.join(timeout=5)
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.thread.join(timeout=5)
        for sock in (self._ringer, self._bell):
            sock.close()
        if self.backend.lake is not None:
            self.backend.lake.close()
        self._engine.close()
        self._temporary.cleanup()

    def answers(self, limit_s: float) -> bool:
        """Whether a new client gets an answer within that time.

        It comes from inside the process, so nobody can stand in its way: not through the door, but by the same thread
        that lets the others in, and it is answered as they are.
        """
        try:
            ours, theirs = socket.socketpair()
            with ours:
                ours.settimeout(limit_s)
                self._inside.put(theirs)
                self._ring()
                ours.sendall(SSL_REQUEST)
                return bool(ours.recv(1))
        except OSError:
            return False

    def _ring(self) -> None:
        """Wake the thread that lets clients in."""
        with suppress(OSError):  # it has been rung often enough, or is gone
            self._ringer.send(b".")

    def _accept(self) -> None:
        assert self._listener is not None
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        while not self._stopped.is_set():
            with self._lock:
                pause_s = self._door.pause_s()
                self._full = bool(pause_s)
            try:
                poll.register(self._listener, 0 if pause_s else select.POLLIN)
                poll.poll(pause_s * 1000 if pause_s else None)
                self._let_in(from_outside=not pause_s)
            except (OSError, ValueError, RuntimeError):  # no file, no thread, or it is stopped
                self._stopped.wait(_OUT_OF_FILES_PAUSE_S)

    def _let_in(self, *, from_outside: bool) -> None:
        """Whoever waits: from inside all, from outside one."""
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        while not self._inside.empty():
            self._admit(self._inside.get(), None)
        if from_outside:
            self._let_one_in()

    def _let_one_in(self) -> None:
        assert self._listener is not None
        try:
            client, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                self._make_room()
            raise
        client.settimeout(None)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._admit(client, str(address[0]))

    def _admit(self, client: socket.socket, address: str | None) -> None:
        """Give the client a thread. One from inside has no address, and takes nobody's place."""
        with self._lock:
            process_id = next(number for number in _random_numbers() if number not in self._connections)
            connection = self._connections[process_id] = Connection(self, client, process_id)
            goes = None if address is None else self._door.enter(process_id, address)
        self._evict(goes)
        try:
            with deep_stack():
                connection.thread.start()
        except RuntimeError:
            shut(client)
            self.forget(process_id)
            raise

    def _make_room(self) -> None:
        with self._lock:
            goes = self._door.evict()
        self._evict(goes)

    def _evict(self, process_id: int | None) -> None:
        with self._lock:
            connection = None if process_id is None else self._connections.get(process_id)
        if connection is not None:
            connection.hang_up()
            self._evicted += 1
            self._complain()

    def _complain(self) -> None:
        """Not each time: there may be hundreds a second."""
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAINT_INTERVAL_S or not self._complained_of:
            count = self._evicted - self._complained_of
            _log.warning("clients hung up on because they did not log in and others came: count=%d", count)
            self._complained_at, self._complained_of = now, self._evicted

    def _watch(self) -> None:
        """Stop queries whose client is gone: a thread that computes does not look at its socket. And tidy up."""
        while not self._stopped.wait(_WATCH_INTERVAL_S):
            with self._lock:
                connections = [self._connections[number] for number in self._sessions]
            for connection in connections:
                if connection.is_gone():
                    connection.session.cancel()
            self._engine.extracts.drop_idle()

    def welcome(self, connection: Connection) -> None:
        """A client has proved who it is, and is a session from now on; TooManyClients when there is no room."""
        with self._lock:
            if not self._door.leave(connection.process_id):
                raise HungUp
            if len(self._sessions) >= self._max_sessions:
                raise TooManyClients("sorry, too many clients already")
            self._sessions.add(connection.process_id)
            self._reopen()

    def forget(self, process_id: int) -> None:
        """A connection has ended."""
        with self._lock:
            self._door.leave(process_id)
            self._sessions.discard(process_id)
            self._connections.pop(process_id, None)
            self._reopen()

    def _reopen(self) -> None:
        """Somebody has left. If newcomers are kept waiting, they need not be any more."""
        if self._full:
            self._ring()

    def cancel(self, request: CancelRequest) -> None:
        """Stop what the session with that key is doing."""
        with self._lock:
            connection = self._connections.get(request.process_id)
        if connection is not None and connection.secret == request.secret:
            connection.session.cancel()
            connection.hang_up_if_stuck()


def _affordable(wanted: int) -> int:
    """Strangers take a quarter of the files that the process may have open at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 4))


def _random_numbers() -> Iterator[int]:
    while True:
        yield secrets.randbelow(2**31 - 1) + 1
