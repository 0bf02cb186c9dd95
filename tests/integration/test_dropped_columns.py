"""Columns of the heap that are dropped, by ordinary DDL: the relation follows in the same transaction."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures.cold_twins import both, change, compare, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins
from tests.fixtures.waiting import until

from frostline.catalog import seams
from frostline.errors import UsageError
from frostline.lake import commit
from frostline.pipeline import verify
from frostline.relation import altering, columns, following, guard, renewal, rowsecurity

KEPT = """
create view public.kept as select id, ts, status from public.events where status <> 'none' with local check option;
create view public.on_kept as select id from public.kept;
create view public.barred with (security_barrier, security_invoker = true) as select e.id, lower(e.status) as s, to_jsonb(e) ? 'data' as has_data from public.events e;
comment on view public.kept is 'of mine';
comment on column public.kept.status is 'as it was';
alter view public.kept owner to app;
grant select (status) on public.kept to reader;
alter view public.barred alter column s set default 'x';
grant select on public.events to reader with grant option;
grant update (status, amount) on public.events to reader;
comment on column public._events.status is 'of the event';
"""


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
    return lake


@pytest.fixture
def quiet(lake: Lake) -> Lake:
    """The same table where no event trigger could be made."""
    make_twins(lake)
    assert value(lake.catalog, "select count(*) from pg_event_trigger where evtname = 'frostline_follow'") == 0
    return lake


def alter(lake: Lake, change: str) -> None:
    """The same for the heap and for the plain table."""
    with lake.connect() as connection:
        run(connection, f"alter table public._events {change}")
        run(connection, f"alter table public.plain {change}")


def is_whole(lake: Lake) -> None:
    """All rows are as in the plain table; every job finds the table in order."""
    compare(lake)
    table = lake.table()
    assert columns.difference(lake.catalog, table) is None
    assert renewal.is_current(lake.catalog, table)
    assert verify.run(lake.catalog, table).faults == ()


def goes_on(lake: Lake) -> None:
    """Writes of hot and cold rows, a fold, a compaction and a thaw."""
    is_whole(lake)
    with lake.connect() as connection:
        both(connection, "delete from public.{t} where id in (4, 31)")
        both(connection, "update public.{t} set status = 'again' where id in (7, 33, 77)")
        both(connection, "insert into public.{t} (id, ts, status) values (9001, '2024-02-02 02:02+00', 'cold')")
    for job in (lake.fold, lake.compact):
        (done,) = job("events")
        assert done.error is None
        is_whole(lake)
    lake.thaw()
    is_whole(lake)


def trace(lake: Lake) -> list[list[tuple[Any, ...]]]:
    """What an ALTER could leave: columns, objects with their oids, what is recorded."""
    queries = (
        "select * from frostline.managed_column order by 1, 2",
        "select * from frostline.dropped_column order by 1, 2",
        "select path, fields, types from frostline.lake_file order by 1",
        "select attrelid, attrelid::regclass::text, attname, atttypid from pg_attribute where attnum > 0 and attrelid >= 16384 and attrelid::regclass::text !~ '^pg_' order by 1, 3",
        "select oid, proname from pg_proc where oid >= 16384 order by 1",
        "select * from frostline.aside",
    )
    return [rows(lake.catalog, query) for query in queries]


def lake_fields(lake: Lake) -> list[str]:
    """The columns of the lake as other engines see them."""
    location = seams.get(lake.catalog, lake.table()).metadata_location
    assert location is not None
    return [field.name for field in StaticTable.from_metadata(location).schema().fields]


def test_a_dropped_column_is_gone_and_one_of_its_name_is_another(cold: Lake) -> None:
    """Three generations of files: with the old column, without it, and with the new one."""
    with cold.connect() as connection, connection.transaction():
        for table, name in (("_events", "events"), ("plain", "plain")):
            run(connection, f"update public.{name} set amount = 7 where id in (5, 35, 65)")
            run(connection, f"alter table public.{table} drop column data")
            run(connection, f"update public.{name} set status = 'same' where id in (6, 36, 66)")
        assert value(connection, "select count(*) from public.events where status = 'same'") == 3
    is_whole(cold)
    (folded,) = cold.fold("events")
    assert folded.error is None
    assert lake_fields(cold) == ["id", "ts", "status", "amount"]
    alter(cold, "add column data text")
    assert value(cold.catalog, "select count(*) from public.events where data is not null") == 0
    with cold.connect() as connection:
        both(connection, "update public.{t} set data = 'new' where id in (8, 38, 68)")
    goes_on(cold)
    assert [column.field_id for column in cold.table().columns] == [1, 2, 3, 4, 6]


def test_columns_are_dropped_added_and_renamed_in_all_kinds_of_statements(cold: Lake) -> None:
    run(cold.catalog, "create table public.other (a int, b int)")
    with cold.connect() as connection:
        run(
            connection,
            "alter table public.other drop column b; alter table public._events drop amount, add column amount int",
        )
        run(connection, "do $$ begin alter table public._events drop column if exists data; end $$")
        run(
            connection,
            "alter table if exists public._events drop column if exists nosuch; alter table if exists public.nosuch drop a",
        )
        run(connection, "alter table public._events rename column status to type")
        run(connection, "alter table public._events rename column type to status")
        for change in ("drop amount, add column amount int", "drop column data"):
            run(connection, f"alter table public.plain {change}")
        both(connection, "update public.{t} set amount = id where id % 10 = 0")
    goes_on(cold)


def test_a_rollback_leaves_no_trace_also_to_a_savepoint(cold: Lake) -> None:
    before = trace(cold)
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "alter table public._events drop column amount")
        run(connection, "select status from public.events where id = 3")
    assert trace(cold) == before
    with cold.connect() as connection, connection.transaction():
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():
            run(connection, "alter table public._events drop column amount, drop column nosuch")
        with connection.transaction(force_rollback=True):
            run(connection, "alter table public._events drop column data")
        both(connection, "update public.{t} set amount = 1, data = '[]' where id in (9, 39, 69)")
    is_whole(cold)


def test_views_of_others_stay_with_all_that_they_have(cold: Lake) -> None:
    with role(cold.dsn, "app"), role(cold.dsn, "reader"):
        run(cold.catalog, "grant all on schema public to app; grant select on public.events to app")
        run(cold.catalog, KEPT + "alter default privileges grant select on tables to app")
        queries = (
            "select oid, relowner, relacl::text, reloptions from pg_class where relname in ('kept', 'on_kept', 'barred') order by 1",
            "select relowner::regrole::text, relacl::text from pg_class where relname = 'events'",
            "select relname, pg_get_viewdef(oid) from pg_class where relname in ('kept', 'on_kept', 'barred') order by 1",
            "select objoid, objsubid, description from pg_description where description in ('of mine', 'as it was')",
            "select attname, attacl::text, col_description(attrelid, attnum) from pg_attribute where attrelid = 'public.events'::regclass and attnum > 0 and attname <> 'data'",
            "select adrelid, pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 'public.barred'::regclass",
            "select count(*) from public.kept join public.on_kept using (id) join public.barred using (id)",
        )
        before = [rows(cold.catalog, query) for query in queries]
        alter(cold, "drop column data")
        assert [rows(cold.catalog, query) for query in queries] == before
        assert value(cold.catalog, "select bool_or(has_data) from public.barred") is False
        is_whole(cold)
        run(cold.catalog, "alter default privileges revoke select on tables from app")
        run(cold.catalog, "drop view public.barred, public.kept cascade; drop owned by app, reader")


def test_views_that_use_the_column_are_named_or_go_with_cascade(cold: Lake) -> None:
    run(
        cold.catalog,
        "create view public.v as select id, amount from public.events; create view public.w as select id from public.v",
    )
    run(cold.catalog, "create view public.x as select id from public.events")
    before = trace(cold)
    with cold.connect() as connection:
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="cannot drop column amount") as refused:
            run(connection, "drop view if exists nosuch cascade; alter table public._events drop column amount")
        assert refused.value.diag.message_detail == "view public.v depends on column amount of public.events"
        assert trace(cold) == before
        run(
            connection,
            "alter table public._events drop column amount cascade; alter table public.plain drop column amount",
        )
    assert rows(cold.catalog, "select relname from pg_class where relname in ('v', 'w', 'x')") == [("x",)]
    is_whole(cold)


@pytest.mark.parametrize(
    ("made", "described"),
    [
        (
            "create materialized view public.m as select id from public.events",
            "while materialized view public.m depends on it",
        ),
        (
            "create function public.f(e public.events) returns bigint language sql as 'select e.id'",
            "public.f(public.events) depends on it",
        ),
        (
            "create domain public.d as int check (value > 0); create view public.v as select id from public.events where id <> all ('{1}'::public.d[]::bigint[])",
            "while view public.v depends on it",
        ),
        (
            "create view public.v as select g from public.events x (a, b, c, d, e, f, g)",
            "view public.v cannot be made anew",
        ),
    ],
)
def test_what_cannot_stand_aside_is_named(cold: Lake, made: str, described: str) -> None:
    run(
        cold.catalog,
        "alter table public._events add column more jsonb; alter table public._events add column most jsonb",
    )
    run(cold.catalog, made)
    before = trace(cold)
    with cold.connect() as connection, pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        run(connection, "alter table public._events drop column amount")
    assert described in str(refused.value)
    assert trace(cold) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("drop column id", "part of the primary key"),
        ("drop column id cascade", "part of the primary key"),
        ("drop column ts", "partition key"),
    ],
)
def test_a_key_is_not_dropped(cold: Lake, change: str, message: str) -> None:
    before = trace(cold)
    with cold.connect() as connection, pytest.raises(psycopg.Error, match=message):
        run(connection, f"alter table public._events {change}")
    assert trace(cold) == before
    compare(cold)


@pytest.mark.parametrize(
    ("made", "described"),
    [
        ("create view public.inside as select id from frostline_relation.events_1", "view public.inside"),
        (
            "create materialized view public.inside as select 1 from frostline_relation.events_1",
            "materialized view public.inside",
        ),
        (
            "create function public.inside(frostline_relation.events_1) returns int language sql as 'select 1'",
            "function public.inside",
        ),
        ("create table public.inside (r frostline_relation.events_1[])", "public.inside"),
    ],
)
def test_what_others_made_on_the_inner_view_is_named_and_stays(cold: Lake, made: str, described: str) -> None:
    run(cold.catalog, made)
    before = trace(cold)
    with cold.connect() as connection:
        for change in ("drop column data", "drop column data cascade", "alter column amount type numeric(15, 2)"):
            with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=re.escape(described)):
                run(connection, f"alter table public._events {change}")
        run(connection, "alter table public._events add column extra int")
        run(connection, "alter table public._events drop constraint if exists nosuch")
    run(cold.catalog, "alter table public.plain add column extra int")
    assert trace(cold) != before
    is_whole(cold)


def test_a_statement_that_is_put_together_is_told_by_a_function(cold: Lake) -> None:
    with cold.connect() as connection:
        assembled = "do $$ begin execute 'alter' || ' table public._events drop column amount'; end $$"
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            run(connection, assembled)
        run(connection, "select frostline.alter_table('public._events', 'drop column amount')")
        run(connection, "alter table public.plain drop column amount")
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            run(connection, assembled.replace("amount", "status"))
    is_whole(cold)


def test_whoever_may_not_alter_the_heap_moves_nothing(cold: Lake) -> None:
    before = trace(cold)
    with role(cold.dsn, "app"), cold.connect() as connection:
        run(connection, "create temp table mine (a int, b int); set role app")
        run(connection, "create temp table own (a int, b int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(connection, "alter table public._events drop column amount")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(connection, "select frostline.stand_aside(1, '')")
    assert trace(cold) == before
    is_whole(cold)


def test_with_row_security_policies_go_on(cold: Lake) -> None:
    rowsecurity.switch(cold.catalog, cold.table(), on=True)
    with role(cold.dsn, "app"):
        run(cold.catalog, "grant select, update on public.events to app")
        run(cold.catalog, "create policy few on public._events using (status = 'changed' and id < 20)")
        alter(cold, "drop column data")
        with cold.connect() as connection:
            run(connection, "set role app")
            assert rows(connection, "select id from public.events") == [(3,)]
            run(connection, "update public.events set amount = 5")
        run(cold.catalog, "update public.plain set amount = 5 where id = 3; drop owned by app")
    is_whole(cold)


def test_a_job_that_runs_publishes_nothing_of_the_dropped_column(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = commit.stage

    def altered(*arguments: Any, **options: Any) -> commit.StagedCommit:
        alter(cold, "drop column data")
        return stage(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(commit, "stage", altered)
        (folded,) = cold.fold("events")
    assert folded.error is not None
    is_whole(cold)
    (folded,) = cold.fold("events")
    assert folded.error is None
    is_whole(cold)


def test_readers_of_a_view_wait_and_go_on(cold: Lake) -> None:
    """They hold the view and want the relation: it waits for the view first, so there is no deadlock."""
    run(cold.catalog, "create view public.v as select id, ts from public.events")
    waits_for = "select relation = 'public.v'::regclass from pg_locks where not granted and pid = {}"
    with ThreadPoolExecutor() as pool, cold.connect() as altering_, cold.connect() as reader, cold.connect() as later:
        later.execute("prepare p as select count(*) from public.v where ts < '2024-04-01+00'")
        later.execute("execute p")
        reader.execute("begin")
        reader.execute("select count(*) from public.v where ts >= '2024-04-01+00'")
        pid = altering_.info.backend_pid
        done = pool.submit(run, altering_, "alter table public._events drop column amount")
        until(lambda: rows(cold.catalog, waits_for.format(pid)) == [(True,)], "it waits for the view")
        waiting = pool.submit(later.execute, "execute p")
        reader.execute("select count(*) from public.events where ts >= '2024-04-01+00'")
        reader.execute("commit")
        done.result()
        assert waiting.result().fetchone() == (60,)


def test_in_the_grace_period_both_tiers_lose_it_and_nobody_asks_the_lake(lake: Lake) -> None:
    """Rows are in the heap and in the lake; a column has a sequence, and after a restored dump other numbers."""
    make_archived(lake)
    assert guard.ensure(lake.catalog)
    change(lake)
    alter(lake, "drop column data")
    run(lake.catalog, "update frostline.managed_column set attnum = attnum + 10")
    with lake.connect() as connection, connection.transaction():
        run(connection, "alter server frostline_lake options (set port '1')")
        for table in ("_events", "plain"):
            run(
                connection,
                f"alter table public.{table} alter column id drop identity, alter column amount type numeric(14, 2)",
            )
        run(connection, f"alter server frostline_lake options (set port '{lake.server.port}')")
    is_whole(lake)
    run(lake.catalog, "update frostline.managed_column set attnum = attnum + 10")
    alter(lake, "drop column status")
    lake.undo()
    is_whole(lake)


def test_without_event_triggers_a_command_does_it(quiet: Lake) -> None:
    with pytest.raises(UsageError, match="part of the primary key"):
        altering.alter(quiet.catalog, quiet.table(), "drop column id")
    altering.alter(quiet.catalog, quiet.table(), "drop column data, add column note text")
    run(quiet.catalog, "alter table public.plain drop column data, add column note text")
    goes_on(quiet)


def test_a_row_that_moves_between_partitions_with_other_column_numbers_returns_its_own_columns(lake: Lake) -> None:
    """Postgres 18 takes those of another partition where a kept plan is used; ours is kept from the first row on."""
    run(
        lake.catalog,
        "create table public.events (id int, ts int, gone int, primary key (id, ts)) partition by range (ts)",
    )
    lake.add(hot="5")
    assert guard.ensure(lake.catalog)
    for first in (0, 10, 20):
        if first == 20:  # the others have a number for the column that is gone
            run(lake.catalog, "alter table public._events drop column gone, add column a int, add column b int")
            following.follow(lake.catalog, lake.table())
        bounds = f"for values from ({first}) to ({first + 10})"
        run(lake.catalog, f"create table public.events_{first} partition of public._events {bounds}")
    with lake.connect() as connection:
        run(connection, "insert into public.events (id, ts, a, b) values (1, 15, 100, 200), (2, 25, 300, 400)")
        for start, end in ((15, 25), (25, 5), (5, 15)):
            moved = f"update public.events set ts = {end} where ts = {start} and id = 1 returning id, ts, a, b"
            assert rows(connection, moved) == [(1, end, 100, 200)]
        assert rows(connection, "update public.events set ts = 40 - ts returning a, b") == [(100, 200), (300, 400)]
