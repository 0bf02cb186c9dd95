"""Whatever a client sends, the lake server answers or hangs up, and goes on serving the others."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column

from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer

STARTUP = struct.pack("!i", 196608) + b"user\0lake\0\0"
PACKET = struct.pack("!i", len(STARTUP) + 4) + STARTUP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeServer]:
    """A lake server with one small table and no Postgres behind it."""
    stored = StoredTables(tmp_path_factory.mktemp("lake"))
    stored.add(lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT))
    stored.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3]})
    running = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, max_sessions=50)
    running.start()
    yield running
    running.stop()


def answered(server: LakeServer, sent: bytes) -> bytes:
    """Everything that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        return lakeserver.exchange(raw, sent)


def works(server: LakeServer) -> bool:
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection:
        return connection.execute('select id from "x"."7[,3)" order by id').fetchall() == [(1,), (2,)]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(sent=st.binary(max_size=300))
def test_any_bytes_end_in_an_answer_or_a_hang_up(server: LakeServer, sent: bytes) -> None:
    answered(server, sent)
    answered(server, PACKET + sent)


def test_it_still_works_after_that(server: LakeServer) -> None:
    assert works(server)


def test_a_client_that_says_nothing_is_hung_up_on(stored: StoredTables) -> None:
    impatient = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, startup_timeout_s=1)
    impatient.start()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as raw:
        assert raw.recv(1) == b""
    impatient.stop()


def test_malformed_startups_get_a_clean_error(server: LakeServer) -> None:
    assert b"C08P01" in answered(server, struct.pack("!ii", 8, 2 << 16))
    assert b"C08P01" in answered(server, b"GET / HTTP/1.1\r\n\r\n")
    assert b"C08P01" in answered(server, PACKET + b"Q\0\0\0\x06a\0")


def test_a_newer_protocol_is_negotiated_down(server: LakeServer) -> None:
    newer = struct.pack("!i", (3 << 16) + 2) + b"user\0lake\0_pq_.new\0on\0\0"
    reply = answered(server, struct.pack("!i", len(newer) + 4) + newer)
    assert reply.startswith(b"v" + struct.pack("!iii", 4 + 8 + 9, 3 << 16, 1) + b"_pq_.new\0")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(bodies=st.lists(st.tuples(st.sampled_from(b"QPBDECSHp"), st.binary(max_size=40)), max_size=4))
def test_a_client_that_is_logged_in_cannot_break_it_either(server: LakeServer, bodies: list[tuple[int, bytes]]) -> None:
    messages = [bytes([kind]) + struct.pack("!i", len(body) + 4) + body for kind, body in bodies]
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection, _socket_of(connection) as raw:
        lakeserver.exchange(raw, b"".join(messages))


def _socket_of(connection: psycopg.Connection) -> socket.socket:
    raw = socket.socket(fileno=os.dup(connection.fileno()))
    raw.settimeout(60)
    return raw


def test_it_still_works_after_that_too(server: LakeServer) -> None:
    assert works(server)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_any_directory_name_will_do(tmp_path: Path, prefix: str) -> None:
    directory = tmp_path / "it's 100%20 [a]*? é"
    directory.mkdir()
    stored = StoredTables(directory, prefix=prefix)
    stored.add(lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT))
    stored.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3]})
    warehouse = prefix + str(directory)
    running = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, warehouse=warehouse)
    running.start()
    assert works(running)
    running.stop()


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("where f > 5", [2]),
        ("where f >= 5", [2]),
        ("where f <> 1", [2]),
        ("where not (f < 5)", [2]),
        ("where not (f = 1)", [2]),
        ("where f = 'NaN'", [2]),
        ("where f = any ('{NaN,7}'::float8[])", [2]),
        ("order by f desc limit 1", [2]),
        ("where f < 'NaN'", [1]),
    ],
)
def test_nan_is_found_though_the_statistics_of_a_file_leave_it_out(
    tmp_path: Path, tail: str, expected: list[int]
) -> None:
    stored = StoredTables(tmp_path)
    columns = [column(1, "id", "int8"), column(2, "key", "int8"), column(3, "f", "float8")]
    stored.add(lakeserver.table(7, columns, "key", TierKind.BIGINT))
    stored.publish(7, 1, {"id": [1, 2], "key": [1, 2], "f": [1.0, float("nan")]})
    running = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None)
    running.start()
    with psycopg.connect(lakeserver.lake_dsn(running)) as connection:
        rows = connection.execute(f'select id from "x"."7[,3)" {tail}'.encode()).fetchall()
    running.stop()
    assert [row[0] for row in rows] == expected


def test_files_outside_the_warehouse_are_not_read(tmp_path: Path) -> None:
    stored = StoredTables(tmp_path)
    stored.add(lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT))
    stored.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3]})
    inside = tmp_path / "inside"
    inside.mkdir()
    running = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, warehouse=str(inside))
    running.start()
    with pytest.raises(psycopg.Error):
        works(running)
    running.stop()


def test_what_needs_postgres_says_so_when_there_is_none(server: LakeServer) -> None:
    refused = pytest.raises(psycopg.errors.FeatureNotSupported, match="needs Postgres")
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection, refused:
        connection.execute('select id + 1 from "x"."7[,3)"')
