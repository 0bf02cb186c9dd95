"""What would lose a tier of a managed table is refused, with what to do instead; what is ordinary on a plain table is not."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.fixtures.quick import first, some
from tests.fixtures.roles import role
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until

from frostline.catalog import migrations
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.policy import Mode, Policy
from frostline.model.tables import Table
from frostline.partitions import partition_mode
from frostline.relation import guard, heap, registration, removal, renewal
from frostline.relation.registration import Request
from frostline.runtime.programs import Programs

Add = Callable[..., Table]

ARCHIVED = """
insert into frostline.job (table_id, kind, state, from_line, to_line) values ({id}, 'archive', 'published', 0, 1);
insert into frostline.archived_partition (table_id, partition_name, lower, upper, job_id, published_xid)
select {id}, 'public.events_1', 1704067200000000, 1706745600000000, max(job_id), pg_current_xact_id() from frostline.job"""
"""As if the first month had been archived a moment ago."""
IN_LAKE = """
insert into frostline.lake_file (table_id, path, rows, size_bytes, lower, upper, hash_sum, job_id)
select {id}, 'file:///nowhere', 1, 1, 1704067200000000, 1706745600000000, 0, max(job_id) from frostline.job"""

LOSSES = {
    "the relation": "drop view public.events",
    "the relation and what reads it": "drop view public.events cascade",
    "the heap": "drop table public._events cascade",
    "the schema": "drop schema public cascade",
    "the inner view": 'drop view frostline_relation."events_{id}" cascade',
    "the overlay": 'drop table frostline_overlay."events_{id}" cascade',
    "an index of the overlay": 'drop index frostline_overlay."events_{id}_ts_idx"',
    "the lake table": 'drop table frostline_lake."events_{id}" cascade',
    "a door": 'drop view frostline_write."update hot {id}" cascade',
    "the marking function": "drop function frostline_relation.mark_{id} cascade",
    "the seam": "drop table frostline.seam cascade",
    "the list of tables": "drop table frostline.managed_table cascade",
    "a function of the catalog": "drop function frostline.this_server cascade",
    "the catalog": "drop schema frostline cascade",
    "the inner views": "drop schema frostline_relation cascade",
    "the overlays": "drop schema frostline_overlay cascade",
    "the lake": "drop schema frostline_lake cascade",
    "the doors": "drop schema frostline_write cascade",
    "the stage": "drop schema frostline_stage cascade",
    "the guard": "drop schema frostline_guard cascade",
    "the guard's function": "drop function frostline_guard.refuse_drop cascade",
    "the guard's schema with the catalog's": "drop schema frostline, frostline_guard cascade",
    "the guard's schema among all": 'drop schema if exists frostline_lake, "frostline_guard" , frostline_relation, FROSTLINE cascade',
    "the guard's schema in a block": "do $$ begin execute 'drop schema frostline_guard, frostline cascade'; end $$",
    "the guard's functions": "drop function frostline_guard.refuse_drop(), frostline.refuse_drop_of_guard cascade",
    "the guard's language": "drop extension if exists plpgsql cascade",
    "the server": "drop server frostline_lake cascade",
    "the extension": "drop extension postgres_fdw cascade",
    "a type": "drop type public.state cascade",
    "the rule": "drop rule frostline_insert on public.events",
    "the marking trigger": 'drop trigger "!frostline_mark" on public.events_default',
    "the trigger on truncate of the overlay": 'drop trigger "!frostline_truncate" on frostline_overlay."events_{id}"',
    "the trigger on truncate": 'drop trigger "!frostline_truncate_all" on public._events',
    "the DEFAULT partition": "drop table public.events_default",
    "an archived partition": "drop table public.events_1",
    "an archived partition among others": "drop table public.events_2, public.events_1, public.events_3",
    "an archived partition that was renamed": "alter table public.events_1 rename to other; drop table public.other",
    "all that a role owns": "drop owned by frostline_keeper cascade",
}
HIDING = {
    "detach": "alter table public._events detach partition public.events_1",
    "detach DEFAULT": "alter table public._events detach partition public.events_default",
    "disable": 'alter table public.events_1 disable trigger "!frostline_mark"',
    "disable all": "alter table public.events_default disable trigger all",
    "enable otherwise": 'alter table public.events_default enable trigger "!frostline_mark"',
    "replace": "create or replace view public.events as select * from public._events",
}
ORDINARY = {
    "a hot partition": "drop table public.events_2",
    "detached": "alter table public._events detach partition public.events_2",
    "truncated": "truncate public.events_2",
    "another table": "create table public.other (id int); drop table public.other",
    "an index": "create index other on public._events (status); drop index public.other",
    "a trigger": """
        create function public.watch() returns trigger language plpgsql as 'begin return new; end';
        create trigger watch before insert on public._events for each row execute function public.watch();
        alter table public._events disable trigger watch; drop trigger watch on public._events""",
    "a view": "create or replace view public.reads as select id from public.events; drop view public.reads",
    "a column": "alter table public._events alter column status set default 'x'",
    "a column that goes": "alter table public._events drop column state cascade",
    "a temporary table of a taken name": "create temp table _events (id int); drop table pg_temp._events",
    "a table of such a name elsewhere": "create schema other; create table other._events (id int); drop schema other cascade",
    "a partition that was cleaned": "update frostline.archived_partition set cleaned_at = now(); drop table public.events_1",
}


def make(connection: Connection, table: str) -> None:
    """The usual table with a column of a type of its own."""
    run(connection, "create type public.state as enum ('new', 'done')")
    run(connection, f"alter table {table} add column state public.state")


@pytest.fixture
def table(catalog: Connection, events: str, add: Add) -> Table:
    """A managed table whose first month is archived and not cleaned."""
    make(catalog, events)
    run(
        catalog,
        "insert into public.events (ts, status) select '2024-01-05'::timestamptz + i * interval '14 d', i::text from generate_series(0, 9) i",
    )
    table = add(events)
    run(catalog, ARCHIVED.format(id=table.id))
    run(catalog, IN_LAKE.format(id=table.id))
    heap.capture(catalog, table, Name("public", "events_1"))
    return table


@pytest.fixture
def app(database: str) -> Iterator[psycopg.Connection]:
    """A superuser in psql."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def keeper(database: str, catalog: Connection, table: Table) -> Iterator[str]:
    """The role that owns the table."""
    with role(database, "frostline_keeper"):
        run(catalog, "grant create on schema public to frostline_keeper")
        run(
            catalog,
            "alter table public._events owner to frostline_keeper; alter table public.events_default owner to frostline_keeper; alter view public.events owner to frostline_keeper",
        )
        yield "frostline_keeper"
        run(catalog, "reassign owned by frostline_keeper to current_user")


def state(connection: Connection) -> list[object]:
    """What is there, and who has which trigger switched on."""
    relations = "select array_agg(c.oid::regclass::text || ' ' || c.relkind::text order by 1) from pg_class c where c.relnamespace::regnamespace::text !~ '^(pg_|inf)'"
    triggers = "select array_agg(tgname || tgrelid::regclass::text || tgenabled::text order by 1) from pg_trigger where not tgisinternal"
    partitions = "select array_agg(inhrelid::regclass::text order by 1) from pg_inherits"
    return [value(connection, query) for query in (relations, triggers, partitions)]


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize(
    "what", some(LOSSES, "the relation", "the schema", "the catalog", "an archived partition", "all that a role owns")
)
def test_a_drop_that_would_lose_a_tier_is_refused(
    catalog: Connection, table: Table, app: psycopg.Connection, what: str
) -> None:
    assert guard.ensure(catalog)
    before = state(catalog)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="cannot drop") as refused, app.transaction():
        run(app, LOSSES[what].format(id=table.id))
    hint = refused.value.diag.message_hint or ""
    assert "frostline " in hint or "delete from" in hint
    assert state(catalog) == before
    assert value(app, "select count(*) from frostline.managed_table") == 1


def test_the_error_names_what_was_dropped_and_what_it_would_take_along(
    catalog: Connection, table: Table, app: psycopg.Connection
) -> None:
    assert guard.ensure(catalog)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        run(app, "drop extension postgres_fdw cascade")
    said = refused.value.diag
    assert said.message_primary is not None
    assert "server frostline_lake" in said.message_primary
    assert "public.events" in said.message_primary
    assert said.message_detail == "It would be dropped with extension postgres_fdw."
    assert "frostline table remove public.events" in (said.message_hint or "")


@pytest.mark.parametrize("what", first(2, HIDING))
def test_an_alter_that_would_hide_rows_is_refused(
    catalog: Connection, table: Table, app: psycopg.Connection, what: str
) -> None:
    assert guard.ensure(catalog)
    before = state(catalog)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot") as refused:
        run(app, HIDING[what])
    assert refused.value.diag.message_hint
    assert state(catalog) == before


@pytest.mark.parametrize("what", first(4, ORDINARY))
def test_what_is_ordinary_on_a_plain_table_is_not_refused(
    catalog: Connection, table: Table, app: psycopg.Connection, what: str
) -> None:
    assert guard.ensure(catalog)
    run(app, ORDINARY[what])
    assert value(app, "select count(*) >= 8 from public.events") is True


@pytest.mark.parametrize("what", some([*LOSSES, *HIDING], "the relation", "detach"))
@pytest.mark.usefixtures("keeper")
def test_without_the_event_triggers_nothing_is_refused(table: Table, app: psycopg.Connection, what: str) -> None:
    with app.transaction(force_rollback=True):
        if what != "the guard" and not what.startswith("the guard's"):
            run(app, (LOSSES | HIDING)[what].format(id=table.id))


def test_a_transaction_goes_on_after_a_refused_drop(catalog: Connection, table: Table, app: psycopg.Connection) -> None:
    assert guard.ensure(catalog)
    with app.transaction():
        run(app, "insert into public.events (ts, status) values ('2024-05-05', 'before')")
        with pytest.raises(psycopg.errors.DependentObjectsStillExist), app.transaction():
            run(app, "drop view public.events")
        run(app, "insert into public.events (ts, status) values ('2024-05-05', 'after')")
    assert value(app, "select count(*) from public.events where ts = '2024-05-05'") == 2


def test_who_means_it_says_so_and_a_rollback_leaves_no_trace(
    catalog: Connection, table: Table, app: psycopg.Connection
) -> None:
    assert guard.ensure(catalog)
    before = state(catalog)
    with app.transaction(force_rollback=True):
        run(app, "set local frostline.guard = off; drop view public.events; drop table public.events_1")
    assert state(catalog) == before
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        run(app, "drop view public.events")


def test_the_owner_of_a_table_cannot_say_so(catalog: Connection, table: Table, keeper: str, database: str) -> None:
    assert guard.ensure(catalog)
    with psycopg.connect(database, autocommit=True) as connection:
        run(connection, f"set session authorization {keeper}")
        run(connection, "set frostline.guard = off; set frostline.renewing = on")
        for statement in (
            "drop view public.events",
            "drop table public._events cascade",
            "drop table public.events_default",
        ):
            with pytest.raises(psycopg.errors.DependentObjectsStillExist):
                run(connection, statement)


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize(
    "who", ["frostline_boss", '"frostline_boss"', "frostline_keeper, frostline_boss", "current_user"]
)
def test_the_role_that_installed_does_not_lose_all_it_owns(
    catalog: Connection, table: Table, database: str, who: str
) -> None:
    assert guard.ensure(catalog)
    with role(database, "frostline_other"), role(database, "frostline_boss") as dsn:
        run(catalog, "alter role frostline_boss superuser")
        run(catalog, "alter function frostline_guard.refuse_drop_of_guards() owner to frostline_boss")
        with psycopg.connect(dsn, autocommit=True) as boss:
            with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="both guards"):
                run(boss, f"drop owned by {who} cascade")
            run(boss, "drop owned by frostline_other cascade")
            run(boss, "set role frostline_other; drop owned by current_user; reset role")
        run(catalog, "alter function frostline_guard.refuse_drop_of_guards() owner to current_user")


def test_damage_from_before_keeps_nobody_from_altering_the_table(
    catalog: Connection, table: Table, app: psycopg.Connection
) -> None:
    assert guard.ensure(catalog)
    run(catalog, 'alter table public.events_default disable trigger "!frostline_mark"')
    run(catalog, "alter table public._events detach partition public.events_1")
    run(app, "alter table public._events alter column status set default 'y'")
    run(app, "alter table public._events detach partition public.events_4")
    run(app, "create table public.other (id int); drop table public.other")


def test_two_tables_are_told_apart(catalog: Connection, table: Table, app: psycopg.Connection) -> None:
    assert guard.ensure(catalog)
    make_events(catalog, "public.later")
    request = Request(Name("public", "later"), Policy("1 month"), None, "later_all")
    registration.add(catalog, request)
    for statement in ("drop view public.later_all", "drop table public.later cascade"):
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"managed table public\.later"):
            run(app, statement)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=r"managed table public\.events"):
        run(app, f'drop table frostline_overlay."events_{table.id}" cascade')
    removal.remove(catalog, Name("public", "later"))
    run(app, "drop table public.later")


def test_a_table_without_a_lake_may_be_dropped(catalog: Connection, events: str, app: psycopg.Connection) -> None:
    assert guard.ensure(catalog)
    request = Request(Name("public", "events"), Policy(partition_interval="1 month"))
    assert partition_mode.add(catalog, request).table.mode is Mode.PARTITION
    run(app, "drop table public.events")


def test_a_partition_that_is_archived_while_its_drop_waits_stays(
    catalog: Connection, table: Table, app: psycopg.Connection, database: str
) -> None:
    assert guard.ensure(catalog)
    run(catalog, "delete from frostline.archived_partition")
    with psycopg.connect(database) as job, ThreadPoolExecutor(1) as pool:
        run(job, "lock table public.events_1 in access share mode")
        dropping = pool.submit(run, app, "drop table public.events_1")
        until(lambda: value(catalog, "select count(*) from pg_locks where not granted"), "the drop to wait")
        run(job, ARCHIVED.format(id=table.id))
        job.commit()
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="archived and not cleaned"):
            dropping.result()
    assert value(app, "select count(*) from public.events_1") == 2


def test_a_restore_with_clean_drops_the_event_triggers_first(
    catalog: Connection, table: Table, database: str, postgres_programs: Programs
) -> None:
    assert guard.ensure(catalog)
    dump = postgres_programs.run("pg_dump", "--clean", "--if-exists", "--schema-only", f"--dbname={database}").stdout
    dropped = [line.split()[1] for line in dump.splitlines() if line.startswith("DROP ")]
    assert dropped[: len(guard.TRIGGERS)] == ["EVENT"] * len(guard.TRIGGERS)
    assert "EVENT" not in dropped[len(guard.TRIGGERS) :]


TRUNCATES = {
    "the heap": "truncate public._events",
    "with others": "truncate public.other, public._events",
    "cascade": "truncate public.other cascade",
}


@pytest.mark.parametrize("what", TRUNCATES)
def test_truncate_of_the_heap_is_refused_while_the_lake_has_rows(
    catalog: Connection, table: Table, app: psycopg.Connection, what: str
) -> None:
    run(
        catalog,
        "create table public.other (id int primary key); alter table public._events add column other int references public.other",
    )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rows in the lake") as refused:
        run(app, TRUNCATES[what])
    assert "frostline truncate public.events" in (refused.value.diag.message_hint or "")
    assert value(app, "select count(*) from public._events") == 10
    run(app, "truncate public.events_3")
    run(catalog, "delete from frostline.lake_file")
    run(app, TRUNCATES[what])
    assert value(app, "select count(*) from public.events") == 0


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_truncate_of_the_overlay_is_refused(table: Table, app: psycopg.Connection, level: str) -> None:
    """Also for who switches triggers off by their role, as a replication worker does."""
    run(app, "update public._events set status = 'marked' where ts < '2024-02-01'")
    for statement in (
        f'truncate frostline_overlay."events_{table.id}"',
        f'truncate public.events_2, frostline_overlay."events_{table.id}"',
    ):
        run(app, f"begin isolation level {level}; set local session_replication_role = replica")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cold rows that were changed") as refused:
            run(app, statement)
        run(app, "rollback")
        assert refused.value.diag.message_hint == "frostline fold public.events writes them into the lake"
    assert value(app, f'select count(*) from frostline_overlay."events_{table.id}"') == 2
    with app.transaction(force_rollback=True):
        run(app, f'set local frostline.guard = off; truncate frostline_overlay."events_{table.id}"')


def test_truncate_of_the_relation_is_refused_by_postgres(table: Table, app: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.WrongObjectType, match="is not a table"):
        run(app, "truncate public.events")


def test_our_own_commands_pass(catalog: Connection, table: Table, app: psycopg.Connection) -> None:
    assert guard.ensure(catalog)
    run(catalog, f"drop function frostline_relation.update_{table.id}() cascade")
    assert renewal.renew_table(catalog, table)
    run(catalog, "delete from frostline.archived_partition; delete from frostline.lake_file")
    removal.remove(catalog, table.name)
    run(app, "drop table public.events")


UNINSTALL = """
drop schema if exists frostline, frostline_lake, frostline_overlay, frostline_relation, frostline_stage, frostline_write cascade;
drop schema if exists frostline_guard cascade;
drop server frostline_lake cascade;
drop extension postgres_fdw"""


def test_an_installation_without_managed_tables_may_be_dropped(
    catalog: Connection, table: Table, app: psycopg.Connection, database: str
) -> None:
    assert guard.ensure(catalog)
    run(catalog, "delete from frostline.archived_partition; delete from frostline.lake_file")
    removal.remove(catalog, table.name)
    for statement in UNINSTALL.strip().split(";\n"):
        run(app, statement)
    assert value(app, "select count(*) from pg_event_trigger") == 0
    with open_connection(database, purpose="tests") as again:
        assert migrations.apply(again)


def test_the_guard_is_made_once_and_again_after_it_was_dropped(catalog: Connection, app: psycopg.Connection) -> None:
    assert guard.ensure(catalog)
    assert guard.ensure(catalog)
    run(app, "drop schema frostline_guard cascade")
    assert guard.ensure(catalog)
    assert value(app, "select count(*) from pg_event_trigger where evtname ~ '^frostline_'") == len(guard.TRIGGERS)


def test_a_schema_that_somebody_prepared_for_the_guard_is_not_used(catalog: Connection, database: str) -> None:
    with role(database, "frostline_mallory") as dsn:
        run(catalog, f"grant create on database {catalog.info.dbname} to frostline_mallory")
        with psycopg.connect(dsn) as mallory:
            run(mallory, "create schema frostline_guard")
        with pytest.raises(UsageError, match="belongs to role frostline_mallory"):
            guard.ensure(catalog)
