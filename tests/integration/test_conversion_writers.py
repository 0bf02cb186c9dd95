"""A table is converted while others write it: nothing is lost, nobody waits for long."""

import random
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fixtures.conversion import (
    EVENTS_REQUEST,
    contents,
    convert,
    equal,
    is_partitioned,
    make,
    nothing_is_left,
    prepared,
)
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value

from frostline.catalog import conversions, patience
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.model.conversion import State
from frostline.partitions.convert import backfill, conversion

CHANGES = (
    "insert into public.{t} (id, ts, ref, amount) values ({new}, timestamptz '2024-02-01 00:00+00' + interval '1 min' * {n}, 'new', {n})",
    "update public.{t} set amount = {n}, ref = ref || '+' where id = {id}",
    "update public.{t} set ts = ts + interval '40 days' where id = {id}",
    "update public.{t} set id = -id where id = {id}",
    "update public.{t} set id = id + 1000000, ts = ts - interval '1 month' where id = {id}",
    "delete from public.{t} where id = {id}",
    "delete from public.{t} where id = {id}; insert into public.{t} (id, ts, ref) values ({id}, '2024-03-03 00:00+00', 'again')",
    "update public.{t} set data = '{{}}' where id between {id} and {id} + 40 and id % 4 = {id} % 4",
    "insert into public.{t} (id, ts, ref) values ({new}, '2031-01-01 00:00+00', 'beyond all partitions')",
)


class Writer(threading.Thread):
    """Changes rows of `events` and of `plain` alike, each time in one transaction, until it is told to stop."""

    def __init__(self, dsn: str, number: int, level: str) -> None:
        super().__init__(daemon=True)
        self.dsn, self.number, self.level = dsn, number, level
        self.done = threading.Event()
        self.committed = 0
        self.refused = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                run(connection, f"set default_transaction_isolation = '{self.level}'")
                run(connection, "set lock_timeout = '3s'")  # who waits so long for us gets an error
                for n in range(100_000):
                    if self.done.is_set():
                        return
                    self.change(connection, n)
        except Exception as error:  # noqa: BLE001  (raised again in the test's own thread)
            self.error = error

    def change(self, connection: psycopg.Connection, n: int) -> None:
        dice = random.Random(self.number * 1_000_000 + n)
        values = {"n": n % 10_000, "id": dice.randrange(750) * 4 + self.number, "new": 10_000_000 + n * 4 + self.number}
        try:
            with connection.transaction():
                for statement in dice.choices(CHANGES, k=2):
                    for t in ("events", "plain"):
                        run(connection, statement.format(t=t, **values))
                if n % 10 == 0:
                    raise psycopg.Rollback
        except psycopg.errors.SerializationFailure:
            self.refused += 1
        except psycopg.errors.UniqueViolation as error:
            if error.diag.schema_name != "public":  # the shadow has refused a change that the table allows
                raise
        else:
            self.committed += 1


@contextmanager
def writers(dsn: str, *levels: str) -> Generator[list[Writer]]:
    started = [Writer(dsn, number, level) for number, level in enumerate(levels)]
    for writer in started:
        writer.start()
    try:
        yield started
    finally:
        for writer in started:
            writer.done.set()
        for writer in started:
            writer.join()
    for writer in started:
        if writer.error:
            raise writer.error


def test_concurrent_writers_lose_nothing(
    emptied: Connection, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_BATCH_ROWS", 20)
    make(emptied, 3000, "events", "plain")
    levels = ("read committed", "read committed", "repeatable read", "serializable")
    during: list[int] = []
    with writers(shared_database, *levels) as started:
        result = conversion.convert(
            emptied, EVENTS_REQUEST, lambda _: during.append(sum(writer.committed for writer in started))
        )
        at_swap = [writer.committed for writer in started]
    assert result.changed
    assert during[-1] - during[0] > 100, "nobody wrote while it was copied"
    assert sum(at_swap) < sum(writer.committed for writer in started)
    assert contents(emptied, "public.events") == contents(emptied, "public.plain")
    nothing_is_left(emptied)


NESTED = """
create function public.again() returns trigger language plpgsql as $$
begin
    if new.ref = 'cascade' then
        {body}
    end if;
    return null;
end $$;
create trigger again after insert or update on public.events for each row execute function public.again()"""


@pytest.mark.parametrize(
    "body",
    first(
        1,
        [
            "update public.events set ref = 'later', ts = ts + interval '2 months' where ref = 'cascade';",
            "update public.events set ref = 'same place' where ref = 'cascade';",
            "delete from public.events where ref = 'cascade';",
            "delete from public.events where ref = 'cascade' and id = 7; insert into public.events (id, ts, ref) values (7, '2024-01-01 07:00+00', 'back') on conflict do nothing;",
        ],
    ),
)
def test_changes_that_a_trigger_makes_in_between_are_followed(emptied: Connection, body: str) -> None:
    make(emptied, 20)
    run(emptied, NESTED.format(body=body))
    running = prepared(emptied, until=State.FILLED)
    for statement in (
        "update public.events set ref = 'cascade' where id in (5, 6, 7, 8)",
        "insert into public.events (id, ts, ref) select i, '2024-01-05 00:00+00', 'cascade' from generate_series(100, 110) i",
        "update public.events set ref = 'cascade', ts = ts + interval '1 month' where id in (9, 10, 11)",
        "update public.events set ref = 'cascade', id = id + 500 where id in (12, 13, 14)",
    ):
        run(emptied, statement)
        assert equal(emptied, running), statement
    assert convert(emptied).changed


@pytest.mark.parametrize(
    "change",
    ["delete from public.events where id in (5, 6)", "update public.events set id = id + 100 where id in (5, 6)"],
)
def test_a_row_that_a_trigger_puts_back_in_between_stays(emptied: Connection, change: str) -> None:
    make(emptied, 20)
    run(
        emptied,
        """
        create function public.again() returns trigger language plpgsql as $$
        begin
            if old.id = 5 then
                insert into public.events (id, ts, ref) values (6, timestamptz '2024-01-01 06:00+00', 'back');
            end if;
            return null;
        end $$;
        create trigger again after delete or update on public.events for each row execute function public.again()""",
    )
    running = prepared(emptied, until=State.FILLED)
    run(emptied, change)
    assert rows(emptied, "select ref from public.events where id = 6") == [("back",)]
    assert equal(emptied, running)


def test_statements_of_every_form_are_followed(emptied: Connection) -> None:
    make(emptied, 50)
    run(emptied, "create unique index by_ref on public.events (ref, ts)")
    run(emptied, "update public.events set ts = '2024-01-01 00:00+00'")
    run(emptied, "create table public.sorted as select * from public.events order by id desc; truncate public.events")
    run(
        emptied,
        "insert into public.events (id, ts, ref, amount, data) select id, ts, ref, amount, data from public.sorted order by id desc",
    )
    running = prepared(emptied, until=State.FILLED)
    for statement in (
        "update public.events set id = id + 1",  # each takes the key that the one before has just left
        "insert into public.events (id, ts, ref) values (3, '2024-01-01 00:00+00', 'x') on conflict (id) do update set ref = 'conflict'",
        "merge into public.events e using (values (4), (999)) as s (id) on e.id = s.id when matched then update set amount = 0 when not matched then insert (id, ts, ref) values (s.id, '2024-09-09', 'merged')",
        "with gone as (delete from public.events where id < 10 returning *) insert into public.events (id, ts, ref) select id + 5000, ts, ref from gone",
        "update public.events set id = id",
        "set session_replication_role = replica; delete from public.events where id = 20; set session_replication_role = origin",
        "truncate public.events",
        "insert into public.events (id, ts, ref) values (1, '2024-05-05', 'after')",
    ):
        for part in statement.split("; "):
            run(emptied, part)
        assert equal(emptied, running), statement
    assert convert(emptied).changed
    assert value(emptied, "select count(*) from public.events") == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    "change",
    first(
        2,
        [
            "delete from public.events where id = 5",
            "update public.events set ts = ts + interval '3 months' where id = 5",
            "update public.events set ref = 'x' where id = 5",
        ],
    ),
)
def test_a_snapshot_from_before_the_copy_of_a_row_cannot_miss_it(
    emptied: Connection, connect: Callable[[str], psycopg.Connection], shared_database: str, level: str, change: str
) -> None:
    make(emptied, 20)
    prepared(emptied)
    other = connect(shared_database)
    run(other, f"begin isolation level {level}")
    run(other, "select count(*) from public.events")
    running = conversions.find(emptied, EVENTS_REQUEST.name)
    assert running
    backfill.fill(emptied, running, conversions.facts(emptied, EVENTS_REQUEST.name, "ts"), lambda _rows: None)
    with pytest.raises(psycopg.errors.SerializationFailure):
        run(other, change)
    run(other, "rollback")
    run(other, change)
    assert equal(emptied, running)
    assert convert(emptied).changed


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_a_row_that_is_not_copied_yet_can_be_changed_at_any_level(emptied: Connection, level: str) -> None:
    run(
        emptied,
        "create table public.parent (id int primary key); insert into public.parent select generate_series(1, 20)",
    )
    make(emptied, 20)
    run(
        emptied,
        "alter table public.events add column parent int references public.parent on delete cascade; update public.events set parent = id; alter table public.events add unique (ref, ts) deferrable",
    )
    prepared(emptied)
    run(emptied, f"set default_transaction_isolation = '{level}'")
    run(emptied, "delete from public.parent where id in (3, 4)")  # its rows go after it, and the key refuses the probe
    run(emptied, "delete from public.events where id = 5")
    run(emptied, "update public.events set ts = '2024-07-07' where id = 6")
    run(emptied, "reset default_transaction_isolation")
    before = contents(emptied, "public.events")
    assert len(before) == 17
    assert convert(emptied).changed
    assert contents(emptied, "public.events") == before


def test_a_transaction_from_before_the_copy_delays_the_swap_and_sees_all_rows(
    emptied: Connection,
    connect: Callable[[str], psycopg.Connection],
    shared_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    make(emptied, 100)
    reader = connect(shared_database)
    run(reader, "begin isolation level repeatable read")
    run(reader, "select 1 from pg_class limit 1")  # it has a snapshot, and no lock on the table
    with pytest.raises(UnavailableError, match=r"from before public\.events was copied are still open"):
        convert(emptied)
    assert value(reader, "select count(*) from public.events") == 100
    run(reader, "commit")
    monkeypatch.setattr(patience, "PATIENCE_S", 60.0)
    assert convert(emptied).changed


def test_a_long_reader_delays_only_the_swap(
    emptied: Connection,
    connect: Callable[[str], psycopg.Connection],
    shared_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 1.0)
    make(emptied, 500, "events", "plain")
    prepared(emptied, until=State.VERIFIED)
    reader = connect(shared_database)
    run(reader, "begin")
    run(reader, "select count(*) from public.events")
    with writers(shared_database, "read committed", "read committed") as started:
        with pytest.raises(UnavailableError, match=r"public\.events is still in use"):
            convert(emptied)
        during = sum(writer.committed for writer in started)
    assert during > 20, "writers queued behind the swap"
    assert not is_partitioned(emptied)
    run(reader, "commit")
    monkeypatch.setattr(patience, "PATIENCE_S", 60.0)
    assert convert(emptied).changed
    assert contents(emptied, "public.events") == contents(emptied, "public.plain")


def test_a_locked_row_makes_nobody_else_wait(
    emptied: Connection,
    connect: Callable[[str], psycopg.Connection],
    shared_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    make(emptied, 300)
    holder = connect(shared_database)
    run(holder, "begin")
    prepared(emptied)
    run(holder, "update public.events set ref = 'held' where id = 120")
    with pytest.raises(UnavailableError, match=r"a row of public\.events is still locked"):
        convert(emptied)
    running = conversions.find(emptied, EVENTS_REQUEST.name)
    assert running
    assert running.position == ("119",)  # everything before it was copied
    other = connect(shared_database)
    run(other, "set lock_timeout = '2s'; update public.events set ref = 'free' where id <> 120")
    run(holder, "commit")
    monkeypatch.setattr(patience, "PATIENCE_S", 60.0)
    assert convert(emptied).changed
    assert rows(emptied, "select ref, count(*) from public.events group by 1 order by 1") == [
        ("free", 299),
        ("held", 1),
    ]


def test_prepared_statements_and_cursors_of_clients_go_on(
    emptied: Connection, connect: Callable[[str], psycopg.Connection], shared_database: str
) -> None:
    make(emptied, 100)
    client = connect(shared_database)
    run(client, "prepare pick (bigint) as select ref from public.events where id = $1")
    run(client, "prepare put (bigint) as insert into public.events (id, ts, ref) values ($1, '2024-02-02', 'put')")
    run(client, "set plan_cache_mode = force_generic_plan")
    for number in range(6):
        assert rows(client, f"execute pick({number + 1})") == [(f"row {number + 1}",)]
        run(client, f"execute put({1000 + number})")
    run(
        client,
        "create function public.one(bigint) returns text language plpgsql as $$ begin return (select ref from public.events where id = $1); end $$",
    )
    assert value(client, "select public.one(1)") == "row 1"
    convert(emptied)
    run(client, "execute put(2000)")
    assert rows(client, "execute pick(2000)") == [("put",)]
    assert value(client, "select public.one(2000)") == "put"
    assert value(client, "select tableoid::regclass::text from public.events where id = 2000") == "events_p2024_02"
