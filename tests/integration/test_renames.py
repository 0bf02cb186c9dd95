"""Other names and schemas of heap and relation: followed by the catalog, or refused with what to do."""

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.followed import TABLE
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.catalog import lost, tables
from frostline.model.names import Name
from frostline.pipeline import verify
from frostline.relation import columns, form, guard, removal, renewal, rowsecurity

STATE = psycopg.errors.ObjectNotInPrerequisiteState
SUM = "select count(*), sum(id), count(distinct a) from {}"


@pytest.fixture
def cold(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLE.format("t"))
    lake.add("t")
    (result,) = lake.archive()
    assert result.error is None
    assert guard.ensure(lake.catalog)
    return lake


def done(lake: Lake, *statements: str) -> None:
    with lake.connect() as connection:
        for statement in statements:
            run(connection, statement)


def refused(lake: Lake, message: str, statement: str) -> str:
    with lake.connect() as connection, pytest.raises(STATE, match=message) as caught:
        run(connection, statement)
    return str(caught.value.diag.message_hint)


def in_order(lake: Lake, name: str, relation: str) -> None:
    """It is known by its new name, read, written, and every job works on it."""
    table = tables.get(lake.catalog, Name.parse(name))
    assert (str(table.name), str(table.relation)) == (name, relation)
    assert lost.read(lake.catalog) == []
    assert columns.difference(lake.catalog, table) is None
    assert renewal.is_current(lake.catalog, table)
    before = rows(lake.catalog, SUM.format(relation))
    done(lake, f"update {relation} set a = a || 'x' where id in (1, 2)")
    done(
        lake,
        f"insert into {relation} (id, ts, a) values (99, '2024-01-03+00', 'new')",
        f"delete from {relation} where id = 99",
    )
    (folded,) = lake.fold(name)
    assert folded.error is None
    assert rows(lake.catalog, SUM.format(relation)) == before
    assert verify.run(lake.catalog, tables.get(lake.catalog, Name.parse(name))).faults == ()
    with lake.connect() as connection, pytest.raises(psycopg.errors.DependentObjectsStillExist, match="managed table"):
        run(connection, f"drop view {relation} cascade")


def test_a_relation_in_its_place_takes_its_heap_along(cold: Lake) -> None:
    pointer = rows(cold.catalog, "select table_namespace, table_name from frostline.iceberg_tables")
    done(cold, "create view public.reader as select id from public.t", "alter view public.t rename to u")
    in_order(cold, "public.u", "public.u")
    done(cold, "create schema other", "alter table public.u set schema other")
    in_order(cold, "other.u", "other.u")
    done(cold, "alter schema other rename to another")
    in_order(cold, "another.u", "another.u")
    assert value(cold.catalog, "select count(*) from public.reader") == 30
    assert value(cold.catalog, "select to_regclass('another._u') is not null and to_regclass('public._t') is null")
    assert rows(cold.catalog, "select table_namespace, table_name from frostline.iceberg_tables") == pointer
    cold.thaw("another.u")
    removal.remove(cold.catalog, Name.parse("another.u"))
    assert value(cold.catalog, "select count(*) from another.u") == 30


def test_what_would_part_heap_and_relation_is_refused(cold: Lake) -> None:
    done(cold, "create schema other")
    for statement in ("alter table public._t rename to other", "alter table public._t set schema other"):
        assert "alter view public.t rename to" in refused(
            cold, "the heap has to be in the schema of public.t", statement
        )
    refused(cold, "cannot be called mine", "alter schema frostline_lake rename to mine")
    refused(cold, "cannot be called mine", "alter schema frostline rename to mine")
    with cold.connect() as connection:
        run(connection, "create table public._taken ()")
        with pytest.raises(psycopg.errors.DuplicateTable):
            run(connection, "alter view public.t rename to taken")
        with pytest.raises(psycopg.errors.NameTooLong):
            run(connection, f"alter view public.t rename to {'x' * 63}")
        with connection.transaction(force_rollback=True):
            run(connection, 'alter view public.t rename to "A Name"')
            assert value(connection, 'select count(*) from "A Name"') == 30
    in_order(cold, "public.t", "public.t")


def test_beside_the_table_the_relation_follows(cold: Lake) -> None:
    form.change(cold.catalog, cold.table("t"), "t_all")
    done(cold, 'alter view public.t_all rename to "every T"', "alter table public.t rename to u")
    in_order(cold, "public.u", 'public."every T"')
    done(cold, "create schema other", "alter table public.u set schema other")
    in_order(cold, "other.u", 'other."every T"')
    hint = refused(
        cold, "the relation has to be in the schema of other.u", 'alter view other."every T" set schema public'
    )
    assert "alter table other.u set schema" in hint


def test_secured_tables_follow(cold: Lake) -> None:
    done(cold, "create policy few on public._t using (id < 20)")
    rowsecurity.switch(cold.catalog, cold.table("t"), on=True)
    done(cold, "alter view public.t rename to u", "alter policy few on public._u using (id < 10)")
    with role(cold.dsn, "frostline_reader") as dsn, psycopg.connect(dsn, autocommit=True) as reader:
        done(cold, "grant select on public.u to frostline_reader")
        assert value(reader, "select count(*) from public.u") == 9
        done(cold, "drop policy few on public._u", "create policy none on public._u using (false)")
        assert value(reader, "select count(*) from public.u") == 0
    rowsecurity.switch(cold.catalog, cold.table("u"), on=False)
    in_order(cold, "public.u", "public.u")


def in_pieces(text: str) -> str:
    """An expression in which nobody finds the words."""
    return " || ".join(f"$x${letter}$x$" for letter in text)


def test_what_the_lake_has_of_an_enum_or_a_row_type_stays_readable(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, "create type public.mood as enum ('good', 'bad'); create type public.spot as (x int, y int)")
    table = TABLE.replace("a text", "a public.mood, s public.spot").replace("'a' || i", "'bad', row(i, 1)::public.spot")
    run(lake.catalog, table.format("t"))
    lake.add("t")
    lake.archive()
    assert guard.ensure(lake.catalog)
    done(lake, "alter type public.mood add value 'fine' before 'bad'", "update public.t set a = 'fine' where id = 3")
    assert rows(lake.catalog, "select a::text, count(*) from public.t group by 1 order by 1") == [
        ("bad", 29),
        ("fine", 1),
    ]
    assert "add value" in refused(lake, "as they were written", "alter type public.mood rename value 'bad' to 'worse'")
    refused(lake, "as they were written", "alter type public.spot add attribute z int")
    refused(lake, "as they were written", "alter type public.spot drop attribute y")
    sent = "create function public.sent(t text) returns void language plpgsql as 'begin execute t; end'"
    done(lake, sent, "select public.sent($x$alter type public.mood add value 'best' before 'fine'$x$)")
    for change in ("mood rename value 'bad' to 'worse'", "spot add attribute z int", "spot drop attribute y"):
        refused(lake, "as they were written", f"select public.sent('alter type public.' || {in_pieces(change)})")
    done(
        lake,
        "begin; alter type public.mood add value 'poor'; alter type public.mood rename value 'poor' to 'low'; commit",
        f"select public.sent('alter type public.' || {in_pieces('spot rename attribute y to u')})",
    )
    done(lake, "alter type public.mood rename to temper", "alter type public.spot rename attribute x to z")
    assert value(lake.catalog, "select sum((s).z) from public.t where a >= 'fine'") == 465
