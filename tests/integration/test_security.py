"""A role that `frostline grant` set up can do with a table what applications do, and nothing behind it."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import begun, make_twins

from frostline.catalog import migrations
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.model.tables import Table
from frostline.relation import grants, guard

pytestmark = pytest.mark.spark

APP = "frostline_app"
SECRETS = """
create table public.secrets (id int, k int, owner text, note text, primary key (id, k)) partition by range (k);
create table public.secrets_1 partition of public.secrets for values from (0) to (100);
create table public.secrets_2 partition of public.secrets for values from (100) to (200);
insert into public.secrets select i, i, case when i % 2 = 0 then 'frostline_app' else 'somebody' end, 'n' || i
  from generate_series(0, 199) i;
alter table public.secrets enable row level security;
create policy own on public.secrets using (owner = current_user);
"""
OURS = "select oid from pg_namespace where nspname like 'frostline%'"


@pytest.fixture(scope="module")
def app_lake(shared_lake: Lake) -> Lake:
    """`events`, whose rows 1 to 60 are in the lake only; `secrets` with row security, whose first hundred are."""
    make_twins(shared_lake)
    run(shared_lake.catalog, SECRETS)
    shared_lake.add("secrets", hot="99")
    assert shared_lake.archive("secrets")[0].error is None
    assert shared_lake.clean("secrets").waiting == ()
    assert guard.ensure(shared_lake.catalog)
    return shared_lake


@pytest.fixture(scope="module")
def app(app_lake: Lake) -> Iterator[str]:
    """The connection string of a role that was granted both tables."""
    with role(app_lake.dsn, APP) as dsn:
        grants.grant(app_lake.catalog, APP, [app_lake.table("events"), app_lake.table("secrets")])
        yield dsn


@contextmanager
def acting(dsn: str) -> Generator[psycopg.Connection]:
    """A transaction of that role, rolled back."""
    with psycopg.connect(dsn) as connection, connection.transaction(force_rollback=True):
        yield connection


@pytest.fixture
def role_connection(app: str) -> Iterator[psycopg.Connection]:
    """The role in a transaction that is rolled back."""
    with acting(app) as connection:
        yield connection


def names(lake: Lake) -> dict[str, str]:
    """The objects behind `events`."""
    internal, number = lake.table().internal, lake.table().id
    foreign = value(
        lake.catalog,
        "select c.oid::regclass::text from pg_class c join pg_inherits i on i.inhrelid = c.oid"
        f" where i.inhparent = 'frostline_lake.{internal}'::regclass and c.relkind = 'f'",
    )
    return {
        "overlay": f"frostline_overlay.{internal}",
        "inner": f"frostline_relation.{internal}",
        "lake": f"frostline_lake.{internal}",
        "foreign": foreign,
        "mark": f"frostline_relation.mark_{number}",
        "update": f"frostline_relation.update_{number}",
    }


def test_the_role_works_on_both_tiers(role_connection: psycopg.Connection) -> None:
    connection = role_connection
    assert rows(connection, "select id from events where id in (3, 63) order by id") == [(3,), (63,)]
    assert run(connection, "update events set status = 'x' where id in (3, 63)").rowcount == 2
    assert run(connection, "delete from events where id in (4, 64) returning id").rowcount == 2
    inserted = "insert into events (ts, status) values ('2024-02-02', 'cold'), ('2090-02-02', 'hot') returning id"
    assert run(connection, inserted).rowcount == 2
    with connection.cursor().copy("copy events (ts, status) from stdin") as copy:
        copy.write("2024-01-03\tcopied\n2090-01-03\tcopied\n")
    assert run(connection, "update events set ts = '2090-03-03' where id = 5").rowcount == 1
    assert run(connection, "update events set ts = '2024-03-03' where id = 65").rowcount == 1
    assert value(connection, "select count(*) from events where status in ('x', 'cold', 'hot', 'copied')") == 6
    assert value(connection, "select count(*) from events") == 82


REFUSED = [
    "select 1 from public._events",
    "select 1 from public.events_hot",
    "insert into public._events (id, ts) values (1, now())",
    "update public._events set status = 'x'",
    "delete from public._events",
    "truncate public._events",
    "insert into public.events_hot (id, ts) values (1, '2090-01-02')",
    "select 1 from {overlay}",
    "insert into {overlay} (id, ts, frostline_live) values (1, now(), false)",
    "delete from {overlay}",
    "select 1 from {inner}",
    "update {inner} set frostline_tier = 'heap'",
    "delete from {inner}",
    "select 1 from {lake}",
    "select 1 from {foreign}",
    "insert into {foreign} (id) values (1)",
    "select 1 from frostline.seam",
    "update frostline.seam set snapshot_id = 1",
    "insert into frostline.folding values (pg_current_xact_id())",
    "select nextval('frostline.overlay_version')",
    "select metadata_location from frostline.iceberg_tables",
    "select 1 from pg_user_mapping",
    "create table frostline.mine (x int)",
    "create table frostline_relation.mine (x int)",
    "create table frostline_overlay.mine (x int)",
    "create table frostline_lake.mine (x int)",
    "alter server frostline_lake options (set host 'evil.example')",
    "alter server frostline_lake owner to frostline_app",
    "drop server frostline_lake cascade",
    "grant usage on foreign server frostline_lake to frostline_app",
    "create user mapping for frostline_app server frostline_lake options (user 'x', password 'y')",
    "create user mapping for public server frostline_lake options (user 'x', password 'y')",
    "alter user mapping for postgres server frostline_lake options (set password 'mine')",
    "drop user mapping for postgres server frostline_lake",
    "create foreign table pg_temp.mine (id bigint) server frostline_lake options (table_name '1[,1)')",
    "import foreign schema x from server frostline_lake into pg_temp",
    "create server elsewhere foreign data wrapper postgres_fdw options (host 'evil.example')",
    "alter foreign table {foreign} options (set table_name '2[,1)')",
    "alter table public._events disable trigger all",
    "alter view public.events rename to gone",
    "drop view public.events cascade",
    "create or replace view public.events as select * from public.plain",
    "create rule mine as on insert to public.events do instead nothing",
    "drop rule frostline_insert on public.events",
    "create trigger mine instead of insert on public.events for each row execute function {mark}()",
    "create temp table own (x int); create trigger t after insert on own for each row execute function {mark}()",
    "select {mark}()",
    "alter function {update}() set search_path = public",
    "alter function frostline.require(boolean, text) owner to frostline_app",
    "drop event trigger frostline_partitions",
    "alter event trigger frostline_partitions disable",
    "set role postgres",
    "set session authorization postgres",
    "select setval('public.events_id_seq', 1)",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_the_role_can_reach_nothing_behind_it(
    app_lake: Lake, role_connection: psycopg.Connection, statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(role_connection, statement.format(**names(app_lake)))


def test_the_role_cannot_pass_its_rights_on(role_connection: psycopg.Connection) -> None:
    run(role_connection, "grant select on public.events to public")  # Postgres only warns
    granted = "select a.grantee from pg_class c, aclexplode(c.relacl) a where c.oid = 'public.events'::regclass"
    assert (0,) not in rows(role_connection, granted)


def test_the_role_has_no_right_on_any_of_our_tables(app_lake: Lake, app: str) -> None:
    """Also those that a later version adds."""
    held = rows(
        app_lake.catalog,
        "select c.oid::regclass::text, p from pg_class c, unnest(array['select', 'insert', 'update', 'delete',"
        f" 'truncate', 'references', 'trigger']) p where c.relnamespace in ({OURS}) and c.relkind in ('r', 'p', 'v', 'f', 'm')"
        " and has_table_privilege('frostline_app', c.oid, p)",
    )
    # The doors hold nothing, and do nothing without the secret: test_caller.py tries them.
    assert {(name.partition(".")[0], right) for name, right in held} == {
        ("frostline_write", "select"),
        ("frostline_write", "insert"),
        ("frostline_write", "update"),
    }
    sequences = rows(
        app_lake.catalog, f"select oid::regclass::text from pg_class where relkind = 'S' and relnamespace in ({OURS})"
    )
    assert ("frostline.overlay_version",) in sequences
    for (sequence,) in sequences:
        assert not value(app_lake.catalog, f"select has_sequence_privilege('{APP}', '{sequence}', 'usage')"), sequence


CALLABLE = {
    "frostline.require",
    "frostline.require_default",
    "frostline.carried_columns",
    "frostline.may_have_cold_children",
    "frostline.changed_keys_question",
    "frostline.foreign_key_tasks",
    "frostline.alter_table",
    "frostline.known_key",
    "frostline_write.checked_lake",
    "frostline_write.has_known_key",
    "frostline_write.require_known_heap",
    "frostline_write.keeps_readers",
    "frostline_write.heap_behind",
    "frostline_write.said_of_a_table",
    "frostline_write.stands_aside",
    "frostline_write.take_relation",
    "frostline_write.is_removed_by_us",
    *(f"frostline_write.{verb}_N" for verb in ("missed", "may_write_cold", "claim", "unclaim")),
    *(f"frostline_write.may_{verb}_N" for verb in ("select", "insert", "update", "become", "delete")),
}
"""The relation calls them as the caller; `alter_table` does what the caller may do."""


def test_the_role_may_call_few_functions_of_ours_and_they_do_nothing(
    app_lake: Lake, role_connection: psycopg.Connection
) -> None:
    callable_ones = rows(
        app_lake.catalog,
        f"select pronamespace::regnamespace || '.' || regexp_replace(proname, '[0-9]+$', 'N') from pg_proc"
        f" where pronamespace in ({OURS}) and has_function_privilege('frostline_app', oid, 'execute')",
    )
    assert {name for (name,) in callable_ones} == CALLABLE
    for verb in ("missed", "may_write_cold", "claim", "unclaim"):
        forged = f"select frostline_write.{verb}_{app_lake.table().id}(null)"
        with pytest.raises(psycopg.errors.InsufficientPrivilege), role_connection.transaction():
            run(role_connection, forged)
    assert value(role_connection, "select frostline_write.is_removed_by_us('pg_authid'::regclass, '(0,1)')") is False
    assert value(role_connection, "select frostline.require(true, null)") is True
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match='table "a""b"'):
        run(role_connection, "select frostline.require(null, 'a\"b')")


def test_every_function_that_runs_as_its_owner_has_its_search_path_pinned(app_lake: Lake) -> None:
    """Those that run as the caller have his; their names and operators are qualified, which test_what_the_role_makes tries."""
    loose = rows(
        app_lake.catalog,
        f"select oid::regprocedure::text, proconfig from pg_proc where pronamespace in ({OURS}) and prosecdef"
        " and not 'search_path=pg_catalog, pg_temp' = any (coalesce(proconfig, '{}'))",
    )
    assert loose == []


def test_no_function_that_runs_as_its_owner_writes_the_heap(app_lake: Lake) -> None:
    """There the user's triggers, checks and domains would run with more rights than the caller's."""
    writing = rows(
        app_lake.catalog,
        f"select oid::regprocedure::text from pg_proc where pronamespace in ({OURS}) and prosecdef"
        " and prosrc ~ '(insert into|update|delete from)\\s+\"public\"'",
    )
    assert writing == []


def test_the_role_sees_no_password(role_connection: psycopg.Connection) -> None:
    assert rows(role_connection, "select umoptions from pg_user_mappings where srvname = 'frostline_lake'") == [(None,)]
    assert "secret" not in repr(rows(role_connection, "select srvoptions from pg_foreign_server"))


def marked(lake: Lake, connection: psycopg.Connection) -> int:
    run(connection, "reset role")
    return value(connection, f"select count(*) from {names(lake)['overlay']}")


def test_the_role_cannot_silence_the_marks(app_lake: Lake, app: str) -> None:
    with begun(app_lake) as twins:
        run(twins.connection, f"set local role {APP}; set frostline.folding = 'on'")
        run(twins.connection, "update events set status = 'x' where id = 3")
        run(twins.connection, "insert into events (ts) values ('2024-02-02')")
        assert marked(app_lake, twins.connection) == 2


HOSTILE = """
create function {schema}.trap() returns void language plpgsql as
    $$ begin raise exception 'hijacked, running as %', current_user; end $$;
create function {schema}.equal(bigint, bigint) returns boolean language plpgsql as
    $$ begin perform {schema}.trap(); return true; end $$;
create function {schema}.equal(timestamptz, timestamptz) returns boolean language plpgsql as
    $$ begin perform {schema}.trap(); return true; end $$;
create function {schema}.equal(text, text) returns boolean language plpgsql as
    $$ begin perform {schema}.trap(); return true; end $$;
create operator {schema}.= (function = {schema}.equal, leftarg = bigint, rightarg = bigint);
create operator {schema}.= (function = {schema}.equal, leftarg = timestamptz, rightarg = timestamptz);
create operator {schema}.= (function = {schema}.equal, leftarg = text, rightarg = text);
create operator {schema}.< (function = {schema}.equal, leftarg = timestamptz, rightarg = timestamptz);
create operator {schema}.>= (function = {schema}.equal, leftarg = timestamptz, rightarg = timestamptz);
create function {schema}.now() returns timestamptz language plpgsql as $$ begin perform {schema}.trap(); end $$;
create function {schema}.nextval(text) returns bigint language plpgsql as $$ begin perform {schema}.trap(); end $$;
create function {schema}.current_setting(text, boolean) returns text language plpgsql as
    $$ begin perform {schema}.trap(); end $$;
create function {schema}.pg_current_xact_id() returns xid8 language plpgsql as $$ begin perform {schema}.trap(); end $$;
create function {schema}.to_text(jsonb) returns text language plpgsql as $$ begin perform {schema}.trap(); end $$;
"""
SHADOWS = """
create temp table seam (table_id int, snapshot_id bigint, line_timestamptz timestamptz);
create temp table folding (xid xid8);
create temp table _events (id bigint, ts timestamptz, status text);
create temp table plain (id bigint, ts timestamptz, status text);
create temp view pg_class as select 1 as oid;
create temp table frostline_folded (id bigint);
"""
WRITES = [
    "update public.events set status = 'x' where id operator(pg_catalog.=) any ('{3,63}')",
    "delete from public.events where id operator(pg_catalog.=) any ('{4,64}')",
    "insert into public.events (ts, status) values ('2024-02-02', 'cold'), ('2090-02-02', 'hot')",
    "update public.events set ts = '2024-03-03' where id operator(pg_catalog.=) any ('{5,65}')",
]


@pytest.mark.parametrize("schema", ["public", "pg_temp"])
def test_what_the_role_makes_is_not_run_by_our_functions(app_lake: Lake, app: str, schema: str) -> None:
    with begun(app_lake) as twins:
        run(twins.connection, f"grant create on schema public to {APP}; set local role {APP}")
        run(twins.connection, HOSTILE.format(schema=schema) + SHADOWS)
        run(twins.connection, f"set local search_path = {schema}, public, pg_catalog")
        for statement in WRITES:
            assert run(twins.connection, statement).rowcount == 2
        run(twins.connection, "set local search_path = pg_catalog")
        assert marked(app_lake, twins.connection) == 6
        assert value(twins.connection, "select count(*) from public.events") == 80


def test_what_the_role_calls_runs_as_the_role(app_lake: Lake, app: str) -> None:
    with begun(app_lake) as twins:
        run(twins.connection, f"grant create on schema public to {APP}; set local role {APP}")
        run(
            twins.connection, "create function public.who() returns text language sql volatile as 'select current_user'"
        )
        changed = "update public.events set status = public.who() where id in (3, 63) returning status"
        assert rows(twins.connection, changed) == [(APP,), (APP,)]
        added = "insert into public.events (ts, status) values ('2024-02-02', public.who()) returning status"
        assert rows(twins.connection, added) == [(APP,)]


@pytest.mark.parametrize("setting", ["on", "off"])
def test_row_security_cannot_be_leaked_past_or_turned_off(app_lake: Lake, app: str, setting: str) -> None:
    told: list[str] = []
    with begun(app_lake) as twins:
        twins.connection.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        run(twins.connection, f"grant create on schema public to {APP}; set local role {APP}")
        run(twins.connection, f"set row_security = {setting}")
        run(
            twins.connection,
            "create function public.leak(text) returns boolean language plpgsql cost 0.0000001 as"
            " $$ begin raise notice 'saw %', $1; return true; end $$",
        )
        assert len(rows(twins.connection, "select * from secrets where leak(owner)")) == 100
        assert run(twins.connection, "update secrets set note = 'x' where leak(owner)").rowcount == 100
        assert run(twins.connection, "delete from secrets where leak(owner)").rowcount == 100
    assert set(told) == {"saw frostline_app"}


def test_our_own_work_is_not_hijacked_either(lake: Lake) -> None:
    """Somebody who may create in schema public waits there for the jobs, which run as the installing role."""
    make_twins(lake)
    with role(lake.dsn, "frostline_mallory") as dsn:
        run(lake.catalog, "grant create on schema public to frostline_mallory")
        with psycopg.connect(dsn) as mallory:
            run(mallory, HOSTILE.format(schema="public"))
        with lake.connect() as owner:
            run(owner, "update events set status = 'x' where id in (3, 63)")
        (folded,) = lake.fold()
        assert (folded.error, folded.marks) == (None, 1)
        grants.grant(lake.catalog, "frostline_mallory", [lake.table()])
        with psycopg.connect(dsn) as mallory:
            assert value(mallory, "select status from public.events where id % 1000 = 3") == "x"


def test_the_guard_only_quotes_what_a_bound_says(app_lake: Lake, app: str) -> None:
    """The owner of the heap can put another table in its place; the guard looks at its bounds as a superuser."""
    with begun(app_lake) as twins:
        run(twins.connection, "alter event trigger frostline_called disable")
        run(twins.connection, f"grant create on schema public to {APP}; alter table public._events rename to real")
        run(twins.connection, f"set local role {APP}")
        run(twins.connection, "create table public._events (t text) partition by range (t)")
        for lower, upper in (
            ("a", "b) TO (c"),
            ("a''", "b"),
            ("a) TO (b", "c"),
            ("a''); alter role x superuser --", "b"),
        ):
            bounds = f"from ('{lower}') to ('{upper}')"
            with contextlib.suppress(psycopg.errors.InvalidDatetimeFormat), twins.connection.transaction():
                run(twins.connection, f"create table public.trap partition of public._events for values {bounds}")
                run(twins.connection, "drop table public.trap")


def test_a_schema_that_somebody_prepared_is_not_used(empty_database: str) -> None:
    """Its owner could replace what we put there."""
    with (
        role(empty_database, "frostline_mallory") as dsn,
        open_connection(empty_database, purpose="tests") as installer,
    ):
        run(installer, f"grant create on database {installer.info.dbname} to frostline_mallory")
        with psycopg.connect(dsn) as mallory:
            run(mallory, "create schema frostline_overlay")
        with pytest.raises(UsageError, match="belongs to role frostline_mallory"):
            migrations.apply(installer)
        run(installer, "alter schema frostline_overlay owner to postgres; drop schema frostline_overlay")
        assert migrations.apply(installer)


NOTES = """
create table public.notes{plain} (id int, k int, owner text, primary key (id, k)) {partitioned};
insert into public.notes{plain} select i, 5, case when i % 2 = 0 then 'frostline_reader' else 'somebody' end
  from generate_series(1, 10) i;
alter table public.notes{plain} enable row level security;
create policy see on public.notes{plain} for select using (owner = current_user);
create policy add on public.notes{plain} for insert with check (true);
create policy change on public.notes{plain} for update using (id <> 4) with check (true);
create policy forget on public.notes{plain} for delete using (true);
grant select, insert, update, delete on public.notes{plain} to frostline_reader;
"""
PARTITIONED = (
    "partition by range (k); create table public.notes_1 partition of public.notes for values from (0) to (10)"
)


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("update {t} set owner = 'somebody' where id = 2", "42501"),
        ("update {t} set id = 12 where id = 2", 1),
        ("update {t} set id = id + 20 where id in (1, 2, 3, 4, 6)", 2),
        ("delete from {t} where id < 5", 2),
        ("insert into {t} values (30, 5, 'somebody')", 1),
    ],
)
def test_a_row_cannot_be_changed_into_one_that_its_writer_may_not_see(
    catalog: Connection, database: str, add: Callable[..., Table], statement: str, outcome: int | str
) -> None:
    """As on a plain table, where policies for SELECT count for the new row too."""
    with role(database, "frostline_reader") as dsn:
        run(catalog, NOTES.format(plain="_plain", partitioned=""))
        run(catalog, NOTES.format(plain="", partitioned=PARTITIONED))
        add("notes", hot="5")
        for name in ("notes_plain", "notes"):
            with psycopg.connect(dsn) as reader:
                assert done(reader, statement.format(t=name)) == outcome, name


def done(connection: psycopg.Connection, statement: str) -> int | str | None:
    """How many rows, or why not."""
    try:
        return run(connection, statement).rowcount
    except psycopg.Error as error:
        return error.sqlstate
