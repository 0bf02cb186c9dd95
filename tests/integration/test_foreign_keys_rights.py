"""Foreign keys are held with the rights of the table's owner, as Postgres does it, and with no others."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.model.names import Name
from frostline.relation import holding, removal

pytestmark = pytest.mark.spark

TABLES = """
create table public.seen (who text, what text);
create function public.see() returns trigger language plpgsql as
    'begin insert into public.seen values (current_user, tg_op); return null; end';
create function public.nobody() returns int language plpgsql as
    $$begin insert into public.seen values (current_user, 'DEFAULT'); return 9; end$$;
create table public.c_parent (k int primary key);
create table public.c (id int, ts date, p int references public.c_parent on delete set null, primary key (id, ts),
    q int default public.nobody() references public.c_parent on delete set default) partition by range (ts);
create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01');
create table public.c_2 partition of public.c for values from ('2099-01-01') to ('2099-02-01');
insert into public.c_parent select generate_series(1, 9);
insert into public.c select 10 * m + k, make_date(case m when 1 then 2024 else 2099 end, 1, 5), k, 9
  from generate_series(1, 2) m, generate_series(1, 8) k;
create trigger see after insert or update or delete on public.c for each row execute function public.see();
grant insert on public.seen to public;
alter table public.c owner to fk_owner;
alter table public.c_1 owner to fk_owner;
alter table public.c_2 owner to fk_owner;
alter table public.c_parent owner to fk_parent;
grant references on public.c_parent to fk_owner;
grant select, delete on public.c_parent to fk_clerk;
grant create on schema public to fk_owner, fk_parent
"""
HOSTILE = """
create schema hostile;
create function hostile.compare(int, int) returns boolean language plpgsql as
    $$begin insert into public.seen values (current_user, 'OPERATOR'); return true; end$$;
create operator hostile.= (leftarg = int, rightarg = int, function = hostile.compare);
create operator hostile.<> (leftarg = int, rightarg = int, function = hostile.compare);
set search_path = hostile, pg_catalog, pg_temp
"""
OWN_TRIGGER = """
create temp table t (k int);
create trigger t after delete on t referencing old table as frostline_old
    for each statement execute function frostline_relation.children_1()
"""


@dataclass(frozen=True)
class World:
    """The lake, and the connection strings of the three."""

    lake: Lake
    clerk: str
    parent: str
    owner: str

    def seen(self) -> list[tuple[str, str]]:
        return rows(self.lake.catalog, "select distinct who, what from public.seen order by 1, 2")


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    """A table of one role that references a table of another, in which a third deletes."""
    with (
        role(lake.dsn, "fk_owner") as owner,
        role(lake.dsn, "fk_parent") as parent,
        role(lake.dsn, "fk_clerk") as clerk,
    ):
        run(lake.catalog, TABLES)
        lake.add("c", grace="0")
        lake.archive()
        lake.clean("c")
        run(lake.catalog, "truncate public.seen")
        yield World(lake, clerk, parent, owner)


def test_what_fires_on_the_table_runs_as_its_owner(world: World) -> None:
    with psycopg.connect(world.clerk, autocommit=True) as clerk:
        run(clerk, "delete from public.c_parent where k = 4")
        with pytest.raises(errors.InsufficientPrivilege):
            run(clerk, "select from public.c")
    assert rows(world.lake.catalog, "select id, p from public.c where id % 10 = 4 order by 1") == [
        (14, None),
        (24, None),
    ]
    assert world.seen() == [("fk_owner", "INSERT"), ("fk_owner", "UPDATE")]


def test_a_default_is_evaluated_by_the_owner(world: World) -> None:
    run(world.lake.catalog, "update public.c set q = 8 where id = 11")
    run(world.lake.catalog, "truncate public.seen")
    with psycopg.connect(world.clerk, autocommit=True) as clerk:
        run(clerk, "delete from public.c_parent where k = 8")
    assert value(world.lake.catalog, "select count(*) from public.c where q = 8 or p = 8") == 0
    assert {who for who, _ in world.seen()} == {"fk_owner"}


def test_no_search_path_leads_to_code_of_the_caller(world: World) -> None:
    run(world.lake.catalog, f"grant create on database {world.lake.catalog.info.dbname} to fk_clerk")
    with psycopg.connect(world.clerk, autocommit=True) as clerk:
        run(clerk, HOSTILE)
        run(clerk, "delete from public.c_parent where k operator(pg_catalog.=) 5")
    assert "OPERATOR" not in {what for _, what in world.seen()}
    assert rows(world.lake.catalog, "select id, p from public.c where id % 10 = 5 order by 1") == [
        (15, None),
        (25, None),
    ]
    run(world.lake.catalog, f"revoke create on database {world.lake.catalog.info.dbname} from fk_clerk")


@pytest.mark.parametrize(
    "statement",
    [
        'delete from frostline_write."foreign keys 1"',
        'select from frostline_write."foreign keys 1"',
        OWN_TRIGGER,
        "alter function frostline_relation.children_1() security invoker",
    ],
)
@pytest.mark.parametrize("who", ["clerk", "parent"])
def test_nobody_else_can_use_what_holds_them(world: World, who: str, statement: str) -> None:
    stranger = psycopg.connect(getattr(world, who), autocommit=True)
    with stranger, pytest.raises(errors.InsufficientPrivilege):
        run(stranger, statement)


def test_a_function_that_would_run_as_the_caller_does_nothing(world: World) -> None:
    run(world.lake.catalog, "alter function frostline_relation.children_1() security invoker")
    with psycopg.connect(world.clerk, autocommit=True) as clerk, pytest.raises(errors.InsufficientPrivilege):
        run(clerk, "delete from public.c_parent where k = 4")
    assert world.seen() == []


def test_a_new_owner_is_followed(world: World) -> None:
    run(world.lake.catalog, "alter table public._c owner to fk_parent")
    with psycopg.connect(world.clerk, autocommit=True) as clerk:
        with pytest.raises(errors.InsufficientPrivilege):
            run(clerk, "delete from public.c_parent where k = 4")
        assert holding.follow(world.lake.catalog) == [Name("public", "c")]
        run(clerk, "delete from public.c_parent where k = 4")
    assert {who for who, _ in world.seen()} == {"fk_parent"}
    assert value(world.lake.catalog, "select count(*) from public.c where p = 4") == 0


def test_nothing_is_left_to_the_owner(world: World) -> None:
    rights = """select a.grantee::regrole::text, a.privilege_type from pg_namespace n
        cross join aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a where n.nspname like 'frostline%' order by 1, 2"""
    assert not [right for right in rows(world.lake.catalog, rights) if right[0].startswith("fk_")]
    removal.remove(world.lake.catalog, Name("public", "c"), keep_lake=True)
    assert value(world.lake.catalog, "select count(*) from pg_proc where proowner = 'fk_owner'::regrole") == 0


def test_row_security_that_is_forced_upon_the_owner_is_told(world: World) -> None:
    run(world.lake.catalog, "alter table public._c enable row level security, force row level security")
    clerk = psycopg.connect(world.clerk, autocommit=True)
    forced = pytest.raises(errors.ObjectNotInPrerequisiteState, match="row security is forced upon its owner")
    with clerk, forced:
        run(clerk, "delete from public.c_parent where k = 4")
