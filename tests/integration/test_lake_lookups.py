"""Look-ups that come one after the other are answered from an extract in memory, and the answers stay what they were."""

import random
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.lakeserver import StoredTables, column, lake_dsn, stored_in, table, without_postgres
from tests.fixtures.statements import rows
from tests.fixtures.waiting import until_extracted

from frostline.lake import checksums
from frostline.lake.filecheck import Checks
from frostline.model.tiers import TierKind
from frostline.server import extracts
from frostline.server.keeping import LEAST_ASKED
from frostline.server.listen import LakeServer

COLUMNS = [
    column(1, "id", "int8"),
    column(2, "n", "int4"),
    column(3, "note", "text"),
    column(4, "part", "int8"),
]
EVENTS = table(7, COLUMNS, "n", TierKind.INTEGER)
SOURCE = 'public."7[,1000000)"'
PARTS = 50
ROWS = 2000
"""Of each file."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files here are small, and read in no time."""
    monkeypatch.setattr(extracts, "_VALUE_S", 0.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LakeServer]:
    with without_postgres(tmp_path, EVENTS) as server:
        publish(server, 1)
        yield server


@pytest.fixture
def client(server: LakeServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(lake_dsn(server), autocommit=True) as connection:
        yield connection


def content(first: int, word: str = "note") -> Mapping[str, Sequence[object]]:
    numbers = range(first, first + ROWS)
    return {
        "id": [ROWS + first - i for i in range(ROWS)],
        "n": list(numbers),
        "note": [None if i % 7 == 0 else f"{word} {i}" for i in numbers],
        "part": [None if i % 11 == 0 else i * 7919 % PARTS for i in numbers],
    }


def publish(server: LakeServer, snapshot: int, word: str = "note", files: int = 3) -> None:
    stored_in(server).publish(7, snapshot, *(content(first * ROWS, word) for first in range(files)))


def expected(part: int | None, word: str = "note", files: int = 3) -> list[tuple[object, ...]]:
    received: list[tuple[object, ...]] = []
    for first in range(files):
        file = content(first * ROWS, word)
        received += [
            (n, note) for n, note, p in zip(file["n"], file["note"], file["part"], strict=True) if p == part is not None
        ]
    return received


def look_up(client: psycopg.Connection, part: int | None, rest: str = "") -> list[tuple[object, ...]]:
    """As postgres_fdw does for a row of another table."""
    client.execute("begin")
    query = f"declare c1 cursor for select n, note from {SOURCE} where ((part = $1::bigint)){rest}"
    psycopg.RawCursor(client).execute(query.encode(), [None if part is None else str(part)])
    received = rows(client, "fetch 10000 from c1")
    client.execute("close c1")
    client.execute("commit")
    return sorted(received, key=lambda row: row[0])


def warmed_up(server: LakeServer, client: psycopg.Connection, word: str = "note") -> None:
    """Ask until there is an extract."""
    for part in range(3 * LEAST_ASKED):
        assert look_up(client, part) == expected(part, word)
        until_extracted()
    assert server.backend.engine.extracts.size_bytes > 0


def opened(server: LakeServer) -> int:
    return server.backend.meter.reading().files_opened


def test_after_a_few_look_ups_no_file_is_opened(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    before = server.backend.meter.reading()
    for part in (*range(PARTS), None, -1, PARTS):
        assert look_up(client, part) == expected(part)
    now = server.backend.meter.reading()
    assert (now.files_opened, now.files_extracted - before.files_extracted) == (before.files_opened, 3 * (PARTS + 3))


def test_a_range_of_the_tier_key_and_other_conditions_hold(server: LakeServer, client: psycopg.Connection) -> None:
    """Other files, and so another extract; the bounds of the foreign table and of the condition cut through one."""
    cut = f" and n >= 500 and n < {ROWS + 500} and note like 'note %3'"
    for _ in range(3):
        for part in range(PARTS):
            wanted = [
                (n, note) for n, note in expected(part) if 500 <= int(str(n)) < ROWS + 500 and str(note).endswith("3")
            ]
            assert look_up(client, part, cut) == wanted
        until_extracted()
    assert server.backend.meter.reading().files_extracted >= PARTS


def test_groups_and_order_come_from_it_too(server: LakeServer, client: psycopg.Connection) -> None:
    newest = f"select n from {SOURCE} where part = %s order by n desc limit 1"
    for query, wanted in (
        (f"select count(*) from {SOURCE} where part = %s", lambda part: len(expected(part))),
        (newest, lambda part: expected(part)[-1][0]),
    ):
        for _ in range(3):
            for part in range(1, PARTS):
                assert client.execute((query % part).encode()).fetchall() == [(wanted(part),)]
            until_extracted()
        before = opened(server)
        assert client.execute((query % 5).encode()).fetchall() == [(wanted(5),)]
        assert opened(server) == before


def test_floats_keep_their_bits(server: LakeServer, client: psycopg.Connection) -> None:
    """DuckDB's sort makes zero of negative zero, so that is not what an extract is sorted by."""
    floats = [-0.0, 0.0, 1.5, float("nan"), None] * 40
    kept = table(8, [*COLUMNS[:2], column(3, "f", "float8"), column(4, "g", "float4")], "n", TierKind.INTEGER)
    stored_in(server).add(kept)
    stored_in(server).publish(
        8, 1, {"id": [i % 20 for i in range(200)], "n": list(range(200)), "f": floats, "g": floats}
    )
    source = SOURCE.replace("7", "8", 1)
    for condition in ("id = 5", "f = 0::double precision", "f = 0::double precision and id = 5", "f = 0 and g = 0"):
        query = f"select n, f, g from {source} where {condition} order by n".encode()
        first = [tuple(map(str, row)) for row in client.execute(query).fetchall()]
        assert "-0.0" in {value for row in first for value in row}
        for _ in range(2 * LEAST_ASKED):
            assert [tuple(map(str, row)) for row in client.execute(query).fetchall()] == first
        until_extracted()
        assert [tuple(map(str, row)) for row in client.execute(query).fetchall()] == first


def test_a_new_snapshot_has_its_own(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    publish(server, 2, "changed")
    warmed_up(server, client, "changed")
    assert look_up(client, 3, " and frostline_snapshot = 1") == expected(3)
    assert look_up(client, 3, " and frostline_snapshot = 2") == expected(3, "changed")


@pytest.mark.parametrize("checks", list(Checks))
def test_a_file_that_was_replaced_is_read_again(tmp_path: Path, checks: Checks) -> None:
    """By one of the same size: only the time of its last change tells. What is compared, and what is not."""
    for folder in ("lake", "other"):
        (tmp_path / folder).mkdir()
    other = StoredTables(tmp_path / "other")
    other.add(EVENTS)
    other.publish(7, 1, *(content(first * ROWS, "efgh") for first in range(3)))
    with (
        without_postgres(tmp_path / "lake", EVENTS, checks=checks) as server,
        psycopg.connect(lake_dsn(server), autocommit=True) as client,
    ):
        publish(server, 1, "abcd")
        for part in range(3 * LEAST_ASKED):
            assert look_up(client, part) == expected(part, "abcd")
            until_extracted()
        assert (server.backend.engine.extracts.size_bytes > 0) == (checks is not Checks.OFF)
        for old, new in zip(stored_in(server).files(7, 1), other.files(7, 1), strict=True):
            assert old.size_bytes == new.size_bytes
            shutil.copy(new.path, old.path)
        for part in range(3 * LEAST_ASKED):
            assert look_up(client, part) == expected(part, "efgh")
            until_extracted()


def test_a_file_whose_checksum_is_known_may_not_be_replaced(server: LakeServer, client: psycopg.Connection) -> None:
    stored = stored_in(server)
    stored.recorded |= {file.path: checksums.of(file.path, lambda: None) for file in stored.files(7, 1)}
    warmed_up(server, client)
    path = Path(stored.files(7, 1)[1].path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(psycopg.Error, match="checksum"):
        look_up(client, 3)
    client.execute("rollback")
    path.unlink()
    with pytest.raises(psycopg.Error, match=path.name):
        look_up(client, 3)


def test_what_the_engine_forgets_is_read_again(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    server.backend.engine.forget()
    before = opened(server)
    assert look_up(client, 3) == expected(3)
    assert opened(server) == before + 3
    warmed_up(server, client)


def test_with_little_memory_the_answers_are_the_same(tmp_path: Path) -> None:
    with (
        without_postgres(tmp_path, EVENTS, memory_limit="20MB", threads=1) as server,
        psycopg.connect(lake_dsn(server), autocommit=True) as client,
    ):
        publish(server, 1, "x" * 2000)
        for part in range(PARTS):
            assert look_up(client, part) == expected(part, "x" * 2000)
            until_extracted()
        assert server.backend.engine.extracts.size_bytes == 0


def test_four_sessions_at_once_get_the_same_answers(server: LakeServer) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        with psycopg.connect(lake_dsn(server), autocommit=True) as client:
            for _ in range(60):
                part = choose.choice([None, *range(PARTS)])
                received = look_up(client, part)
                if received != expected(part):
                    wrong.append((part, received))
                if choose.random() < 0.05:
                    server.backend.engine.extracts.clear()

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_extracted()
    assert wrong == []
    assert server.backend.meter.reading().files_extracted > 0


def test_a_cancel_while_one_is_made_hurts_nobody(
    server: LakeServer, client: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, real = threading.Event(), threading.Event(), extracts._create  # pyright: ignore[reportPrivateUsage]

    def slow(*arguments: object) -> str:
        begun.set()
        assert go_on.wait(60)
        return real(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(extracts, "_create", slow)
    for part in range(2 * LEAST_ASKED):
        assert look_up(client, part) == expected(part)
    assert begun.wait(60)
    client.cancel_safe()
    time.sleep(0.2)
    assert look_up(client, 5) == expected(5)
    go_on.set()
    until_extracted()
    before = opened(server)
    assert look_up(client, 5) == expected(5)
    assert opened(server) == before


def test_the_server_stops_while_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "create table never as select count(*) from range(1000000000000) t(i) where hash(i) = 1"
    monkeypatch.setattr(extracts, "_create", lambda *_: endless)
    with without_postgres(tmp_path, EVENTS) as server:
        publish(server, 1)
        with psycopg.connect(lake_dsn(server), autocommit=True) as client:
            for part in range(2 * LEAST_ASKED):
                assert look_up(client, part) == expected(part)
    assert "frostline-lake-extract" not in {thread.name for thread in threading.enumerate()}
