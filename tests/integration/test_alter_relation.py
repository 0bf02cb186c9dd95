"""ALTER TABLE and COMMENT on the relation's own name: done to the heap where Postgres lets a view pass, else refused."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.cold_twins import both, compare
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.pipeline import verify
from frostline.relation import columns, guard, renewal

pytestmark = pytest.mark.spark

DEFAULTS = "select attname, pg_get_expr(adbin, adrelid) from pg_attrdef join pg_attribute on attrelid = adrelid and attnum = adnum where attname <> 'id' and adrelid = 'public.{}'::regclass order by attnum"
VIEWS = r"its heap, public\._events"
REFUSED = {
    "add column note text": VIEWS,
    "drop column status": VIEWS,
    "alter column status type varchar(90)": VIEWS,
    "alter column status drop not null": VIEWS,
    "add constraint short check (length(status) < 90)": VIEWS,
    "drop constraint events_amount_check": VIEWS,
    "enable row level security": VIEWS,
    "alter column id set default 5": "_events.* is an identity column",
    "rename column status to amount": "already exists",
    "rename column nothing to something": "does not exist",
}


@pytest.fixture(scope="module")
def twins_of_module(shared_lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_twins(shared_lake)
    assert guard.ensure(shared_lake.catalog)
    with shared_lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
    return shared_lake


@pytest.fixture
def cold(twins_of_module: Lake) -> Iterator[Lake]:
    """The two tables, found in order when the test has ended."""
    yield twins_of_module
    compare(twins_of_module)
    table = twins_of_module.table()
    assert columns.difference(twins_of_module.catalog, table) is None
    assert renewal.is_current(twins_of_module.catalog, table)
    assert verify.run(twins_of_module.catalog, table).faults == ()
    assert rows(twins_of_module.catalog, "select * from frostline.following") == []


def names(lake: Lake, table: str) -> list[tuple[object, ...]]:
    """The columns of a table."""
    return rows(
        lake.catalog,
        f"select attname from pg_attribute where attrelid = 'public.{table}'::regclass and attnum > 0 order by attnum",
    )


@pytest.mark.parametrize("kind", ["table", "view"])
@pytest.mark.parametrize("column", ["status", "id", "ts"])
def test_a_renamed_column_is_renamed_in_the_heap(cold: Lake, kind: str, column: str) -> None:
    with cold.connect() as connection:
        run(connection, f"alter {kind} public.events rename column {column} to other")
        run(connection, f"alter table public.plain rename column {column} to other")
        assert names(cold, "events") == names(cold, "_events") == names(cold, "plain")
        select = "select array_agg(t::text order by t::text) from public.{} t where other is not null"
        assert value(connection, select.format("events")) == value(connection, select.format("plain"))
        run(connection, f"alter {kind} public.events rename column other to {column}")
        run(connection, f"alter table public.plain rename column other to {column}")


def test_a_default_is_the_heaps_too(cold: Lake) -> None:
    insert = "insert into public.{{t}} (id, ts) values ({}, '2090-06-02+00'), ({}, '2024-02-02+00')"
    with cold.connect() as connection:
        for number, change in enumerate(("set default 'it''s' || 'new'", "drop default, alter data set default '[]'")):
            if number:
                both(connection, "alter table public.{t} alter data set default '[1]', alter status set default 'x'")
            both(connection, f"alter table public.{{t}} alter column status {change}")
            if not number:
                both(connection, insert.format(9001, 9002))
            assert rows(connection, DEFAULTS.format("events")) == rows(connection, DEFAULTS.format("_events"))
            assert rows(connection, DEFAULTS.format("events")) == rows(connection, DEFAULTS.format("plain"))
    with cold.connect() as connection, pytest.raises(psycopg.errors.NotNullViolation):
        run(connection, "insert into public.events (id, ts) values (9003, '2024-02-02+00')")


def test_a_comment_is_the_heaps_too(cold: Lake) -> None:
    with cold.connect() as connection:
        run(connection, "comment on view public.events is 'what happened'")
        run(connection, "comment on column public.events.data is 'whatever'")
        assert value(connection, "select obj_description('public._events'::regclass, 'pg_class')") == "what happened"
        assert value(connection, "select col_description('public._events'::regclass, 5)") == "whatever"
        run(connection, "comment on view public.events is null; comment on column public.events.data is null")
        assert value(connection, "select obj_description('public._events'::regclass, 'pg_class')") is None
        assert value(connection, "select col_description('public._events'::regclass, 5)") is None


def test_a_rollback_leaves_no_trace(cold: Lake) -> None:
    before = names(cold, "_events"), rows(cold.catalog, DEFAULTS.format("_events"))
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "alter table public.events rename column status to state")
        run(connection, "alter table public.events alter column state set default 'x'")
        run(connection, "update public.events set state = 'y' where id in (3, 70)")
        assert value(connection, "select count(*) from public.events where state = 'y'") == 2
    assert (names(cold, "_events"), rows(cold.catalog, DEFAULTS.format("_events"))) == before


@pytest.mark.parametrize("change", REFUSED)
def test_what_a_view_cannot_have_is_refused(cold: Lake, change: str) -> None:
    with cold.connect() as connection, pytest.raises(psycopg.Error, match=f"(?s){REFUSED[change]}"):
        run(connection, f"alter table public.events {change}")
    assert names(cold, "events") == names(cold, "_events")


def test_an_owner_is_given_to_the_heap(cold: Lake) -> None:
    with cold.connect() as connection, role(cold.dsn, "frostline_owner"):
        refused = pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"public\._events, its heap")
        with refused as refusal:
            run(connection, "alter table public.events owner to frostline_owner")
        hint = refusal.value.diag.message_hint or ""
        assert hint == "alter table public._events owner to frostline_owner; the relation follows"
        run(connection, hint.partition(";")[0])
        run(connection, "alter table public.events owner to frostline_owner")
        run(connection, "alter table public._events owner to postgres")


def test_who_owns_only_the_relation_cannot_alter_the_heap(cold: Lake) -> None:
    """The two have had different owners since before there were event triggers."""
    with role(cold.dsn, "frostline_owner"):
        run(
            cold.catalog,
            "alter view public.events owner to frostline_owner; grant all on schema public to frostline_owner",
        )
        for change in ("rename column status to state", "alter column status set default 'x'"):
            statement = f"set role frostline_owner; alter view public.events {change}"
            with cold.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege) as refusal:
                run(connection, statement)
            assert (refusal.value.diag.message_hint or "").startswith("alter table public._events ")
        run(
            cold.catalog, "alter view public.events owner to postgres; revoke all on schema public from frostline_owner"
        )


MISDIRECTED = {
    "alter table public.events add column note text": "alter table public._events add column note text",
    "ALTER TABLE IF EXISTS ONLY events\n  DROP COLUMN status;": "ALTER TABLE IF EXISTS ONLY public._events\n  DROP COLUMN status",
    'alter table "events" alter status type varchar(90)': "alter table public._events alter status type varchar(90)",
    "alter table events alter column status drop not null": "alter table public._events alter column status drop not null",
    "alter table events rename constraint events_pkey to k": "alter table public._events rename constraint events_pkey to k",
    "-- of an application\ncreate unique index concurrently if not exists i on only events (id)": "create unique index concurrently if not exists i on only public._events (id)",
    "create index on public.events (status)": "create index on public._events (status)",
    "create statistics s (ndistinct) on status, amount from events": "create statistics s (ndistinct) on status, amount from public._events",
    "create trigger t before update of status, amount on events for each row execute function public.f()": "create trigger t before update of status, amount on public._events for each row execute function public.f()",
    "create constraint trigger t after insert on public.events deferrable for each row execute function public.f()": "create constraint trigger t after insert on public._events deferrable for each row execute function public.f()",
    "create policy p on events using (true)": "create policy p on public._events using (true)",
    "comment on table events is 'it''s'": "comment on table public._events is 'it''s'",
    "comment on constraint events_pkey on events is 'k'": "comment on constraint events_pkey on public._events is 'k'",
}
"""What tools send, and what the error says to send instead."""
OF_A_VIEW = (
    "alter table events set (check_option = local)",
    "alter table events alter column status set default 'add'",
    "alter table events rename to e2",
    "comment on column events.status is 'x'",
    "comment on view events is 'x'",
    "create trigger t before update on events for each statement execute function public.f()",
    "create trigger t before update on _events for each row execute function public.f()",
    "create table public.other (id int); create index on other (id); comment on table other is 'events'",
)


@pytest.mark.parametrize("statement", MISDIRECTED)
def test_the_error_names_the_heap_and_has_the_statement_for_it(cold: Lake, statement: str) -> None:
    with cold.connect() as connection, pytest.raises(psycopg.errors.WrongObjectType) as refused:
        run(connection, f"set search_path = public; {statement}")
    assert "its heap, public._events" in (refused.value.diag.message_primary or "")
    assert refused.value.diag.message_hint == MISDIRECTED[statement]


@pytest.mark.parametrize("statement", OF_A_VIEW)
def test_what_a_view_can_have_passes(cold: Lake, statement: str) -> None:
    function = "create function public.f() returns trigger language plpgsql as 'begin return null; end'"
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set local search_path = public")
        run(connection, function)
        run(connection, statement)


def test_what_code_says_of_the_relation_is_left_to_it(cold: Lake) -> None:
    """It may never come to it."""
    code = "do $$ begin if false then alter table events add column note text; end if; create index on _events (amount); end $$"
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set local search_path = public")
        run(connection, code)
