"""When an extract is made of files that look-ups read, what it may take, and when it goes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from tests.fixtures.lakeserver import column
from tests.fixtures.waiting import until_extracted

from frostline.lake import duckfiles, ducksql
from frostline.server import extracts as module
from frostline.server.engine import Engine
from frostline.server.extracts import Extracts, Key, Lookup, Shortcut
from frostline.server.keeping import LEAST_ASKED, Stamps
from frostline.server.translate import duck

K, NOTE = column(1, "k", "int8"), column(2, "note", "text")
ROWS = 1000
ONCE: Stamps = ((1, 1),)
SLOW_S = 1.0
"""A look-up that took longer than any extract here."""


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path)
    yield engine
    engine.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def extracts(engine: Engine, clock: Clock) -> Extracts:
    engine.extracts = Extracts(engine._cursor, engine.result_memory, clock)  # pyright: ignore[reportPrivateUsage]
    return engine.extracts


@pytest.fixture
def lookup(tmp_path: Path) -> Lookup:
    return written(tmp_path / "a.parquet")


def written(path: Path, rows: int = ROWS, note: str = "'n' || i") -> Lookup:
    ids = "{'k': 1, 'note': 2}"
    with duckdb.connect() as connection:
        made = f"select {rows} - i as k, {note} as note from range({rows}) t(i)"
        connection.execute(f"copy ({made}) to '{path}' (format parquet, field_ids {ids})")
    named = {duck.name(read_column): read_column for read_column in (K, NOTE)}
    relation = duckfiles.read_parquet([ducksql.literal(str(path))], named.items())
    size_bytes = path.stat().st_size
    return Lookup(relation, rows, size_bytes, (K, NOTE), (duck.column(K),), lambda source: asked_of(source, 7))


def asked_of(source: str, k: int) -> str:
    return f"select {duck.column(NOTE)} from {source} where {duck.column(K)} = {k}"


def key_of(lookup: Lookup, stamps: Stamps = ONCE) -> Key:
    return lookup.relation, lookup.columns, lookup.by, stamps


def ask(extracts: Extracts, lookup: Lookup, times: int, seconds: float = SLOW_S, stamps: Stamps = ONCE) -> None:
    """So many look-ups that have no extract; returns when nothing is being made."""
    for _ in range(times):
        extracts.spent(key_of(lookup, stamps), lookup, seconds, lambda: stamps)
        until_extracted()


def tables(engine: Engine) -> int:
    with engine._cursor() as connection:  # pyright: ignore[reportPrivateUsage]
        row = connection.execute("select count(*) from duckdb_tables()").fetchone()
    return int(row[0]) if row else 0


def test_an_extract_is_made_after_a_few_look_ups(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    ask(extracts, lookup, LEAST_ASKED - 1)
    assert extracts.find(key_of(lookup)) is None
    ask(extracts, lookup, 1)
    table = extracts.find(key_of(lookup))
    assert table is not None
    with engine._cursor() as connection:  # pyright: ignore[reportPrivateUsage]
        rows = connection.execute(f"select {duck.column(K)} from {table} order by rowid").fetchall()
    assert rows == [(k,) for k in range(1, ROWS + 1)]


def test_not_before_they_took_as_long_as_it_will(extracts: Extracts, lookup: Lookup) -> None:
    ask(extracts, lookup, 100, seconds=lookup.build_s / 101)
    assert extracts.find(key_of(lookup)) is None
    ask(extracts, lookup, 1, seconds=lookup.build_s)
    assert extracts.find(key_of(lookup)) is not None


def test_look_ups_that_come_now_and_then_do_not_count(extracts: Extracts, lookup: Lookup, clock: Clock) -> None:
    for _ in range(3 * LEAST_ASKED):
        ask(extracts, lookup, 1)
        clock.now += 11
    assert extracts.find(key_of(lookup)) is None


def test_each_kind_of_look_up_counts_for_itself(extracts: Extracts, lookup: Lookup, tmp_path: Path) -> None:
    other = written(tmp_path / "b.parquet")
    ask(extracts, lookup, LEAST_ASKED - 1)
    ask(extracts, other, LEAST_ASKED - 1)
    ask(extracts, lookup, LEAST_ASKED - 1, stamps=((2, 2),))
    assert extracts.size_bytes == 0


def test_it_is_dropped_when_nobody_asks_for_it(
    engine: Engine, extracts: Extracts, lookup: Lookup, clock: Clock
) -> None:
    ask(extracts, lookup, LEAST_ASKED)
    clock.now += 59
    extracts.drop_idle()
    assert extracts.find(key_of(lookup)) is not None
    clock.now += 59
    extracts.drop_idle()
    assert tables(engine) == 1
    clock.now += 2
    extracts.drop_idle()
    assert (extracts.find(key_of(lookup)), tables(engine), extracts.size_bytes) == (None, 0, 0)


def test_when_the_engine_forgets_so_do_they(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    ask(extracts, lookup, LEAST_ASKED)
    engine.forget()
    assert (extracts.find(key_of(lookup)), tables(engine)) == (None, 0)
    ask(extracts, lookup, LEAST_ASKED)
    assert tables(engine) == 1


def test_one_that_was_begun_before_is_not_kept(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    def forgetting() -> Stamps:
        engine.extracts.clear()
        return ONCE

    for _ in range(LEAST_ASKED):
        extracts.spent(key_of(lookup), lookup, SLOW_S, forgetting)
    until_extracted()
    assert (extracts.find(key_of(lookup)), tables(engine)) == (None, 0)


@pytest.mark.parametrize("found", [((1, 2),), None])
def test_one_of_files_that_changed_meanwhile_is_not_kept(
    engine: Engine, extracts: Extracts, lookup: Lookup, found: Stamps | None
) -> None:
    for _ in range(LEAST_ASKED):
        extracts.spent(key_of(lookup), lookup, SLOW_S, lambda: found)
    until_extracted()
    assert (extracts.find(key_of(lookup)), tables(engine)) == (None, 0)


def test_those_asked_for_longest_ago_make_room(
    engine: Engine, extracts: Extracts, clock: Clock, tmp_path: Path
) -> None:
    """100 MB have room for 12.5 MB of extracts: each of these takes five."""
    large = [written(tmp_path / f"{name}.parquet", 40_000, "repeat('x', 80)") for name in "abc"]
    for made in large[:2]:
        ask(extracts, made, LEAST_ASKED)
    clock.now += 11
    assert extracts.find(key_of(large[0])) is not None
    ask(extracts, large[2], LEAST_ASKED)
    assert [extracts.find(key_of(made)) is not None for made in large] == [True, False, True]
    assert (tables(engine), extracts.size_bytes <= 12_500_000) == (2, True)


@pytest.mark.parametrize("note", ["repeat('x', 100)", "repeat('x', 200) || i"])
def test_a_large_one_is_compressed(engine: Engine, extracts: Extracts, tmp_path: Path, note: str) -> None:
    """It takes more than the 12.5 MB of all extracts together only while it is made."""
    large = written(tmp_path / "large.parquet", 100_000, note)
    ask(extracts, large, LEAST_ASKED)
    assert (extracts.find(key_of(large)) is not None, 0 < extracts.size_bytes < 12_500_000) == (True, True)
    assert in_tables(engine) <= extracts.size_bytes
    assert run(engine, large, []) == [
        ("x" * (100 if note.endswith("100)") else 200)) + ("99993" if "i" in note else "")
    ]


def test_what_stays_large_when_it_is_compressed_is_dropped(
    engine: Engine, extracts: Extracts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts._kept, "share_bytes", 3_000_000)  # pyright: ignore[reportPrivateUsage]
    large = written(tmp_path / "large.parquet", 100_000, "md5(i::varchar) || md5(i || ' ')")
    ask(extracts, large, 3 * LEAST_ASKED)
    assert (extracts.find(key_of(large)), tables(engine), in_tables(engine)) == (None, 0, 0)


@pytest.mark.parametrize("note", ["repeat('x', 400)", "''"])
def test_there_is_none_of_what_is_too_large(engine: Engine, extracts: Extracts, tmp_path: Path, note: str) -> None:
    """Whether that is known from the number of rows or has to be looked at."""
    huge = written(tmp_path / "huge.parquet", 900_000 if note == "''" else 80_000, note)
    ask(extracts, huge, 3 * LEAST_ASKED)
    assert (extracts.find(key_of(huge)), tables(engine)) == (None, 0)


def test_nor_while_half_of_the_memory_is_in_use(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    rows = engine.run("select i::varchar, repeat('x', 1000) || i from range(70000) t(i) order by hash(i)")
    next(iter(rows))
    ask(extracts, lookup, 3 * LEAST_ASKED)
    assert (extracts.find(key_of(lookup)), tables(engine)) == (None, 0)
    rows.close()


def test_a_failure_is_nobodys_and_is_not_repeated_at_once(
    engine: Engine, extracts: Extracts, lookup: Lookup, tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "a.parquet").rename(tmp_path / "away")
    ask(extracts, lookup, LEAST_ASKED)
    (tmp_path / "away").rename(tmp_path / "a.parquet")
    ask(extracts, lookup, LEAST_ASKED)
    assert extracts.find(key_of(lookup)) is None
    clock.now += 61
    ask(extracts, lookup, LEAST_ASKED)
    assert extracts.find(key_of(lookup)) is not None


def run(engine: Engine, lookup: Lookup, told: list[bool]) -> list[str]:
    shortcut = Shortcut(engine.extracts, lookup, lambda: ONCE, told.append)
    rows = engine.run(lookup.on(lookup.relation), shortcut=shortcut)
    texts = [str(value) for batch in rows for value in batch.column(0).to_pylist()]
    rows.close()
    return texts


def test_a_query_takes_the_shortcut_once_it_is_there(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    told: list[bool] = []
    assert run(engine, lookup, told) == ["n993"]
    ask(extracts, lookup, LEAST_ASKED)
    assert run(engine, lookup, told) == ["n993"]
    assert told == [False, True]


def test_one_that_was_dropped_under_a_query_is_done_without(
    engine: Engine, extracts: Extracts, lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts, "find", lambda _: "extract_0")
    told: list[bool] = []
    assert run(engine, lookup, told) == ["n993"]
    assert told == [False]


def test_who_reads_from_one_reads_on_when_it_is_dropped(engine: Engine, extracts: Extracts, tmp_path: Path) -> None:
    many = written(tmp_path / "b.parquet", 60_000)
    ask(extracts, many, LEAST_ASKED)
    table = extracts.find(key_of(many))
    rows = engine.run(f"select {duck.column(NOTE)} from {table}", batch_rows=2048)
    batches = iter(rows)
    count = next(batches).num_rows
    extracts.clear()
    assert tables(engine) == 0
    assert count + sum(batch.num_rows for batch in batches) == 60_000
    rows.close()


def test_when_memory_runs_out_they_give_way(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    ask(extracts, lookup, LEAST_ASKED)
    rows = engine.run("select list(i) from range(30000000) t(i)")
    with pytest.raises(Exception, match="memory"):
        list(rows)
    rows.close()
    assert (extracts.find(key_of(lookup)), tables(engine)) == (None, 0)


def test_many_threads_get_one_extract_and_the_right_rows(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    told, wrong = list[bool](), list[object]()

    def work() -> None:
        for _ in range(40):
            received = run(engine, lookup, told)
            if received != ["n993"]:
                wrong.append(received)
            ask_without_waiting(extracts, lookup)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_extracted()
    assert (wrong, tables(engine)) == ([], 1)
    assert True in told


def ask_without_waiting(extracts: Extracts, lookup: Lookup) -> None:
    if extracts.find(key_of(lookup)) is None:
        extracts.spent(key_of(lookup), lookup, SLOW_S, lambda: ONCE)


def test_what_is_dropped_takes_no_memory_while_others_read(
    engine: Engine, extracts: Extracts, lookup: Lookup, tmp_path: Path
) -> None:
    """A client that leaves a large result open holds nothing but that."""
    large = written(tmp_path / "large.parquet", 300_000)
    with engine._cursor() as slow:  # pyright: ignore[reportPrivateUsage]
        reader = slow.execute(f"select * from {large.relation}").to_arrow_reader(1000)
        reader.read_next_batch()
        ask(extracts, lookup, LEAST_ASKED)
        assert in_tables(engine) > 0
        extracts.clear()
        assert in_tables(engine) == 0
        reader.read_next_batch()


def in_tables(engine: Engine) -> int:
    with engine._cursor() as connection:  # pyright: ignore[reportPrivateUsage]
        row = connection.execute(
            "select memory_usage_bytes from duckdb_memory() where tag = 'IN_MEMORY_TABLE'"
        ).fetchone()
    return int(row[0]) if row else 0


def test_one_whose_files_cannot_be_looked_at_is_not_left_behind(
    engine: Engine, extracts: Extracts, lookup: Lookup
) -> None:
    def away() -> Stamps:
        raise OSError("stale file handle")

    for _ in range(LEAST_ASKED):
        extracts.spent(key_of(lookup), lookup, SLOW_S, away)
        until_extracted()
    assert (extracts.size_bytes, tables(engine)) == (0, 0)


def test_what_is_too_large_is_not_tried_again(
    extracts: Extracts, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    size = module._size  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(module, "_size", lambda *given: tried.append(1) or size(*given))
    wide = written(tmp_path / "wide.parquet", 40_000, "repeat('x', 1000) || i")
    ask(extracts, wide, LEAST_ASKED)
    clock.now += 9
    ask(extracts, wide, 20)
    assert (len(tried), extracts.size_bytes) == (1, 0)


def test_nothing_is_made_after_the_end(engine: Engine, extracts: Extracts, lookup: Lookup) -> None:
    extracts.close()
    ask(extracts, lookup, LEAST_ASKED)
    assert tables(engine) == 0


def test_one_that_is_asked_for_is_not_dropped_for_another(
    extracts: Extracts, lookup: Lookup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(extracts, lookup, LEAST_ASKED)
    monkeypatch.setattr(extracts._kept, "share_bytes", extracts.size_bytes)  # pyright: ignore[reportPrivateUsage]
    ask(extracts, written(tmp_path / "b.parquet"), LEAST_ASKED)
    assert extracts.find(key_of(lookup)) is not None
