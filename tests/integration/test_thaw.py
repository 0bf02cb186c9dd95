"""Thaw: cold rows come back from the lake into heap partitions, every one of them, while others read and write."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from pyspark.sql import SparkSession
from tests.fixtures import quick
from tests.fixtures.cold_twins import (
    APRIL,
    CHANGES,
    FEBRUARY,
    MARCH,
    at,
    both,
    change,
    compare,
    line,
    make_archived,
    release,
    shown,
)
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins
from tests.fixtures.waiting import until_true

from frostline.catalog import archived_partitions, patience, seams
from frostline.errors import CorruptionError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.pipeline import plan, thaw, verify
from frostline.pipeline import spark as pipeline_spark
from frostline.relation import guard

HEAP = "select tableoid::regclass::text, count(*) from public._events group by 1 order by 1"
LEFTOVERS = "select count(*) from frostline.made_table where purpose = 'thaw'"


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, and a plain table with the same rows."""
    make_twins(lake)
    return lake


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def test_every_row_comes_back_into_its_old_partition(cold: Lake) -> None:
    assert guard.ensure(cold.catalog)
    change(cold)
    result = cold.thaw()
    assert result.refilled == ("public.events_1", "public.events_2", "public.events_3")
    assert (result.to_line, line(cold)) == (cold.table().tier_kind.lowest, cold.table().tier_kind.lowest)
    compare(cold)
    assert rows(cold.catalog, HEAP) == [
        ("public.events_1", 19),
        ("public.events_2", 19),
        ("public.events_3", 20),
        ("public.events_default", 1),
        ("public.events_hot", 21),
    ]
    assert verify.run(cold.catalog, cold.table()).faults == ()
    assert value(cold.catalog, LEFTOVERS) == 0


@pytest.mark.slow
def test_the_partitions_are_like_the_others(cold: Lake) -> None:
    run(cold.catalog, "create index on public._events (status)")
    cold.thaw()
    columns = """
        select i.indexrelid::regclass::text ~ '^public', pg_get_indexdef(i.indexrelid) ~ 'UNIQUE', i.indisvalid
          from pg_index i where i.indrelid = %s::regclass and exists (select from pg_inherits where inhrelid = i.indexrelid)
         order by 2"""
    for partition in ("public.events_hot", "public.events_1"):
        assert rows(cold.catalog, columns, [partition]) == [(True, False, True), (True, True, True)]
    constraints = "select conname, contype from pg_constraint where conrelid = %s::regclass and contype = 'c'"
    assert rows(cold.catalog, constraints, ["public.events_1"]) == rows(
        cold.catalog, constraints, ["public.events_hot"]
    )
    with pytest.raises(psycopg.errors.UniqueViolation, match="events_1_pkey"):
        run(cold.catalog, "insert into public.events (id, ts) select id, ts from public.plain where id = 5")
    with pytest.raises(psycopg.errors.CheckViolation):
        run(cold.catalog, "update public.events set amount = -1 where id = 5")


def test_from_a_value_leaves_the_rest_cold(cold: Lake) -> None:
    change(cold)
    result = cold.thaw(first="2024-02-15")
    assert result.refilled == ("public.events_2", "public.events_3")
    assert result.to_line == line(cold) == at(cold, FEBRUARY)
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()
    assert cold.thaw(first="2024-01-15").refilled == ("public.events_1",)
    compare(cold)


@pytest.mark.slow
def test_what_was_thawed_is_archived_again(cold: Lake) -> None:
    change(cold)
    cold.thaw()
    assert plan.of_table(cold.catalog, cold.table()).plan.is_empty
    with cold.connect() as connection:
        both(connection, "update public.{t} set status = 'thawed and changed' where id in (1, 7, 28, 503)")
        both(connection, "delete from public.{t} where id in (8, 502)")
    release(cold)
    (result,) = cold.archive("events")
    assert (result.error, result.partitions) == (None, 3)
    compare(cold)
    cold.fold()
    assert cold.clean().waiting == ()
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


@pytest.mark.slow
def test_a_range_that_never_had_a_partition_gets_one_for_its_lake_rows(cold: Lake) -> None:
    change(cold)
    cold.fold()
    result = cold.thaw()
    assert result.refilled[0] == "public.events_thawed"
    assert line(cold) == cold.table().tier_kind.lowest
    compare(cold)
    assert value(cold.catalog, "select count(*) from only public.events_default") == 0


@pytest.mark.slow
def test_a_partition_in_its_grace_period_stays_as_it_is(cold: Lake) -> None:
    run(cold.catalog, "update frostline.managed_table set grace_period = '10 years'")
    april = "create table public.events_4 partition of public._events for values from ('{}') to ('2024-05-01 00:00+00')"
    run(cold.catalog, april.format(APRIL))
    both(cold.catalog, "insert into public.{t} (id, ts) values (901, '2024-04-02')")
    cold.archive("events")
    before = value(cold.catalog, "select 'public.events_4'::regclass::oid")
    assert cold.thaw(first=MARCH).refilled == ("public.events_3",)
    assert value(cold.catalog, "select 'public.events_4'::regclass::oid") == before
    compare(cold)


@pytest.mark.slow
def test_an_emptied_partition_that_is_still_there_is_replaced(lake: Lake, other: psycopg.Connection) -> None:
    """Somebody read the heap when clean wanted to drop it; since then a row went into it."""
    make_archived(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    other.execute("begin; lock table only public._events in access share mode")
    assert lake.clean().waiting == ()
    change(lake)
    other.execute("commit")
    assert value(lake.catalog, "select count(*) from only public.events_1") > 0
    lake.thaw()
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_a_reader_from_before_keeps_what_it_sees(cold: Lake, other: psycopg.Connection) -> None:
    """It has not touched the table yet, so it holds no lock; its snapshot is what counts."""
    change(cold)
    other.execute("begin isolation level repeatable read")
    before = shown(other, "plain")
    cold.thaw()
    with cold.connect() as connection:
        both(connection, "update public.{t} set status = 'newest' where id between 1 and 60")
    cold.clean()
    assert shown(other) == before
    other.execute("commit")
    compare(cold)


@pytest.mark.slow
def test_it_gives_up_on_a_reader_that_stays_and_then_begins_again(
    cold: Lake, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(cold)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    other.execute("begin isolation level repeatable read")
    before = shown(other)
    with pytest.raises(UnavailableError, match=f"pids {other.info.backend_pid} hold"):
        cold.thaw()
    assert shown(other) == before
    compare(cold)
    assert value(cold.catalog, LEFTOVERS) == 3
    other.execute("commit")
    cold.thaw()
    compare(cold)
    assert value(cold.catalog, LEFTOVERS) == 0


def test_who_holds_what_another_thaw_left_is_waited_for(
    cold: Lake, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of a task that has just failed, or autovacuum: each lets go by itself."""
    monkeypatch.setattr(thaw.failpoints, "reached", lambda here: 1 / 0 if here is Failpoint.THAW_FILLED else None)
    with pytest.raises(ZeroDivisionError):
        cold.thaw()
    monkeypatch.undo()
    leftover = value(cold.catalog, LEFTOVERS.replace("count(*)", "min(table_name)"))
    other.execute("begin")
    run(other, f"lock table public.{leftover} in share update exclusive mode")
    waits: list[float] = []

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        other.execute("rollback")

    monkeypatch.setattr(patience.time, "sleep", let_go)
    cold.thaw()
    assert waits
    compare(cold)
    assert value(cold.catalog, LEFTOVERS) == 0


def test_a_writer_that_is_open_when_it_starts_is_waited_for(cold: Lake, other: psycopg.Connection) -> None:
    other.execute("begin")
    for statement in CHANGES:
        both(other, statement)
    timer = threading.Timer(3, other.execute, ["commit"])
    timer.start()
    try:
        cold.thaw()
    finally:
        timer.join()
    compare(cold)
    with cold.connect() as connection:
        assert value(connection, "select count(*) from public.events where status = 'changed'") == 4


def during(lake: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint, *statements: str) -> list[str]:
    """Run statements on both tables when the thaw gets to that place, once; returns what was done."""
    done: list[str] = []

    def reached(here: Failpoint) -> None:
        if here is place and not done:
            done.extend(statements)
            with lake.connect() as connection:
                for statement in statements:
                    both(connection, statement)
            compare(lake)

    monkeypatch.setattr(thaw.failpoints, "reached", reached)
    return done


@pytest.mark.parametrize(
    "place", quick.first(1, [Failpoint.THAW_ATTACHED, Failpoint.THAW_CAUGHT_UP, Failpoint.UNDO_STAGED])
)
def test_writes_between_its_steps_are_kept(cold: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint) -> None:
    with cold.connect() as connection:
        for statement in CHANGES[:2]:
            both(connection, statement)
    assert (
        during(
            cold,
            monkeypatch,
            place,
            "update public.{t} set status = 'meanwhile' where id in (1, 2, 9, 25, 50)",
            "delete from public.{t} where id in (10, 45)",
            "insert into public.{t} (id, ts, status) values (2, '2024-01-01 02:00+00', 'back'), (601, '2024-02-03', 'late')",
            "update public.{t} set ts = '2024-03-03 03:03+00' where id = 11",
        )
        == []
    )
    cold.thaw()
    compare(cold)
    assert value(cold.catalog, "select count(*) from public.events where status = 'meanwhile'") == 4


@pytest.mark.slow
def test_a_writer_with_an_older_snapshot_does_not_lose_what_it_deletes(
    cold: Lake, monkeypatch: pytest.MonkeyPatch, other: psycopg.Connection
) -> None:
    """It cannot see the row in the new partition, so it would only mark it, and the undo would bring the row back."""
    refused: list[psycopg.Error] = []

    def reached(here: Failpoint) -> None:
        if here is Failpoint.THAW_CREATED and other.info.transaction_status is TransactionStatus.IDLE and not refused:
            other.execute("begin isolation level repeatable read")
            other.execute("select count(*) from public.plain")
        if here is Failpoint.THAW_ATTACHED and not refused:
            with pytest.raises(psycopg.errors.SerializationFailure) as error:
                other.execute("delete from public.events where id = 5")
            refused.append(error.value)
            other.execute("rollback")

    monkeypatch.setattr(thaw.failpoints, "reached", reached)
    cold.thaw()
    assert refused
    compare(cold)


@pytest.mark.slow
def test_a_statement_planned_before_the_attach_is_waited_for(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan lacks the new partitions; with a snapshot from after the undo it would miss their rows."""
    lines: list[int] = []
    with cold.connect() as blocker, cold.connect() as reader, cold.connect() as watcher, ThreadPoolExecutor() as pool:
        answers: list[Future[Any]] = []

        def release_when_attached() -> None:
            until_true(watcher, "select count(*) = 3 from pg_class where relispartition and relname ~ '^events_[123]$'")
            threading.Event().wait(0.5)
            text = value(watcher, "select line_timestamptz::text from frostline.seam")
            lines.append(at(cold, text))
            blocker.execute("commit")

        def reached(here: Failpoint) -> None:
            if here is Failpoint.THAW_CAUGHT_UP:
                # The planner knows which partitions there are when it comes to this one, and waits.
                blocker.execute("begin; lock table public.events_hot in access exclusive mode")
                answers.append(pool.submit(shown, reader))
                until_true(
                    watcher,
                    "select exists (select from pg_locks where not granted and relation = 'public.events_hot'::regclass)",
                )
                answers.append(pool.submit(release_when_attached))

        run(watcher, "set timezone = 'UTC'")
        monkeypatch.setattr(thaw.failpoints, "reached", reached)
        cold.thaw()
        assert answers[0].result() == shown(reader, "plain")
        answers[1].result()
    assert lines == [at(cold, APRIL)]


@pytest.mark.slow
def test_a_damaged_file_stops_it_and_is_named(cold: Lake) -> None:
    path = value(cold.catalog, "select path from frostline.lake_file order by lower desc limit 1")
    file = Path(path.removeprefix("file://"))
    content, before = file.read_bytes(), seams.get(cold.catalog, cold.table())
    middle = len(content) // 3
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path = value(cold.catalog, "select path from frostline.lake_file order by lower limit 1")
    another = Path(path.removeprefix("file://")).read_bytes()
    for damaged in (another, flipped, content[:-100], None):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=file.name) as stopped:
            cold.thaw()
        assert "frostline verify public.events" in str(stopped.value.hint)
    assert seams.get(cold.catalog, cold.table()) == before
    file.write_bytes(content)
    cold.thaw()
    compare(cold)


def test_a_refill_that_differs_from_the_lake_is_not_attached(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(here: Failpoint) -> None:
        if here is Failpoint.THAW_FILLED:
            name = value(
                cold.catalog, "select relname from pg_class where relname like 'events_2_thaw%' and relkind = 'r'"
            )
            run(cold.catalog, f"update public.{name} set status = 'wrong' where id = 30")

    monkeypatch.setattr(thaw.failpoints, "reached", reached)
    with pytest.raises(CorruptionError, match=r"public\.events_2_thaw_\d+_2 has 20 rows with hash sum"):
        cold.thaw()
    compare(cold)
    assert archived_partitions.uncleaned(cold.catalog, cold.table()) == []


class Killed(BaseException):
    """Stands for the end of the process: nothing handles it."""


@pytest.mark.slow
def test_one_that_dies_anywhere_is_repeated(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is the second one for the place where the run before it died."""
    change(cold)
    cold.fold()
    change_more = "update public.{t} set amount = coalesce(amount, 0) + 1 where id % 7 = 0"
    for place in [
        failpoint
        for failpoint in Failpoint
        if failpoint.name.startswith("THAW_") and not failpoint.name.endswith(("COPY", "COPIED"))
    ]:

        def reached(here: Failpoint, place: Failpoint = place) -> None:
            if here is place:
                raise Killed

        monkeypatch.setattr(thaw.failpoints, "reached", reached)
        with pytest.raises(Killed):
            cold.thaw()
        compare(cold)
        with cold.connect() as connection:
            both(connection, change_more)
    monkeypatch.undo()
    cold.thaw()
    compare(cold)
    assert value(cold.catalog, LEFTOVERS) == 0
    assert value(cold.catalog, "select count(*) from frostline.job where state in ('planned', 'exported')") == 0
    assert verify.run(cold.catalog, cold.table()).faults == ()
    with pytest.raises(UsageError, match=r"nothing of public\.events is archived"):
        cold.thaw()


def test_a_table_is_removed_with_every_row(
    cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_, **__: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _: None)
    change(cold)
    cold.fold()
    assert "--thaw" in command("table", "remove", "events").stderr
    assert command("table", "remove", "events", "--thaw", "--keep-lake").exit_code == 2
    assert command("table", "remove", "events", "--thaw", "--dry-run").exit_code == 0
    said = command("table", "remove", "events", "--thaw")
    assert (said.exit_code, said.stdout) == (0, "")
    assert "public.events is hot; 59 rows came back from the lake" in said.stderr
    compare(cold)
    assert value(cold.catalog, "select relkind::text from pg_class where oid = 'public.events'::regclass") == "p"
    assert value(cold.catalog, "select count(*) from pg_trigger where tgname = '!frostline_mark'") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "second", "third", "hot"),
    quick.first(
        1,
        [
            ("integer", "0", "100", "200", "50"),
            ("bigint", "-5000000000", "0", "5000000000", "5"),
            ("date", "2024-01-01", "2024-02-01", "2024-03-01", "1 month"),
            ("timestamp", "2024-01-01", "2024-02-01", "2024-03-01", "1 month"),
        ],
    ),
)
def test_every_kind_of_tier_key(lake: Lake, kind: str, first: str, second: str, third: str, hot: str) -> None:
    for name in ("events", "plain"):
        clause = "partition by range (k)" if name == "events" else ""
        columns = f"id int, k {kind}, note text, twice int generated always as (id * 2) stored, primary key (id, k)"
        run(lake.catalog, f"create table public.{name} ({columns}) {clause}")
    run(
        lake.catalog,
        f"""create table public.e_1 partition of public.events for values from (minvalue) to ('{second}');
            create table public.e_2 partition of public.events for values from ('{second}') to ('{third}')""",
    )
    both(
        lake.catalog, f"insert into public.{{t}} values (1, '{first}', 'a'), (2, '{first}', null), (3, '{second}', '')"
    )
    if kind in ("integer", "bigint"):
        run(lake.catalog, f"create table public.e_3 partition of public.events for values from ({third}) to (maxvalue)")
        both(lake.catalog, f"insert into public.{{t}} values (4, {third}::bigint + {hot}, 'hot')")
    else:
        both(lake.catalog, "insert into public.{t} values (5, '-infinity', 'first'), (6, '0044-03-15 BC', 'ides')")
    lake.add(hot=hot)
    (result,) = lake.archive("events")
    assert (result.error, result.partitions) == (None, 2)
    run(lake.catalog, "update frostline.managed_table set grace_period = '10 years'")
    both(lake.catalog, "update public.{t} set note = 'changed' where id = 1")
    both(lake.catalog, "delete from public.{t} where id = 3")
    assert lake.thaw(first=second).refilled == ("public.e_2",)
    compare_all(lake)
    assert lake.thaw().refilled == ("public.e_1",)
    compare_all(lake)
    release(lake)
    lake.archive("events")
    lake.undo()
    compare_all(lake)


def compare_all(lake: Lake) -> None:
    with lake.connect() as connection:
        both_shown = [
            rows(connection, f"select t::text from public.{name} t order by 1") for name in ("events", "plain")
        ]
    assert both_shown[0] == both_shown[1]


@pytest.mark.slow
def test_floats_come_back_bit_by_bit(lake: Lake) -> None:
    run(
        lake.catalog,
        """create table public.f (id int, k int, f float8, g real, primary key (id, k)) partition by range (k);
           create table public.f_1 partition of public.f for values from (0) to (9);
           create table public.f_2 partition of public.f for values from (9) to (99);
           insert into public.f values
               (1, 0, '-0', '-0'), (2, 0, 'NaN', 'NaN'), (3, 0, '5e-324', '1e-45'), (4, 0, 0.1, 0.1), (6, 90, 1, 1),
               (5, 0, 'inf'::float8 - 'inf'::float8, 'inf'::real - 'inf'::real)""",
    )
    bits = "select id, float8send(f), float4send(g) from public.f order by id"
    before = rows(lake.catalog, bits)
    lake.add("f", hot="10")
    lake.archive("f")
    lake.thaw("f")
    assert rows(lake.catalog, bits) == before


@pytest.mark.slow
def test_nonsense_is_refused_and_nothing_changes(cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    before = seams.get(cold.catalog, cold.table())
    for words, message, hint in [
        (["--from", "2090-01-01"], "--from '2090-01-01' is not below the frost line", "frostline status"),
        (["--from", "now and then"], "--from 'now and then' is not a timestamp with time zone", "ts is a"),
        (["--from", "2024-01-01", "--to", "2024-02-01"], "--to '2024-02-01' is not the frost line", "--from VALUE"),
        (["--from", "2024-01-01", "--to", "x"], "--to 'x' is not a timestamp with time zone", "ts is a"),
        ([], "--from", "--help"),
    ]:
        said = command("thaw", "events", *words)
        error, told = said.stderr.splitlines()
        assert (said.exit_code, said.stdout) == (2, "")
        assert message in error
        assert hint in told
    assert seams.get(cold.catalog, cold.table()) == before


def test_the_command_says_what_it_did(
    cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_, **__: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _: None)
    said = command("thaw", "events", "--from", "2024-03-15", "--to", APRIL, "--output", "json")
    assert (said.exit_code, json.loads(said.stdout)) == (
        0,
        {
            "table": "public.events",
            "old_frost_line": APRIL,
            "frost_line": MARCH,
            "refilled": ["public.events_3"],
            "rows": 20,
        },
    )
    compare(cold)
