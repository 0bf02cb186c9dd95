"""Written rows on their whole way: into the relation, through archive, overlay and fold, and out again unchanged."""

import itertools
import re
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run
from tests.fixtures.twins import WHERE, Twins, answer, make_twins

from frostline.observe import status
from frostline.pipeline import verify
from frostline.relation import policy
from frostline.server.listen import LakeServer
from frostline.server.provider import CatalogTables

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "writing.md"

TABLE = """
create table public.{name} (
    id int, day date, n int not null default 0, txt text, vc varchar(40), f4 real, f8 double precision, num numeric,
    num2 numeric(12,2), d date, tm time, tmz timetz, ts timestamp, tstz timestamptz, iv interval, raw bytea, js json,
    jsb jsonb, ints int[], texts text[], floats double precision[], u uuid, b boolean, primary key (id, day)
) {partitioned}"""
TEXTS = [
    "it's", '"quoted"', "$$ dollar $tag$ x $tag$ $$", "back\\slash \\n \\\\ \\x41 \\N", "x' RETURNING *; --", "RETURNING id",
    "'2024-01-01'::date::text", "cast('a' as int)", ":name %s %(a)s {t} ? $1", "emoji \U0001f9ca\u200d\u2744\ufe0f", "a\x1fb\x1f",
    "\x01\x02\x7f", "\t\r\n \n", "", " ", "  both  ", "NULL", "null", "\\N", "é e\u0301 ß İ", "\ufeffbom", "\u2028", "{}", "m" * 1_000_000,
]  # fmt: skip
VALUES: dict[str, list[str]] = {
    "txt": TEXTS,
    "vc": ["", "it's \\", "\x1f"],
    "f4": ["NaN", "Infinity", "-Infinity", "-0", "0", "1e-45", "3.4028235e38", "0.1"],
    "f8": ["NaN", "Infinity", "-Infinity", "-0", "0", "5e-324", "1.7976931348623157e308", "0.1"],
    "num": ["NaN", "Infinity", "-Infinity", "1.500", "0.00", "-12345678901234567890.5", "1e-100"],
    "num2": ["-9999999999.99", "0.10"],
    "d": ["0044-03-15 BC", "4713-01-01 BC", "infinity", "-infinity", "5874897-12-31"],
    "tm": ["24:00:00", "00:00:00", "23:59:59.999999"],
    "tmz": ["24:00:00+00", "24:00:00-15:59", "12:00:00.000001+05:30"],
    "ts": ["0044-03-15 12:00:00.000001 BC", "infinity", "-infinity", "4713-01-01 00:00:00 BC"],
    "tstz": ["0044-03-15 12:00:00.000001+00 BC", "infinity", "-infinity", "1883-11-18 12:03:57-05"],
    "iv": ["1 mon -1 days +00:00:00.000001", "-178000000 years", "0"],
    "raw": ["\\x", "\\x00", "\\x5c78271f00ff", "\\x" + "00ff" * 3000],
    "js": ['{"b": 1, "a":  [1.0, null]}', '"\\u00e9"', "null"],
    "jsb": ['{"a": {"b": [[], {}, {"c": [null, "it\'s \\\\ \\u001f"]}]}}', "null", '"x"', "1.500", "[]"],
    "ints": ["{{1,2},{3,NULL}}", "{}", "[0:1]={7,8}", "{{{1}},{{2}}}", "{NULL}"],
    "texts": ['{{"a,b","\\"q\\""},{NULL,"NULL"}}', '{""}', '{"\\\\","{}"}'],
    "floats": ["{-0,NaN,Infinity}", "{{0.1},{1e-320}}"],
    "u": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "b": ["t", "f"],
}


@pytest.fixture
def zoo(lake: Lake) -> Lake:
    """`zoo`, with a partition for January 2024, and `plain_zoo`."""
    run(lake.catalog, TABLE.format(name="zoo", partitioned="partition by range (day)"))
    run(lake.catalog, TABLE.format(name="plain_zoo", partitioned=""))
    run(
        lake.catalog,
        "create table public.zoo_1 partition of public.zoo for values from ('2024-01-01') to ('2024-02-01')",
    )
    lake.add("zoo")
    return lake


def insert_all(connection: psycopg.Connection, first_id: int, day: str) -> int:
    """One row for each hard value, into both tables; the next free id."""
    number = first_id
    for column, texts in VALUES.items():
        for text in [*texts, None]:
            for name in ("zoo", "plain_zoo"):
                statement = f"insert into public.{name} (id, day, {column}) values (%s, %s, %s)"
                run(connection, statement, (number, day, text))
            number += 1
    return number


def literals() -> list[str]:
    """The texts again, as SQL literals, each in three ways to quote."""
    texts: list[str] = []
    for text in (text for text in TEXTS if len(text) < 1000):
        escaped = "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        texts += ["'" + text.replace("'", "''") + "'", escaped, f"$frost${text}$frost$"]
    return texts


def insert_literals(connection: psycopg.Connection, first_id: int, day: str) -> None:
    for number, literal in enumerate(literals(), first_id):
        for name in ("zoo", "plain_zoo"):
            run(connection, f"insert into public.{name} (id, day, txt) values ({number}, '{day}', {literal})")


def update_literals(connection: psycopg.Connection, first_id: int) -> None:
    """Each row gets the text of another one."""
    for number, literal in enumerate(reversed(literals()), first_id):
        for name in ("zoo", "plain_zoo"):
            assert run(connection, f"update public.{name} set txt = {literal} where id = {number}").rowcount == 1


def same_bytes(lake: Lake) -> None:
    """Both tables, in Postgres' binary format, byte by byte."""
    with lake.connect() as connection:
        sent: list[bytes] = []
        for name in ("zoo", "plain_zoo"):
            statement = f"copy (select * from public.{name} order by id, day) to stdout (format binary)"
            with connection.cursor().copy(statement) as copy:
                sent.append(b"".join(bytes(block) for block in copy))
    assert len(sent[0]) > 1_000_000
    assert sent[0] == sent[1]


def test_every_value_arrives_byte_for_byte(zoo: Lake) -> None:
    with zoo.connect() as connection:
        first_cold = insert_all(connection, 1, "2024-01-05")
        insert_literals(connection, 5000, "2024-01-06")
        same_bytes(zoo)
        (archived,) = zoo.archive()
        assert archived.error is None
        assert zoo.clean("zoo").waiting == ()
        same_bytes(zoo)
        insert_all(connection, first_cold + 1000, "2023-06-06")  # below the frost line: into the overlay
        insert_literals(connection, 6000, "0044-03-15 BC")
        insert_literals(connection, 7000, "-infinity")
        update_literals(connection, 5000)
        for name in ("zoo", "plain_zoo"):
            run(connection, f"update public.{name} set n = n + 1 where id % 2 = 0")
    same_bytes(zoo)
    (folded,) = zoo.fold()
    assert (folded.error, folded.marks - folded.taken) == (None, 0)
    same_bytes(zoo)
    with zoo.connect() as connection:
        for name in ("zoo", "plain_zoo"):
            run(connection, f"update public.{name} set n = n + 1 where id % 3 = 0")
    same_bytes(zoo)
    assert zoo.fold()[0].error is None
    same_bytes(zoo)
    assert verify.run(zoo.catalog, zoo.table("zoo")).faults == ()


STRICT = """
create table public.{name} (
    id int, k int, code public.code, note text, n int, twice int generated always as (n * 2) {virtual}, primary key (id, k)
) {partitioned}"""
STRICT_CHANGES = [
    "delete from {t} where id in (1, 150)",
    "update {t} set n = n + 1 where id in (2, 3, 151) returning *",
    "update {t} set note = 'again' where id in (2, 151) returning *",
    "delete from {t} where id in (3, 151) returning *",
    "update {t} set k = 160 where id in (4, 5) returning *",
    "update {t} set k = 40 where id in (152, 153) returning *",
    "update {t} set id = id + 1000, code = 'moved' where id in (6, 152, 154) returning *",
    "delete from {t} where id in (4, 153, 1006) returning *",
    "insert into {t} (id, k, code, n) values (2000, 50, 'x', 1), (2001, 150, 'y', 2), (3, 3, 'back', 3) returning *",
]


@pytest.fixture
def strict(lake: Lake) -> Lake:
    """`strict`, with a column that refuses NULL by its type and a computed one, and `plain_strict`."""
    run(lake.catalog, "create domain public.code as text not null check (value <> '')")
    virtual = "virtual" if lake.catalog.info.server_version >= 180000 else "stored"
    for name, partitioned in (("strict", "partition by range (k)"), ("plain_strict", "")):
        run(lake.catalog, STRICT.format(name=name, partitioned=partitioned, virtual=virtual))
    for number in (0, 1):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(lake.catalog, f"create table public.strict_{number} partition of public.strict for values {bounds}")
    for name in ("strict", "plain_strict"):
        run(lake.catalog, f"insert into public.{name} select i, i, 'c' || i, 'n', i from generate_series(0, 199) i")
    lake.add("strict", hot="99")
    assert lake.archive("strict")[0].rows == 100
    assert lake.clean("strict").waiting == ()
    return lake


def test_types_that_refuse_null_and_computed_columns(strict: Lake) -> None:
    """A mark of a deleted row has no image; what the trigger sees of a virtual column is nothing."""
    with strict.connect() as connection:
        for statement in STRICT_CHANGES:
            got = [answer(connection, statement.format(t=f"public.{name}")) for name in ("strict", "plain_strict")]
            assert got[0] == got[1], statement
            same_rows(connection)
        (folded,) = strict.fold("strict")
        assert (folded.error, folded.marks - folded.taken) == (None, 0)
        same_rows(connection)


def same_rows(connection: psycopg.Connection) -> None:
    stored = [rows(connection, f"select * from public.{name} order by id, k") for name in ("strict", "plain_strict")]
    assert stored[0] == stored[1]


@pytest.fixture
def written(lake: Lake) -> Lake:
    """The twins, in a lake where a test may commit."""
    make_twins(lake)
    return lake


@contextmanager
def committed(lake: Lake) -> Generator[Twins]:
    with lake.connect() as connection:
        run(connection, "set search_path = public; set timezone = 'UTC'")
        yield Twins(connection, lake.settings.lake_port)


def test_rows_that_move_between_tiers_are_there_exactly_once_and_leave_no_ghost(written: Lake) -> None:
    with committed(written) as twins:
        for _ in range(2):
            twins.both("update {t} set ts = ts + interval '66 years' where id in (1, 2, 21)")
            twins.both("update {t} set ts = ts - interval '66 years' where id in (61, 62, 63)")
            twins.both("update {t} set ts = ts + interval '1 month' where id in (5, 25, 45)")
            twins.both("update {t} set id = id + 300 where id in (9, 29, 69)")
            (folded,) = written.fold("events")
            assert (folded.error, folded.marks - folded.taken) == (None, 0)
            twins.compare()
            twins.both("update {t} set ts = ts - interval '66 years' where id in (1, 2, 21)")
            twins.both("update {t} set ts = ts + interval '66 years' where id in (61, 62, 63)")
            twins.both("update {t} set id = id - 300 where id in (309, 329, 369)")
            twins.both("select id, count(*) from {t} group by id having count(*) > 1")
            written.fold("events")
            twins.compare()
    assert verify.run(written.catalog, written.table()).faults == ()


def test_writes_while_the_lake_server_is_down(written: Lake) -> None:
    """What needs no row of the lake goes on: hot rows, and rows below the line that the overlay or the heap knows."""
    with committed(written) as twins:
        twins.both("delete from {t} where id in (1, 2, 61)")
        twins.both("update {t} set status = 'known' where id in (3, 4, 5)")
    written.server.stop()
    with committed(written) as twins:
        for statement in (
            "insert into {t} (id, ts, status) values (1, '2024-01-01 01:00+00', 'back')",
            "update {h} set status = 'directly' where id = 3",
            "delete from {h} where id = 4",
            "update {h} set ts = '2090-05-05' where id = 5",
            "update {t} set status = 'hot' where id = 70 and ts >= '2090-01-01'",
            "insert into {t} (id, ts) values (2001, '2090-01-01')",
            "set frostline.check_cold_keys = off",
            "insert into {t} (id, ts) select i, '2024-02-02' from generate_series(2002, 2100) i",
        ):
            names = ({"t": "events", "h": "_events"}, {"t": "plain", "h": "plain"})
            tags = [run(twins.connection, statement.format(**name)).statusmessage for name in names]
            assert tags[0] == tags[1], statement
        run(twins.connection, "reset frostline.check_cold_keys")
        insert = "insert into events (id, ts) values (9, '2024-02-02')"
        for statement in ("update events set status = 'x' where id = 9", insert):
            with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="frostline_lake"):
                run(twins.connection, statement)
    provider = CatalogTables(written.dsn)
    port, warehouse = written.settings.lake_port, str(written.warehouse)
    again = LakeServer("127.0.0.1", port, provider, "frostline", "secret", written.dsn, warehouse=warehouse)
    again.start()
    try:
        with committed(written) as twins:
            twins.compare()
    finally:
        again.stop()


@pytest.mark.parametrize("pair", [(65, 66), (7, 27), (7, 66)], ids=["hot", "cold", "both"])
def test_serializable_refuses_what_no_order_explains(written: Lake, pair: tuple[int, int]) -> None:
    """Each of two transactions reads the row that the other one writes; a plain table refuses it too."""
    for name in ("plain", "events"):
        with written.connect() as first, written.connect() as second:
            for connection, (read, changed) in ((first, pair), (second, pair[::-1])):
                run(connection, "begin isolation level serializable")
                assert rows(connection, f"select amount from public.{name} where id = {read}")
                assert run(connection, f"update public.{name} set amount = 0 where id = {changed}").rowcount == 1
            run(first, "commit")
            with pytest.raises(psycopg.errors.SerializationFailure):
                run(second, "commit")
    with committed(written) as twins:
        twins.compare()


def test_status_says_when_a_fold_is_due(written: Lake) -> None:
    def due() -> tuple[int, bool, str | None]:
        (state,) = status.read(written.catalog).tables
        return state.lake.overlay_rows, state.lake.overlay_age_s is not None, state.fold_due

    assert due() == (0, False, None)
    with committed(written) as twins:
        twins.both(f"update {{t}} set status = 'x' where {WHERE['cold']} and id <= 10")
    assert due() == (10, True, None)
    policy.change(written.catalog, written.table(), fold_rows=10)
    assert due() == (10, True, "10 changed cold rows, at least 10")
    policy.change(written.catalog, written.table(), fold_rows=11, fold_age="1 hour")
    assert due() == (10, True, None)
    overlay = f"frostline_overlay.events_{written.table().id}"
    run(written.catalog, f"update {overlay} set frostline_marked_at = now() - interval '2 hours' where id = 1")
    assert due() == (10, True, "a changed cold row older than fold_age")
    written.fold("events")
    assert due() == (0, False, None)


@pytest.mark.slow
def test_the_retry_loop_of_the_guide_makes_counters_exact(written: Lake) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)

    def count(connection: psycopg.Connection) -> None:
        connection.execute("update public.events set amount = amount + 1 where id in (30, 70)")

    def work() -> None:
        with written.connect() as connection:
            for _ in range(10):
                names["with_retry"](connection, count, 100)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result()
    assert written.value(
        "select array_agg(amount - (id - 1) % 20 - 1 order by id) from public.events where id in (30, 70)"
    ) == [30, 30]


def test_a_cold_write_never_waits_long_for_a_job(written: Lake) -> None:
    """While archive, fold and clean run: no lock takes 100 ms, and nothing fails but with 40001."""
    run(
        written.catalog,
        "create table public.events_4 partition of public._events for values from ('2024-04-01 00:00+00') to ('2024-05-01 00:00+00')",
    )
    run(
        written.catalog,
        "insert into public.events (ts) select timestamptz '2024-04-02' + i * interval '1 min' from generate_series(1, 2000) i",
    )
    over = threading.Event()
    written_rows = Counter[str]()

    def write() -> None:
        with written.connect() as connection:
            connection.execute("set lock_timeout = '100ms'")
            for turn in itertools.cycle(range(1, 61)):
                if over.is_set():
                    return
                for statement in (
                    f"update public.events set amount = amount + 1 where id = {turn}",
                    f"update public.events set status = 'x' where ts = timestamptz '2024-04-02' + {turn} * interval '1 min'",
                    "insert into public.events (ts) values ('2024-02-02'), ('2024-04-04')",
                    f"delete from public.events where ts = timestamptz '2024-04-02' + {turn + 100} * interval '1 min'",
                ):
                    try:
                        written_rows["rows"] += run(connection, statement).rowcount
                    except psycopg.errors.SerializationFailure:
                        written_rows["40001"] += 1

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(3):
                assert [result.error for result in (*written.archive("events"), *written.fold("events"))] == [
                    None,
                    None,
                ]
                written.clean()
        finally:
            over.set()
        writing.result()
    assert written_rows["rows"] > 0
