"""Schema changes of several kinds that meet: in one query string, in one statement, with what else a table has."""

import psycopg
import pytest
from tests.fixtures.cold_twins import alter, compare, make_guarded
from tests.fixtures.keyed import Keyed, make, state
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.relation import guard, renewal

DEFINITION = "select pg_get_viewdef('public.events'::regclass)"
TYPE = "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'public._events'::regclass and attname = {!r}"


@pytest.fixture
def cold(lake: Lake) -> Lake:
    make_guarded(lake)
    return lake


def test_foreign_keys_are_held_after_a_column_is_new_or_gone(lake: Lake) -> None:
    make(lake, "c", Keyed("on delete cascade on update cascade"))
    assert guard.ensure(lake.catalog)
    for child, parent in (("_c", "c_parent"), ("c_plain", "c_plain_parent")):
        run(lake.catalog, f"alter table public.{child} add column q int")
        run(
            lake.catalog,
            f"alter table public.{child} add foreign key (q) references public.{parent} on delete set null",
        )
    for child in ("c", "c_plain"):
        run(lake.catalog, f"update public.{child} set q = 3 where id in (11, 12, 21)")
    assert lake.fold("c")[0].error is None
    for child in ("c", "c_plain"):
        run(lake.catalog, f"delete from public.{child}_parent where k = 3")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")
    for child in ("_c", "c_plain"):
        run(lake.catalog, f"alter table public.{child} drop column note, alter column p type bigint")
    for child in ("c", "c_plain"):
        run(lake.catalog, f"delete from public.{child}_parent where k in (1, 4)")
        run(lake.catalog, f"update public.{child}_parent set k = 50 where k = 5")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")
    renewal.renew_table(lake.catalog, lake.table("c"))
    assert renewal.is_current(lake.catalog, lake.table("c"))


@pytest.mark.parametrize(
    "other",
    [
        "alter table public.events rename to e2",
        "alter table public.events set schema frostline_guard",
        "alter table public._events rename to e2",
        "alter table public.events alter column amount set default 5",
        "alter table public.events rename column amount to price",
    ],
)
def test_what_is_said_of_a_stub_is_refused(cold: Lake, other: str) -> None:
    """One query string: for each statement in it the relation stands aside, and a stub must not be what gets the name."""
    before = value(cold.catalog, DEFINITION)
    with cold.connect() as connection, pytest.raises(psycopg.errors.FeatureNotSupported, match="in the query string"):
        run(connection, f"alter table public._events drop column data; {other}")
    assert value(cold.catalog, DEFINITION) == before
    assert rows(cold.catalog, "select * from frostline.aside") == []


def test_cascade_is_of_one_statement_only(cold: Lake) -> None:
    run(
        cold.catalog,
        "create table public.other (data int); create view public.noted as select id, data from public.events",
    )
    statement = "alter table public.other drop column data cascade; alter table public._events drop column {} {}"
    with cold.connect() as connection:
        for name in ("data", '"data"', "if exists data"):
            with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="because other objects depend on it"):
                run(connection, statement.format(name, ""))
        run(connection, statement.format("data", "cascade"))
    assert value(cold.catalog, "select to_regclass('public.noted')") is None


def test_what_falls_with_a_reader_is_not_part_of_a_managed_table(cold: Lake) -> None:
    """The view's row type is that of a column of the heap: it would be dropped, and the relation with it."""
    run(cold.catalog, "create view public.noted as select id, data from public.events")
    run(cold.catalog, "alter table public._events add column note public.noted")
    before = value(cold.catalog, DEFINITION)
    with cold.connect() as connection, pytest.raises(psycopg.errors.DependentObjectsStillExist):
        run(connection, "alter table public._events drop column data cascade")
    assert value(cold.catalog, DEFINITION) == before


def test_a_missing_value_is_the_same_whatever_a_session_prints(cold: Lake) -> None:
    alter(cold, "add column ratio real default 0.1")
    with cold.connect() as connection:
        run(connection, "set extra_float_digits = 0")
        run(connection, "alter table public._events alter column ratio type double precision")
        run(connection, "alter table public.plain alter column ratio type double precision")
    compare(cold)


def test_nothing_is_computed_for_hot_rows_alone(cold: Lake) -> None:
    """USING by another column, and where only a function knows of it."""
    alter(cold, 'add column "N" int default 1, add column n int default 2')
    change = "alter table public._events alter column amount type numeric(14, 2)"
    run(
        cold.catalog,
        f"create function public.in_sql() returns void language sql as '{change} using amount * 2';"
        f"create function public.in_plpgsql() returns void language plpgsql as 'begin {change} using amount * 2; end'",
    )
    hidden = f"do $$ begin execute '{change} us' || 'ing amount * 2'; end $$"
    with cold.connect() as connection:
        for statement in (
            'alter table public._events alter column "N" type bigint using "n"::bigint',
            f"select public.in_sql(); {change}",
            f"select public.in_plpgsql(); {change}",
            hidden,
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be computed by USING"):
                run(connection, statement)
        run(connection, "select frostline.alter_table('public._events', 'alter column n type bigint using n::bigint')")
        run(connection, "alter table public.plain alter column n type bigint")
        run(connection, f"do $$ begin {change}; end $$")
    assert value(cold.catalog, TYPE.format("amount")) == "numeric(14,2)"
    compare(cold)


def test_a_constraint_of_a_dropped_column_is_not_that_of_the_next(cold: Lake) -> None:
    """The same name and text in one statement. No hot row tells Postgres that the column's old rows break it."""
    added = "add column n int default {} not null constraint few check (n < 5)"
    with cold.connect() as connection:
        run(connection, "truncate public.events_hot")
        run(connection, f"alter table public._events {added.format(1)}")
        known = "select name from frostline.cold_constraint where state = 'held' and name in ('n', 'few') order by 1"
        assert rows(cold.catalog, known) == [("few",), ("n",)]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="ADD CONSTRAINT few"):
            run(connection, f"alter table public._events drop column n, {added.format(7)}")
        run(connection, f"alter table public._events drop column n, {added.format(3)}")
        assert value(connection, "select count(*) from public.events where n = 3") == 60
        assert rows(cold.catalog, known) == [("few",), ("n",)]
