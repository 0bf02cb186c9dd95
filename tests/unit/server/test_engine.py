"""DuckDB as the lake server uses it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from frostline.server import result_memory
from frostline.server.engine import Cancelled, Engine
from frostline.server.protocol.rows import Printed, encode

ENDLESS = "select count(*) from range(1000000000000) t(i) where hash(i) = 1"
HOLDS_MEMORY = "select i::varchar, repeat('x', 1000) || i from range(70000) t(i) order by hash(i)"
"""Sorted rows stay in memory until the last is read: more than half of what the engine here has."""
LARGE = "select i::varchar from range(50000) t(i)"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path)
    yield engine
    engine.close()


def results_on_disk(directory: Path) -> list[Path]:
    return list(directory.glob("result-*"))


def test_a_query_can_be_stopped_before_its_first_row(engine: Engine) -> None:
    rows = engine.run(ENDLESS)
    timer = threading.Timer(0.5, rows.interrupt)
    timer.start()
    with pytest.raises(Cancelled):
        list(rows)
    timer.join()


def test_a_large_result_waits_on_disk_when_others_hold_the_memory(engine: Engine, tmp_path: Path) -> None:
    first = engine.run(HOLDS_MEMORY)
    slow = iter(first)
    next(slow)
    rows = engine.run(LARGE)
    batches = iter(rows)
    values = [int(str(value)) for value in next(batches).column(0).to_pylist()]
    assert len(results_on_disk(tmp_path)) == 1
    values += [int(str(value)) for batch in batches for value in batch.column(0).to_pylist()]
    assert sorted(values) == list(range(50_000))
    rows.close()
    assert results_on_disk(tmp_path) == []
    first.close()


def test_a_small_result_does_not(engine: Engine, tmp_path: Path) -> None:
    first = engine.run(HOLDS_MEMORY)
    slow = iter(first)
    next(slow)
    rows = engine.run("select i::varchar from range(5) t(i)")
    batches = iter(rows)
    assert next(batches).column(0).to_pylist() == ["0", "1", "2", "3", "4"]
    assert results_on_disk(tmp_path) == []
    assert next(batches, None) is None
    rows.close()
    first.close()


def test_a_result_that_waits_for_its_turn_can_be_stopped(engine: Engine) -> None:
    first = engine.run(HOLDS_MEMORY)
    slow = iter(first)
    next(slow)
    result_memory = engine.result_memory
    with result_memory.spill_slot(lambda: None), result_memory.spill_slot(lambda: None):
        rows = engine.run(LARGE)
        timer = threading.Timer(0.5, rows.interrupt)
        timer.start()
        with pytest.raises(Cancelled):
            next(iter(rows))
        timer.join()
        rows.close()
    first.close()


def ahead() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "frostline-lake-ahead"]


def wait_until_idle() -> None:
    for thread in ahead():
        thread.join(timeout=60)
    assert ahead() == []


def test_the_next_batch_is_produced_while_the_client_is_busy_with_the_last(engine: Engine) -> None:
    rows = engine.run("select i::varchar from range(100000) t(i)", batch_rows=10_240)
    batches = iter(rows)
    received = [next(batches), next(batches)]
    wait_until_idle()
    rows.interrupt()  # what is there already does not need DuckDB any more
    received.append(next(batches))
    assert sum(batch.num_rows for batch in received) == 3 * 10_240
    with pytest.raises(Cancelled):
        list(batches)
    rows.close()


def made_ahead(engine: Engine, text: str) -> int:
    """How many batches of such texts are there once a client is busy with the second."""
    rows = engine.run(f"select {text} from range(200000) t(i)", batch_rows=10_240)
    batches = iter(rows)
    assert [next(batches).num_rows for _ in range(2)] == [10_240] * 2
    wait_until_idle()
    rows.interrupt()
    made = list[int]()
    with pytest.raises(Cancelled):
        made.extend(batch.num_rows for batch in batches)
    rows.close()
    return len(made)


def test_of_small_batches_two_are_there_and_of_large_ones_one(engine: Engine) -> None:
    assert made_ahead(engine, "i::varchar") == 2
    assert made_ahead(engine, "repeat('x', 300) || i") == 1


def test_rows_are_printed_unless_somebody_waits_for_them(engine: Engine) -> None:
    texts = "select case when i % 7 > 0 then i::varchar end, repeat('é', (i % 3)::int) from range(60000) t(i)"
    plain, printed = engine.run(texts), engine.run(texts)
    expected = sorted(rows_of(b"".join(bytes(memoryview(part)) for batch in plain for part in encode(batch))))
    batches = list(printed.printed())
    assert {type(batch) for batch in batches[1:]} == {Printed}
    assert sum(batch.num_rows for batch in batches) == 60_000
    assert sorted(rows_of(b"".join(bytes(memoryview(part)) for batch in batches for part in encode(batch)))) == expected
    plain.close()
    printed.close()


def rows_of(messages: bytes) -> Iterator[bytes]:
    """The single messages; DuckDB's threads give them in any order."""
    at = 0
    while at < len(messages):
        size = 1 + int.from_bytes(messages[at + 1 : at + 5], "big")
        yield messages[at : at + size]
        at += size


def test_every_row_comes_once_when_batches_are_produced_ahead(engine: Engine) -> None:
    rows = engine.run(LARGE, batch_rows=2_048)
    values = [int(str(value)) for batch in rows for value in batch.column(0).to_pylist()]
    assert sorted(values) == list(range(50_000))
    rows.close()


def test_a_result_can_be_closed_while_a_batch_is_produced_ahead(engine: Engine) -> None:
    # DuckDB itself keeps about 60,000 rows ahead, so the fourth batch waits for a row that never comes.
    endless = "select i::varchar from range(1000000000000) t(i) where i < 200000 or hash(i) = 1"
    rows = engine.run(endless, batch_rows=40_960)
    batches = iter(rows)
    assert [next(batches).num_rows for _ in range(3)] == [40_960] * 3
    rows.close()
    wait_until_idle()


def test_every_query_may_use_the_cached_footers(engine: Engine) -> None:
    rows = engine.run("select current_setting('parquet_metadata_cache')::varchar")
    assert [batch.column(0).to_pylist() for batch in rows] == [["true"]]
    rows.close()


def test_the_memory_is_counted_only_while_other_results_are_open(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def value(_connection: object, query: str) -> object:
        counted.append(query)
        return 0

    monkeypatch.setattr(result_memory, "_value", value)
    for expected in (0, 0):
        rows = engine.run("select 1")
        assert len(list(rows)) == 1
        rows.close()
        assert len(counted) == expected
    first, second = engine.run(LARGE), engine.run("select 1")
    next(iter(first))
    assert len(list(second)) == 1
    assert len(counted) == 1
    for rows in (first, second, first):  # twice is once
        rows.close()
    assert len(list(engine.run("select 1"))) == 1
    assert len(counted) == 1
