"""Row security is what it is on a plain table: evaluated as the caller, with what the caller may read, and followed."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.remembered import remembered
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.catalog import tables
from frostline.errors import UsageError
from frostline.observe import status
from frostline.relation import guard, renewal, rowsecurity

pytestmark = pytest.mark.spark

ALICE = "frostline_alice"
TABLE = """
create table public.members (who text, tenant int);
insert into public.members values ('frostline_alice', 1), ('frostline_bob', 2);
alter table public.members enable row level security;
create policy own on public.members using (who = current_user);
create table public.{name} (id int, k int, tenant int, note text, primary key (id, k)) {partitioned};
"""
PARTITIONS = """
create table public.notes_1 partition of public.notes for values from (0) to (100);
create table public.notes_2 partition of public.notes for values from (100) to (200);
"""
ROWS = "insert into public.{name} select i, i, 1 + i % 2, 'n' || i from generate_series(0, 199) i"
MEMBERS = "using (exists (select from public.members m where m.tenant = {name}.tenant))"
GRANT = "grant select, insert, update, delete on public.{name} to frostline_alice; grant select on public.members to frostline_alice"


@pytest.fixture
def notes(lake: Lake) -> Lake:
    """`notes`, whose policy asks another table that has row security itself; half its rows in the lake only."""
    make_notes(lake)
    return lake


@remembered
def make_notes(lake: Lake) -> None:
    run(lake.catalog, TABLE.format(name="notes", partitioned="partition by range (k)") + PARTITIONS)
    run(lake.catalog, ROWS.format(name="notes"))
    run(lake.catalog, f"create policy members on public.notes {MEMBERS.format(name='notes')}")
    run(lake.catalog, "alter table public.notes enable row level security")
    lake.add("notes", hot="99")
    assert lake.archive("notes")[0].error is None
    assert lake.clean("notes").waiting == ()


@pytest.fixture
def alice(notes: Lake) -> Iterator[str]:
    with role(notes.dsn, ALICE) as dsn:
        run(notes.catalog, GRANT.format(name="notes"))
        yield dsn


@contextmanager
def acting(dsn: str) -> Generator[psycopg.Connection]:
    with psycopg.connect(dsn) as connection, connection.transaction(force_rollback=True):
        yield connection


@pytest.mark.slow
def test_a_policy_reads_other_tables_as_the_caller(alice: str) -> None:
    with acting(alice) as connection:
        assert rows(connection, "select tenant, count(*) from public.notes group by 1") == [(1, 100)]
        assert run(connection, "update public.notes set note = 'x'").rowcount == 100
        assert run(connection, "delete from public.notes where k in (10, 11, 110, 111)").rowcount == 2
        run(connection, "insert into public.notes values (900, 50, 1, 'cold'), (901, 150, 1, 'hot')")


@pytest.mark.parametrize("k", [50, 150])
def test_a_row_that_the_policy_forbids_cannot_be_written(alice: str, k: int) -> None:
    with acting(alice) as connection:
        for statement in (
            f"insert into public.notes values (900, {k}, 2, 'not mine')",
            f"update public.notes set tenant = 2 where id = {k}",
        ):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"),
                connection.transaction(),
            ):
                run(connection, statement)
        assert run(connection, f"update public.notes set note = 'x' where id = {k + 1}").rowcount == 0
        assert run(connection, f"delete from public.notes where id = {k + 1}").rowcount == 0


@pytest.mark.slow
def test_without_rights_on_what_a_policy_reads_nothing_is_shown(notes: Lake, alice: str) -> None:
    """As on a plain table: an error, not the installer's view of it."""
    run(notes.catalog, f"revoke select on public.members from {ALICE}")
    with acting(alice) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege, match="members"):
        run(connection, "select * from public.notes")


@pytest.mark.parametrize("k", [50, 150])
def test_returning_shows_no_row_that_may_not_be_seen(notes: Lake, alice: str, k: int) -> None:
    run(notes.catalog, "drop policy members on public._notes")
    rowsecurity.follow(notes.catalog)
    run(
        notes.catalog,
        "create policy see on public._notes for select using (tenant = 1);"
        " create policy put on public._notes for insert with check (true)",
    )
    assert rowsecurity.follow(notes.catalog)
    with acting(alice) as connection:
        run(connection, f"insert into public.notes values (900, {k}, 2, 'unseen')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), connection.transaction():
            run(connection, f"insert into public.notes values (901, {k}, 2, 'unseen') returning id")
        assert rows(connection, f"insert into public.notes values (902, {k}, 1, 'x') returning id, note") == [
            (902, "x")
        ]
        assert value(connection, "select count(*) from public.notes where id > 899") == 1


CHANGES = [
    ("alter policy members on public._notes using (tenant = 2)", [(2, 100)]),
    ("create policy more on public._notes using (tenant = 2)", [(1, 100), (2, 100)]),
    ("create policy less on public._notes as restrictive using (k < 100 or k > 190)", [(1, 54)]),
    ("create policy others on public._notes as restrictive to pg_monitor using (false)", [(1, 100)]),
    ("drop policy members on public._notes", []),
]


@pytest.mark.parametrize("by", ["event trigger", "worker"])
@pytest.mark.parametrize(("change", "expected"), first(1, CHANGES))
def test_changed_policies_are_followed(notes: Lake, alice: str, by: str, change: str, expected: list[object]) -> None:
    shown = "select tenant, count(*) from public.notes group by 1 order by 1"
    if by == "event trigger":
        assert guard.ensure(notes.catalog)
    with psycopg.connect(alice, autocommit=True) as connection:
        assert rows(connection, shown) == [(1, 100)]
        run(notes.catalog, change)
        if by == "worker":
            (problem,) = [
                candidate for candidate in status.problems(status.read(notes.catalog)) if "polic" in candidate.what
            ]
            assert problem.command == "frostline init"
            assert rowsecurity.follow(notes.catalog)
        assert rows(connection, shown) == expected
        assert rowsecurity.strayed(notes.catalog) == {}
    drop_guards(notes)


def drop_guards(lake: Lake) -> None:
    run(lake.catalog, "; ".join(f"drop event trigger if exists {name}" for name in guard.TRIGGERS))


@pytest.mark.parametrize("by", ["event trigger", "worker"])
def test_what_a_policy_reads_may_be_dropped_with_it(notes: Lake, alice: str, by: str) -> None:
    """CASCADE takes the policy along, as on a plain table, and not the relation."""
    if by == "event trigger":
        assert guard.ensure(notes.catalog)
    run(notes.catalog, "drop table public.members cascade")
    with acting(alice) as connection:
        if by == "worker":
            with pytest.raises(psycopg.errors.UndefinedFunction), connection.transaction():
                run(connection, "select * from public.notes")
            assert rowsecurity.follow(notes.catalog)
        assert value(connection, "select count(*) from public.notes") == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            run(connection, "insert into public.notes values (900, 150, 1, 'x')")
    assert rowsecurity.strayed(notes.catalog) == {}
    assert value(notes.catalog, "select count(*) from public.notes") == 200
    drop_guards(notes)


@pytest.mark.parametrize("schema", ["public", "frostline_mine"])
def test_what_a_policy_calls_cannot_be_dropped_under_the_relation(notes: Lake, schema: str) -> None:
    """Also not in a schema that begins as ours do."""
    assert guard.ensure(notes.catalog)
    run(notes.catalog, f"create schema if not exists {schema}")
    run(notes.catalog, f"create function {schema}.mine() returns int language sql immutable as 'select 1'")
    run(notes.catalog, f"alter policy members on public._notes using (tenant = {schema}.mine())")
    with pytest.raises(
        psycopg.errors.DependentObjectsStillExist, match=r"mine\(\) is used by a policy of public.notes"
    ):
        run(notes.catalog, f"drop function {schema}.mine() cascade")
    run(notes.catalog, "alter policy members on public._notes using (tenant = 1)")
    run(notes.catalog, f"drop function {schema}.mine()")
    with notes.catalog.transaction(force_rollback=True):  # what has no policy is none of this guard's business
        run(notes.catalog, "drop table public._notes cascade")
    drop_guards(notes)


@pytest.mark.parametrize("condition", ["row(_notes.*) is not null and tenant = 1", "public.is_mine(_notes)"])
def test_a_policy_may_ask_for_the_whole_row(notes: Lake, alice: str, condition: str) -> None:
    is_mine = "function public.is_mine(public._notes) returns boolean language sql as 'select $1.tenant = 1'"
    run(notes.catalog, f"create {is_mine}")
    run(notes.catalog, f"alter policy members on public._notes using ({condition})")
    assert rowsecurity.follow(notes.catalog)
    with acting(alice) as connection:
        assert value(connection, "select count(*) from public.notes") == 100


def test_a_policy_that_only_a_heap_can_answer_is_refused_in_words(notes: Lake) -> None:
    assert guard.ensure(notes.catalog)
    with pytest.raises(
        psycopg.errors.FeatureNotSupported, match=r"cannot be asked about a row of the lake: .*tableoid"
    ):
        run(notes.catalog, "alter policy members on public._notes using (tableoid > 0)")
    drop_guards(notes)


def test_row_security_is_switched_by_a_command(notes: Lake, alice: str) -> None:
    assert guard.ensure(notes.catalog)
    by_hand = "alter table public._notes disable row level security"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be switched by hand") as refused:
        run(notes.catalog, by_hand)
    assert refused.value.diag.message_hint == "frostline table row-security public.notes off"
    table = notes.table("notes")
    assert rowsecurity.switch(notes.catalog, table, on=False)
    with psycopg.connect(alice, autocommit=True) as connection:
        assert value(connection, "select count(*) from public.notes") == 200
        with connection.cursor().copy("copy public.notes from stdin") as copy:
            copy.write("900\t50\t2\tcold\n")
        assert rowsecurity.switch(notes.catalog, table, on=True)
        assert not rowsecurity.switch(notes.catalog, table, on=True)
        assert value(connection, "select count(*) from public.notes") == 100
        assert run(connection, "update public.notes set note = 'x' where id = 900").rowcount == 0
    assert rowsecurity.strayed(notes.catalog) == {}
    drop_guards(notes)


@pytest.mark.slow
def test_what_was_switched_without_a_guard_is_reported_and_followed(notes: Lake, alice: str) -> None:
    run(notes.catalog, "alter table public._notes disable row level security")
    (problem,) = rowsecurity.strayed(notes.catalog).values()
    assert "switched off" in problem
    assert rowsecurity.follow(notes.catalog)
    run(notes.catalog, "alter table public._notes enable row level security")
    (problem,) = rowsecurity.strayed(notes.catalog).values()
    assert "switched on" in problem
    assert renewal.renew(notes.catalog)
    with acting(alice) as connection:
        assert value(connection, "select count(*) from public.notes") == 100


def test_the_command_and_the_doctor_know_it(notes: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", notes.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(notes.warehouse))
    run(notes.catalog, "alter policy members on public._notes using (true)")
    assert "its policies were changed" in command("doctor").stdout
    rowsecurity.follow(notes.catalog)
    assert "its policies were changed" not in command("doctor").stdout
    said = command("table", "row-security", "notes", "off", "--output", "json")
    assert (said.exit_code, '"changed": true' in said.stdout) == (0, True)


def test_a_caller_cannot_bend_a_policy_by_his_search_path(notes: Lake, alice: str) -> None:
    run(
        notes.catalog,
        "alter policy members on public._notes using (note = 'n' || id and lower(note) = note and tenant = 1)",
    )
    rowsecurity.follow(notes.catalog)
    with acting(alice) as connection:
        run(
            connection,
            "create function pg_temp.yes(int, int) returns boolean language sql as 'select true';"
            " create operator pg_temp.= (function = pg_temp.yes, leftarg = int, rightarg = int);"
            " create function pg_temp.lower(text) returns text language sql as 'select $1';"
            " set local search_path = pg_temp, public, pg_catalog",
        )
        assert value(connection, "select count(*) from public.notes") == 100
        assert (
            run(connection, "update public.notes set note = note where tenant operator(pg_catalog.=) 2").rowcount == 0
        )


@pytest.mark.slow
def test_a_simple_policy_still_uses_an_index(notes: Lake, alice: str) -> None:
    run(notes.catalog, "alter policy members on public._notes using (tenant = 1)")
    rowsecurity.follow(notes.catalog)
    run(notes.catalog, "grant usage on schema frostline_relation to frostline_alice")
    with acting(alice) as connection:
        plan = "\n".join(line for (line,) in rows(connection, "explain select * from public.notes where k > 150"))
    assert "may_select" not in plan
    assert "(tenant = 1)" in plan


@pytest.mark.slow
def test_a_table_removed_and_added_again_has_its_own_policies(notes: Lake) -> None:
    from frostline.relation import removal

    notes.thaw("notes")
    removal.remove(notes.catalog, notes.table("notes").name)
    left = "select count(*) from pg_proc where pronamespace = 'frostline_write'::regnamespace and proname ~ '[0-9]$'"
    assert value(notes.catalog, left) == 0
    assert (
        value(notes.catalog, "select count(*) from pg_class where relnamespace = 'frostline_write'::regnamespace") == 0
    )
    notes.add("notes", hot="99")
    assert rowsecurity.strayed(notes.catalog) == {}


@pytest.mark.slow
def test_a_table_too_wide_for_policies_is_refused(lake: Lake) -> None:
    columns = ", ".join(f"c{number} int" for number in range(101))
    run(
        lake.catalog, f"create table public.wide (id int, k int, {columns}, primary key (id, k)) partition by range (k)"
    )
    lake.add("wide", hot="99")
    with pytest.raises(UsageError, match="more than 100 columns"):
        rowsecurity.switch(lake.catalog, tables.list_all(lake.catalog)[0], on=True)


@pytest.mark.slow
@pytest.mark.parametrize("k", [50, 150])
def test_a_value_is_computed_once_for_the_policy_and_the_row(notes: Lake, alice: str, k: int) -> None:
    with acting(alice) as connection:
        run(
            connection,
            "create temp sequence calls; create function pg_temp.flip() returns int language sql volatile as"
            " $$ select case when nextval('calls') = 1 then 1 else 2 end $$",
        )
        run(connection, f"insert into public.notes values (900, {k}, pg_temp.flip(), 'x')")
        assert value(connection, "select tenant from public.notes where id = 900") == 1


@pytest.mark.slow
def test_policies_are_followed_also_after_columns_were_added_or_renamed(notes: Lake, alice: str) -> None:
    run(notes.catalog, "alter table public._notes add column extra int")
    run(notes.catalog, "alter policy members on public._notes using (false)")
    rowsecurity.follow(notes.catalog)
    with acting(alice) as connection:
        assert value(connection, "select count(*) from public.notes") == 0
    run(notes.catalog, "alter policy members on public._notes using (extra = 1)")
    assert rowsecurity.follow(notes.catalog) == []
    assert rowsecurity.strayed(notes.catalog)


SHOUTED = """
create table public.shouted (id int, k int, who text, lower_who text generated always as (lower(who)) stored, wish text,
    primary key (id, k)) partition by range (k);
create table public.shouted_1 partition of public.shouted for values from (0) to (100);
insert into public.shouted (id, k, who) select i, i, 'FROSTLINE_ALICE' from generate_series(1, 9) i;
alter table public.shouted enable row level security;
create policy own on public.shouted using (lower_who = current_user) with check (lower_who = current_user);
create function public.wished() returns trigger language plpgsql as
    $$ begin new.who := coalesce(new.wish, new.who); return new; end $$;
create trigger wished before update on public.shouted for each row execute function public.wished();
"""


def test_an_update_is_checked_as_generated_columns_and_triggers_leave_it(lake: Lake) -> None:
    run(lake.catalog, SHOUTED)
    lake.add("shouted", hot="99")
    with role(lake.dsn, ALICE) as dsn:
        run(lake.catalog, f"grant select, update on public.shouted to {ALICE}")
        with acting(dsn) as connection:
            for change in ("who = 'Bob'", "wish = 'bob'"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    run(connection, f"update public.shouted set {change} where id = 2")
            assert run(connection, "update public.shouted set who = 'Frostline_Alice' where id = 2").rowcount == 1
