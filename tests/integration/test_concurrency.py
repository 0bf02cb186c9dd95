"""Writers, readers and all jobs at once, against a plain reference table that gets the same statements."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import UsageError

pytestmark = pytest.mark.slow

SECONDS = 20.0
IDS = 600
DIFFERENCE = """
    select (select count(*) from (select * from public.events except all select * from public.reference) x),
           (select count(*) from (select * from public.reference except all select * from public.events) x)"""


@pytest.fixture
def tables(lake: Lake) -> Lake:
    """`events` with ten ranges of 100, and `reference` with the same rows."""
    lake.catalog.execute("""
        create table public.events (id int, k int, v text, n int not null default 0, primary key (id, k))
            partition by range (k);
        create table public.reference (id int, k int, v text, n int not null default 0, primary key (id, k));
    """)
    for number in range(10):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(lake.catalog, f"create table public.p{number} partition of public.events for values {bounds}")
    run(lake.catalog, f"insert into public.events select i, i * 7 % 1000, 'v' || i, 0 from generate_series(1, {IDS}) i")
    lake.catalog.execute("insert into public.reference select * from public.events")
    lake.add(hot="100000", grace="0")
    return lake


class Crowd:
    """Threads that run until told to stop; the first failure of any stops all."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[psycopg.Connection, random.Random], None], seed: int) -> None:
        self._threads.append(threading.Thread(target=self._loop, args=(work, seed)))

    def _loop(self, work: Callable[[psycopg.Connection, random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        with self.lake.connect() as connection:
            while not self._stop.is_set() and not self.failures:
                try:
                    work(connection, chance)
                except errors.SerializationFailure:
                    self.counts["40001"] += 1
                except Exception as error:  # noqa: BLE001  (whatever it is, the test fails with it)
                    self.failures.append(f"seed {seed}: {error!r}")

    @contextmanager
    def running(self) -> Generator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


def change(crowd: Crowd, connection: psycopg.Connection, chance: random.Random) -> None:
    """One transaction of a few statements, each on both tables, that must affect the same rows.

    With one snapshot for all of them it also compares the tables as it sees them, after its own writes.
    """
    level = chance.choice(["read committed"] * 2 + ["repeatable read"] * 2 + ["serializable"])
    with connection.transaction(force_rollback=chance.random() < 0.1):
        run(connection, f"set transaction isolation level {level}")
        if level != "read committed":
            connection.execute("select 1 from frostline.seam")
            time.sleep(chance.random() * 0.3)
        # In the order of the ids, as whoever wants no deadlock on a plain table has to do it too.
        for _, statement in sorted(_statement(chance) for _ in range(chance.randint(1, 3))):
            got = [rows(connection, statement.format(table)) for table in ("events", "reference")]
            assert sorted(got[0]) == sorted(got[1]), (statement, got, level)
        if level != "read committed":
            assert connection.execute(DIFFERENCE).fetchone() == (0, 0), (level, _differing(connection))
            crowd.counts["own comparisons"] += 1
    crowd.counts["changes"] += 1


def _differing(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    return rows(
        connection,
        "select * from public.events full join public.reference using (id, k) where events.* is distinct from reference.*",
    )


def _statement(chance: random.Random) -> tuple[int, str]:
    """A statement, and the id of the row that it writes."""
    number, key = chance.randint(1, IDS), chance.randint(-50, 1050)
    kind = chance.random()
    if kind < 0.45:
        return number, f"update public.{{}} set n = n + 1 where id = {number} returning id, k, n"
    if kind < 0.6:
        return number, f"update public.{{}} set k = {key}, v = 'moved' where id = {number} returning id, k, n"
    if kind < 0.75:
        return number, f"delete from public.{{}} where id = {number} returning id, k, n"
    new = chance.randint(10_000, 10**9)
    return new, f"insert into public.{{}} values ({new}, {key}, 'new', 0) returning id, k, n"


def compare(crowd: Crowd, connection: psycopg.Connection, chance: random.Random) -> None:
    """Hold one snapshot for a while, and find both tables the same in it."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select 1 from frostline.seam")
        time.sleep(chance.random() * 0.3)
        assert connection.execute(DIFFERENCE).fetchone() == (0, 0)
    crowd.counts["comparisons"] += 1


@pytest.mark.spark
@pytest.mark.parametrize("grace", ["0", "1 day"])
def test_the_relation_equals_the_reference_at_every_moment(tables: Lake, grace: str) -> None:
    tables.catalog.execute("update frostline.managed_table set grace_period = %s::interval", (grace,))
    crowd = Crowd(tables)
    for seed in range(4):
        crowd.add(lambda connection, chance: change(crowd, connection, chance), seed)
    for seed in range(100, 102):
        crowd.add(lambda connection, chance: compare(crowd, connection, chance), seed)
    with crowd.running():
        _work(tables, crowd, time.monotonic() + SECONDS)
    assert crowd.failures == []
    with tables.connect() as connection:
        assert connection.execute(DIFFERENCE).fetchone() == (0, 0)
    done = ("changes", "comparisons", "own comparisons", "archive", "fold", "lowered")
    assert min(crowd.counts[what] for what in done) > 0, crowd.counts
    tables.catalog.execute("update frostline.managed_table set grace_period = '0'")
    tables.fold()
    assert crowd.counts["clean"] + len(tables.clean().emptied) > 0
    with tables.connect() as connection:
        assert connection.execute(DIFFERENCE).fetchone() == (0, 0)


def _work(lake: Lake, crowd: Crowd, until: float) -> None:
    """Archive one range after the other, with folds and cleans in between, and take some back."""
    hot = 900
    while (time.monotonic() < until or not crowd.counts["lowered"]) and not crowd.failures:
        if hot == 700:
            _lower(lake, crowd)
        hot = hot - 100 if hot > 200 else 900
        lake.catalog.execute("update frostline.managed_table set hot_span = %s", (hot,))
        (result,) = lake.archive()
        assert result.error is None, result.error
        crowd.counts["archive"] += result.partitions
        (folded,) = lake.fold()
        assert folded.error is None, folded.error
        crowd.counts["fold"] += folded.taken
        crowd.counts["clean"] += len(lake.clean().emptied)


def _lower(lake: Lake, crowd: Crowd) -> None:
    """Make cold rows hot again: those that the heap still has, else those of the last range from the lake."""
    try:
        lake.undo()
    except UsageError:
        line = value(lake.catalog, "select frost_line from frostline.seam")
        lake.thaw(first=str(line - 100))
    lake.catalog.execute("update frostline.managed_table set held_from = null")
    lake.compact()
    crowd.counts["lowered"] += 1


def count_singly(connection: psycopg.Connection, chance: random.Random) -> list[int]:
    """Count up three rows, one statement each; says which."""
    wanted = sorted(chance.sample(range(1, 40), 3))
    with connection.transaction():
        for number in wanted:
            connection.execute("update public.events set n = n + 1 where id = %s", (number,))
    return wanted


def count_together(connection: psycopg.Connection, chance: random.Random) -> list[int]:
    """Count up some neighbours by one statement; says which."""
    first = chance.randint(1, 37)
    statement = f"update public.events set n = n + 1 where id between {first} and {first + 2} returning id"
    return [number for (number,) in rows(connection, statement)]


@pytest.mark.spark
@pytest.mark.parametrize("count", [count_singly, count_together])
def test_counters_are_exact_under_eight_writers_of_hot_and_cold_rows(
    tables: Lake, count: Callable[[psycopg.Connection, random.Random], list[int]]
) -> None:
    """And nobody gets another error than 40001."""
    tables.catalog.execute("update frostline.managed_table set hot_span = 500")
    tables.archive()
    tables.clean()
    added = Counter[int]()
    crowd = Crowd(tables)

    def work(connection: psycopg.Connection, chance: random.Random) -> None:
        added.update(count(connection, chance))
        crowd.counts["changes"] += 1

    for seed in range(8):
        crowd.add(work, seed)
    with crowd.running():
        time.sleep(5)
        tables.fold()
    assert crowd.failures == []
    assert crowd.counts["changes"] > 0
    with tables.connect() as connection:
        counts = dict(connection.execute("select id, n from public.events where n > 0").fetchall())
    assert counts == dict(added)
