"""Look-ups that differ in a number only are answered from rows that are printed already, and the answers are the same."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from psycopg.types.string import TextLoader
from tests.fixtures.lakeserver import StoredTables, column, lake_dsn, stored_in, table, without_postgres
from tests.fixtures.statements import rows
from tests.fixtures.waiting import until_extracted

from frostline.lake import checksums
from frostline.lake.filecheck import Checks
from frostline.model.tiers import BY_TYPNAME, TierKind, to_text
from frostline.model.types import Collation
from frostline.server import extracts, printed, shapes
from frostline.server.keeping import LEAST_ASKED
from frostline.server.listen import LakeServer

NUMBERS = {
    "int2": [-32768, -1, 0, 7, 32767, None],
    "int4": [-(2**31), -1, 0, 7, 2**31 - 1, None],
    "int8": [-(2**63), -1, 0, 7, 2**63 - 1, None],
    "date": [-(2**31) + 1, -800_000, -1, 0, 20_000, 2**31 - 1, None],
    "timestamp": [-(2**63) + 1, -70_000_000_000_000_000, -1, 0, 1_700_000_000_123_456, 2**63 - 1, None],
    "timestamptz": [-(2**63) + 1, -70_000_000_000_000_000, -1, 0, 1_700_000_000_123_456, 2**63 - 1, None],
}
PAYLOAD = [
    column(20, "note", "text", collation=Collation.BYTES),
    column(21, "raw", "bytea"),
    column(22, "price", "numeric", precision=12, scale=2),
    column(23, "ratio", "float8"),
    column(24, "flag", "bool"),
]
COLUMNS = [
    column(1, "id", "int8"),
    column(2, "n", "int4"),
    *(column(10 + place, f"k_{kind}", kind) for place, kind in enumerate(NUMBERS)),
    *PAYLOAD,
]
EVENTS = table(7, COLUMNS, "n", TierKind.INTEGER)
SOURCE = 'public."7[,1000000)"'
ALL = ", ".join(each.name for each in COLUMNS)
ROWS = 2000
"""Of each file."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files here are small, and read in no time."""
    for module in (extracts, printed):
        monkeypatch.setattr(module, "_VALUE_S", 0.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LakeServer]:
    with without_postgres(tmp_path, EVENTS) as server:
        publish(server, 1)
        yield server


@pytest.fixture
def client(server: LakeServer) -> Iterator[psycopg.Connection]:
    with connected(server) as connection:
        yield connection


def connected(server: LakeServer) -> psycopg.Connection:
    """Gets times as the server writes them: Python has neither infinity nor BC."""
    connection = psycopg.connect(lake_dsn(server), autocommit=True)
    for kind in ("date", "timestamp", "timestamptz"):
        connection.adapters.register_loader(kind, TextLoader)
    return connection


def content(first: int, word: str = "note") -> Mapping[str, Sequence[object]]:
    numbers = range(first, first + ROWS)
    texts = [None, "", "ü\n", "tab\t", word]
    floats = [-0.0, 0.0, 1.5, float("nan"), float("inf"), None]
    return {
        "id": [first + ROWS - i for i in range(ROWS)],
        "n": list(numbers),
        **{f"k_{kind}": [pool[i * 7919 % len(pool)] for i in numbers] for kind, pool in NUMBERS.items()},
        "note": [texts[i % len(texts)] for i in numbers],
        "raw": [None if i % 5 == 0 else bytes([i % 256]) for i in numbers],
        "price": [None if i % 3 == 0 else Decimal(i).scaleb(-2) for i in numbers],
        "ratio": [floats[i % len(floats)] for i in numbers],
        "flag": [None if i % 3 == 0 else i % 2 == 0 for i in numbers],
    }


def publish(server: LakeServer, snapshot: int, word: str = "note", files: int = 3) -> None:
    stored_in(server).publish(7, snapshot, *(content(first * ROWS, word) for first in range(files)))


def look_up(
    client: psycopg.Connection, conditions: str, *params: str | None, fetch: int = 100_000, shown: str = ALL
) -> list[tuple[object, ...]]:
    """As postgres_fdw does for a row of another table."""
    client.execute("begin")
    query = f"declare c1 cursor for select {shown} from {SOURCE} where ((frostline_snapshot = $1::bigint)){conditions}"
    psycopg.RawCursor(client).execute(query.encode(), ["1", *params])
    answer: list[tuple[object, ...]] = []
    while batch := [tuple(map(str, row)) for row in rows(client, f"fetch {fetch} from c1")]:
        answer += batch
    client.execute("close c1")
    client.execute("commit")
    return sorted(answer)


def wanted(kind: str) -> list[str]:
    axis = BY_TYPNAME[kind]
    numbers = [number for number in NUMBERS[kind] if number is not None]
    return [to_text(axis, number) for number in numbers] + [to_text(axis, 12_345)]


def printed_bytes(server: LakeServer) -> int:
    return server.backend.engine.extracts.ledgers.size_bytes


def warmed_up(server: LakeServer, client: psycopg.Connection, word: str = "note") -> None:
    for number in range(3 * LEAST_ASKED):
        answer = look_up(client, " and ((k_int8 = $2::bigint))", str(number))
        assert bool(answer) == (number in (0, 7)), number
        assert not answer or word in {str(row[COLUMNS.index(PAYLOAD[0])]) for row in answer}
        until_extracted()
    assert printed_bytes(server) > 0


@pytest.mark.parametrize("kind", list(NUMBERS))
def test_every_kind_of_number_finds_the_same_rows(server: LakeServer, client: psycopg.Connection, kind: str) -> None:
    condition = f" and ((k_{kind} = $2::{kind}))"
    values = wanted(kind)
    constant = f" and ((k_{kind} = '%s'::{kind}))"
    before = {value: look_up(client, constant % value) for value in values}
    for _ in range(LEAST_ASKED):
        assert {value: look_up(client, condition, value) for value in values} == before
        until_extracted()
    opened = server.backend.meter.reading().files_opened
    assert (printed_bytes(server) > 0, {value: look_up(client, condition, value) for value in values}) == (True, before)
    assert sum(map(len, before.values())) == 3 * ROWS - nulls(kind)
    assert server.backend.meter.reading().files_opened == opened


def nulls(kind: str) -> int:
    return sum(content(first * ROWS)[f"k_{kind}"].count(None) for first in range(3))


def test_two_numbers_and_other_conditions(server: LakeServer, client: psycopg.Connection) -> None:
    rest = " and ((n >= 500)) and ((note = 'note'::text)) and (($3::date = k_date)) and ((k_int4 = $2::integer))"
    values = [(number, day) for number in wanted("int4") for day in wanted("date")]
    constants = rest.replace("$3::date", "'{1}'::date").replace("$2::integer", "'{0}'::integer")
    before = [look_up(client, constants.format(*pair)) for pair in values]
    for _ in range(3):
        assert [look_up(client, rest, *pair) for pair in values] == before
        until_extracted()
    assert printed_bytes(server) > 0
    assert any(before)


def test_a_few_rows_at_a_time_and_again_from_the_start(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    condition = " and ((k_int8 = $2::bigint))"
    whole = look_up(client, condition, "7")
    for size in (1, 7, len(whole) - 1, len(whole), len(whole) + 1):
        assert look_up(client, condition, "7", fetch=size) == whole
    client.execute("begin")
    query = f"declare c1 cursor for select {ALL} from {SOURCE} where frostline_snapshot = $1::bigint{condition}"
    psycopg.RawCursor(client).execute(query.encode(), ["1", "7"])
    for _ in range(2):
        first = rows(client, "fetch 5 from c1")
        assert len(first) == 5
        assert len([*first, *rows(client, "fetch all from c1")]) == len(whole)
        assert rows(client, "fetch 5 from c1") == []
        client.execute("move backward all in c1")
    client.execute("rollback")


@pytest.mark.parametrize(
    ("value", "count"), [(None, 0), ("007", 1), ("-0", 1), ("99999999999", 0), (str(2**63 - 1), 1)]
)
def test_what_is_looked_for_may_be_written_in_any_way(
    server: LakeServer, client: psycopg.Connection, value: str | None, count: int
) -> None:
    warmed_up(server, client)
    assert bool(look_up(client, " and ((k_int8 = $2::bigint))", value)) == bool(count)


@pytest.mark.parametrize("value", ["7.5", "", " 7", "x", "99999999999999999999"])
def test_what_is_no_number_is_left_to_postgres(server: LakeServer, client: psycopg.Connection, value: str) -> None:
    """There is none here, and the server says so."""
    warmed_up(server, client)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs Postgres"):
        look_up(client, " and ((k_int8 = $2::bigint))", value)


@pytest.mark.parametrize("name", ["id", "n"])
def test_a_column_of_the_key_decides_on_the_files_each_time(
    server: LakeServer, client: psycopg.Connection, name: str
) -> None:
    """Rows are printed file by file: at the edges of each, in two, and where there is none."""
    kind = {"id": "bigint", "n": "integer"}[name]
    numbers = [-1, *(at for edge in range(0, 4 * ROWS, ROWS) for at in (edge - 1, edge, edge + 1)), 2**31 - 1]
    before = {number: look_up(client, f" and (({name} = '{number}'::{kind}))") for number in numbers}
    assert sum(map(len, before.values())) == 9
    condition = f" and (({name} = $2::{kind}))"
    for _ in range(LEAST_ASKED):
        for number in numbers:
            assert look_up(client, condition, str(number)) == before[number]
            until_extracted()
    opened = server.backend.meter.reading().files_opened
    assert printed_bytes(server) > 0
    assert {number: look_up(client, condition, str(number)) for number in numbers} == before
    assert server.backend.meter.reading().files_opened == opened


def test_a_whole_key_is_looked_up_in_its_file(server: LakeServer, client: psycopg.Connection) -> None:
    condition = " and ((id = $2::bigint)) and ((n = $3::integer))"
    for at in range(4 * LEAST_ASKED):
        number = at * ROWS // 32
        assert len(look_up(client, condition, str(ROWS - number), str(number))) == 1
        assert look_up(client, condition, str(ROWS - number), str(number + 1)) == []
        assert look_up(client, condition, str(ROWS - number), str(number + ROWS)) == []
        until_extracted()
    assert printed_bytes(server) > 0


def test_of_many_files_that_a_key_may_be_in_nothing_is_printed(
    server: LakeServer, client: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "_FEW_FILES", 0)
    for number in range(3 * LEAST_ASKED):
        assert len(look_up(client, " and ((n = $2::integer))", str(number), shown="id")) == 1
        until_extracted()
    assert printed_bytes(server) == 0


def test_a_query_of_very_many_files_is_planned_each_time(
    server: LakeServer, client: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "_MOST_FILES", 2)
    for _ in range(3 * LEAST_ASKED):
        assert look_up(client, " and ((k_int8 = $2::bigint))", "7", shown="note")
        until_extracted()
    assert printed_bytes(server) == 0


def test_without_a_snapshot_the_answer_is_of_the_current_one(server: LakeServer, client: psycopg.Connection) -> None:
    query = f"select note from {SOURCE} where k_int8 = $1::bigint"
    asked = psycopg.RawCursor(client)
    for _ in range(3 * LEAST_ASKED):
        assert ("note",) in asked.execute(query.encode(), ["7"]).fetchall()
    publish(server, 2, "changed")
    answer = asked.execute(query.encode(), ["7"]).fetchall()
    assert (("note",) in answer, ("changed",) in answer) == (False, True)


@pytest.mark.parametrize("checks", list(Checks))
def test_a_file_that_was_replaced_is_read_again(tmp_path: Path, checks: Checks) -> None:
    """By one of the same size: only the time of its last change tells."""
    for folder in ("lake", "other"):
        (tmp_path / folder).mkdir()
    other = StoredTables(tmp_path / "other")
    other.add(EVENTS)
    other.publish(7, 1, *(content(first * ROWS, "efgh") for first in range(3)))
    with (
        without_postgres(tmp_path / "lake", EVENTS, checks=checks) as server,
        connected(server) as client,
    ):
        publish(server, 1, "abcd")
        condition = " and ((k_int8 = $2::bigint))"
        for _ in range(3 * LEAST_ASKED):
            assert ("abcd",) in look_up(client, condition, "7", shown="note")
            until_extracted()
        assert (printed_bytes(server) > 0) == (checks is not Checks.OFF)
        for old, new in zip(stored_in(server).files(7, 1), other.files(7, 1), strict=True):
            assert old.size_bytes == new.size_bytes
            shutil.copy(new.path, old.path)
        answer = look_up(client, condition, "7", shown="note")
        assert (("abcd",) in answer, ("efgh",) in answer) == (False, True)


def test_a_damaged_or_missing_file_is_an_error(server: LakeServer, client: psycopg.Connection) -> None:
    stored = stored_in(server)
    stored.recorded |= {file.path: checksums.of(file.path, lambda: None) for file in stored.files(7, 1)}
    warmed_up(server, client)
    path = Path(stored.files(7, 1)[1].path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(psycopg.Error, match="checksum"):
        look_up(client, " and ((k_int8 = $2::bigint))", "7")
    client.execute("rollback")
    path.unlink()
    with pytest.raises(psycopg.Error, match=path.name):
        look_up(client, " and ((k_int8 = $2::bigint))", "7")


def test_a_table_that_is_described_anew_is_planned_anew(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    renamed = tuple(replace(each, name="k_old" if each.name == "k_int8" else each.name) for each in COLUMNS)
    stored_in(server).add(replace(EVENTS, columns=renamed))
    with pytest.raises(psycopg.errors.UndefinedColumn):
        look_up(client, " and ((k_int8 = $2::bigint))", "7", shown="note")
    client.execute("rollback")
    assert look_up(client, " and ((k_old = $2::bigint))", "7", shown="note")


def test_what_the_engine_forgets_is_read_again(server: LakeServer, client: psycopg.Connection) -> None:
    warmed_up(server, client)
    server.backend.engine.forget()
    before = server.backend.meter.reading().files_opened
    assert look_up(client, " and ((k_int8 = $2::bigint))", "7")
    assert server.backend.meter.reading().files_opened == before + 3


def test_with_little_memory_the_answers_are_the_same(tmp_path: Path) -> None:
    with (
        without_postgres(tmp_path, EVENTS, memory_limit="20MB", threads=1) as server,
        connected(server) as client,
    ):
        publish(server, 1, "x" * 2000)
        first = look_up(client, " and ((k_int8 = $2::bigint))", "7")
        for _ in range(3 * LEAST_ASKED):
            assert look_up(client, " and ((k_int8 = $2::bigint))", "7") == first
            until_extracted()
        assert printed_bytes(server) == 0


def test_four_sessions_at_once_get_the_same_answers(server: LakeServer) -> None:
    wrong: list[object] = []
    with connected(server) as client:
        right = {value: look_up(client, f" and ((k_int4 = {value}))") for value in ("0", "7", "8")}

    def work(seed: int) -> None:
        with connected(server) as client:
            for turn in range(40):
                value = ("0", "7", "8")[(turn + seed) % 3]
                if look_up(client, " and ((k_int4 = $2::integer))", value) != right[value]:
                    wrong.append(value)
                if turn % 15 == seed:
                    server.backend.engine.extracts.clear()

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_extracted()
    assert wrong == []
