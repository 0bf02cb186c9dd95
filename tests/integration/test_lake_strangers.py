"""Crowds of clients that do not say who they are: whoever has the password is served all the same."""

import errno
import hashlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first
from tests.fixtures.waiting import until

from frostline.model.tiers import TierKind
from frostline.server.listen import SSL_REQUEST, LakeServer

STARTUP = struct.pack("!ii", 19, 196608) + b"user\0lake\0\0"
FIRST = b"SCRAM-SHA-256\0" + struct.pack("!i", 10) + b"n,,n=,r=ab"
SASL = b"p" + struct.pack("!i", len(FIRST) + 4) + FIRST
STEPS = {
    "nothing": b"",
    "half of a question": SSL_REQUEST[:5],
    "a question": SSL_REQUEST,
    "half of a startup": STARTUP[:9],
    "a startup": STARTUP,
    "half of a login": STARTUP + SASL,
}


@pytest.fixture
def stored(tmp_path: Path) -> StoredTables:
    """A lake with one small table."""
    made = StoredTables(tmp_path)
    made.add(lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT))
    made.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3]})
    return made


@contextmanager
def running(stored: StoredTables, **options: float) -> Generator[LakeServer]:
    server = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, **options)  # pyright: ignore[reportArgumentType]
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(stored: StoredTables) -> Iterator[LakeServer]:
    """Little room, and a long time for each, so that a crowd would stay for the whole test."""
    with running(stored, max_sessions=5, max_strangers=40, startup_timeout_s=120) as started:
        yield started


def works(server: LakeServer) -> bool:
    with psycopg.connect(lakeserver.lake_dsn(server), connect_timeout=60) as connection:
        return connection.execute('select id from "x"."7[,3)" order by id').fetchall() == [(1,), (2,)]


@contextmanager
def crowd(server: LakeServer, count: int, said: bytes = b"") -> Generator[list[socket.socket]]:
    """So many connections that say this and no more."""
    with ExitStack() as held:
        strangers = list[socket.socket]()
        for _ in range(count):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            if said:
                stranger.sendall(said)
            strangers.append(stranger)
        yield strangers


@pytest.mark.slow
@pytest.mark.parametrize("said", first(1, STEPS.values()), ids=STEPS.keys())
def test_five_hundred_strangers_keep_nobody_out(server: LakeServer, said: bytes) -> None:
    with crowd(server, 500, said):
        assert all(works(server) for _ in range(3))
        assert server.answers(60)
        assert server.stranger_count <= 40
    assert works(server)


def test_a_crowd_that_comes_back_again_and_again_keeps_nobody_out(server: LakeServer) -> None:
    over = threading.Event()

    def come_back() -> None:
        while not over.is_set():
            with crowd(server, 20, SSL_REQUEST[:3]):
                pass

    crowds = [threading.Thread(target=come_back) for _ in range(4)]
    for members in crowds:
        members.start()
    try:
        assert all(works(server) for _ in range(5))
        assert all(server.answers(60) for _ in range(5))
    finally:
        over.set()
        for members in crowds:
            members.join()


def test_strangers_who_drip_keep_nobody_out(server: LakeServer) -> None:
    over = threading.Event()

    def drip(strangers: list[socket.socket]) -> None:
        for byte in STARTUP + SASL:
            for stranger in strangers:
                with suppress(OSError):  # some have been turned out
                    stranger.sendall(bytes([byte]))
            if over.wait(0.05):
                return

    with crowd(server, 100) as strangers:
        dripping = threading.Thread(target=drip, args=[strangers])
        dripping.start()
        assert all(works(server) for _ in range(3))
        over.set()
        dripping.join()


def test_strangers_are_no_sessions(server: LakeServer) -> None:
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(psycopg.connect(lakeserver.lake_dsn(server)))
        with crowd(server, 100), pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(lakeserver.lake_dsn(server), connect_timeout=60)
        assert server.session_count == 5
    until(lambda: server.session_count == 0)
    with crowd(server, 100):
        assert works(server)


def test_a_running_session_is_not_disturbed(server: LakeServer) -> None:
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection, crowd(server, 300):
        assert connection.execute('select id from "x"."7[,3)" order by id').fetchall() == [(1,), (2,)]


def test_a_query_can_be_cancelled_past_a_crowd(server: LakeServer) -> None:
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection, crowd(server, 100):
        connection.cancel_safe(timeout=60)
        assert connection.execute("select 1").fetchone() == (1,)


def test_strangers_are_counted_and_complained_of_once(server: LakeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    with crowd(server, 100):
        until(lambda: server.turned_out_count >= 60)
    assert len([record for record in caplog.records if "did not log in" in record.getMessage()]) <= 2


def test_encryption_is_asked_for_once(server: LakeServer) -> None:
    with crowd(server, 1, SSL_REQUEST * 2) as (asking,):
        answer = b"".join(iter(lambda: asking.recv(4096), b""))
    assert answer[:1] == b"N"
    assert b"C08P01" in answer


def test_a_stranger_in_the_middle_of_a_tls_handshake_is_turned_out(stored: StoredTables) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with running(stored, max_strangers=3, startup_timeout_s=120) as server:
        server.tls = context
        with crowd(server, 1, SSL_REQUEST) as (shaking,):
            assert shaking.recv(1) == b"S"
            shaking.sendall(b"\x16\x03\x01\x02\x00")  # a record that never comes
            with crowd(server, 10):
                assert shaking.recv(1) == b""
        server.tls = None
        assert works(server)


def test_when_there_are_no_files_left_strangers_give_theirs(
    server: LakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crowd(server, 10):
        until(lambda: server.stranger_count == 10)
        real, failures = socket.socket.accept, [2]

        def accept(self: socket.socket) -> tuple[socket.socket, object]:
            if failures[0]:
                failures[0] -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return real(self)

        monkeypatch.setattr(socket.socket, "accept", accept)
        assert works(server)
        assert server.turned_out_count == 2


def test_a_login_derives_no_key(server: LakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thousands of hashes of SCRAM are the client's work: a stranger cannot make the server do them."""

    def derive(*_: object) -> bytes:
        raise AssertionError("a key was derived")

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", derive)
    monkeypatch.setattr("scramp.core.hi", derive, raising=False)
    assert works(server)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(lakeserver.lake_dsn(server), password="wrong")


@pytest.mark.slow
def test_the_watchdog_sees_a_server_that_lets_nobody_in(stored: StoredTables) -> None:
    with running(stored) as server:
        assert server.answers(60)
        with server._lock:
            assert not server.answers(0.2)
        assert server.answers(60)


GUARDED = """
import sys, time
from pathlib import Path
from frostline.runtime import watchdog
from frostline.server.listen import LakeServer
server = LakeServer("127.0.0.1", 0, None, "lake", "sesame", None, startup_timeout_s=120)
server.start()
with watchdog.guarded(server.answers, 2.0):
    print(server.port, flush=True)
    sys.stdin.readline()
    if sys.argv[1:] == ["hang"]:
        server._lock.acquire()
        time.sleep(120)
server.stop()
"""


def guarded(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", GUARDED, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_watchdog_does_not_mistake_a_crowd_for_a_hang() -> None:
    with guarded() as process:
        assert process.stdin
        assert process.stdout
        port = int(process.stdout.readline())
        ends = time.monotonic() + 6  # three limits
        with ExitStack() as held:
            while time.monotonic() < ends:
                for _ in range(50):
                    held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                held.pop_all().close()
                assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_the_watchdog_ends_a_server_that_lets_nobody_in() -> None:
    with guarded("hang") as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == -9
