"""Memory stays flat: what many sessions, large results and many files may cost. benchmarks/cases has the large figures."""

import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import conninfo
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column

from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer

pytestmark = pytest.mark.slow

ROWS = 100_000
SESSIONS = 100
RESULT_BYTES = 120 * ROWS
"""What a result is as text. One session in memory would hold about that much, all of them more than a gigabyte."""
MEMORY_LIMIT_MB = 128
TABLE = '"x"."7[,9000000)"'


def serve(stored: StoredTables, pipe: Pipe) -> None:
    """A lake server in a process of its own, whose memory is nobody else's."""
    server = LakeServer(
        "127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, memory_limit=f"{MEMORY_LIMIT_MB}MB"
    )
    server.start()
    pipe.send(server.port)
    pipe.recv()
    server.stop()


@pytest.fixture
def stored_rows(tmp_path: Path) -> StoredTables:
    """One file with one row group, as export writes it: whoever reads it holds all of it."""
    stored = StoredTables(tmp_path, by_duckdb=True)
    columns = [column(1, "id", "int8"), column(2, "key", "int8"), column(3, "payload", "text")]
    stored.add(lakeserver.table(7, columns, "key", TierKind.BIGINT))
    numbers = range(ROWS)
    stored.publish(7, 1, {"id": numbers, "key": numbers, "payload": [f"{number:0100}" for number in numbers]})
    return stored


@pytest.fixture
def server(stored_rows: StoredTables) -> Iterator[tuple[str, psutil.Process]]:
    """How to connect to the server, and its process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(stored_rows, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(60)
        address = {"host": "127.0.0.1", "port": ours.recv(), "dbname": "lake"}
        dsn = conninfo.make_conninfo(user=lakeserver.USER, password=lakeserver.PASSWORD, **address)
        yield dsn, psutil.Process(process.pid)
        ours.send("stop")
        process.join(20)
    finally:
        process.kill()
        process.join()


def test_a_hundred_slow_readers_of_large_results_share_the_memory_there_is(
    server: tuple[str, psutil.Process],
) -> None:
    dsn, process = server
    before = process.memory_info().rss
    with ExitStack() as all_of_them:
        sessions = [all_of_them.enter_context(psycopg.connect(dsn)) for _ in range(SESSIONS)]
        for session in sessions:
            session.execute(f"declare c cursor for select id, key, payload from {TABLE}".encode())
            assert len(session.execute(b"fetch 100 from c").fetchall()) == 100
        held = process.memory_info().rss - before
        with psycopg.connect(dsn) as late:
            assert late.execute(f"select id from {TABLE} where key = 3".encode()).fetchall() == [(3,)]
        for session in (sessions[0], sessions[-1]):
            rest = session.execute(b"fetch all from c").fetchall()
            assert len({row[0] for row in rest}) == ROWS - 100
    # Beside DuckDB's share every session has a thread, and a batch of a tenth of its result twice or thrice.
    assert held < MEMORY_LIMIT_MB * 1_000_000 + SESSIONS * RESULT_BYTES // 2
