"""The keeper: holds the points of this driver process for as long as somebody may read them.

A Python data source is made by Spark in a process of its own. It asks for its point over a loopback socket.
"""

import atexit
import logging
import os
import secrets
import socket
import struct
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path

import psycopg

from frostline import logs
from frostline.catalog.connect import first_line
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import objectstore
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.pipeline import tasks
from frostline.pipeline.tasks import Outcome
from frostline.spark import database
from frostline.tiers.point import AsOf, Point, taken

HANDSHAKE_S = 30.0
"""So long may the other side stand still while it shows who it is, asks, and takes the answer."""
ANSWER_S = 120.0
"""So long may it take to take a point."""
_BACKLOG = 64
_RECEIVED = b"received"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Address:
    """Where a keeper listens, and what it wants to hear first."""

    port: int
    secret: bytes


@dataclass(frozen=True)
class Request:
    """A new point of these tables; or, by its number, one that there is."""

    dsn: str | None = field(default=None, repr=False)
    home: str | None = None
    tables: tuple[str, ...] = ()
    as_of: AsOf = None
    point_id: str | None = None
    is_released: bool = False
    """That one is to be given up."""


@dataclass(frozen=True)
class Kept:
    """A point with its number."""

    id: str
    point: Point
    access: Access | None
    """How tasks reach the object store, if the lake is in one."""
    checks: Checks | None = None
    """How files are compared; None is what fits their store."""


class Keeper:
    """Points by their numbers. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Kept, ExitStack]] = {}
        self._address: Address | None = None
        atexit.register(self._at_exit, os.getpid())

    def take(self, dsn: str | None, home: str | Path | None, tables: Sequence[str], as_of: AsOf) -> Kept:
        """A new point of these tables, held until it is released or the process ends."""
        database.use_the_store(home)
        with ExitStack() as opening:
            point = opening.enter_context(taken(database.dsn_of(dsn, home), tables, as_of))
            kept = Kept(uuid.uuid4().hex, point, objectstore.in_use(), database.checks(home))
            with self._lock:
                self._held[kept.id] = (kept, opening.pop_all())
        _log.info("%s", logs.fields(stage="point", point=kept.id, tables=len(kept.point.tables)))
        return kept

    def get(self, point_id: str) -> Kept:
        """The point of that number; UsageError when it was released."""
        with self._lock:
            if point_id not in self._held:
                raise UsageError("the point in time of this DataFrame was released", hint="read the table again")
            return self._held[point_id][0]

    def ids(self) -> list[str]:
        """The numbers of all points, the oldest first."""
        with self._lock:
            return list(self._held)

    def release(self, point_id: str) -> None:
        """Give a point up; nothing happens when it was released before."""
        try:
            self._give_up(point_id)
        except (psycopg.Error, FrostlineError) as error:
            # What was read is right all the same: a lost snapshot fails each task, a lost pin each missing file.
            _log.warning("%s", logs.fields(stage="release", point=point_id, warning=first_line(error)))

    def _give_up(self, point_id: str) -> None:
        with self._lock:
            _, opened = self._held.pop(point_id, (None, ExitStack()))
        opened.close()

    def address(self) -> Address:
        """Where this keeper listens. It begins to with the first call."""
        with self._lock:
            if self._address is None:
                secret = secrets.token_bytes(32)
                listener = Listener(("127.0.0.1", 0), backlog=_BACKLOG)
                self._address = Address(listener.address[1], secret)  # pyright: ignore[reportArgumentType]
                threading.Thread(target=self._listen, args=(listener, secret), daemon=True).start()
            return self._address

    def _listen(self, listener: Listener, secret: bytes) -> None:
        while True:
            with suppress(OSError):  # it has gone already
                connection = listener.accept()
                threading.Thread(target=self._serve, args=(connection, secret), daemon=True).start()

    def _serve(self, connection: Connection, secret: bytes) -> None:
        """Nothing is unpickled before the other side has shown that it knows the secret."""
        with suppress(AuthenticationError, OSError, EOFError), connection:  # not one of ours, or it has gone
            _limit(connection.fileno(), HANDSHAKE_S)
            deliver_challenge(connection, secret)
            answer_challenge(connection, secret)
            request: Request = connection.recv()
            self._hand_over(connection, request, tasks.attempt(self._answer, request))

    def _hand_over(self, connection: Connection, request: Request, outcome: Outcome[Kept | None]) -> None:
        """A new point that nobody has received is released."""
        received = False
        try:
            connection.send(outcome)
            received = connection.recv_bytes() == _RECEIVED
        finally:
            if outcome.made is not None and request.point_id is None and not received:
                self.release(outcome.made.id)

    def _answer(self, request: Request) -> Kept | None:
        if request.point_id is None:
            return self.take(request.dsn, request.home, request.tables, request.as_of)
        return self.release(request.point_id) if request.is_released else self.get(request.point_id)

    def _at_exit(self, pid: int) -> None:
        """A process that was forked from this one has the points' connections, but they are not its own.

        A Postgres that is gone by now is not worth a word, and whoever logs may have closed its file already.
        """
        for point_id in self.ids() if os.getpid() == pid else ():
            with suppress(psycopg.Error, FrostlineError):
                self._give_up(point_id)


def ask(address: Address, request: Request) -> Kept:
    """Ask the keeper of the driver, from another process of the same machine. Raises its error."""
    return tasks.unwrap(_asked(address, request))


def tell_released(address: Address, point_id: str) -> None:
    """Give up a point of the driver's keeper, from another process of the same machine; it may be gone with it."""
    with suppress(AuthenticationError, OSError, EOFError, UnavailableError):
        _asked(address, Request(point_id=point_id, is_released=True))


def _asked(address: Address, request: Request) -> Outcome[Kept]:
    try:
        with Client(("127.0.0.1", address.port)) as connection:
            _limit(connection.fileno(), ANSWER_S)
            answer_challenge(connection, address.secret)
            deliver_challenge(connection, address.secret)
            connection.send(request)
            outcome: Outcome[Kept] = connection.recv()
            connection.send_bytes(_RECEIVED)
            return outcome
    except BlockingIOError:
        hint = "look at the log of the Spark driver, and read the table again"
        raise UnavailableError(f"the Spark driver gave no point in time within {ANSWER_S} s", hint=hint) from None


def _limit(descriptor: int, seconds: float) -> None:
    """From now on, sending or receiving that stands still for so long is a BlockingIOError."""
    whole_seconds, micros = divmod(int(seconds * 1_000_000), 1_000_000)
    limit = struct.pack("ll", whole_seconds, micros)
    with socket.socket(fileno=os.dup(descriptor)) as same:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, limit)


KEEPER = Keeper()
"""The one of this process."""
