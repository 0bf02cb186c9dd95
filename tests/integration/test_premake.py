"""Partitions are made ahead of time on the table's own grid, nobody waits for it, and no row gets lost in DEFAULT."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import patience, seams, tables
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.model.heap_grid import HeapGrid, Step
from frostline.model.names import Name
from frostline.model.policy import Mode, Policy
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, from_text
from frostline.partitions import partition_mode, premake
from frostline.pipeline import premake as job
from frostline.relation import clock, policy, registration
from frostline.relation.registration import Request
from frostline.settings import Settings

BOUNDS = """
select c.relname::text || ' ' || coalesce(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM .*'), 'DEFAULT')
  from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = '{}'::regclass order by c.relname collate "C" """

Moment = Callable[[str], None]


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    """Says what time it is for premake, as a day."""

    def stop(day: str) -> None:
        clock_texts = {
            TierKind.DATE: day,
            TierKind.TIMESTAMP: f"{day} 12:00:00",
            TierKind.TIMESTAMPTZ: f"{day} 12:00:00+00",
        }
        monkeypatch.setattr(clock, "time", lambda _connection, kind: from_text(kind, clock_texts[kind]))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    return stop


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(dsn=database, warehouse="/nowhere")


def manage(connection: Connection, name: str = "events", **fields: Any) -> Table:
    """Manage the partitions of a table."""
    request = Request(Name.parse(name), Policy(**fields))
    return partition_mode.add(connection, request).table


def tier(connection: Connection, name: str = "events", **fields: Any) -> Table:
    """Give a table two tiers."""
    return registration.add(connection, Request(Name.parse(name), Policy("1 month", **fields))).table


def make_table(connection: Connection, kind: str, *bounds: str, name: str = "public.events") -> None:
    """A table with partitions between these bounds, called p1, p2, ..."""
    run(connection, f"create table {name} (k {kind} not null, note text) partition by range (k)")
    for number, (lower, upper) in enumerate(pairwise(bounds), start=1):
        run(
            connection,
            f"create table public.p{number} partition of {name} for values from ('{lower}') to ('{upper}')",
        )


def bounds(connection: Connection, heap: str = "public.events") -> list[str]:
    """Names and bounds of the partitions, by name."""
    return [text for (text,) in rows(connection, BOUNDS.format(heap))]


@pytest.mark.parametrize(
    ("kind", "there", "made"),
    first(2, [
        ("date", ("2024-04-01", "2024-05-01", "2024-06-01", "2024-07-01"), ["2024-07-01", "2024-08-01", "2024-09-01"]),
        ("timestamp", ("2023-10-01", "2024-01-01", "2024-04-01", "2024-07-01"),
         ["2024-07-01 00:00:00", "2024-10-01 00:00:00", "2025-01-01 00:00:00"]),
        ("timestamptz", ("2024-06-13 00:00+00", "2024-06-14 00:00+00", "2024-06-15 00:00+00", "2024-06-16 00:00+00"),
         ["2024-06-16 00:00:00+00", "2024-06-17 00:00:00+00", "2024-06-18 00:00:00+00"]),
        ("date", ("2024-05-27", "2024-06-03", "2024-06-10", "2024-06-17"), ["2024-06-17", "2024-06-24", "2024-07-01"]),
        ("timestamp", ("2024-06-15 10:00", "2024-06-15 11:00", "2024-06-15 12:00", "2024-06-15 13:00"),
         ["2024-06-15 13:00:00", "2024-06-15 14:00:00", "2024-06-15 15:00:00"]),
        ("date", ("2022-01-01", "2023-01-01", "2024-01-01", "2025-01-01"), ["2025-01-01", "2026-01-01", "2027-01-01"]),
    ]),
    ids=["months", "quarters", "days", "weeks", "hours", "years"],
)  # fmt: skip
def test_the_grid_of_the_table_goes_on(
    catalog: Connection, settings: Settings, moment: Moment, kind: str, there: tuple[str, ...], made: list[str]
) -> None:
    moment("2024-06-15")
    make_table(catalog, kind, *there)
    table = manage(catalog, premake=2)
    result = job.run(catalog, settings, table)
    assert [(partition.lower, partition.upper) for partition in result.created] == list(pairwise(made))
    assert [partition.name.table for partition in result.created] == ["p4", "p5"]
    assert bounds(catalog)[3:] == [
        f"p{number} FROM ('{lower}') TO ('{upper}')"
        for number, lower, upper in zip((4, 5), made, made[1:], strict=False)
    ]
    assert job.run(catalog, settings, table).created == ()
    assert rows(catalog, "select kind, state, detail from frostline.job") == [
        ("premake", "published", "made public.p4, public.p5")
    ]


def test_months_cut_at_midnight_in_berlin_follow_summer_time(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-02-15")
    run(catalog, f"alter database {catalog.info.dbname} set timezone = 'Europe/Berlin'")
    run(catalog, "set timezone = 'Europe/Berlin'")
    make_table(catalog, "timestamptz", "2023-12-01", "2024-01-01", "2024-02-01", "2024-03-01")
    run(catalog, "set timezone = 'UTC'")
    job.run(catalog, settings, manage(catalog, premake=2))
    run(catalog, "set timezone = 'Europe/Berlin'")
    assert bounds(catalog)[3:] == [
        "p4 FROM ('2024-03-01 00:00:00+01') TO ('2024-04-01 00:00:00+02')",
        "p5 FROM ('2024-04-01 00:00:00+02') TO ('2024-05-01 00:00:00+02')",
    ]


@pytest.mark.parametrize(
    "zone", first(1, ["America/Sao_Paulo", "America/Havana", "Europe/Berlin", "Australia/Lord_Howe"])
)
def test_local_midnights_are_those_of_postgres(catalog: Connection, zone: str) -> None:
    run(catalog, "set timezone = 'UTC'")
    query = """select ((timestamp '2017-01-01' + make_interval(days => i)) at time zone %s)::text
                 from generate_series(0, 2500) i"""
    expected = [from_text(TierKind.TIMESTAMPTZ, text) for (text,) in rows(catalog, query, (zone,))]
    grid = HeapGrid(TierKind.TIMESTAMPTZ, expected[0], Step(days=1), zone)
    assert [grid.edge(number) for number in range(len(expected))] == expected


def test_integers_go_on_from_the_highest_row(catalog: Connection, settings: Settings) -> None:
    make_table(catalog, "bigint", "0", "100", "200", "300")
    table = manage(catalog, premake=2)
    assert job.run(catalog, settings, table).created == ()
    run(catalog, "insert into public.events values (150)")
    assert [partition.lower for partition in job.run(catalog, settings, table).created] == ["300"]
    run(catalog, "insert into public.events values (350)")
    assert [partition.lower for partition in job.run(catalog, settings, table).created] == ["400", "500"]


def test_one_wrong_integer_in_default_is_not_where_the_table_is(catalog: Connection, settings: Settings) -> None:
    make_table(catalog, "bigint", "0", "100", "200")
    run(catalog, "create table public.rest partition of public.events default")
    run(catalog, "insert into public.events values (999999999999)")
    result = job.run(catalog, settings, manage(catalog, premake=2))
    assert [partition.lower for partition in result.created] == ["200"]
    assert (result.stray.rows, result.stray.lowest, result.stray.highest) == (1, "999999999999", "999999999999")


def test_integers_that_ran_ahead_are_followed(catalog: Connection, settings: Settings) -> None:
    make_table(catalog, "bigint", "0", "100", "200")
    run(catalog, "create table public.rest partition of public.events default")
    run(catalog, "insert into public.events select i, 'row' from generate_series(1, 999) i")
    result = job.run(catalog, settings, manage(catalog, premake=2))
    assert (len(result.created), sum(partition.moved for partition in result.created), result.stray.rows) == (
        10,
        800,
        0,
    )
    assert value(catalog, "select count(*) from only public.rest") == 0
    assert value(catalog, "select count(*) || ' ' || count(distinct k) from public.events") == "999 999"


def test_every_is_the_width_of_new_ones(catalog: Connection, settings: Settings, moment: Moment) -> None:
    moment("2024-06-15")
    make_table(catalog, "date", "2024-01-01", "2024-06-03", "2024-06-17")
    job.run(catalog, settings, manage(catalog, premake=2, partition_interval="1 week"))
    assert bounds(catalog)[2:] == [
        "p3 FROM ('2024-06-17') TO ('2024-06-24')",
        "p4 FROM ('2024-06-24') TO ('2024-07-01')",
    ]


def test_every_makes_the_first_partition_too(catalog: Connection, settings: Settings, moment: Moment) -> None:
    moment("2024-06-15")
    make_table(catalog, "timestamptz")
    job.run(catalog, settings, manage(catalog, premake=1, partition_interval="3 months"))
    assert [text.partition(" ")[0] for text in bounds(catalog)] == ["events_p2024_04", "events_p2024_07"]


def test_partitions_without_a_grid_are_a_problem_with_a_way_out(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-06-15")
    run(catalog, "create table public.events (k date primary key) partition by range (k)")
    for lower, upper in (("2024-01-01", "2024-01-15"), ("2024-01-15", "2024-03-07"), ("2024-03-07", "2024-07-01")):
        run(
            catalog,
            f"create table public.\"e {lower}\" partition of public.events for values from ('{lower}') to ('{upper}')",
        )
    table = tier(catalog)
    result = job.run(catalog, settings, table)
    assert result.created == ()
    assert result.problem == (
        "its newest partitions are not alike; say how wide new ones are: frostline table set public.events --every WIDTH"
    )
    assert value(catalog, "select count(*) from frostline.job") == 0
    assert job.run(catalog, settings, policy.change(catalog, table, partition_interval="1 month")).created


def test_hostile_names(catalog: Connection, settings: Settings, moment: Moment) -> None:
    moment("2024-06-15")
    run(
        catalog,
        'create schema "a""; drop"; create table "a""; drop"."T;\'x%s" ("K ""%s" date not null) partition by range ("K ""%s")',
    )
    for month in (5, 6):
        run(
            catalog,
            f'create table "a""; drop"."T;\'x%s 2024-0{month}" partition of "a""; drop"."T;\'x%s" '
            f"for values from ('2024-0{month}-01') to ('2024-0{month + 1}-01')",
        )
    run(catalog, 'create table "a""; drop"."%s" partition of "a""; drop"."T;\'x%s" default')
    run(catalog, 'insert into "a""; drop"."T;\'x%s" values (\'2024-07-05\')')
    result = job.run(catalog, settings, manage(catalog, '"a""; drop"."T;\'x%s"', premake=2))
    assert [partition.name for partition in result.created] == [
        Name('a"; drop', "T;'x%s 2024-07"), Name('a"; drop', "T;'x%s 2024-08"),
    ]  # fmt: skip
    assert result.created[0].moved == 1


def test_a_taken_name_gets_a_number(catalog: Connection, settings: Settings, moment: Moment) -> None:
    moment("2024-06-15")
    make_table(catalog, "date", "2024-05-01", "2024-06-01", "2024-07-01")
    run(catalog, "create view public.p3 as select 1")
    job.run(catalog, settings, manage(catalog, premake=1))
    assert "p3_1 FROM ('2024-07-01') TO ('2024-08-01')" in bounds(catalog)


FULL = """
create table public.kinds (kind int primary key);
insert into public.kinds values (1);
create table public.log (what text);
create table public.events (
    id bigint generated always as identity, k date not null, kind int references public.kinds, n int check (n > 0),
    double_n int generated always as (n * 2) stored, primary key (id, k)) partition by range (k);
create table public.p1 partition of public.events for values from ('2024-05-01') to ('2024-06-01');
create table public.p2 partition of public.events for values from ('2024-06-01') to ('2024-07-01');
create table public.rest partition of public.events default;
create index on public.events (kind) where n > 5;
alter table public.events replica identity full;
create function public.noted() returns trigger language plpgsql as
    $$ begin insert into public.log values (tg_op || ' ' || tg_table_name); return new; end $$;
create trigger noted after insert or delete on public.events for each row execute function public.noted();
alter table public.events enable row level security;
create policy most on public.events using (n > 3);
insert into public.events (k, kind, n) values ('2024-07-05', 1, 4), ('2024-07-06', 1, 7), ('2099-01-01', 1, 9);
truncate public.log"""


def test_what_belongs_to_the_table_belongs_to_the_new_partition(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-06-15")
    run(catalog, FULL)
    before = rows(catalog, "select * from public.events order by id")
    result = job.run(catalog, settings, manage(catalog, premake=1))
    assert [(str(partition.name), partition.moved) for partition in result.created] == [("public.p3", 2)]
    assert result.stray.rows == 1
    assert rows(catalog, "select * from public.events order by id") == before
    assert rows(catalog, "select * from public.log") == []
    run(catalog, "insert into public.events (k, kind, n) values ('2024-07-07', 1, 5)")
    assert rows(catalog, "select tableoid::regclass::text, id, double_n from public.events where n = 5") == [
        ("public.p3", 4, 10)
    ]
    assert rows(catalog, "select * from public.log") == [("INSERT p3",)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        run(catalog, "insert into public.events (k, kind, n) values ('2024-07-07', 2, 5)")
    with pytest.raises(psycopg.errors.CheckViolation):
        run(catalog, "insert into public.events (k, kind, n) values ('2024-07-07', 1, 0)")
    same = """select (select count(*) from pg_index where indrelid = c.oid), relreplident, relowner,
                     obj_description(oid, 'pg_class'), (select array_agg(conname order by 1) from pg_constraint where conrelid = c.oid and contype = 'c')
                from pg_class c where relname = '{}'"""
    assert rows(catalog, same.format("p3"))[0][:2] == (2, "f")
    assert rows(catalog, same.format("p3"))[0][3:] == rows(catalog, same.format("p2"))[0][3:]
    assert value(
        catalog,
        "select array_agg(tgenabled::text) from pg_trigger where tgrelid = 'public.rest'::regclass and not tgisinternal",
    ) == ["O"]


def test_rows_that_a_foreign_key_points_at_are_not_moved(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-06-15")
    run(
        catalog,
        """create table public.events (k date primary key) partition by range (k);
        create table public.p1 partition of public.events for values from ('2024-05-01') to ('2024-06-01');
        create table public.p2 partition of public.events for values from ('2024-06-01') to ('2024-07-01');
        create table public.rest partition of public.events default;
        create table public.children (k date references public.events on delete cascade);
        insert into public.events values ('2024-07-05'); insert into public.children values ('2024-07-05')""",
    )
    result = job.run(catalog, settings, manage(catalog, premake=2))
    assert result.problem == (
        "public.rest has rows from 2024-07-01 to 2024-08-01, and a foreign key points at them: move them by hand"
    )
    assert [partition.lower for partition in result.created] == ["2024-08-01"]
    assert value(catalog, "select count(*) from public.children") == 1
    assert value(catalog, "select count(*) from pg_class where relname = 'p3' and not relispartition") == 0


def test_too_many_rows_are_left_until_somebody_says_to_move_them(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-06-15")
    make_table(catalog, "date", "2024-05-01", "2024-06-01", "2024-07-01")
    run(catalog, "create table public.rest partition of public.events default")
    run(catalog, "insert into public.events select '2024-07-05' from generate_series(1, 20)")
    table = manage(catalog, premake=1)
    result = job.run(catalog, settings, table, 19)
    assert result.created == ()
    assert result.problem is not None
    assert "more than 19; frostline premake public.events --move-rows N" in result.problem
    assert rows(catalog, "select state, error is not null from frostline.job") == [("failed", True)]
    assert [partition.moved for partition in job.run(catalog, settings, table, 20).created] == [20]
    assert rows(catalog, "select tableoid::regclass::text, count(*) from public.events group by 1") == [
        ("public.p3", 20)
    ]


def test_of_a_big_default_only_the_future_is_guarded(
    catalog: Connection, settings: Settings, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ATTACH must not read it under its lock, and it is proved beforehand that there is nothing to find."""
    moment("2024-06-15")
    monkeypatch.setattr(premake, "SMALL_BYTES", 0)
    make_table(catalog, "date", "2024-04-01", "2024-05-01", "2024-06-01")
    run(
        catalog,
        "create table public.rest partition of public.events default; insert into public.events values ('2000-01-01')",
    )
    table = manage(catalog, premake=2)
    noticed: list[str] = []
    catalog.add_notice_handler(lambda diagnostic: noticed.append(diagnostic.message_primary or ""))
    run(catalog, "set client_min_messages = debug1")
    result = job.run(catalog, settings, table)
    run(catalog, "reset client_min_messages")
    assert [partition.lower for partition in result.created] == ["2024-07-01", "2024-08-01"]
    assert result.problem is not None
    assert "too big to be read while others wait for it" in result.problem
    assert sum('default partition "rest" is implied by existing constraints' in text for text in noticed) == 2
    assert value(catalog, "select count(*) from pg_constraint where conname like 'frostline%'") == 0
    assert [partition.lower for partition in job.run(catalog, settings, table, 20_000).created] == ["2024-06-01"]


def test_a_guarded_range_that_has_rows_is_not_guarded_for_long(
    catalog: Connection, settings: Settings, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment("2024-06-15")
    monkeypatch.setattr(premake, "SMALL_BYTES", 0)
    make_table(catalog, "date", "2024-05-01", "2024-06-01", "2024-07-01")
    run(
        catalog,
        "create table public.rest partition of public.events default; insert into public.events values ('2024-07-02')",
    )
    table = manage(catalog, premake=1)
    assert job.run(catalog, settings, table).created == ()
    assert value(catalog, "select count(*) from pg_constraint where conname like 'frostline%'") == 0
    run(catalog, "insert into public.events values ('2024-07-03')")
    assert [partition.moved for partition in job.run(catalog, settings, table, 20_000).created] == [2]
    assert value(catalog, "select count(*) from pg_constraint where conname like 'frostline%'") == 0


def test_a_partition_that_somebody_made_meanwhile_counts(
    catalog: Connection, settings: Settings, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment("2024-06-15")
    make_table(catalog, "date", "2024-05-01", "2024-06-01", "2024-07-01")
    table = manage(catalog, premake=2)
    wanted = premake.plan(catalog, table)
    run(catalog, "create table public.mine partition of public.events for values from ('2024-07-10') to ('2024-07-20')")
    monkeypatch.setattr(premake, "plan", lambda *_: wanted)
    assert [partition.lower for partition in job.run(catalog, settings, table).created] == ["2024-08-01"]
    assert (
        value(
            catalog,
            "select count(*) from pg_class where relname like 'p%' and not relispartition and relnamespace = 'public'::regnamespace",
        )
        == 0
    )


@pytest.fixture
def busy(catalog: Connection, database: str, moment: Moment) -> Iterator[tuple[Table, psycopg.Connection]]:
    """A table with a DEFAULT partition, and somebody else's open transaction."""
    moment("2024-06-15")
    make_table(catalog, "date", "2024-05-01", "2024-06-01", "2024-07-01")
    run(catalog, "create table public.rest partition of public.events default")
    table = manage(catalog, premake=1)
    with psycopg.connect(database) as other:
        yield table, other
        other.rollback()


def test_a_long_reader_of_other_partitions_is_no_hindrance(
    catalog: Connection, settings: Settings, busy: tuple[Table, psycopg.Connection]
) -> None:
    table, other = busy
    run(other, "select count(*) from public.events where k = '2024-06-01'")
    run(other, "insert into public.events values ('2024-06-05')")
    assert len(job.run(catalog, settings, table).created) == 1


@pytest.mark.parametrize(
    "statement", ["select count(*) from public.events", "insert into public.events values ('1999-01-01')"]
)
def test_whoever_holds_default_is_waited_for_and_nobody_queues_behind(
    catalog: Connection,
    settings: Settings,
    database: str,
    busy: tuple[Table, psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
) -> None:
    table, other = busy
    run(other, statement)
    monkeypatch.setattr(patience, "PATIENCE_S", 1.0)
    stop = threading.Event()

    def read() -> int:
        with psycopg.connect(database, autocommit=True) as reader:
            run(reader, "set lock_timeout = 500")  # one is tried for 50 ms
            done = 0
            while not stop.is_set():
                run(reader, "select count(*) from public.events")
                done += 1
            return done

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            with pytest.raises(UnavailableError, match="still in use"):
                job.run(catalog, settings, table)
        finally:
            stop.set()
        assert reading.result() > 0
    assert rows(catalog, "select state from frostline.job") == [("failed",)]
    assert value(catalog, "select count(*) from pg_class where relname = 'p3'") == 0
    other.rollback()
    assert len(job.run(catalog, settings, table).created) == 1


def test_writers_of_a_range_that_has_no_partition_yet_notice_nothing(
    catalog: Connection, settings: Settings, database: str, moment: Moment
) -> None:
    moment("2024-06-15")
    make_table(catalog, "date", "2024-04-01", "2024-05-01", "2024-06-01")
    run(catalog, "create table public.rest partition of public.events default")
    table = manage(catalog, premake=2)
    stop = threading.Event()

    def write(writer: int) -> int:
        with psycopg.connect(database, autocommit=True) as connection:
            written = 0
            while not stop.is_set():
                written += 1
                text = f"insert into public.events values (date '2024-06-01' + {written % 60}, '{writer} {written}')"
                run(connection, text)
            return written

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        try:
            while not value(catalog, "select count(*) > 200 from only public.rest"):
                pass
            result = job.run(catalog, settings, table)
        finally:
            stop.set()
        written = sum(future.result() for future in writing)
    assert [partition.lower for partition in result.created] == ["2024-06-01", "2024-07-01", "2024-08-01"]
    assert result.created[0].moved > 0
    assert rows(catalog, "select count(*), count(distinct note) from public.events") == [(written, written)]
    assert value(catalog, "select count(*) from only public.rest") == 0


def test_stray_rows_of_a_tiered_table_come_home_and_are_there_once(
    catalog: Connection, settings: Settings, moment: Moment
) -> None:
    moment("2024-06-15")
    make_events(catalog, "public.events", months=5)
    table = tier(catalog, premake=1)
    run(
        catalog,
        "insert into public.events (ts, status) select '2024-06-03', 'stray ' || i from generate_series(1, 50) i",
    )
    run(catalog, "insert into public.events (ts, status) values ('2030-01-01', 'far')")
    before = rows(catalog, "select * from public.events order by id")
    assert (premake.stray(catalog, table).rows, premake.stray(catalog, table).lowest) == (51, "2024-06-03 00:00:00+00")
    result = job.run(catalog, settings, table)
    assert [(partition.lower, partition.moved) for partition in result.created] == [
        ("2024-06-01 00:00:00+00", 50), ("2024-07-01 00:00:00+00", 0),
    ]  # fmt: skip
    assert result.stray.rows == 1
    assert rows(catalog, "select * from public.events order by id") == before
    overlay = f"select count(*) from frostline_overlay.{table.internal}"
    assert value(catalog, overlay) == 1  # of the row that is still in DEFAULT
    run(catalog, "insert into public.events (ts, status) values ('2024-06-20', 'new')")
    assert (
        value(catalog, "select tableoid::regclass::text from public._events where status = 'new'") == "public.events_6"
    )
    assert value(catalog, overlay) == 1
    assert value(catalog, "select count(*) from frostline.folding") == 0


@pytest.mark.spark
@pytest.mark.slow
def test_premade_partitions_are_archived_and_nothing_is_made_below_the_line(lake: Lake, moment: Moment) -> None:
    moment("2024-04-15")
    make_events(lake.catalog, "public.events", months=3)
    table = lake.add(premake=2)
    fill_events(lake.catalog, months=4, rows_a_month=20)  # April is in DEFAULT
    before = lake.value("select count(*) || ' ' || count(distinct id) || ' ' || sum(amount) from events")
    assert [partition.moved for partition in job.run(lake.catalog, lake.settings, table).created] == [20, 0, 0]
    run(lake.catalog, "update public._events set amount = amount where ts >= '2024-04-01'")
    (result,) = lake.archive()
    assert result.error is None
    assert (result.partitions, result.rows) == (6, 80)
    assert lake.value("select count(*) || ' ' || count(distinct id) || ' ' || sum(amount) from events") == before
    line = seams.get(lake.catalog, table).frost_line
    assert line == from_text(TierKind.TIMESTAMPTZ, "2024-07-01 00:00:00+00")
    moment("2024-08-15")
    assert value(lake.catalog, "select count(*) from pg_inherits where inhparent = 'public._events'::regclass") == 1
    again = job.run(lake.catalog, lake.settings, table)
    assert [(partition.name.table, partition.lower) for partition in again.created] == [
        (f"events_{number}", f"2024-{number:02}-01 00:00:00+00") for number in (7, 8, 9, 10)
    ]
    assert tables.get(lake.catalog, table.name).mode is Mode.TIERED
