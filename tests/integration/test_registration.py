"""Registration: the table becomes a relation, and everything around it keeps working."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
import pytest
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError, UsageError
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.relation import registration, removal
from frostline.relation.registration import Request

Add = Callable[..., Table]
Connect = Callable[[str], psycopg.Connection]


def test_the_relation_takes_the_name_and_shows_the_rows(catalog: Connection, events: str, add: Add) -> None:
    catalog.execute("insert into public.events (ts, status) values ('2024-01-05', 'a'), ('2024-06-30', 'b')")
    table = add(events)
    assert (table.tier_key, table.key) == ("ts", ("id", "ts"))
    assert value(catalog, "select array_agg(status order by id) from public.events") == ["a", "b"]
    assert value(catalog, "select count(*) from public._events") == 2


def test_registering_again_is_a_no_op_that_says_so(catalog: Connection, events: str, add: Add) -> None:
    add(events)
    assert not registration.add(catalog, Request(Name.parse(events), Policy("2 months"))).changed
    assert tables.get(catalog, Name.parse(events)).policy.hot_period == "1 mon"


def test_a_dry_run_prints_the_statements_and_changes_nothing(catalog: Connection, events: str) -> None:
    done = registration.add(catalog, Request(Name.parse(events), Policy("1 month")), dry_run=True)
    assert any('rename to "_events"' in statement for statement in done.statements)
    assert value(catalog, "select relkind from pg_class where oid = 'public.events'::regclass") == "p"
    assert tables.list_all(catalog) == []


def test_defaults_identity_and_returning_work_through_the_relation(catalog: Connection, events: str, add: Add) -> None:
    add(events)
    row = catalog.execute(
        "insert into public.events (status) values (default) returning id, ts::text, status"
    ).fetchone()
    assert row == (1, "2024-01-15 00:00:00+00", "new")


def test_copy_into_the_relation_works(catalog: Connection, events: str, add: Add) -> None:
    add(events)
    with catalog.cursor().copy("copy public.events (ts, status) from stdin") as copy:
        copy.write_row(("2024-03-01", "copied"))
    assert value(catalog, "select status from public.events") == "copied"


def test_update_and_delete_reach_hot_rows_through_the_relation(catalog: Connection, events: str, add: Add) -> None:
    add(events)
    catalog.execute("insert into public.events (ts) select '2024-02-01' from generate_series(1, 3)")
    assert catalog.execute("update public.events set status = 'x' where id < 3").rowcount == 2
    assert catalog.execute("delete from public.events where id = 3").rowcount == 1
    assert value(catalog, "select array_agg(status) from public.events") == ["x", "x"]


def test_a_row_outside_all_partitions_lands_in_the_default_one(catalog: Connection, events: str, add: Add) -> None:
    add(events)
    catalog.execute("insert into public.events (ts) values ('2030-01-01')")
    assert value(catalog, "select count(*) from public.events") == 1
    assert value(catalog, "select count(*) from public.events_default") == 1


def test_the_default_partition_is_named_like_the_table_and_goes_with_it(catalog: Connection, add: Add) -> None:
    for name in "abc":
        run(catalog, f"create table public.{name} (d date primary key) partition by range (d)")
    catalog.execute("create domain public.b_default as int")
    catalog.execute("create table public.c_default partition of public.c default")
    tables = [add(f"public.{name}") for name in "abc"]
    of_heap = "select inhrelid::regclass::text from pg_inherits where inhparent = 'public._{}'::regclass"
    lengths = [value(catalog, of_heap.format(name)) for name in "abc"]
    assert lengths == ["public.a_default", "public._b_frostline_default", "public.c_default"]
    for table in tables:
        removal.remove(catalog, table.name)
    left = "select array_agg(oid::regclass::text) from pg_class where relispartition and relkind = 'r'"
    assert value(catalog, left) == ["public.c_default"]


def test_grants_owner_and_comments_are_kept(catalog: Connection, events: str, add: Add, connect: Connect) -> None:
    with role(catalog, "frostline_reader"), role(catalog, "frostline_owner"):
        catalog.execute("alter table public.events owner to frostline_owner")
        catalog.execute("grant select, insert on public.events to frostline_reader")
        catalog.execute("grant update (status) on public.events to frostline_reader")
        catalog.execute("comment on table public.events is 'what happened'")
        catalog.execute("comment on column public.events.status is 'how it went'")
        table = add(events)
        assert value(catalog, "select viewowner from pg_views where viewname = 'events'") == "frostline_owner"
        assert value(catalog, "select obj_description('public.events'::regclass)") == "what happened"
        assert value(catalog, "select col_description('public.events'::regclass, 3)") == "how it went"
        reader = connect(catalog.info.dsn + f" password={catalog.info.password}")
        reader.execute("set role frostline_reader")
        reader.execute("insert into public.events (ts, status) values ('2024-01-05', 'mine')")
        reader.execute("update public.events set status = 'changed'")
        assert value(reader, "select status from public.events") == "changed"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("update public.events set amount = 1")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("delete from public.events")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(reader, f"select * from frostline_overlay.events_{table.id}")
        removal.remove(catalog, table.name)
        catalog.execute("drop table public.events")


def test_dependent_views_and_functions_read_the_relation(catalog: Connection, events: str, add: Add) -> None:
    catalog.execute("create view public.counted with (security_barrier) as select count(*) as n from public.events")
    catalog.execute("create view public.doubled as select 2 * n as n from public.counted")
    catalog.execute(
        "create function public.atomic() returns bigint language sql"
        " begin atomic select count(*) from public.events; end"
    )
    catalog.execute(
        "create function public.late() returns bigint language plpgsql as "
        "$$ begin return (select count(*) from public.events); end $$"
    )
    add(events)
    plan = catalog.execute("explain (verbose) select * from public.counted").fetchall()
    assert any("frostline.seam" in line for (line,) in plan)
    left_on_the_heap = (
        "select count(*) from pg_depend where refobjid = 'public._events'::regclass and classid = 'pg_proc'::regclass"
    )
    assert value(catalog, left_on_the_heap) == 0
    catalog.execute("insert into public.events (ts) values ('2024-01-05')")
    assert value(catalog, "select n from public.doubled") == 2
    assert value(catalog, "select public.atomic() + public.late()") == 2
    assert value(catalog, "select reloptions from pg_class where relname = 'counted'") == ["security_barrier=true"]


def test_row_security_holds_for_every_command(catalog: Connection, events: str, add: Add, connect: Connect) -> None:
    catalog.execute("alter table public.events enable row level security")
    catalog.execute(
        "create policy own on public.events using (status = current_user) with check (status = current_user)"
    )
    catalog.execute("create policy calm on public.events as restrictive for delete using (amount is null)")
    with role(catalog, "frostline_tenant"):
        catalog.execute("grant select, insert, update, delete on public.events to frostline_tenant")
        table = add(events)
        catalog.execute("insert into public.events (ts, status) values ('2024-01-05', 'somebody else')")
        tenant = connect(catalog.info.dsn + f" password={catalog.info.password}")
        tenant.execute("set role frostline_tenant")
        tenant.execute("insert into public.events (ts, status, amount) values ('2024-01-06', current_user, 5)")
        assert value(tenant, "select count(*) from public.events") == 1
        assert value(catalog, "select count(*) from public.events") == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            tenant.execute("insert into public.events (ts, status) values ('2024-01-06', 'forged')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            tenant.execute("update public.events set status = 'forged'")
        assert tenant.execute("delete from public.events").rowcount == 0
        tenant.execute("update public.events set amount = null")
        assert tenant.execute("delete from public.events").rowcount == 1
        assert value(catalog, "select array_agg(status) from public.events") == ["somebody else"]
        tenant.close()
        removal.remove(catalog, table.name)
        catalog.execute("drop table public.events")


@pytest.mark.parametrize(
    "names",
    [("one.events", "two.events"), ('one."Events"', "one.events"), ('one."ein Ereignis \U0001f9ca"', 'two."a""b.c"')],
)
def test_any_two_names_work_side_by_side(catalog: Connection, add: Add, names: tuple[str, str]) -> None:
    catalog.execute("create schema one; create schema two")
    for number, name in enumerate(names):
        statement = (
            f"create table {name} (id int, ts timestamptz, primary key (id, ts)) partition by range (ts);"
            f"create table public.p{number} partition of {name} for values from ('2024-01-01') to ('2024-02-01')"
        )
        run(catalog, statement)
        add(name)
        run(catalog, f"insert into {name} values ({number}, '2024-01-05')")
    for number, name in enumerate(names):
        assert value(catalog, f"select id from {name}") == number


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_every_time_type_can_be_the_tier_key(catalog: Connection, add: Add, kind: str) -> None:
    run(
        catalog,
        f"create table public.t (k {kind} primary key) partition by range (k);"
        "create table public.t_1 partition of public.t for values from (minvalue) to ('2024-02-01')",
    )
    add("t")
    catalog.execute("insert into public.t values ('2024-01-05'), ('-infinity')")
    assert value(catalog, "select count(*) from public.t") == 2


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint"])
def test_every_integer_type_can_be_the_tier_key(catalog: Connection, add: Add, kind: str) -> None:
    run(
        catalog,
        f"create table public.t (k {kind} primary key) partition by range (k);"
        "create table public.t_1 partition of public.t for values from (minvalue) to (100)",
    )
    table = add("t", hot="50")
    catalog.execute("insert into public.t values (5), (-32768)")
    assert value(catalog, "select count(*) from public.t") == 2
    assert (table.policy.hot_period, table.lake_partition) == ("50", "truncate[1000000]")


def test_all_reasons_to_refuse_come_at_once_with_a_hint_each(catalog: Connection, add: Add) -> None:
    catalog.execute("create table public.bad (id int, ts text, frostline_x int) partition by range (ts)")
    catalog.execute("create table public._bad (id int)")
    with pytest.raises(UsageError) as refused:
        add("bad")
    message, hints = str(refused.value), (refused.value.hint or "").splitlines()
    for reason in ("type text", "no primary key", "nullable", "reserved name", "already taken"):
        assert reason in message
    assert len(hints) == 5


# Only ICU has real nondeterministic collations, and not every build has ICU. What is registered only looks at the flag.
OWN_TYPES = """
create type public.colour as enum ('red', 'green');
create type public.pair as (a int, b int);
create domain public.price as numeric(10, 2);
create domain public.any_number as numeric;
create domain public.numbers as public.any_number[];
create domain public.codes as text[];
create collation public.nocase from "C";
update pg_collation set collisdeterministic = false where collname = 'nocase';
create domain public.loose as text collate public.nocase;
create extension citext schema public;
"""
EXACT = [
    *("smallint", "integer", "bigint", "boolean", "oid", "date", "timestamp", "timestamptz", "time", "timetz", "uuid"),
    *("text", 'text collate "C"', "varchar(9)", "char(9)", "bpchar", '"char"', "name", "bytea", "bit(3)", "varbit"),
    *("numeric(10,2)", "numeric(50,2)", "numeric(5,-2)", "inet", "cidr", "macaddr", "macaddr8", "pg_lsn", "int4range"),
    *("tstzrange", "int[]", "numeric(9,1)[]", "public.colour", "public.price", "public.price[]", "public.codes"),
]
INEXACT = [
    *("numeric", "numeric[]", "public.any_number", "public.numbers", "interval", "interval[]", "real", "float8"),
    *("float8[]", "jsonb", "money", "numrange", "nummultirange", "tsvector", "public.pair", "public.citext"),
    *("text collate public.nocase", "varchar(9) collate public.nocase", "text[] collate public.nocase", "public.loose"),
]


def key_of(connection: Connection, number: int, kind: str) -> str:
    """A table whose key has a column of that type."""
    run(connection, f"create table public.t{number} (x {kind}, k int, primary key (x, k)) partition by range (k)")
    return f"public.t{number}"


@pytest.mark.slow
def test_a_key_whose_equal_values_have_one_form_is_taken(catalog: Connection, add: Add) -> None:
    run(catalog, OWN_TYPES)
    for number, kind in enumerate(EXACT):
        add(key_of(catalog, number, kind), hot="1")


def test_a_key_whose_equal_values_can_have_two_forms_is_refused(catalog: Connection, add: Add) -> None:
    """A fold looks for a marked key in the lake by its form there: it would miss the row and double it."""
    run(catalog, OWN_TYPES)
    for number, kind in enumerate(INEXACT):
        name = key_of(catalog, number, kind)
        with pytest.raises(
            UsageError, match=r"its key column x (is of type .*in two ways|has the nondetermin)"
        ) as refused:
            add(name, hot="1")
        assert refused.value.hint


def test_columns_outside_the_key_may_have_any_type(catalog: Connection, add: Add) -> None:
    run(catalog, OWN_TYPES)
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(INEXACT))
    run(catalog, f"create table public.t (k int primary key, {columns}) partition by range (k)")
    add("public.t", hot="1")


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ("create table t (id int primary key)", "not partitioned"),
        ("create view t as select 1 as id", "not a table"),
        ("create table t (id int, a int, primary key (id, a)) partition by range (id, a)", "exactly one column"),
        ("create table t (id int primary key) partition by list (id)", "exactly one column"),
        ("create table t (id int primary key) partition by range ((id + 0))", "unsupported"),
        (
            (
                "create table t (id int primary key) partition by range (id);"
                "create table d partition of t default; insert into t values (1)"
            ),
            "DEFAULT partition holds rows",
        ),
        (
            "create table t (id int primary key) partition by range (id); create table u (id int references t)",
            "foreign key u_id_fkey",
        ),
        (
            "create table t (id int primary key, parent int references t) partition by range (id)",
            "foreign key t_parent_fkey",
        ),
        (
            f"create table t (id int primary key{''.join(f', c{n} int' for n in range(799))}) partition by range (id)",
            "more than 799 columns",
        ),
        (
            "create table t (id int primary key) partition by range (id); create materialized view m as table t",
            "materialized view",
        ),
        (
            "create table t (id int primary key) partition by range (id); create table u (x t)",
            "uses its row type",
        ),
        (
            (
                "create table t (id int primary key) partition by range (id);"
                "create table s partition of t for values from (1) to (2) partition by range (id)"
            ),
            "not a plain table",
        ),
    ],
)
def test_what_cannot_be_managed_is_refused(catalog: Connection, add: Add, setup: str, reason: str) -> None:
    catalog.execute("set search_path = public")
    try:
        run(catalog, setup)
    except psycopg.errors.FeatureNotSupported:
        assert reason == "unsupported"  # Postgres itself refuses a primary key over an expression
        return
    with pytest.raises(UsageError, match=reason):
        add("t", hot="1")
    assert value(catalog, "select to_regclass('public._t') is null")


@pytest.mark.parametrize(
    ("requested", "complaint"),
    [
        ({"hot": "nonsense"}, "--hot 'nonsense' is not an interval"),
        ({"hot": "-1 month"}, "--hot '-1 month' is not positive"),
        ({"hot": "0"}, "is not positive"),
        ({"grace_period": "soon"}, "--grace 'soon' is not an interval"),
        ({"grace_period": "-1 day"}, "--grace '-1 day' is not positive"),
        ({"lake_partition": "fortnight"}, "'fortnight' is not one of year, month, day, hour"),
        ({"lake_partition": "truncate[5]"}, "is not one of"),
    ],
)
def test_a_wrong_policy_is_refused(
    catalog: Connection, events: str, add: Add, requested: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        add(events, **requested)
    assert complaint in str(refused.value)
    assert tables.list_all(catalog) == []


def test_a_busy_table_is_left_alone(
    catalog: Connection, events: str, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    monkeypatch.setattr(registration, "LOCK_TIMEOUT_MS", 50)
    other = connect(catalog.info.dsn + f" password={catalog.info.password}")
    with other.transaction():
        other.execute("insert into public.events (ts) values ('2024-01-05')")
        with pytest.raises(UnavailableError, match="busy"):
            registration.add(catalog, Request(Name.parse(events), Policy("1 month")))
    assert registration.add(catalog, Request(Name.parse(events), Policy("1 month"))).changed


def test_there_is_no_moment_without_the_table(catalog: Connection, events: str, add: Add, connect: Connect) -> None:
    catalog.execute("insert into public.events (ts) values ('2024-01-05')")
    reader = connect(catalog.info.dsn + f" password={catalog.info.password}")
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            seen.append(value(reader, "select count(*) from public.events"))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(5):
            removal.remove(catalog, add(events).name)
    finally:
        stop.set()
        thread.join()
    assert set(seen) == {1}


def test_remove_gives_the_plain_table_back(catalog: Connection, events: str, add: Add) -> None:
    before = value(
        catalog, "select array_agg(c.oid::regclass::text order by 1) from pg_class c where relname like 'events%'"
    )
    catalog.execute("create view public.counted as select count(*) as n from public.events")
    add(events)
    catalog.execute("insert into public.events (ts) values ('2024-01-05')")
    removal.remove(catalog, Name.parse(events))
    assert value(catalog, "select relkind from pg_class where oid = 'public.events'::regclass") == "p"
    assert value(catalog, "select n from public.counted") == 1
    assert tables.list_all(catalog) == []
    after = value(
        catalog, "select array_agg(c.oid::regclass::text order by 1) from pg_class c where relname like 'events%'"
    )
    assert after == before
    leftovers = (
        "select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname ~ '^frostline_'"
    )
    assert value(catalog, leftovers) == 0
    assert value(catalog, "select count(*) from pg_trigger where tgname = '!frostline_mark'") == 0


def test_a_table_that_is_not_managed_cannot_be_removed(catalog: Connection) -> None:
    make_events(catalog, "public.other")
    with pytest.raises(UsageError, match="not managed"):
        removal.remove(catalog, Name.parse("other"))


@contextmanager
def role(connection: Connection, name: str) -> Generator[None]:
    """A role for the length of a test; roles belong to the whole server."""
    run(connection, f"create role {name}; grant create, usage on schema public to {name}")
    try:
        yield
    finally:
        run(connection, f"drop owned by {name}; drop role {name}")
