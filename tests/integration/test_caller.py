"""Whatever the user wrote runs as the role that sent the statement, as on a plain table.

With its rights, its name, its search_path and its settings; in both tiers, and also through a view of somebody else.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.errors import UsageError

pytestmark = pytest.mark.spark

ALICE, BOB = "frostline_alice", "frostline_bob"
PAY = """
create schema own;
create table own.audit_log (who text, op text, path text, zone text);
create table own.seen (who text, what text);
create function own.note(what text) returns boolean language plpgsql as
    $$ begin insert into own.seen select current_user, what from pg_stat_activity
        where pid = pg_backend_pid() and backend_type = 'client backend'; return true; end $$;
create function own.double(n int) returns int language plpgsql immutable as
    $$ begin perform own.note('generated'); return n * 2; end $$;
create function own.shown(n int) returns int language plpgsql immutable as
    $$ begin perform own.note('index'); return n; end $$;
create domain own.amount as int check (own.note('domain'));
create table public.pay (
    id int, k int, amount own.amount, owner text default current_user,
    twice int generated always as (own.double(id)) stored,
    primary key (id, k), check (own.note('check'))
) partition by range (k);
create table public.pay_1 partition of public.pay for values from (0) to (100);
create table public.pay_2 partition of public.pay for values from (100) to (200);
create index on public.pay (own.shown(id));
insert into public.pay (id, k, amount, owner) select i, i, i, 'x' from generate_series(1, 199) i;
"""
TRIGGER = """
create function own.audit() returns trigger language plpgsql as $$ begin
    insert into audit_log values (current_user, tg_op, current_setting('search_path'), current_setting('timezone'));
    return coalesce(new, old);
end $$;
create trigger audit before insert or update or delete on public._pay for each row execute function own.audit();
"""
ROWS = {"hot": 150, "cold": 20, "cold, changed": 21, "in grace": 60}
STATEMENTS = {
    "update": "update public.pay set amount = 4 where id = {id}",
    "update the key": "update public.pay set id = id + 1000 where id = {id}",
    "update the tier": "update public.pay set k = 299 - k where id = {id}",
    "delete": "delete from public.pay where id = {id}",
    "insert": "insert into public.pay (id, k, amount) values (900, {id}, 3)",
}


@pytest.fixture(scope="module")
def pay(shared_lake: Lake) -> Lake:
    """`pay`: rows below 50 in the lake only, below 100 in the lake and still in the heap, others hot."""
    lake = shared_lake
    run(lake.catalog, PAY)
    run(
        lake.catalog,
        "drop table public.pay_1; create table public.pay_0 partition of public.pay for values from (0) to (50)",
    )
    run(lake.catalog, "create table public.pay_1 partition of public.pay for values from (50) to (100)")
    run(lake.catalog, "insert into public.pay (id, k, amount, owner) select i, i, i, 'x' from generate_series(1, 99) i")
    lake.add("pay", hot="140")
    assert lake.archive("pay")[0].error is None
    assert lake.clean("pay").waiting == ()
    run(lake.catalog, "update frostline.managed_table set hot_span = 99, grace_period = '1 day'")
    assert lake.archive("pay")[0].error is None
    with lake.connect() as connection:
        run(connection, "update public.pay set amount = 7 where id = 21")
    run(lake.catalog, TRIGGER + "truncate own.seen, own.audit_log")
    return lake


@pytest.fixture(scope="module")
def alice(pay: Lake) -> Iterator[str]:
    """A role with the four grants on the relation, and what the user's own code needs."""
    with role(pay.dsn, ALICE) as dsn:
        run(pay.catalog, f"grant select, insert, update, delete on public.pay to {ALICE}")
        run(
            pay.catalog,
            f"grant usage on schema own to {ALICE}; grant insert, select on own.audit_log, own.seen to {ALICE}",
        )
        yield dsn


@contextmanager
def acting(dsn: str) -> Generator[psycopg.Connection]:
    """A transaction of that role, rolled back."""
    with psycopg.connect(dsn) as connection, connection.transaction(force_rollback=True):
        run(connection, "set local search_path = own, public")
        run(connection, "set local timezone = 'Asia/Tokyo'")
        yield connection


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("what", STATEMENTS)
def test_what_fires_runs_as_the_caller(alice: str, what: str, row: str) -> None:
    with acting(alice) as connection:
        assert run(connection, STATEMENTS[what].format(id=ROWS[row])).rowcount == 1
        for who, _, path, zone in rows(connection, "select * from own.audit_log"):
            assert (who, path, zone) == (ALICE, "own, public", "Asia/Tokyo")
        assert {who for who, _ in rows(connection, "select * from own.seen")} <= {ALICE}
        fired = {what for _, what in rows(connection, "select * from own.seen")}
        is_gone = what == "delete"
        # An index on what has not changed is not asked.
        assert fired >= (set() if is_gone else {"check", "generated"} if what == "update" else {"check", "index"})
        assert value(connection, "select count(*) from own.audit_log") >= (
            0 if is_gone and row.startswith("cold") else 1
        )


def test_copy_is_no_exception(alice: str) -> None:
    with acting(alice) as connection:
        with connection.cursor().copy("copy public.pay (id, k, amount) from stdin") as copy:
            copy.write("901\t150\t1\n902\t20\t1\n")
        assert rows(connection, "select distinct who, op from own.audit_log") == [(ALICE, "INSERT")]
        assert rows(connection, "select owner from public.pay where id > 900") == [(ALICE,), (ALICE,)]


BOMB = """
create temp table audit_log (who text, op text, path text, zone text);
create function pg_temp.boom() returns trigger language plpgsql as $$ begin
    execute 'alter role {role} superuser'; return new;
end $$;
create trigger boom before insert on audit_log for each row execute function pg_temp.boom();
"""


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("what", STATEMENTS)
def test_a_temporary_table_in_the_way_of_an_audit_trigger_gains_nothing(alice: str, what: str, row: str) -> None:
    """Names in the user's trigger are found in the caller's temporary schema, as always; and what is there runs as he."""
    with acting(alice) as connection:
        run(connection, BOMB.format(role=ALICE) + "set local search_path = pg_temp, own, public")
        if what == "delete" and row == "cold":
            run(connection, STATEMENTS[what].format(id=ROWS[row]))  # nothing of the heap is touched
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(connection, STATEMENTS[what].format(id=ROWS[row]))


def test_a_guard_by_name_cannot_be_passed_by(pay: Lake, alice: str) -> None:
    run(
        pay.catalog,
        f"create function own.guard() returns trigger language plpgsql as $$ begin if current_user = '{ALICE}' then"
        " raise exception 'not you'; end if; return coalesce(new, old); end $$;"
        " create trigger guard before insert or update or delete on public._pay for each row execute function own.guard()",
    )
    try:
        for statement in STATEMENTS.values():
            for row in ("hot", "in grace"):
                with acting(alice) as connection, pytest.raises(psycopg.errors.RaiseException, match="not you"):
                    run(connection, statement.format(id=ROWS[row]))
    finally:
        run(pay.catalog, "drop function own.guard() cascade")


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("what", STATEMENTS)
def test_through_a_view_of_somebody_else_its_owner_needs_the_rights(pay: Lake, alice: str, what: str, row: str) -> None:
    """As on a plain table: whoever may write the view needs nothing on what is behind it."""
    with role(pay.dsn, BOB) as dsn:
        run(pay.catalog, "create view own.v as select * from public.pay")
        run(pay.catalog, f"alter view own.v owner to {ALICE}; grant select, insert, update, delete on own.v to {BOB}")
        run(
            pay.catalog, f"grant usage on schema own to {BOB}; grant insert, select on own.audit_log, own.seen to {BOB}"
        )
        try:
            with acting(dsn) as connection:
                assert (
                    run(connection, STATEMENTS[what].replace("public.pay", "own.v").format(id=ROWS[row])).rowcount == 1
                )
                assert {who for (who,) in rows(connection, "select who from own.audit_log")} <= {BOB}
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    run(connection, STATEMENTS[what].format(id=ROWS[row]))
        finally:
            run(pay.catalog, "drop view own.v")


def test_rights_on_columns_hold(pay: Lake) -> None:
    with role(pay.dsn, BOB) as dsn:
        run(pay.catalog, f"grant select, update (amount), insert (id, k) on public.pay to {BOB}")
        run(
            pay.catalog, f"grant usage on schema own to {BOB}; grant insert, select on own.audit_log, own.seen to {BOB}"
        )
        for number in ROWS.values():
            with acting(dsn) as connection:
                assert run(connection, f"update public.pay set amount = 2 where id = {number}").rowcount == 1
                with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    run(connection, f"update public.pay set owner = 'me' where id = {number}")
                with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    run(connection, f"delete from public.pay where id = {number}")
        with acting(dsn) as connection:
            with connection.cursor().copy("copy public.pay (id, k) from stdin") as copy:
                copy.write("901\t150\n")
            assert rows(connection, "select k, amount, owner from public.pay where id = 901") == [(150, None, BOB)]


def _doors(lake: Lake) -> list[str]:
    return [
        name
        for (name,) in rows(
            lake.catalog,
            "select oid::regclass::text from pg_class where relnamespace = 'frostline_write'::regnamespace and relkind = 'v'",
        )
    ]


def test_a_door_shows_and_does_nothing_for_who_comes_by_himself(pay: Lake, alice: str) -> None:
    """Also for a role that may do everything on the relation: only the relation's own triggers have the secret."""
    doors = _doors(pay)
    assert len(doors) == 5
    before = rows(pay.catalog, "select tableoid, ctid, xmin::text from public._pay order by 1, 2")
    for door in doors:
        with acting(alice) as connection:
            columns = [
                (name, kind)
                for name, kind in rows(
                    connection,
                    "select attname::text, format_type(atttypid, atttypmod) from pg_attribute"
                    f" where attrelid = '{door}'::regclass and attnum > 0",
                )
            ]
            shown = rows(
                connection, f"select {', '.join(name for name, kind in columns if 'own.' not in kind)} from {door}"
            )
            assert {shown_value for row in shown for shown_value in row} == {None}
            values = {"o1": "150", "o2": "150", "n1": "150", "n2": "150", "secret": "gen_random_uuid()"}
            given = {name: values[name] for name, _ in columns if name in values}
            pairs = ", ".join(f"{name} = {text}" for name, text in given.items())
            inserted = f"insert into {door} ({', '.join(given)}) values ({', '.join(given.values())})"
            assert run(connection, inserted if "insert" in door else f"update {door} set {pairs}").rowcount == 0
    assert rows(pay.catalog, "select tableoid, ctid, xmin::text from public._pay order by 1, 2") == before


def test_a_door_does_not_tell_whether_a_key_is_there(pay: Lake, alice: str) -> None:
    """What the stranger's own expressions see: they are not evaluated for any row of the heap."""
    told: list[str] = []
    with acting(alice) as connection:
        connection.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        run(
            connection,
            "create function pg_temp.tell() returns uuid language plpgsql as"
            " $$ begin raise notice 'asked'; return gen_random_uuid(); end $$",
        )
        counts: list[int] = []
        for number in (150, 15000):
            told.clear()
            run(
                connection,
                f"""update frostline_write."update hot {pay.table("pay").id}" set o1 = {number}, o2 = {number},"""
                " n3 = (random() * 100)::int::own.amount, secret = pg_temp.tell()",
            )
            counts.append(len(told))
    assert counts[0] == counts[1]


def test_nobody_reads_the_secret(alice: str) -> None:
    with acting(alice) as connection:
        for query in ("select write_secret from frostline.seam", "select frostline_secret from public.pay"):
            with (
                pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedColumn)),
                connection.transaction(),
            ):
                run(connection, query)
        columns = "select column_name from information_schema.columns where column_name like 'frostline%'"
        assert rows(connection, columns) == []


def test_a_door_tells_nothing_in_a_join_either(pay: Lake, alice: str) -> None:
    """With a secret for each row of another table, Postgres may look into the heap first."""
    told: list[str] = []
    with acting(alice) as connection:
        connection.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        run(
            connection,
            "create function pg_temp.tell() returns tid language plpgsql as"
            " $$ begin raise notice 'asked'; return '(0,1)'; end $$;"
            " create temp table k (s uuid); insert into k select gen_random_uuid() from generate_series(1, 20000); analyze k",
        )
        for number in (150, 15000):
            run(
                connection,
                f"""update frostline_write."delete hot {pay.table("pay").id}" d set o1 = {number}, o2 = {number},"""
                " partition = 'public.pay_2'::regclass, place = pg_temp.tell(), secret = k.s from k",
            )
    assert told == []


def test_no_printed_plan_has_the_secret(pay: Lake, alice: str) -> None:
    """Everybody may have his plans printed; one that is made for known values would have it."""
    told: list[str] = []
    for verb in ("update", "delete"):
        run(pay.catalog, f"alter function frostline_relation.{verb}_{pay.table('pay').id}() reset plan_cache_mode")
    with acting(alice) as connection:
        connection.add_notice_handler(lambda notice: told.append(str(notice.message_detail)))
        run(connection, "set debug_print_plan = on; set debug_print_rewritten = on; set client_min_messages = log")
        for statement in STATEMENTS.values():
            for number in ROWS.values():
                with connection.transaction(force_rollback=True):
                    run(connection, statement.format(id=number))
    assert any("PLANNEDSTMT" in line for line in told)
    assert not [line for line in told if ":consttype 2950" in line and ":constisnull false" in line]


def test_a_key_of_another_roles_domain_is_refused(lake: Lake) -> None:
    """Its checks would run as the installer whenever a late row's key is looked up in the lake."""
    with role(lake.dsn, BOB):
        run(lake.catalog, f"create domain public.code as int; alter domain public.code owner to {BOB}")
        run(
            lake.catalog,
            "create table public.coded (id public.code, k int, primary key (id, k)) partition by range (k)",
        )
        with pytest.raises(UsageError, match="another role's domain"):
            lake.add("coded", hot="99")
        run(lake.catalog, "alter domain public.code owner to postgres")
        lake.add("coded", hot="99")
