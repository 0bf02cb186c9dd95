"""Tables of every kind are converted, or refused with a reason before anything is made."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.conversion import (
    EVENTS_REQUEST,
    contents,
    convert,
    described,
    equal,
    make,
    nothing_is_left,
    prepared,
)
from tests.fixtures.quick import first, some
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.catalog import conversions
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.model.conversion import Conversion, State
from frostline.model.names import Name
from frostline.partitions.convert import backfill, shadow

KEYS = {
    "text": ('k text collate "C"', "k", "md5(i::text)"),
    "locale": ("k text", "k", "case when i % 2 = 0 then 'É' else 'e' end || md5(i::text)"),
    "uuid": ("k uuid", "k", "md5(i::text)::uuid"),
    "numeric": ("k numeric", "k", "i / 7.0 - 20"),
    "float": ("k double precision", "k", "sqrt(i) - 10"),
    "char": ("k char(8)", "k", "i::text"),
    "bytea": ("k bytea", "k", "decode(md5(i::text), 'hex')"),
    "enum": ("k public.mood, k2 int", "k2, k", "(array['b', 'a'])[1 + i % 2]::public.mood, i / 2"),
    "domain": ("k public.positive", "k", "i"),
    "interval": ("k interval", "k", "interval '1 hour' * i"),
    "composite": ("k int, k2 text, k3 date", "k2, k3, k", "i % 3, md5(i::text), date '2020-01-01' + i % 5"),
    "range": ("k int4range", "k", "int4range(i, i + 1)"),
}


@pytest.mark.parametrize("kind", some(KEYS, "text", "numeric", "composite"))
def test_every_kind_of_key(emptied: Connection, kind: str) -> None:
    columns, key, values = KEYS[kind]
    run(emptied, "create type public.mood as enum ('b', 'a'); create domain public.positive as int check (value > 0)")
    run(emptied, f"create table public.events ({columns}, ts timestamptz not null, note text, primary key ({key}))")
    run(
        emptied,
        f"insert into public.events select {values}, timestamptz '2024-01-01' + interval '1 hour' * i, 'x' from generate_series(1, 500) i",
    )
    before = contents(emptied, "public.events")
    running = prepared(emptied)
    facts = conversions.facts(emptied, EVENTS_REQUEST.name, "ts")
    for size in (1, 99):
        assert backfill._copy(emptied, running, facts, running.position, size)
        running = (
            conversions.find(emptied, EVENTS_REQUEST.name) or running
        )  # the position has been to the catalog and back
    assert running.rows == 100
    run(emptied, "update public.events set note = 'y'")
    assert convert(emptied).changed
    assert [row[0].replace("y)", "x)") for row in contents(emptied, "public.events")] == [row[0] for row in before]


TIERS = {
    "integer": ("int", "1000", "i * 37 - 5000", {"public.events_pm5000", "public.events_p0", "public.events_p13000"}),
    "smallint": (
        "smallint",
        "10000",
        "case when i = 1 then -32768 when i = 2 then 32767 else i end",
        {"public.events_pm40000", "public.events_p30000", "public.events_p0"},
    ),
    "bigint": ("bigint", "1000000000", "9223372036854775807 - i", {"public.events_p9223372036000000000"}),
    "date": ("date", "week", "date '2024-01-01' + i", {"public.events_p2024_01_01", "public.events_p2024_01_08"}),
    "timestamp": (
        "timestamp",
        "12 hours",
        "timestamp '2024-02-28 00:00' + interval '10 min' * i",
        {"public.events_p2024_02_29_1200"},
    ),
    "quarter": (
        "timestamptz",
        "quarter",
        "timestamptz '2023-11-01 00:00+00' + interval '1 day' * i",
        {"public.events_p2023_10", "public.events_p2024_01"},
    ),
    "year": (
        "timestamptz",
        "year",
        "timestamptz '2023-12-31 23:59:59+00' + interval '1 day' * i",
        {"public.events_p2024", "public.events_p2025"},
    ),
    "long ago": ("date", "1 year", "date '0003-06-01 BC' + i * 3", {"public.events_pm002", "public.events_p0001"}),
}


@pytest.mark.parametrize("kind", some(TIERS, "integer", "timestamp"))
def test_every_kind_of_tier_key(emptied: Connection, kind: str) -> None:
    type_name, width, values, expected = TIERS[kind]
    run(emptied, f"create table public.events (id int primary key, ts {type_name})")
    run(emptied, f"insert into public.events select i, {values} from generate_series(1, 500) i")
    before = contents(emptied, "public.events")
    convert(emptied, Conversion(Name("public", "events"), "ts", width))
    assert contents(emptied, "public.events") == before
    used = {name for (name,) in rows(emptied, "select distinct tableoid::regclass::text from public.events")}
    assert expected <= used
    assert "public.events_default" not in used


def test_partitions_are_cut_in_utc_whatever_the_sessions_say(
    emptied: Connection, connect: Callable[[str], psycopg.Connection], shared_database: str
) -> None:
    make(emptied, 1000, "events", "plain")
    run(emptied, "alter database " + emptied.info.dbname + " set timezone = 'Asia/Tokyo'")
    with open_connection(shared_database, purpose="tests") as here:
        prepared(here)
        client = connect(shared_database)
        assert value(client, "show timezone") == "Asia/Tokyo"
        for t in ("events", "plain"):
            run(
                client,
                f"update public.{t} set ts = ts + interval '1 month' where id % 2 = 0; insert into public.{t} (id, ts, ref) values (7777, '2024-02-01 08:59:59', 'still January in UTC')",
            )
        convert(here)
    assert contents(emptied, "public.events") == contents(emptied, "public.plain")
    assert (
        value(emptied, "select tableoid::regclass::text from public.events where id = 7777") == "public.events_p2024_01"
    )
    assert (
        value(emptied, "select pg_get_expr(relpartbound, oid) from pg_class where relname = 'events_p2024_01'")
        == "FOR VALUES FROM ('2024-01-01 00:00:00+00') TO ('2024-02-01 00:00:00+00')"
    )


HOSTILE = [
    "\"a\"\"b' ''c\" \\'d; drop table public.victim; --",
    "$body$; drop table public.victim; $body1$ $$ $1",
    "{} {0} {shadow} %s %(oid)s %% %I",
    "ß雪" * 20,
    "old", "new", "o", "s", "t", "batch", "found", "tg_op", "select", "excluded",
]  # fmt: skip


@pytest.mark.parametrize("text", first(3, HOSTILE))
def test_hostile_names(emptied: Connection, text: str) -> None:
    name, other = text.encode()[:60].decode(errors="ignore"), "2" + text.encode()[:60].decode(errors="ignore")
    table, key, tier, third = (sql.Identifier(words) for words in (name, name, other, "3" + name))
    own = sql.Identifier(name, name)
    emptied.execute(sql.SQL("create schema {}").format(table))
    statements = [
        sql.SQL(
            "create table {t} ({k} text, {s} timestamptz, {u} int generated always as identity, primary key ({k}, {u}))"
        ),
        sql.SQL("create index {u} on {t} ({s}, {k})"),
        sql.SQL(
            "insert into {t} select i::text, timestamptz '2024-01-01' + interval '1 day' * i from generate_series(1, 90) i"
        ),
    ]
    parts = {"t": own, "k": key, "s": tier, "u": third}
    for statement in statements:
        emptied.execute(statement.format(**parts))
    before = contents(emptied, own.as_string(emptied))
    request = Conversion(Name(name, name), other, "month")
    prepared(emptied, request)
    emptied.execute(sql.SQL("update {t} set {s} = {s} where {k} = '5'").format(**parts))
    emptied.execute(sql.SQL("delete from {t} where {k} = '6'").format(**parts))
    emptied.execute(sql.SQL("update {t} set {k} = '6' where {k} = '7'").format(**parts))
    assert convert(emptied, request).changed
    assert len(contents(emptied, own.as_string(emptied))) == len(before) - 1
    emptied.execute(sql.SQL("insert into {t} ({k}, {s}) values ('x', '2024-01-01')").format(**parts))
    nothing_is_left(emptied)


def test_an_empty_table(emptied: Connection) -> None:
    make(emptied, 0)
    assert convert(emptied).rows == 0
    run(
        emptied,
        "insert into public.events (id, ts, ref) values (1, now(), 'now'), (2, now() + interval '80 days', 'soon')",
    )
    used = rows(emptied, "select distinct tableoid::regclass::text from public.events")
    assert len(used) == 2
    assert ("public.events_default",) not in used


def test_taken_names_are_left_alone(emptied: Connection) -> None:
    make(emptied, 100)
    run(emptied, "create table public.events_p2024_01 (x int); create table public.events_default (x int)")
    assert convert(emptied).changed
    assert (
        value(emptied, "select tableoid::regclass::text from public.events where id = 1") == "public.events_p2024_01_1"
    )
    run(emptied, "insert into public.events (id, ts, ref) values (1000, '1999-01-01', 'old')")
    assert (
        value(emptied, "select tableoid::regclass::text from public.events where id = 1000")
        == "public.events_default_1"
    )


def test_null_in_the_tier_key(emptied: Connection) -> None:
    make(emptied, 100)
    run(emptied, "insert into public.events (id, ref) values (5000, 'never')")
    with pytest.raises(UsageError, match="ts is NULL in some rows"):
        convert(emptied)
    assert rows(emptied, "select * from frostline.conversion") == []


def test_null_that_comes_while_it_is_prepared(emptied: Connection) -> None:
    make(emptied, 100)
    before = described(emptied)
    prepared(emptied, until=State.PREPARED)
    run(emptied, "insert into public.events (id, ref) values (5000, 'never')")
    with pytest.raises(UsageError, match=r"ts is NULL in some rows of public\.events"):
        convert(emptied)
    nothing_is_left(emptied)
    assert described(emptied) == before
    run(emptied, "delete from public.events where ts is null")
    prepared(emptied)
    with pytest.raises(psycopg.errors.CheckViolation, match="frostline_not_null"):
        run(emptied, "insert into public.events (id, ref) values (5000, 'never')")
    assert convert(emptied).changed


REFUSED = {
    "view": ("create view public.events as select 1 as id, now() as ts", "is not a table"),
    "unlogged": ("create unlogged table public.events (id int primary key, ts date)", "temporary or unlogged"),
    "partition": ("create table public.whole (id int, ts date, primary key (id, ts)) partition by range (ts); create table public.events partition of public.whole default", "is itself a partition"),
    "parent": ("create table public.events (id int primary key, ts date); create table public.child () inherits (public.events)", "others inherit from it"),
    "child": ("create table public.whole (id int, ts date); create table public.events (primary key (id)) inherits (public.whole)", "the table inherits"),
    "no key": ("create table public.events (id int, ts date)", "has no primary key"),
    "late key": ("create table public.events (id int primary key deferrable, ts date)", "not a plain one"),
    "covering key": ("create table public.events (id int, ts date, primary key (id) include (ts))", "not a plain one"),
    "no column": ("create table public.events (id int primary key, at date)", "has no column ts"),
    "type": ("create table public.events (id int primary key, ts time)", "ts is of type time without time zone"),
    "generated": ("create table public.events (id int primary key, d int, ts int generated always as (d + 1) stored)", "ts is generated"),
    "foreign key": ("create table public.events (id int primary key, ts date); create table public.child (id int references public.events)", "child_id_fkey on public.child points at it"),
    "own foreign key": ("create table public.events (id int primary key, ts date, up int references public.events)", "points at it"),
    "unique": ("create table public.events (id int primary key, ts date, mail text unique, ref text); create unique index on public.events (lower(ref)); create unique index by_ts on public.events (ref, ts)", "unique index public.events_lower_idx lacks ts; unique index public.events_mail_key lacks ts"),
    "included": ("create table public.events (id int primary key, ts date, ref text); create unique index by_ref on public.events (ref) include (ts)", "by_ref lacks ts"),
    "exclusion": ("create table public.events (id int primary key, ts date, r int4range, exclude using gist (r with &&))", "exclusion constraint events_r_excl"),
    "not validated": ("create table public.events (id int primary key, ts date); alter table public.events add constraint later check (id > 0) not valid", "constraint later is not validated"),
    "no inherit": ("create table public.events (id int primary key, ts date, constraint own check (id > 0) no inherit)", "constraint own is NO INHERIT"),
    "rule": ("create table public.events (id int primary key, ts date); create rule twice as on insert to public.events do also select 1", "rule twice on table public.events holds it"),
    "rule elsewhere": ("create table public.events (id int primary key, ts date); create table public.other (id int); create rule twice as on insert to public.other do also insert into public.events (id) values (new.id)", "rule twice on table public.other holds it"),
    "policy elsewhere": ("create table public.events (id int primary key, ts date); create table public.other (id int); create policy p on public.other using (id in (select id from public.events))", "policy p on table public.other holds it"),
    "materialized view": ("create table public.events (id int primary key, ts date); create materialized view public.m as select * from public.events", "materialized view public.m reads it"),
    "row type": ("create table public.events (id int primary key, ts date); create table public.other (one public.events)", "uses its row type"),
    "grouped": ("create table public.events (id int primary key, ts date); create view public.v as select id, ts from public.events group by id", "groups by its primary key alone"),
    "publication": ("create table public.events (id int primary key, ts date); create publication of_all for all tables", "replicated by publication of_all"),
    "one publication": ("create table public.events (id int primary key, ts date); create publication of_it for table public.events", "replicated by publication of_it"),
    "schema publication": ("create table public.events (id int primary key, ts date); create publication of_schema for tables in schema public", "replicated by publication of_schema"),
    "identity": ("create table public.events (id int primary key, ts date); alter table public.events replica identity using index events_pkey", "replica identity is an index"),
    "transition": ("create table public.events (id int primary key, ts date); create function public.f() returns trigger language plpgsql as 'begin return null; end'; create trigger moved after insert on public.events referencing new table as n for each row execute function public.f()", "trigger moved has a transition table"),
    "forced security": ("create table public.events (id int primary key, ts date); alter table public.events enable row level security, force row level security", "row security hides rows from its owner"),
    "infinite": ("create table public.events (id int primary key, ts date); insert into public.events values (1, 'infinity')", "ts is infinite"),
    "too many": ("create table public.events (id int primary key, ts date); insert into public.events values (1, '0001-01-01'), (2, '9999-12-31')", "more than 1000 partitions: its values go from 0001-01-01 to 9999-12-31"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason_and_nothing_made(emptied: Connection, case: str) -> None:
    definition, reason = REFUSED[case]
    run(emptied, definition)
    with pytest.raises(UsageError) as refusal:
        convert(emptied)
    assert reason in str(refusal.value)
    assert refusal.value.hint
    assert rows(emptied, "select * from frostline.conversion") == []


@pytest.mark.parametrize(
    ("every", "reason"),
    [
        ("fortnight", "not an interval"),
        ("-1 month", "not a width"),
        ("0", "not a width"),
        ("1 month 3 days", "not a width"),
        ("1 second", "not a width"),
    ],
)
def test_widths_that_are_none(emptied: Connection, every: str, reason: str) -> None:
    make(emptied, 1)
    with pytest.raises(UsageError, match=reason) as refusal:
        convert(emptied, Conversion(EVENTS_REQUEST.name, "ts", every))
    assert every in str(refusal.value)


def test_too_many_locks_are_refused(
    emptied: Connection, connect: Callable[[str], psycopg.Connection], shared_database: str
) -> None:
    make(emptied, 3000)
    hog = connect(shared_database)
    with pytest.raises(psycopg.errors.OutOfMemory):
        run(hog, "select pg_advisory_lock(i) from generate_series(1, 1000000) i")
    run(hog, "select pg_advisory_unlock(i) from generate_series(1, 300) i")
    with pytest.raises(UsageError, match=r"no room for the locks of \d+ partitions"):
        convert(emptied, Conversion(EVENTS_REQUEST.name, "ts", "day"))
    run(hog, "select pg_advisory_unlock_all()")
    nothing_is_left(emptied)


def test_a_role_that_is_not_the_owner_is_refused(shared_database: str, emptied: Connection) -> None:
    make(emptied, 1)
    with role(shared_database, "stranger") as dsn:
        run(
            emptied,
            "grant all on schema frostline, public to stranger; grant all on all tables in schema frostline, public to stranger",
        )
        with (
            open_connection(dsn, purpose="tests") as connection,
            pytest.raises(UsageError, match="may not act as its owner postgres"),
        ):
            convert(connection)


def test_an_owner_without_rights_is_refused(emptied: Connection) -> None:
    make(emptied, 1)
    run(
        emptied,
        "create role keeper; grant create, usage on schema public to keeper; alter table public.events owner to keeper; revoke usage on schema public from keeper",
    )
    try:
        with pytest.raises(UsageError, match="its owner keeper has no right to read and change it"):
            convert(emptied)
    finally:
        run(emptied, "drop owned by keeper cascade; drop role keeper")


def test_writers_need_no_right_on_the_shadow(emptied: Connection, shared_database: str) -> None:
    make(emptied, 100)
    with role(shared_database, "writer") as dsn:
        run(
            emptied,
            "grant usage on schema public to writer; grant select, insert, update, delete, truncate on public.events to writer",
        )
        running = prepared(emptied, until=State.FILLED)
        with psycopg.connect(dsn, autocommit=True) as client:
            run(client, "update public.events set ref = 'x' where id = 1; delete from public.events where id = 2")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(client, f"select 1 from {shadow.schema(running)}.events")
            assert equal(emptied, running)
            convert(emptied)
            assert rows(client, "select ref from public.events where id in (1, 2)") == [("x",)]
