"""The lake server answers ORDER BY a column of the key file by file, and look-ups by the files that may have the key."""

import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.fixtures.lakeserver import column, lake_dsn, stored_in, table, without_postgres
from tests.fixtures.statements import rows, run

from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer
from frostline.server.meter import Reading

COLUMNS = [column(1, "id", "int8"), column(2, "n", "int4"), column(3, "note", "text"), column(4, "x", "int8")]
EVENTS = table(7, COLUMNS, "n", TierKind.INTEGER)
SOURCE = 'public."7[,1000000)"'
FILES, ROWS = 400, 25

Row = tuple[int, int, str, int | None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LakeServer]:
    with without_postgres(tmp_path, EVENTS) as server:
        yield server


@pytest.fixture
def client(server: LakeServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(lake_dsn(server), autocommit=True) as connection:
        yield connection


def as_file(found: Sequence[Row]) -> Mapping[str, Sequence[object]]:
    return {name: [row[place] for row in found] for place, name in enumerate(("id", "n", "note", "x"))}


def many_files(server: LakeServer) -> None:
    """The ids rise with the tier key, and each file reaches a little into the next."""
    files = [
        as_file([(10 * i + (i % 3), i + (i % 7), f"note {i}", i % 5) for i in range(first, first + ROWS)])
        for first in range(0, FILES * ROWS, ROWS)
    ]
    stored_in(server).publish(7, 1, *files)


def opened(server: LakeServer, before: Reading) -> int:
    return server.backend.meter.reading().files_opened - before.files_opened


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("select n, id from {s} order by n desc limit 10", 4),
        ("select n, id from {s} order by n limit 10", 4),
        ("select n, id from {s} order by id desc, x limit 10", 4),
        ("select n from {s} order by n desc limit 10 offset 40", 8),
        ("select max(n) from {s}", 2),
        ("select min(n) from {s}", 2),
        ("select max(id) from {s}", 2),
        ("select max(n) from {s} where x = 3", 2),
        ("select min(n) from {s} where n >= 5000", 3),
        ("select n from {s} where n < 5000 order by n desc limit 1", 4),
        ("select note from {s} where id = 50001", 2),
        ("select note from {s} where id = any ('{{50001, 70001, 90001}}'::bigint[])", 6),
        ("select note from {s} where id > 50001 and id < 50040", 3),
        ("select note from {s} where id = -7", 0),
        ("select count(*) from {s} where id <= 100", 2),
    ],
)
def test_a_few_files_are_opened_of_many(server: LakeServer, client: psycopg.Connection, query: str, most: int) -> None:
    many_files(server)
    before = server.backend.meter.reading()
    received = rows(client, query.format(s=SOURCE))
    assert opened(server, before) <= most
    everything = [row for file in _contents(server) for row in file]
    assert received == _expected(query, everything)


def _contents(server: LakeServer) -> list[list[Row]]:
    return [
        [(10 * i + (i % 3), i + (i % 7), f"note {i}", i % 5) for i in range(first, first + ROWS)]
        for first in range(0, FILES * ROWS, ROWS)
    ]


def _expected(query: str, every: list[Row]) -> list[tuple[Any, ...]]:
    """By SQLite's own judgement, which shares nothing with the lake server."""
    with sqlite3.connect(":memory:") as judge:
        judge.execute("create table s (id, n, note, x)")
        judge.executemany("insert into s values (?, ?, ?, ?)", every)
        text = query.replace("= any ('{{", "in (").replace("}}'::bigint[])", ")").format(s="s")
        return judge.execute(text).fetchall()


def test_a_cursor_that_is_closed_early_has_opened_a_few_files(server: LakeServer, client: psycopg.Connection) -> None:
    """As postgres_fdw asks when it merges the lake with the heap: no LIMIT, and nobody reads to the end."""
    many_files(server)
    before = server.backend.meter.reading()
    client.execute("start transaction")
    client.execute(f"declare c1 cursor for select n, id from {SOURCE} order by n desc nulls first")
    assert opened(server, before) == 0
    first = rows(client, "fetch 30 from c1")
    assert opened(server, before) <= 4
    second = rows(client, "fetch 30 from c1")
    assert opened(server, before) <= 8
    client.execute("move backward all in c1")
    assert rows(client, "fetch 60 from c1") == first + second
    client.execute("close c1")
    client.execute("commit")
    expected = sorted(((row[1] for file in _contents(server) for row in file)), reverse=True)[:60]
    assert [row[0] for row in first + second] == expected


@pytest.mark.parametrize(("offset", "step"), [(0, 17_543), (25_000, 9_999)])
def test_segments_of_several_batches_come_in_order(
    server: LakeServer, client: psycopg.Connection, offset: int, step: int
) -> None:
    """What comes after the first batch of a segment is printed before it is asked for."""
    each = 35_000
    files = [
        as_file([(number, number, f"note {number}", None) for number in range(first, first + each)])
        for first in range(0, 3 * each, each)
    ]
    stored_in(server).publish(7, 1, *files)
    client.execute("start transaction")
    run(client, f"declare c1 cursor for select n, note from {SOURCE} order by n desc offset {offset}")
    found: list[tuple[Any, ...]] = []
    while part := rows(client, f"fetch {step} from c1"):
        found += part
    assert found == [(number, f"note {number}") for number in range(3 * each - 1 - offset, -1, -1)]
    client.execute("commit")


def test_a_snapshot_that_has_moved_has_its_own_files(server: LakeServer, client: psycopg.Connection) -> None:
    stored_in(server).publish(7, 1, as_file([(1, 1, "a", None)]), as_file([(2, 2, "b", None)]))
    query = f"select max(n) from {SOURCE}"
    assert rows(client, query) == [(2,)]
    look_up = f"select note from {SOURCE} where id = 9"
    assert rows(client, look_up) == []
    stored_in(server).publish(7, 2, as_file([(1, 1, "a", None)]), as_file([(9, 3, "c", None)]))
    assert rows(client, query) == [(3,)]
    assert rows(client, look_up) == [("c",)]
    assert rows(client, f"{query} where frostline_snapshot = 1") == [(2,)]
    assert rows(client, f"{look_up} and frostline_snapshot = 1") == []


def test_the_largest_value_of_no_row_is_null(server: LakeServer, client: psycopg.Connection) -> None:
    many_files(server)
    assert rows(client, f"select max(n) from {SOURCE} where x = 99") == [(None,)]
    assert rows(client, f"select n from {SOURCE} where x = 99 order by n limit 3") == []


@pytest.mark.parametrize("seed", range(40))
def test_any_order_is_that_of_one_sort(server: LakeServer, client: psycopg.Connection, seed: int) -> None:
    """Files that overlap or not, ties, NULLs in the other columns, conditions, any limit, read in pieces."""
    chance = random.Random(seed)
    span = chance.choice([4, 40, 4000])
    files: list[list[Row]] = []
    for number in range(chance.randint(1, 9)):
        middle, width = chance.randint(0, span), chance.choice([0, 2, span])
        made = [
            (
                chance.randint(0, span),
                chance.randint(middle, middle + width),
                f"{number}.{i}",
                chance.choice([None, 1, 2]),
            )
            for i in range(chance.randint(1, 40))
        ]
        files.append(made)
    stored_in(server).publish(7, 1, *map(as_file, files))
    all_rows = [row for file in files for row in file]
    for _ in range(8):
        key, direction = chance.choice(["n", "id"]), chance.choice(["asc", "desc"])
        nulls = chance.choice(["", "nulls first", "nulls last"])
        further = chance.choice(
            ["", ", x desc nulls last", f", id desc, n, x nulls {chance.choice(['first', 'last'])}"]
        )
        where = chance.choice(["", "x = 1", f"n < {span // 2}", f"id >= {span // 2}", f"n = {span // 3}", "x is null"])
        limit = chance.choice(["", f"limit {chance.randint(0, 50)}", f"limit {chance.randint(0, 9)} offset 7"])
        tail = f"{'where ' + where if where else ''} order by {key} {direction} {nulls} {further}"
        keys = f"select {key}" + (", x" if "x desc" in further else ", id, n, x" if further else "")
        query = f"{keys} from {{s}} {tail} {limit}"
        assert _in_pieces(client, query.format(s=SOURCE), chance) == _expected(query, all_rows), query
        whole = sorted(rows(client, f"select note from {SOURCE} {tail}"))
        assert whole == sorted(_expected(f"select note from s {tail}", all_rows)), tail
        extreme = f"select {chance.choice(['min', 'max'])}({key}) from {{s}} {'where ' + where if where else ''}"
        assert rows(client, extreme.format(s=SOURCE)) == _expected(extreme, all_rows), extreme


def _in_pieces(client: psycopg.Connection, query: str, chance: random.Random) -> list[tuple[Any, ...]]:
    received: list[tuple[Any, ...]] = []
    with client.transaction():
        run(client, f"declare c1 cursor for {query}")
        while piece := rows(client, f"fetch {chance.randint(1, 60)} from c1"):
            received += piece
    return received


TEXTS = table(8, [column(1, "id", "uuid"), column(2, "n", "int8"), column(3, "note", "text")], "n", TierKind.BIGINT)


def test_a_key_of_text_is_looked_for_where_it_may_be(server: LakeServer, client: psycopg.Connection) -> None:
    """Identifiers that begin with the time, as UUIDs of version 7 do, rise with the tier key."""
    stored_in(server).add(TEXTS)
    ids = [str(UUID(int=(number << 80) + (number * 7919) % 65536)) for number in range(100)]
    files = [
        {"id": ids[first : first + 10], "n": list(range(first, first + 10)), "note": ids[first : first + 10]}
        for first in range(0, 100, 10)
    ]
    stored_in(server).publish(8, 1, *files)
    before = server.backend.meter.reading()
    texts = 'public."8[,1000000)"'
    assert rows(client, f"select n from {texts} where id = '{ids[55].upper()}'") == [(55,)]
    assert opened(server, before) == 1
    two = f"select n from {texts} where id = any ('{{{ids[7]}, {ids[99]}}}'::uuid[]) order by n"
    assert rows(client, two) == [(7,), (99,)]
    assert opened(server, before) == 3
