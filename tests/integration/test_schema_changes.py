"""Schema changes of the heap that its relation follows in the same transaction, compared with a plain table."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.fixtures.cold_twins import alter, both, compare, make_guarded
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins
from tests.fixtures.waiting import until

from frostline.catalog import facts
from frostline.catalog.connect import Connection
from frostline.model.types import encoding
from frostline.pipeline import verify
from frostline.relation import columns, following, renewal


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_guarded(lake)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
    return lake


def is_whole(lake: Lake) -> None:
    """All rows are as in the plain table; every job finds the table in order."""
    compare(lake)
    table = lake.table()
    assert columns.difference(lake.catalog, table) is None
    assert renewal.is_current(lake.catalog, table)
    assert verify.run(lake.catalog, table).faults == ()


def goes_on(lake: Lake) -> None:
    """Writes of hot and cold rows, an archive, a fold and a thaw."""
    is_whole(lake)
    with lake.connect() as connection:
        both(connection, "delete from public.{t} where id in (4, 31)")
    (folded,) = lake.fold("events")
    assert folded.error is None
    is_whole(lake)
    lake.thaw()
    is_whole(lake)


def test_a_column_is_there_at_once_and_can_be_written_in_the_same_transaction(cold: Lake) -> None:
    with cold.connect() as connection, connection.transaction():
        for table, name in (("_events", "events"), ("plain", "plain")):
            run(connection, f"alter table public.{table} add column note text")
            run(connection, f"update public.{name} set note = 'n' || id where id % 7 = 0")
            run(connection, f"insert into public.{name} (id, ts, note) values (9001, '2024-02-02 02:02+00', 'cold')")
    goes_on(cold)
    assert value(cold.catalog, "select count(*) from public.events where note is not null") > 3


def test_a_rollback_leaves_no_trace(cold: Lake) -> None:
    before = rows(cold.catalog, "select * from frostline.managed_column order by 1, 2")
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "alter table public._events add column note text")
        run(connection, "alter table public._events rename column status to state")
        run(connection, "select note, state from public.events where id = 3")
    assert rows(cold.catalog, "select * from frostline.managed_column order by 1, 2") == before
    is_whole(cold)


def test_a_renamed_column_has_its_new_name_everywhere(cold: Lake) -> None:
    alter(cold, "rename column status to state")
    with cold.connect() as connection:
        both(connection, "update public.{t} set state = 'again' where state = 'changed'")
        assert (
            value(connection, "select count(*) from public.events where state = 'again' and ts < '2024-04-01+00'") == 2
        )
    goes_on(cold)


def test_a_key_and_the_tier_key_can_be_renamed(cold: Lake) -> None:
    alter(cold, "rename column id to number")
    alter(cold, "rename column ts to at")
    with cold.connect() as connection:
        statement = "select * from public.{} where number between 20 and 40 order by at"
        assert rows(connection, statement.format("events")) == rows(connection, statement.format("plain"))
        run(connection, "update public.events set status = 'x' where number = 33")
        run(connection, "update public.plain set status = 'x' where number = 33")
        whole = "select t::text from public.{} t order by number, at"
        assert rows(connection, whole.format("events")) == rows(connection, whole.format("plain"))
    assert cold.table().tier_key == "at"
    (folded,) = cold.fold("events")
    assert folded.error is None
    with cold.connect() as connection:
        whole = "select t::text from public.{} t order by number, at"
        assert rows(connection, whole.format("events")) == rows(connection, whole.format("plain"))


def test_columns_that_exchange_their_names_do_not_exchange_their_values(cold: Lake) -> None:
    """Whoever remembers the table's columns by name, as the lake server does, must not be wrong."""
    alter(cold, "add column other text")
    with cold.connect() as connection:
        both(connection, "update public.{t} set other = 'o' || id where id % 3 = 0")
        compare(cold)
        for table in ("_events", "plain"):
            with connection.transaction():
                run(connection, f"alter table public.{table} rename column status to passing")
                run(connection, f"alter table public.{table} rename column other to status")
                run(connection, f"alter table public.{table} rename column passing to other")
        compare(cold)
    goes_on(cold)


def test_a_new_column_may_have_the_name_of_one_that_was_renamed(cold: Lake) -> None:
    alter(cold, "rename column status to old_status")
    alter(cold, "add column status text")
    with cold.connect() as connection:
        both(connection, "update public.{t} set status = 'new' where id in (5, 45)")
    goes_on(cold)


def test_defaults_owners_and_comments_follow(cold: Lake) -> None:
    alter(cold, "alter column amount set default 77")
    run(cold.catalog, "create role keeper; grant all on schema public to keeper")
    insert = "insert into public.{{t}} (id, ts, status) values ({}, '2024-06-02 02:02+00', 'hot'), ({}, '2024-02-02+00', 'cold')"
    with cold.connect() as connection:
        both(connection, insert.format(9001, 9002))
        run(connection, "comment on table public._events is 'what happened'")
        run(connection, "comment on column public._events.status is 'of the event'")
        run(connection, "alter table public._events owner to keeper")
    is_whole(cold)
    assert value(cold.catalog, "select count(*) from public.events where amount = 77") == 2
    assert value(cold.catalog, "select obj_description('public.events'::regclass)") == "what happened"
    owner = "select relowner::regrole::text from pg_class where oid = 'public.events'::regclass"
    assert value(cold.catalog, owner) == "keeper"
    alter(cold, "alter column amount drop default")
    with cold.connect() as connection:
        both(connection, insert.format(9003, 9004))
        run(connection, "set role keeper")
        assert value(connection, "select count(*) from public.events where id = 3") == 1
    is_whole(cold)
    run(cold.catalog, "alter table public._events owner to postgres")
    inner = f"frostline_relation.events_{cold.table().id}"
    assert value(cold.catalog, f"select has_table_privilege('keeper', '{inner}', 'select, update')") is False
    run(cold.catalog, "drop owned by keeper; drop role keeper")


@pytest.mark.parametrize("name", ["public._events", 'PUBLIC . "_events"', "if exists only _events"])
def test_it_waits_for_the_relation_before_it_has_the_heap(cold: Lake, name: str) -> None:
    """Whoever reads holds the relation and wants the heap: to have the heap and want the relation would be a deadlock."""
    waits_for = "select relation = 'public.events'::regclass from pg_locks where not granted and pid = {}"
    with ThreadPoolExecutor() as pool, cold.connect() as altering, cold.connect() as reader:
        reader.execute("begin")
        reader.execute("select count(*) from public.events where ts >= '2024-04-01+00'")
        pid = altering.info.backend_pid
        done = pool.submit(run, altering, f"alter table {name} alter column amount set default 5")
        until(lambda: rows(cold.catalog, waits_for.format(pid)) == [(True,)], "it waits for the relation")
        reader.execute("select count(*) from public.events where ts >= '2024-04-01+00'")
        reader.execute("commit")
        done.result()
    assert (
        value(
            cold.catalog,
            "select column_default from information_schema.columns where table_name = 'events' and column_name = 'amount'",
        )
        == "5"
    )


def test_a_column_that_needs_a_look_is_left_to_the_sync(cold: Lake) -> None:
    run(cold.catalog, "create type public.reach as range (subtype = float8)")
    with cold.connect() as connection:
        notices: list[str | None] = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        run(connection, "alter table public._events add column made public.reach default '[1,2)'")
    assert any("does not have column made yet" in str(notice) for notice in notices)
    assert columns.difference(cold.catalog, cold.table()) is not None


OWN_TYPES = """
create type public.level as enum ('low', 'so "so", or', 'high');
create type public.spot as (x int, note text, at timestamptz, levels public.level[]);
create domain public.short as char(5);
create domain public.positive as int check (value > 0);
create domain public.price as numeric(5, 2) not null default 1.5 constraint fair check (value < 100);
create domain public.raised as public.level check (value <> 'low');
create domain public.listed as int[] check (cardinality(value) < 3)"""
OF_OWN_TYPES = {
    "public.level": "not null default 'low'",
    "public.level[]": "default array['so \"so\", or', null]::public.level[]",
    "public.spot": "default row(1, 'a, \"b\"', '2024-01-01 00:00+02', '{high}')",
    "public.spot[]": "default array[row(null, '', null, '{}')]::public.spot[]",
    "public.short": "default 'ab'",
    "public.positive": "default 5",
    "public.price": "",
    "public.raised": "not null default 'high'",
    "public.listed": "default '{1,2}'",
}
"""What a column of this type is added with, and one without a default, but of the price."""


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_columns_of_own_types_are_there_at_once_with_their_defaults(cold: Lake, zone: str) -> None:
    run(cold.catalog, OWN_TYPES)
    added = [f"add column c{n} {kind} {how}" for n, (kind, how) in enumerate(OF_OWN_TYPES.items())]
    added += [f"add column n{n} {kind}" for n, kind in enumerate(OF_OWN_TYPES) if kind != "public.price"]
    with cold.connect() as connection:
        notices: list[str | None] = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        with connection.transaction():
            run(connection, f"set local timezone = '{zone}'; set local datestyle = 'SQL, DMY'")
            for table, name in (("_events", "events"), ("plain", "plain")):
                run(connection, f"alter table public.{table} {', '.join(added)}")
                run(
                    connection,
                    f"update public.{name} set c0 = 'high', c5 = c5 + 1, n5 = 7 where c0 = 'low' and id % 5 = 0",
                )
            shown = "select t::text from public.{} t order by id"
            assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
        assert not any("does not have column" in str(notice) for notice in notices)
    goes_on(cold)


def test_a_default_is_followed_at_once_where_its_text_has_one_form(cold: Lake) -> None:
    alter(
        cold,
        "add column level integer not null default 7, add column kind text default 'a, \"b\" {c}', add column ok boolean default true",
    )
    with cold.connect() as connection:
        statement = "select count(*), min(kind) from public.{} where level = 7 and ok and ts < '2024-03-01+00'"
        assert rows(connection, statement.format("events")) == rows(connection, statement.format("plain"))
        both(connection, "update public.{t} set level = level + 1, kind = null where id in (2, 29, 50)")
    alter(cold, "alter column level set default 9")
    with cold.connect() as connection:
        both(connection, "insert into public.{t} (id, ts, status) values (9005, '2024-02-03+00', 'late')")
    goes_on(cold)


DEFAULTS = {
    "integer": "7",
    "text": "'it''s: {€} %'",
    "numeric": "1.50",
    "real": "0.1",
    "double precision": "'-0'",
    "date": "'0044-03-15 BC'",
    "timestamptz": "now()",
    "timestamp": "'-infinity'",
    "interval": "'-1 year 2 days -03:04:05'",
    "bytea": "'\\x00ff5c27'",
    "char(5)": "'ab'",
    "inet": "'10.0.0.1'",
    "jsonb": "'[1, null]'",
    "timestamptz[]": "array[timestamptz '2024-01-01 00:00+02']",
}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_a_default_of_any_type_is_there_at_once_also_for_its_own_transaction(cold: Lake, zone: str) -> None:
    """What older rows have is canonical text, whatever the settings of the session are."""
    columns_of = ", ".join(f"add column c{n} {kind} default {v}" for n, (kind, v) in enumerate(DEFAULTS.items()))
    odd = {"timezone": zone, "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "bytea_output": "escape"}
    with cold.connect() as connection, connection.transaction():
        for name, setting in (odd | {"extra_float_digits": "-3"}).items() if zone != "UTC" else ():
            run(connection, f"set local {name} = '{setting}'")
        for table, name in (("_events", "events"), ("plain", "plain")):
            run(connection, f"alter table public.{table} {columns_of}")
            run(connection, f"update public.{name} set c0 = c0 + 1, c1 = c1 || '!' where c0 = 7 and id % 5 = 0")
            run(connection, f"alter table public.{table} alter column c6 drop default")
        shown = "select t::text from public.{} t where c6 = now() order by id"
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    goes_on(cold)


@pytest.mark.parametrize("value_of", ["repeat('x', 201)", "repeat('é€', 40)", "repeat('a\"b'':#7=c', 99)"])
def test_a_long_default_is_there_at_once_also_for_its_own_transaction(cold: Lake, value_of: str) -> None:
    """Though a parser cuts the name by which the lake server is told of it."""
    shown = "select count(*), max(level), max(other) from public.{} where level like '%x%' or level > 'a' and id < 40"
    alter(cold, "add column before text default repeat('y', 70)")
    with cold.connect() as connection, connection.transaction():
        for table, name in (("_events", "events"), ("plain", "plain")):
            run(
                connection,
                f"alter table public.{table} add column level text default {value_of}, add other text default 'o'",
            )
            run(connection, f"update public.{name} set other = level where id % 5 = 0 and before like 'y%'")
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    with cold.connect() as connection:
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    goes_on(cold)


def test_a_very_long_default_is_not_asked_of_the_lake_before_its_transaction_ends(cold: Lake) -> None:
    """It would be in each query. The server cannot know the value yet: an error, and not NULL."""
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "alter table public._events add column level text default repeat('x', 2001)")
        with pytest.raises(psycopg.Error, match="does not exist"):
            run(connection, "select max(level) from public.events")


@pytest.fixture
def quiet(lake: Lake) -> Lake:
    """The same table where no event trigger could be made."""
    make_twins(lake)
    assert value(lake.catalog, "select count(*) from pg_event_trigger where evtname = 'frostline_follow'") == 0
    return lake


def test_the_sync_follows_renames_where_there_are_no_event_triggers(quiet: Lake) -> None:
    alter(quiet, "rename column status to old_status")
    alter(quiet, "rename column ts to at")
    alter(quiet, "add column status text default 'x'")
    assert columns.difference(quiet.catalog, quiet.table()) is not None
    assert following.follow(quiet.catalog, quiet.table()) == ("ts is at now", "status is old_status now", "status")
    whole = "select t::text from public.{} t order by id, at"
    with quiet.connect() as connection:
        both(connection, "update public.{t} set status = 'new' where id in (5, 45)")
        assert rows(connection, whole.format("events")) == rows(connection, whole.format("plain"))
    assert renewal.is_current(quiet.catalog, quiet.table())
    (folded,) = quiet.fold("events")
    assert folded.error is None
    quiet.thaw()
    with quiet.connect() as connection:
        assert rows(connection, whole.format("events")) == rows(connection, whole.format("plain"))


def test_types_travel_as_the_program_has_it(catalog: Connection) -> None:
    """The same decision is written in two languages."""
    listed = rows(
        catalog,
        "select format_type(oid, null) from pg_type where typtype = 'b' and typnamespace = 'pg_catalog'::regnamespace "
        "and typname !~ '^_?(pg_|gtsvector|cstring)' and oid not in (select unnest(array['aclitem', 'refcursor']::regtype[]))",
    )
    more = [
        "numeric(10,2)",
        "numeric(38,0)",
        "numeric(39,2)",
        "numeric(5,-2)",
        "varchar(20)",
        'text collate "C"',
        "char(3)",
    ]
    for (kind,) in [*listed, *((kind,) for kind in more)]:
        run(catalog, f"drop table if exists public.t; create table public.t (a {kind})")
        (column,) = facts.read_columns(catalog, value(catalog, "select 'public.t'::regclass::oid"))
        travels = encoding(column.pg_type, column.collation)
        ours = rows(
            catalog,
            "select e.lake_type, e.as_text, e.pushable from pg_attribute a cross join lateral "
            "frostline.lake_encoding(a.atttypid, a.atttypmod, a.attcollation) e "
            "where a.attrelid = 'public.t'::regclass and a.attnum = 1",
        )
        assert ours == [(travels.lake_type, travels.as_text, travels.pushable)], kind
