"""A foreign key that is added later, or validated, says of rows in the lake too that they have their parents."""

import psycopg
import pytest
from psycopg import errors
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import UsageError
from frostline.model import health
from frostline.model.policy import ForeignKeys
from frostline.observe import status
from frostline.relation import constraints, guard, holding

TABLES = """
create table public.parent (k int primary key, a int, b text collate "C", unique (a, b));
insert into public.parent select i, i, 'b' || i from generate_series(1, 9) i;
create table public.c (id int, ts date, p int, a int, b text, primary key (id, ts)) partition by range (ts);
create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01');
create table public.c_d partition of public.c default;
insert into public.c select i, '2024-01-05', i, i, 'b' || i from generate_series(1, 9) i"""
KEY = "alter table public._c add constraint key foreign key (p) references public.parent"
VALIDATED = "alter table public._c validate constraint key"
PAIR = "alter table public._c add constraint pair foreign key (a, b) references public.parent (a, b)"
STATES = "select name, state from frostline.cold_constraint where kind = 'foreign key' order by name"
VALID = "select conname::text from pg_constraint where conrelid = 'public._c'::regclass and contype = 'f' and conparentid = 0 and convalidated"


@pytest.fixture
def keyless(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """All children are in the lake alone, nothing references their parents, and DDL is followed."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLES)
    lake.add("c")
    (result,) = lake.archive()
    assert result.error is None
    lake.clean("c")
    assert guard.ensure(lake.catalog)
    return lake


@pytest.fixture
def orphaned(keyless: Lake) -> Lake:
    """Two of them have no parent any more."""
    run(keyless.catalog, "delete from public.parent where k in (3, 5)")
    return keyless


@pytest.fixture
def since_18(keyless: Lake) -> None:
    """Before, Postgres has no NOT VALID foreign key of a partitioned table."""
    if keyless.catalog.info.server_version < 180000:
        pytest.skip("a foreign key of a partitioned table cannot be NOT VALID")


def done(lake: Lake, *statements: str) -> None:
    """As an application, each in a transaction of its own."""
    with lake.connect() as connection:
        for statement in statements:
            run(connection, statement)


def refused(lake: Lake, error: type[psycopg.Error], message: str, statement: str) -> psycopg.Error:
    with lake.connect() as connection, pytest.raises(error, match=message) as caught:
        run(connection, statement)
    return caught.value


def parents_back(lake: Lake) -> None:
    run(lake.catalog, "insert into public.parent values (3), (5)")


def test_a_new_key_finds_orphans_in_the_lake(orphaned: Lake) -> None:
    error = refused(orphaned, errors.ForeignKeyViolation, "key of relation public._c is violated by some row in", KEY)
    assert (error.diag.constraint_name, error.diag.table_name) == ("key", "_c")
    _, query = str(error.diag.message_hint).split("They are cold rows: ")
    assert sorted(row[0] for row in rows(orphaned.catalog, query)) == [3, 5]
    assert rows(orphaned.catalog, VALID) == rows(orphaned.catalog, STATES) == []
    parents_back(orphaned)
    done(orphaned, KEY)
    assert rows(orphaned.catalog, STATES) == [("key", "held")]
    refused(orphaned, errors.ForeignKeyViolation, "key", "delete from public.parent where k = 3")
    assert constraints.unseen(orphaned.catalog, orphaned.table("c")) is None


def test_an_orphan_that_was_deleted_or_changed_since_is_none(orphaned: Lake) -> None:
    run(orphaned.catalog, "delete from public.c where p = 3")
    run(orphaned.catalog, "update public.c set p = 4 where p = 5")
    done(orphaned, KEY)
    assert rows(orphaned.catalog, VALID) == [("key",)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_parent_that_only_an_older_snapshot_sees_is_none(keyless: Lake, level: str) -> None:
    with keyless.connect() as app:
        run(app, f"begin isolation level {level}; select 1 from pg_class limit 1")
        run(keyless.catalog, "delete from public.parent where k in (3, 5)")
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="whose rows may have gone since") as caught:
            run(app, KEY)
        assert caught.value.diag.message_hint == "Do it at READ COMMITTED."
    assert rows(keyless.catalog, VALID) == []


def test_a_key_of_many_columns_says_of_the_lake_what_it_says_of_the_heap(keyless: Lake) -> None:
    run(keyless.catalog, "update public.c set b = null where id = 2")
    (folded,) = keyless.fold()
    assert folded.error is None
    refused(keyless, errors.ForeignKeyViolation, "pair of relation", f"{PAIR} match full")
    done(keyless, PAIR, "alter table public._c drop constraint pair")
    run(keyless.catalog, "update public.c set b = 'b3' where id = 2")
    keyless.fold()
    with keyless.connect() as app, app.transaction(force_rollback=True):
        run(app, "insert into public.parent values (20, 2, 'b3')")
        run(app, PAIR)
    refused(keyless, errors.ForeignKeyViolation, "pair of relation", PAIR)


@pytest.mark.usefixtures("since_18")
def test_not_valid_at_once_and_validated_with_the_lake(orphaned: Lake) -> None:
    done(orphaned, f"{KEY} not valid")
    assert rows(orphaned.catalog, STATES) == [("key", "not valid")]
    refused(
        orphaned, errors.ForeignKeyViolation, "key", "insert into public.c (id, ts, p) values (20, '2024-01-06', 3)"
    )
    refused(orphaned, errors.ForeignKeyViolation, "violated by some row in the lake", VALIDATED)
    parents_back(orphaned)
    with orphaned.connect() as app, app.transaction():
        run(app, VALIDATED)
        with orphaned.connect() as other:
            run(other, "set lock_timeout = '5s'")
            run(other, "update public.parent set a = 7 where k = 7")
            assert value(other, "select count(*) from public.c") == 9
    assert rows(orphaned.catalog, STATES) == [("key", "held")]
    orphaned.server.stop()
    done(orphaned, "alter table public._c drop constraint key", f"{KEY} not valid")
    refused(orphaned, psycopg.OperationalError, "lake hold foreign key key", VALIDATED)
    assert (rows(orphaned.catalog, VALID), rows(orphaned.catalog, STATES)) == ([], [("key", "not valid")])


def test_a_lake_that_is_down_is_asked_only_where_a_file_has_the_column(keyless: Lake) -> None:
    keyless.server.stop()
    refused(
        keyless, psycopg.OperationalError, "cannot tell whether rows of public._c in the lake hold foreign key", KEY
    )
    assert rows(keyless.catalog, VALID) == []
    done(
        keyless,
        "alter table public._c add column q int constraint q references public.parent",
        "alter table public._c add column r int default 4 constraint r references public.parent",
        "alter table public._c add constraint mixed foreign key (q, b) references public.parent (a, b)",
    )
    refused(
        keyless,
        errors.ObjectNotInPrerequisiteState,
        "ADD CONSTRAINT s cannot look at",
        "alter table public._c add column s int default 77 constraint s references public.parent",
    )
    assert rows(keyless.catalog, STATES) == [("mixed", "held"), ("q", "held"), ("r", "held")]


def test_no_reader_waits_for_the_lake(keyless: Lake) -> None:
    with keyless.connect() as app, app.transaction():
        run(app, KEY)
        with keyless.connect() as reader:
            run(reader, "set lock_timeout = '5s'")
            assert value(reader, "select count(*) from public.c") == 9
            assert value(reader, "select count(*) from public.parent") == 9
    with keyless.connect() as app:
        run(app, "begin; alter table public._c add column note text")
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="in this transaction") as caught:
            run(app, PAIR)
        assert "in a transaction of its own" in str(caught.value.diag.message_hint)


def test_without_event_triggers_it_is_told_and_looked_at_by_sync(orphaned: Lake) -> None:
    run(orphaned.catalog, "; ".join(f"drop event trigger {name}" for name in guard.TRIGGERS))
    done(orphaned, KEY)
    constraints.record_all(orphaned.catalog)
    table = orphaned.table("c")
    told = health.Problem("rows in the lake were not looked at for foreign key key", "frostline table sync public.c")
    assert told in status.of_table(orphaned.catalog, table).problems
    with pytest.raises(UsageError, match="violated by some row in the lake"):
        constraints.look(orphaned.catalog, table)
    parents_back(orphaned)
    assert constraints.look(orphaned.catalog, table) == ("foreign key key",)
    assert constraints.unseen(orphaned.catalog, table) is None


def test_a_key_that_was_ignored_for_a_while_is_not_known_to_hold(keyless: Lake) -> None:
    table = holding.switch(keyless.catalog, keyless.table("c"), ForeignKeys.IGNORE)
    done(keyless, "delete from public.parent where k = 3", KEY)
    assert constraints.unseen(keyless.catalog, table) is None
    table = holding.switch(keyless.catalog, table, ForeignKeys.HOLD)
    assert constraints.unseen(keyless.catalog, table) == "foreign key key"


def test_a_wider_type_of_the_child_is_no_news_and_another_key_of_the_parent_is(keyless: Lake) -> None:
    done(keyless, KEY, "alter table public._c alter p type bigint")
    assert rows(keyless.catalog, STATES) == [("key", "held")]
    table = keyless.table("c")
    assert constraints.unseen(keyless.catalog, table) is None
    done(keyless, "alter table public.parent alter k type bigint using k + 100")
    assert constraints.unseen(keyless.catalog, table) == "foreign key key"
    done(keyless, "alter table public._c alter p set statistics 50")
    assert rows(keyless.catalog, STATES) == [("key", "unseen")]
    with pytest.raises(UsageError, match="violated by some row in the lake"):
        constraints.look(keyless.catalog, table)


def test_a_key_that_cannot_be_held_is_told_and_not_looked_up(keyless: Lake) -> None:
    done(keyless, "create table public.below () inherits (public.parent)")
    keyless.server.stop()
    said: list[str | None] = []
    with keyless.connect() as app:
        app.add_notice_handler(lambda notice: said.append(notice.message_primary))
        run(app, KEY)
    why = "because other tables inherit from the one that it references"
    assert said == [f"foreign key key of public._c cannot be held for rows in the lake, {why}"]
    assert rows(keyless.catalog, STATES) == []
