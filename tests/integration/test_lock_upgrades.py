"""No job waits for a stronger lock on a table while it holds a weaker one that others wait for: that is a deadlock."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until, until_true

from frostline.catalog import made, patience
from frostline.catalog.connect import Connection, connect
from frostline.catalog.made import Purpose
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.partitions import partition_mode
from frostline.pipeline import premake
from frostline.relation import heap, registration
from frostline.relation.registration import Request
from frostline.settings import Settings

WAITS = "select count(*) > 0 from pg_locks where relation = '{}'::regclass and not granted"
IS_PARTITION = "select relispartition from pg_class where oid = 'public.{}'::regclass"


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(dsn=database, warehouse="/nowhere")


@pytest.fixture
def other(database: str) -> Iterator[psycopg.Connection]:
    """Somebody else's session, which notices a deadlock sooner than a job gives up its lock."""
    with psycopg.connect(database, autocommit=True) as connection:
        run(connection, "set deadlock_timeout = '5ms'")
        yield connection


def numbers(connection: Connection) -> Table:
    """Integers in partitions of 100 up to 400, the highest is 350; DEFAULT has one row far below."""
    run(connection, "create table public.events (k bigint not null, note text) partition by range (k)")
    for number in range(4):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(connection, f"create table public.p{number} partition of public.events for values {bounds}")
    run(connection, "create table public.rest partition of public.events default")
    run(connection, "insert into public.events values (350, 'there'), (-5, 'in DEFAULT')")
    return partition_mode.add(connection, Request(Name.parse("events"), Policy(premake=1))).table


def test_a_reader_that_then_writes_is_no_deadlock_with_premake(
    catalog: Connection, settings: Settings, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has DEFAULT as a reader has it, and premake wants it alone; then he wants it as a writer."""
    table = numbers(catalog)
    monkeypatch.setattr(patience, "LOCK_TIMEOUT_MS", 3_000)
    with ThreadPoolExecutor(1) as pool, connect(settings.dsn, purpose="tests") as watcher:
        other.execute("begin")
        assert rows(other, "select k from public.rest") == [(-5,)]
        made_it = pool.submit(premake.run, catalog, settings, table)
        until_true(watcher, WAITS.format("public.rest"))
        assert run(other, "update public.rest set note = note || '.' where k = -5").rowcount == 1
        other.execute("commit")
        assert len(made_it.result(timeout=60).created) == 1


@pytest.mark.slow
def test_who_alters_the_whole_table_is_no_deadlock_with_premake(
    catalog: Connection, settings: Settings, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has the heap alone and wants DEFAULT next; premake, which waits for the heap, holds nothing of it."""
    table = numbers(catalog)
    run(catalog, "insert into public.events values (450, 'belongs into the next partition')")
    begun, real = threading.Event(), patience.set_lock_timeout

    def set_lock_timeout(connection: Connection) -> None:
        real(connection)
        if not begun.is_set():  # premake has read what it must know, and is about to lock
            other.execute("begin; lock table only public.events in access exclusive mode")
            begun.set()

    monkeypatch.setattr(patience, "set_lock_timeout", set_lock_timeout)
    monkeypatch.setattr(patience, "LOCK_TIMEOUT_MS", 3_000)
    with ThreadPoolExecutor(1) as pool, connect(settings.dsn, purpose="tests") as watcher:
        made_it = pool.submit(premake.run, catalog, settings, table)
        until(begun.is_set)
        until_true(watcher, WAITS.format("public.events"))
        run(other, "lock table only public.rest in access exclusive mode")
        other.execute("commit")
        assert sum(partition.moved for partition in made_it.result(timeout=60).created) == 1


def test_dropping_an_emptied_partition_waits_for_nobody(catalog: Connection, other: psycopg.Connection) -> None:
    """DROP locks DEFAULT too. Who reads that directly would make the whole heap wait behind us."""
    make_events(catalog, "public.events")
    table = registration.add(catalog, Request(Name.parse("events"), Policy("1 month"))).table
    other.execute("begin; lock table only public.events_default in access share mode")
    with ThreadPoolExecutor(1) as pool:
        try:
            dropped = pool.submit(heap.drop, catalog, table, Name("public", "events_1"))
            assert dropped.result(timeout=60) is False
        finally:
            other.execute("commit")
    assert heap.drop(catalog, table, Name("public", "events_1"))


def test_adopting_a_partition_makes_nobody_queue(
    catalog: Connection, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_events(catalog, "public.events")
    table = registration.add(catalog, Request(Name.parse("events"), Policy("1 month"))).table
    other.execute("begin; lock table only public.events_1 in row exclusive mode")
    before = value(catalog, "show lock_timeout")
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    with pytest.raises(Exception, match="still in use"):
        heap.adopt(catalog, table, 10**18)
    other.execute("commit")
    assert value(catalog, "show lock_timeout") == before


def test_what_anybody_writes_on_a_table_of_his_is_no_mark_of_ours(
    catalog: Connection, settings: Settings, database: str
) -> None:
    """By such a comment premake knew what it had left. A view that reads it, or a session, would stop it for good."""
    table = numbers(catalog)
    run(catalog, "create schema mal")
    with role(database, "frostline_mallory") as dsn:
        run(catalog, "grant usage, create on schema mal to frostline_mallory")
        with psycopg.connect(dsn) as mallory:
            run(mallory, "create table mal.x (k bigint)")
            for said in ("to be a partition of table", "rows on their way back into table"):
                run(mallory, f"comment on table mal.x is 'made by Frostline: {said} {table.id}'")
                mallory.commit()
                run(mallory, "lock table mal.x in access share mode")
                assert len(premake.run(catalog, settings, table).created) in (0, 1)
                mallory.commit()
        assert value(catalog, "select to_regclass('mal.x') is not null")
    assert value(catalog, IS_PARTITION.format("p4"))


def test_a_leftover_is_known_by_its_number_and_its_name(catalog: Connection, settings: Settings) -> None:
    """Somebody dropped what premake had left and made a table of that name; or gave it another name."""
    table = numbers(catalog)
    for name in ("left_1", "left_2", "left_3"):
        run(catalog, f"create table public.{name} (like public.events)")
        made.record(catalog, table, Name("public", name), Purpose.PREMAKE)
    run(catalog, "drop table public.left_1; create table public.left_1 (k int)")
    run(catalog, "alter table public.left_2 rename to mine_now")
    premake.run(catalog, settings, table)
    kept = "select to_regclass('public.' || n) is not null from unnest(array['left_1', 'mine_now', 'left_3']) n"
    assert rows(catalog, kept) == [(True,), (True,), (False,)]
    assert rows(catalog, "select * from frostline.made_table") == []
