"""Rights on a managed table are those of a plain one, whichever of its two names they were given or taken on."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import migrations
from frostline.catalog.connect import connect
from frostline.relation import following, form, guard, removal

RIGHTS = """
select a.grantee::regrole::text, a.privilege_type, a.is_grantable, null as column
  from pg_class c, aclexplode(c.relacl) a where c.oid = 'public.{0}'::regclass and a.grantee <> c.relowner
union all
select a.grantee::regrole::text, a.privilege_type, a.is_grantable, t.attname::text
  from pg_attribute t, aclexplode(t.attacl) a where t.attrelid = 'public.{0}'::regclass and not t.attisdropped order by 1, 2, 3, 4"""
SEQUENCE = "select count(*) from pg_class c, aclexplode(c.relacl) a where c.oid = 'public.events_id_seq'::regclass and a.grantee <> c.relowner"
GIVEN = (
    "grant select on public.{} to app",
    "grant insert on public.{} to app",
    "grant select (id, status) on public.{} to other",
    "grant update (status), references on public.{} to other with grant option",
    "grant all on all tables in schema public to app",
)
TAKEN = (
    "revoke insert on public.{} from app",
    "revoke grant option for update (status) on public.{} from other cascade",
    "revoke select on public.{} from other",
    "revoke all on public.{} from app",
    "drop owned by other",
)


@pytest.fixture
def managed(lake: Lake) -> Iterator[Lake]:
    """`events`, and the roles `app` and `other`, which have no right on anything yet; `former` may read and insert."""
    with role(lake.dsn, "app"), role(lake.dsn, "other"), role(lake.dsn, "former"):
        make_events(lake.catalog, "public.events")
        run(lake.catalog, "grant select, insert on public.events to former")
        assert guard.ensure(lake.catalog)
        lake.add()
        yield lake


def both(lake: Lake) -> list[tuple[Any, ...]]:
    """What others have, of heap and relation, of what a view can give."""
    both_have = [
        [right for right in rows(lake.catalog, RIGHTS.format(name)) if right[1] not in ("TRUNCATE", "MAINTAIN")]
        for name in ("_events", "events")
    ]
    assert both_have[0] == both_have[1]
    return both_have[0]


def say(lake: Lake, *statements: str) -> None:
    """As an administrator does."""
    with lake.connect() as connection:
        for statement in statements:
            run(connection, statement)


def as_role(lake: Lake, name: str, statement: str) -> object:
    with lake.connect() as connection:
        run(connection, f"set role {name}")
        return value(connection, statement)


@pytest.mark.parametrize("name", ["_events", "events"])
def test_what_is_given_or_taken_on_one_name_is_on_both(managed: Lake, name: str) -> None:
    for statement in GIVEN:
        say(managed, statement.format("_events"))
        both(managed)
    for statement in TAKEN:
        before = both(managed)
        say(managed, statement.format(name))
        assert both(managed) != before
    assert {right[0] for right in both(managed)} == {"former"}
    say(managed, f"revoke all on public.{name} from former")
    assert both(managed) == []
    for forbidden in ("events", "_events"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_role(managed, "former", f"select count(*) from public.{forbidden}")


def test_whoever_may_insert_gets_the_next_number_and_loses_it(managed: Lake) -> None:
    insert = "insert into public.events (ts, status) values (now(), 'new') returning id"
    before = value(managed.catalog, SEQUENCE)
    for name in ("events", "_events"):
        say(managed, f"grant insert, select on public.{name} to app")
        assert as_role(managed, "app", insert) is not None
        say(managed, f"revoke all on public.{name} from app")
        assert value(managed.catalog, SEQUENCE) == before


def test_a_right_on_the_relation_alone_stays_one(managed: Lake) -> None:
    say(managed, "grant select on public.events to app")
    assert as_role(managed, "app", "select count(*) from public.events") == 0
    say(managed, "grant select on public._events to other; revoke all on public._events from former")
    assert as_role(managed, "app", "select count(*) from public.events") == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role(managed, "app", "select count(*) from public._events")


def test_a_rollback_leaves_no_trace(managed: Lake) -> None:
    before = both(managed), rows(managed.catalog, "select * from frostline.heap_right order by 2, 3, 4, 5")
    with managed.connect() as connection, connection.transaction(force_rollback=True):
        for statement in GIVEN:
            run(connection, statement.format("_events"))
    assert before == (both(managed), rows(managed.catalog, "select * from frostline.heap_right order by 2, 3, 4, 5"))


def test_whoever_means_the_heap_alone_says_so(managed: Lake) -> None:
    say(managed, "set frostline.guard = off; grant select on public._events to app; reset frostline.guard")
    say(managed, "grant select on public._events to other")
    assert as_role(managed, "app", "select count(*) from public._events") == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role(managed, "app", "select count(*) from public.events")
    say(managed, "revoke all on public._events from app")


def test_rights_go_with_renamed_dropped_and_exchanged_columns(managed: Lake) -> None:
    say(managed, "grant select (status) on public._events to app; grant update (amount, data) on public._events to app")
    say(managed, "alter table public._events rename status to state; alter table public._events drop column data")
    say(
        managed,
        "alter table public._events rename state to x; alter table public._events rename amount to state; alter table public._events rename x to amount",
    )
    assert [right[1:] for right in both(managed) if right[0] == "app"] == [
        ("SELECT", False, "amount"),
        ("UPDATE", False, "state"),
    ]
    say(managed, "revoke all (amount, state) on public._events from app")
    assert "app" not in {right[0] for right in both(managed)}


def test_beside_the_table_its_rights_lead(managed: Lake) -> None:
    form.change(managed.catalog, managed.table(), "events_all")
    say(managed, "grant select on public.events to app")
    assert as_role(managed, "app", "select count(*) from public.events_all") == 0
    say(managed, "revoke select on public.events_all from app; grant select on public.events to other")
    assert as_role(managed, "app", "select count(*) from public.events") == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role(managed, "app", "select count(*) from public.events_all")
    say(managed, "revoke all on public.events from other")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role(managed, "other", "select count(*) from public.events_all")


def test_without_event_triggers_the_sync_does_it(managed: Lake) -> None:
    say(managed, "; ".join(f"drop event trigger {name}" for name in guard.TRIGGERS))
    say(managed, "grant select on public._events to app; revoke insert on public._events from former")
    say(managed, "alter table public._events owner to other")
    assert following.follow_all(managed.catalog) == [managed.table().name]
    assert [right[:2] for right in both(managed)] == [("app", "SELECT"), ("former", "SELECT")]
    assert as_role(managed, "other", "select count(*) from public.events") == 0
    assert following.follow_all(managed.catalog) == []


def test_a_new_owner_can_use_the_relation_however_he_got_it(managed: Lake) -> None:
    say(managed, "alter table public._events owner to app")
    assert as_role(managed, "app", "select count(*) from public.events") == 0
    # No event trigger hears of the one, and the other comes with it.
    say(managed, "reassign owned by app to other", "drop owned by app")
    assert as_role(managed, "other", "insert into public.events (ts) values (now()) returning 1") == 1
    say(managed, "reassign owned by other to app")
    assert following.follow_all(managed.catalog) == [managed.table().name]
    assert as_role(managed, "app", "select count(*) from public.events") == 1
    assert as_role(managed, "former", "select count(*) from public.events") == 1


def test_removal_gives_back_what_the_table_has_now(managed: Lake) -> None:
    say(
        managed,
        "grant insert on public._events to app; grant select on public.events to app; revoke select on public.events from former",
    )
    removal.remove(managed.catalog, managed.table().name)
    assert [right[:2] for right in rows(managed.catalog, RIGHTS.format("events"))] == [
        ("app", "INSERT"), ("app", "SELECT"), ("former", "INSERT"),
    ]  # fmt: skip
    assert value(managed.catalog, SEQUENCE) == 0


def test_default_privileges_give_nobody_a_relation(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    with role(lake.dsn, "app"):
        run(lake.catalog, "alter default privileges grant all on tables to app")
        lake.add()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_role(lake, "app", "select count(*) from public.events")
        run(lake.catalog, "alter default privileges revoke all on tables from app")


def test_default_privileges_give_nobody_the_catalog(empty_database: str) -> None:
    given = """select c.oid::regclass::text from pg_class c, aclexplode(c.relacl) a
                where c.relnamespace::regnamespace::text ~ '^frostline' and a.grantee <> c.relowner
                union all select nspname from pg_namespace n, aclexplode(n.nspacl) a where nspname ~ '^frostline' and a.grantee not in (0, n.nspowner)
                union all select p.oid::regprocedure::text from pg_proc p, aclexplode(p.proacl) a
                 where p.pronamespace::regnamespace::text ~ '^frostline' and a.grantee not in (0, p.proowner)"""
    with role(empty_database, "app"), connect(empty_database, purpose="tests") as connection:
        for kind in ("tables", "schemas", "functions"):
            run(connection, f"alter default privileges grant all on {kind} to app")
        run(connection, "alter default privileges grant select on tables to public")
        migrations.apply(connection)
        assert rows(connection, given) == []
        run(connection, "alter default privileges revoke select on tables from public")
