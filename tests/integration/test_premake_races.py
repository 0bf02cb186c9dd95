"""Premake beside readers, writers and other workers: nobody gets a wrong answer, and nothing of another worker goes."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until_true

from frostline.catalog import jobs, leases, made, patience
from frostline.catalog.connect import Connection, connect
from frostline.catalog.made import Purpose
from frostline.errors import ConflictError
from frostline.failpoints import Failpoint
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.observe import survey
from frostline.partitions import default_partition, new_partition, partition_mode, premake
from frostline.pipeline import premake as job
from frostline.relation import policy
from frostline.relation.registration import Request
from frostline.settings import Settings

COUNT = "select count(*) from public.events"
IN_RANGE = "select count(*) from public.events where k >= 400 and k < 500"
GUARDS = "select count(*) from pg_constraint where conname = 'frostline_premake'"
WAITS = "select count(*) > 0 from pg_locks where relation = 'public.events'::regclass and not granted"

Hook = Callable[[Failpoint, Callable[[], None]], None]


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(dsn=database, warehouse="/nowhere")


@pytest.fixture
def other(database: str) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Does something when premake comes to a place for the first time."""

    def hook(place: Failpoint, act: Callable[[], None]) -> None:
        real, left = premake.reached, [act]

        def reached(here: Failpoint) -> None:
            if here is place and left:
                left.pop()()
            real(here)

        monkeypatch.setattr(premake, "reached", reached)

    return hook


def make_table(connection: Connection, strays: int = 100) -> Table:
    """Integers in partitions of 100 up to 400, the highest is 350; 100 rows of the next partition are in DEFAULT."""
    run(connection, "create table public.events (k bigint not null, note text) partition by range (k)")
    for number in range(4):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(connection, f"create table public.p{number} partition of public.events for values {bounds}")
    run(connection, "create table public.rest partition of public.events default")
    run(connection, "insert into public.events values (350, 'there')")
    run(connection, f"insert into public.events select 400 + i, 'stray' from generate_series(0, {strays - 1}) i")
    return partition_mode.add(connection, Request(Name.parse("events"), Policy(premake=1))).table


def moved(result: job.Result) -> list[tuple[str, int]]:
    return [(partition.name.table, partition.moved) for partition in result.created]


@pytest.mark.parametrize(("query", "expected"), [(COUNT, 101), (IN_RANGE, 100)])
def test_a_reader_that_comes_while_rows_are_moved_sees_each_once(
    catalog: Connection,
    settings: Settings,
    database: str,
    other: psycopg.Connection,
    at: Hook,
    query: str,
    expected: int,
) -> None:
    table = make_table(catalog)
    seen: list[Any] = []

    def read() -> None:
        with psycopg.connect(database, autocommit=True) as reader:
            seen.extend(value(reader, query) for _ in range(2))

    reader = threading.Thread(target=read)

    def come() -> None:
        reader.start()
        until_true(other, WAITS)

    at(Failpoint.PREMAKE_BEFORE_COMMIT, come)
    result = job.run(catalog, settings, table)
    reader.join()
    assert moved(result)[0] == ("p4", 100)
    assert seen == [expected, expected]


def test_rows_that_somebody_would_not_find_any_more_are_not_moved(
    catalog: Connection, settings: Settings, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot is from before the move, and it has not looked into the table yet."""
    table = make_table(catalog)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    run(other, "begin isolation level repeatable read")
    run(other, "select 1 from pg_class limit 1")
    result = job.run(catalog, settings, table)
    assert result.created == ()
    assert result.problem == (
        "public.rest has rows from 400 to 500, and these processes have older snapshots: "
        f"{other.info.backend_pid}; end them, or wait: the next run tries again"
    )
    assert (value(other, COUNT), value(other, IN_RANGE)) == (101, 100)
    run(other, "rollback")
    assert moved(job.run(catalog, settings, table))[0] == ("p4", 100)
    assert (value(other, COUNT), value(other, IN_RANGE)) == (101, 100)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_that_is_taken_during_the_move_undoes_it(
    catalog: Connection,
    settings: Settings,
    other: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    at: Hook,
    level: str,
) -> None:
    table = make_table(catalog)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)

    def look() -> None:
        run(other, f"begin isolation level {level}")
        run(other, "select 1 from pg_class limit 1")

    at(Failpoint.PREMAKE_BEFORE_COMMIT, look)
    result = job.run(catalog, settings, table)
    assert result.created == ()
    assert str(other.info.backend_pid) in str(result.problem)
    assert (value(other, COUNT), value(other, IN_RANGE)) == (101, 100)
    run(other, "rollback")
    assert moved(job.run(catalog, settings, table))[0] == ("p4", 100)


def test_who_waits_within_a_repeatable_read_transaction_is_not_overtaken(
    catalog: Connection, settings: Settings, database: str, other: psycopg.Connection, at: Hook
) -> None:
    """Its snapshot is as old as its first statement, though that has not got the table's lock yet."""
    table = make_table(catalog)

    def read() -> list[Any]:
        with psycopg.connect(database, autocommit=True) as reader, reader.transaction():
            run(reader, "set transaction isolation level repeatable read")
            return [value(reader, IN_RANGE), value(reader, COUNT)]

    with ThreadPoolExecutor(1) as pool:
        reading: list[Any] = []

        def come() -> None:
            reading.append(pool.submit(read))
            until_true(other, WAITS)

        at(Failpoint.PREMAKE_BEFORE_COMMIT, come)
        result = job.run(catalog, settings, table)
        assert reading[0].result() == [100, 101]
    assert moved(result)[0] == ("p4", 100)


def test_rows_that_come_in_the_last_moment_are_moved_under_the_same_lock(
    catalog: Connection, settings: Settings, other: psycopg.Connection, at: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog, strays=0)
    real, came = premake._Making._lock_heap, list[bool]()  # pyright: ignore[reportPrivateUsage]

    def lock_late(self: Any) -> None:
        if not came:
            run(other, "insert into public.events values (450, 'late')")
        came.append(self.moves_rows)
        real(self)

    monkeypatch.setattr(premake._Making, "_lock_heap", lock_late)  # pyright: ignore[reportPrivateUsage]
    result = job.run(catalog, settings, table)
    assert moved(result)[0] == ("p4", 1)
    assert came[:2] == [False, True]


def test_a_worker_that_lost_its_lease_takes_nothing_from_the_next(
    catalog: Connection, settings: Settings, database: str, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up while the other one, which has made a table for the same partition, is about to commit."""
    table = make_table(catalog)
    taken_over, awake, real = threading.Event(), threading.Event(), premake.reached

    def reached(place: Failpoint) -> None:
        is_first = threading.current_thread().name.startswith("first")
        if is_first and place is Failpoint.PREMAKE_CREATED_ONE:
            run(other, "update frostline.lease set expires_at = clock_timestamp()")  # as time would
            taken_over.set()
            assert awake.wait(30)
        if not is_first and place is Failpoint.PREMAKE_BEFORE_COMMIT and not awake.is_set():
            awake.set()
            until_true(other, "select count(*) = 0 or bool_or(wait_event_type = 'Lock') from pg_stat_activity "
                         "where application_name = 'frostline first'")  # fmt: skip
        real(place)

    def first() -> None:
        with connect(database, purpose="first") as connection:
            job.run(connection, settings, table)

    monkeypatch.setattr(premake, "reached", reached)
    with ThreadPoolExecutor(1, thread_name_prefix="first") as pool:
        lost = pool.submit(first)
        assert taken_over.wait(30)
        result = job.run(catalog, settings, table)
        with pytest.raises(ConflictError, match="lost its lease"):
            lost.result()
    assert moved(result)[0] == ("p4", 100)
    assert (value(catalog, COUNT), value(catalog, IN_RANGE)) == (101, 100)


def test_a_leftover_that_was_attached_meanwhile_is_none(
    catalog: Connection, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog, strays=0)
    run(catalog, "create table public.p4 (like public.events); insert into public.p4 values (450, 'row')")
    made.record(catalog, table, Name("public", "p4"), Purpose.PREMAKE)
    real = leases.require

    def attach_it(connection: Connection, chosen: Table) -> None:
        run(other, "alter table public.events attach partition public.p4 for values from (400) to (500)")
        real(connection, chosen)

    with jobs.exclusive(catalog, table):
        monkeypatch.setattr(leases, "require", attach_it)
        new_partition.drop_leftovers(catalog, table, Purpose.PREMAKE)
    assert value(catalog, IN_RANGE) == 1


def test_an_interrupted_premake_leaves_no_guard(
    catalog: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch, at: Hook
) -> None:
    table = make_table(catalog, strays=0)
    run(catalog, "insert into public.rest values (-5, 'makes it bigger')")
    table = policy.put(catalog, table, replace(table.policy, premake=3))
    monkeypatch.setattr(premake, "SMALL_BYTES", 0)
    seen: list[int] = []

    def interrupt() -> None:
        seen.append(value(catalog, GUARDS))
        raise KeyboardInterrupt

    at(Failpoint.PREMAKE_GUARDED, interrupt)
    with pytest.raises(KeyboardInterrupt):
        job.run(catalog, settings, table)
    assert (seen, value(catalog, GUARDS)) == ([1], 0)


def test_a_guard_that_was_left_goes_whatever_the_policy(catalog: Connection, settings: Settings) -> None:
    table = make_table(catalog, strays=0)
    table = policy.put(catalog, table, replace(table.policy, premake=0))
    assert survey.of_table(catalog, table).missing_partitions == 0
    run(catalog, "alter table public.rest add constraint frostline_premake check (k < 400 or k >= 500) not valid")
    assert survey.of_table(catalog, table).missing_partitions == 1
    assert job.run(catalog, settings, table).created == ()
    assert (survey.of_table(catalog, table).missing_partitions, value(catalog, GUARDS)) == (0, 0)
    assert value(catalog, "select count(*) from frostline.job") == 0


def test_what_is_almost_there_is_not_guarded(
    catalog: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next row of the range may come any moment, and the guard would refuse it."""
    table = make_table(catalog, strays=0)
    run(catalog, "insert into public.rest values (-5, 'makes it bigger')")
    table = policy.put(catalog, table, replace(table.policy, premake=2))
    monkeypatch.setattr(premake, "SMALL_BYTES", 0)
    guarded: list[tuple[int, int]] = []
    real = default_partition.put_guard

    def put(connection: Connection, chosen: Table, default: Name, bounds: tuple[int, int]) -> None:
        guarded.append(bounds)
        real(connection, chosen, default, bounds)

    monkeypatch.setattr(default_partition, "put_guard", put)
    result = job.run(catalog, settings, table)
    assert guarded == [(500, 600)]
    assert [partition.lower for partition in result.created] == ["500"]
    assert "too big to be read while others wait for it" in str(result.problem)


def test_without_the_time_zone_nobody_knows_where_days_begin(
    catalog: Connection, settings: Settings, database: str, other: psycopg.Connection
) -> None:
    """A second session is needed to ask, and Postgres may have none to give."""
    name = catalog.info.dbname
    run(catalog, f"alter database {name} set timezone = 'Europe/Berlin'")
    run(other, "set timezone = 'Europe/Berlin'")
    run(other, "create table public.events (k timestamptz not null) partition by range (k)")
    for number in range(4):
        run(
            other,
            f"""do $$ declare first timestamptz := date_trunc('day', now()) - interval '{3 - number} days'; begin
            execute format('create table public.p{number} partition of public.events for values from (%L) to (%L)',
                           first, first + interval '1 day'); end $$""",
        )
    table = partition_mode.add(catalog, Request(Name.parse("events"), Policy(premake=1))).table
    with psycopg.connect(database, dbname="postgres", autocommit=True) as admin:
        run(admin, f"alter database {name} allow_connections false")
        try:
            wanted = premake.plan(catalog, table)
        finally:
            run(admin, f"alter database {name} allow_connections true")
    assert wanted.cells == ()
    assert str(wanted.problem).startswith("where its days begin is unknown, because nobody can ask for its time zone: ")
    assert len(job.run(catalog, settings, table).created) == 1
    assert rows(catalog, "select count(*) from pg_inherits where inhparent = 'public.events'::regclass") == [(5,)]
