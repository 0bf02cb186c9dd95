"""What holds foreign keys follows them in the transaction of whoever alters one of the tables: by event triggers, or by `table sync`."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg import errors
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.catalog import tables
from frostline.model.names import Name
from frostline.model.policy import ForeignKeys
from frostline.relation import following, foreign_keys, form, guard, holding, renewal

PARENT = "create table public.parent (k int primary key); insert into public.parent select generate_series(1, 9)"
PARTED = """
create table public.parent (k int primary key) partition by range (k);
create table public.parent_0 partition of public.parent for values from (0) to (10);
insert into public.parent select generate_series(1, 9)"""
CHILD = """
create table public.c (id int, ts date, p int{}, primary key (id, ts)) partition by range (ts);
create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01');
insert into public.c select k, '2024-01-05', k from generate_series(1, 9) k"""
REFERENCES = " references public.parent on delete cascade on update cascade"
KEY = "alter table public._c add constraint key foreign key (p) references public.parent on delete cascade on update cascade"
TRIGGERS = (
    "select tgrelid::regclass::text from pg_trigger where tgname like '!frostline\\_children%' group by 1 order by 1"
)
OF_KEYS = """
select count(*) from pg_class where relname like 'foreign keys %'
 union all select count(*) from pg_proc where proname like 'children\\_%'"""
LEFT = "select p from {} order by 1"


def archived(lake: Lake, monkeypatch: pytest.MonkeyPatch, parent: str, child: str) -> Lake:
    """All rows of the child are in the lake alone, and DDL is followed."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, parent)
    run(lake.catalog, child)
    lake.add("c")
    (result,) = lake.archive()
    assert result.error is None
    lake.clean("c")
    assert guard.ensure(lake.catalog)
    return lake


@pytest.fixture
def keyless(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return archived(lake, monkeypatch, PARENT, CHILD.format(""))


@pytest.fixture
def keyed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return archived(lake, monkeypatch, PARENT, CHILD.format(REFERENCES))


@pytest.fixture
def parted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return archived(lake, monkeypatch, PARTED, CHILD.format(REFERENCES))


def done(lake: Lake, *statements: str) -> None:
    """By somebody who is not Frostline."""
    with lake.connect() as connection:
        for statement in statements:
            run(connection, statement)


def left(lake: Lake, relation: str = "public.c") -> list[int]:
    return [key for (key,) in rows(lake.catalog, LEFT.format(relation))]


def in_order(lake: Lake, name: str = "public.c") -> None:
    """The next program that starts has nothing to do."""
    assert foreign_keys.strayed(lake.catalog) == []
    assert renewal.is_current(lake.catalog, tables.get(lake.catalog, Name.parse(name)))


def test_a_new_key_holds_in_its_own_transaction_and_one_that_is_dropped_no_more(keyless: Lake) -> None:
    with keyless.connect() as connection:
        run(connection, "begin")
        run(connection, KEY)
        run(connection, "delete from public.parent where k = 1")
        assert value(connection, "select count(*) from public.c") == 8
        run(connection, "rollback")
    assert (rows(keyless.catalog, TRIGGERS), rows(keyless.catalog, OF_KEYS)) == ([], [(0,), (0,)])
    done(keyless, KEY, "delete from public.parent where k = 2", "update public.parent set k = 10 where k = 3")
    assert left(keyless) == [1, 4, 5, 6, 7, 8, 9, 10]
    in_order(keyless)
    done(keyless, "alter table public._c drop constraint key", "delete from public.parent where k = 4")
    assert left(keyless) == [1, 4, 5, 6, 7, 8, 9, 10]
    assert (rows(keyless.catalog, TRIGGERS), rows(keyless.catalog, OF_KEYS)) == ([], [(0,), (0,)])
    in_order(keyless)


JOINS = ("hash", "merge", "nest")


@pytest.mark.parametrize("join", JOINS)
def test_what_holds_a_key_is_made_in_order_however_the_question_for_it_is_planned(keyless: Lake, join: str) -> None:
    """A trigger is made after its function."""
    others = [f"set enable_{other}{'loop' if other == 'nest' else 'join'} = off" for other in JOINS if other != join]
    done(keyless, *others, KEY)
    assert (rows(keyless.catalog, TRIGGERS), rows(keyless.catalog, OF_KEYS)) == ([("public.parent",)], [(1,), (1,)])
    in_order(keyless)


def test_a_key_that_the_parent_loses_is_lost_for_the_lake_too(keyed: Lake) -> None:
    done(
        keyed, "alter table public.parent drop constraint parent_pkey cascade", "delete from public.parent where k = 1"
    )
    assert left(keyed)[0] == 1
    assert (rows(keyed.catalog, TRIGGERS), rows(keyed.catalog, OF_KEYS)) == ([], [(0,), (0,)])
    in_order(keyed)


def test_a_new_owner_holds_them_at_once(keyed: Lake) -> None:
    with role(keyed.dsn, "frostline_owner"):
        done(
            keyed,
            "grant select, references on public.parent to frostline_owner",
            "grant usage on schema public to frostline_owner",
        )
        done(keyed, "alter table public._c owner to frostline_owner")
        done(keyed, "delete from public.parent where k = 1")
        assert left(keyed) == [2, 3, 4, 5, 6, 7, 8, 9]
        in_order(keyed)
        done(keyed, "reassign owned by frostline_owner to postgres", "drop owned by frostline_owner")
        done(keyed, "delete from public.parent where k = 2")
        assert left(keyed) == [3, 4, 5, 6, 7, 8, 9]
        in_order(keyed)


def test_partitions_of_the_parent_are_followed_as_they_come_and_go(parted: Lake) -> None:
    done(
        parted,
        "create table public.parent_1 partition of public.parent for values from (10) to (20) partition by range (k)",
        "create table public.parent_2 partition of public.parent_1 for values from (10) to (15)",
        "create table public.parent_3 (k int primary key)",
        "alter table public.parent attach partition public.parent_3 for values from (20) to (30)",
    )
    names = ["parent", "parent_0", "parent_1", "parent_2", "parent_3"]
    assert rows(parted.catalog, TRIGGERS) == [(f"public.{name}",) for name in names]
    in_order(parted)
    done(parted, "update public.parent set k = 10 where k = 1", "update public.parent set k = 20 where k = 2")
    done(parted, "delete from public.parent_2 where k = 10", "update public.parent_3 set k = 21")
    assert left(parted) == [3, 4, 5, 6, 7, 8, 9, 21]
    done(parted, "delete from public.parent_3", "alter table public.parent detach partition public.parent_3")
    done(parted, "alter table public.parent detach partition public.parent_1")
    assert rows(parted.catalog, TRIGGERS) == [("public.parent",), ("public.parent_0",)]
    assert left(parted) == [3, 4, 5, 6, 7, 8, 9]
    in_order(parted)


def test_a_key_that_cannot_be_held_while_others_inherit_is_held_again_by_the_worker(keyed: Lake) -> None:
    done(keyed, "create table public.below () inherits (public.parent)")
    assert rows(keyed.catalog, TRIGGERS) == []
    in_order(keyed)
    done(keyed, "alter table public.below no inherit public.parent")
    assert holding.follow(keyed.catalog) == [Name("public", "c")]
    done(keyed, "delete from public.parent where k = 1")
    assert left(keyed) == [2, 3, 4, 5, 6, 7, 8, 9]
    in_order(keyed)


def renamed_in_place(lake: Lake) -> str:
    done(lake, "create schema other", "alter view public.c rename to d", "alter view public.d set schema other")
    done(lake, "alter schema other rename to another")
    return "another.d"


def renamed_beside(lake: Lake) -> str:
    form.change(lake.catalog, lake.table("c"), "c_all")
    done(lake, "alter table public.c rename to d", "create schema other", "alter table public.d set schema other")
    return "other.d"


@pytest.mark.parametrize("renamed", [renamed_in_place, renamed_beside])
def test_a_table_that_holds_its_keys_may_be_renamed(keyed: Lake, renamed: Callable[[Lake], str]) -> None:
    name = renamed(keyed)
    relation = str(tables.get(keyed.catalog, Name.parse(name)).relation)
    done(keyed, "delete from public.parent where k = 1", "update public.parent set k = 10 where k = 2")
    assert left(keyed, relation) == [3, 4, 5, 6, 7, 8, 9, 10]
    in_order(keyed, name)
    keyed.server.stop()
    with keyed.connect() as connection, pytest.raises(psycopg.OperationalError) as down:
        run(connection, "delete from public.parent where k = 3")
    assert f"frostline table set {name} --foreign-keys ignore" in str(down.value.diag.message_hint)


def test_a_renamed_parent_goes_on_and_is_not_locked_later(keyed: Lake) -> None:
    done(
        keyed,
        "alter table public.parent rename to parents",
        "create schema s",
        "alter table public.parents set schema s",
    )
    in_order(keyed)
    with keyed.connect() as writer:
        run(writer, "begin; update s.parents set k = k where k = 1")
        done(keyed, "set lock_timeout = '10s'", "alter table public._c add column note text default 'x'")
        run(writer, "delete from s.parents where k = 1; commit")
    assert left(keyed) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_the_columns_of_a_key_may_change(keyed: Lake) -> None:
    done(keyed, "alter table public._c rename p to q", "alter table public._c alter q type bigint")
    done(keyed, "alter table public._c add other int, drop constraint c_p_fkey")
    done(keyed, KEY.replace("(p)", "(q)"), "update public.parent set k = 12 where k = 1")
    assert [q for (q,) in rows(keyed.catalog, "select q from public.c order by 1")] == [2, 3, 4, 5, 6, 7, 8, 9, 12]
    in_order(keyed)
    done(keyed, "alter table public._c drop column q", "delete from public.parent")
    assert value(keyed.catalog, "select count(*) from public.c") == 9
    assert (rows(keyed.catalog, TRIGGERS), rows(keyed.catalog, OF_KEYS)) == ([], [(0,), (0,)])
    in_order(keyed)


def test_keys_that_are_ignored_get_nothing(keyless: Lake) -> None:
    table = holding.switch(keyless.catalog, keyless.table("c"), ForeignKeys.IGNORE)
    done(keyless, KEY, "alter table public._c add note text", "alter table public.parent rename k to q")
    assert (rows(keyless.catalog, TRIGGERS), rows(keyless.catalog, OF_KEYS)) == ([], [(0,), (0,)])
    holding.switch(keyless.catalog, table, ForeignKeys.HOLD)
    assert rows(keyless.catalog, TRIGGERS) == [("public.parent",)]
    in_order(keyless)


def test_without_event_triggers_table_sync_follows(keyless: Lake) -> None:
    for name in guard.TRIGGERS:
        run(keyless.catalog, f"drop event trigger {name}")
    done(keyless, KEY)
    assert rows(keyless.catalog, TRIGGERS) == []
    assert following.follow(keyless.catalog, keyless.table("c")) == ("foreign keys",)
    assert following.follow(keyless.catalog, keyless.table("c")) == ()
    done(keyless, "delete from public.parent where k = 1")
    assert left(keyless) == [2, 3, 4, 5, 6, 7, 8, 9]
    in_order(keyless)


def test_a_key_whose_parent_we_may_not_touch_is_refused_with_what_to_do(keyless: Lake) -> None:
    """As on a managed Postgres, where the role that installed Frostline is no superuser."""
    with role(keyless.dsn, "frostline_weak"):
        run(
            keyless.catalog,
            "revoke all on public.parent from public; grant usage on schema frostline, frostline_relation, public to frostline_weak",
        )
        run(keyless.catalog, "grant select on all tables in schema frostline to frostline_weak")
        run(keyless.catalog, "grant execute on all functions in schema frostline to frostline_weak")
        for name in guard.TRIGGERS:
            run(keyless.catalog, f"drop event trigger {name}")
        done(keyless, KEY)
        with keyless.connect() as weak:
            run(weak, "set role frostline_weak")
            with pytest.raises(errors.InsufficientPrivilege, match="may not put a trigger there") as caught:
                run(weak, "select frostline.follow_keys(1)")
    assert str(caught.value.diag.message_hint).startswith(
        "grant trigger on public.parent to frostline_weak, or: frostline table set public.c"
    )
