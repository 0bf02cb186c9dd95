"""Schema changes of the heap in states and orders that are easily forgotten. Ordered by what goes wrong."""

import psycopg
import pytest
from tests.fixtures.cold_twins import alter, both, compare, make_archived, make_guarded
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.errors import UsageError
from frostline.pipeline import verify
from frostline.relation import columns, following, guard

SMALL = "create table public.{name} (id bigint, ts timestamptz, {column}, primary key (id, ts)) {partitioned}"
JANUARY = "('2024-01-01 00:00+00') to ('2024-02-01 00:00+00')"


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, and a plain table with the same rows."""
    make_guarded(lake)
    return lake


def small(lake: Lake, column: str) -> None:
    """Two tables with one column more than the key, nine rows archived and cleaned."""
    for name, partitioned in (("events", "partition by range (ts)"), ("plain", "")):
        run(lake.catalog, SMALL.format(name=name, column=column, partitioned=partitioned))
    run(lake.catalog, f"create table public.events_1 partition of public.events for values from {JANUARY}")
    insert = "insert into public.{t} (id, ts) select i, '2024-01-02 00:00+00' from generate_series(1, 9) i"
    both(lake.catalog, insert)
    lake.add()
    assert lake.archive("events")[0].error is None
    assert lake.clean().waiting == ()
    assert guard.ensure(lake.catalog)


def test_a_column_that_was_left_to_the_sync_is_left_to_it_when_its_default_is_dropped(lake: Lake) -> None:
    """Its old rows have values, which the sync looks for; the lake and the marks would have NULL."""
    make_archived(lake)
    assert guard.ensure(lake.catalog)
    with lake.connect() as connection:
        run(connection, "set frostline.unfilled_columns = allow")
        for name in ("_events", "plain"):
            run(connection, f"alter table public.{name} add column made text default 'x' || (random() * 0)::text")
    alter(lake, "alter column made drop default")
    if columns.difference(lake.catalog, lake.table()) is None:
        shown = "select id, made from public.{} order by id"
        assert rows(lake.catalog, shown.format("events")) == rows(lake.catalog, shown.format("plain"))


def test_marks_get_a_value_of_their_own_each_while_the_lake_has_no_row(lake: Lake) -> None:
    """Postgres has written one into each row of the heap, where new versions of cold rows are too."""
    small(lake, "status text")
    with lake.connect() as connection:
        both(connection, "delete from public.{t}")
    assert lake.fold()[0].error is None
    assert rows(lake.catalog, "select from frostline.lake_file") == []
    with lake.connect() as connection:
        both(connection, "insert into public.{t} (id, ts) values (1, '2024-01-02 00:00+00')")
    alter(lake, "add column made int default (random() * 0)::int + 4, add column shape json")
    assert columns.difference(lake.catalog, lake.table()) is None
    compare(lake)


CHECKED = """
create domain public.positive as int check (value > 0);
create domain public.three as int default 3 not null;
create domain public.needed as int check (value is not null);
create table public.allowed (n int);
create function public.fine(int) returns boolean language plpgsql stable as
    'begin return exists (select from allowed where n = $1) or $1 is null; end';
create domain public.odd as int check (public.fine(value))"""


@pytest.mark.parametrize(
    "change", ["add column made public.positive default 5", "add made public.three", "add made public.positive"]
)
def test_a_domain_with_a_default_is_followed_where_the_heap_has_no_row_to_ask(lake: Lake, change: str) -> None:
    small(lake, "status text")
    run(lake.catalog, CHECKED)
    alter(lake, change)
    assert columns.difference(lake.catalog, lake.table()) is None
    compare(lake)


def test_a_constant_is_known_that_a_rewritten_heap_does_not_remember(cold: Lake) -> None:
    """Another column of the statement has Postgres write each row anew, and remember no value."""
    added = "add made int default 5, add kind text not null default 'a' || 'b'"
    run(cold.catalog, f"alter table public._events add token uuid default gen_random_uuid(), {added}")
    run(cold.catalog, "alter table public._events drop column token")
    run(cold.catalog, f"alter table public.plain {added}")
    compare(cold)
    with cold.connect() as connection:
        both(connection, "update public.{t} set made = made + 1 where made = 5 and id in (3, 70)")
    assert cold.fold("events")[0].error is None
    compare(cold)


def test_a_default_that_a_statement_sets_afterwards_is_not_taken_for_what_old_rows_have(lake: Lake) -> None:
    small(lake, "status text")
    run(lake.catalog, CHECKED)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs a value of its own"):
        run(lake.catalog, "alter table public._events add made public.positive, alter column made set default 5")
    alter(lake, "add column made public.positive")
    alter(lake, "alter column made set default 5")
    compare(lake)


@pytest.mark.parametrize("kind", ["needed", "odd"])
def test_a_domain_that_takes_no_null_is_not_followed(lake: Lake, kind: str) -> None:
    """The heap has no row for which Postgres would have asked. Nor one whose check only passes with its own `search_path`."""
    small(lake, "status text")
    run(lake.catalog, CHECKED)
    run(lake.catalog, f"alter table public._events add made public.{kind}")
    assert columns.difference(lake.catalog, lake.table()) is not None
    run(lake.catalog, "alter table public._events drop column made")
    compare(lake)


def test_a_column_that_is_generated_no_more_keeps_its_values(lake: Lake) -> None:
    """The doors and functions of the relation leave out a generated column: they must be made anew."""
    small(lake, "twice bigint generated always as (id * 2) stored, status text")
    alter(lake, "alter column twice drop expression")
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'b' where id = 3")
    compare(lake)


def test_a_column_may_be_called_as_the_lake_server_is_asked_for_another(lake: Lake) -> None:
    small(lake, "\"#4:text\" text default 'a'")
    alter(lake, "add column note text")
    with lake.connect() as connection:
        both(connection, "update public.{t} set note = 'n' where id = 3")
    compare(lake)


def test_a_synced_column_may_have_the_name_of_one_that_was_renamed(cold: Lake) -> None:
    """What the sync adds is asked for by its name, which is the first name of another column."""
    alter(cold, "rename column status to old_status")
    run(cold.catalog, "alter event trigger frostline_follow disable")
    alter(cold, "add column status text")
    run(cold.catalog, "alter event trigger frostline_follow enable")
    assert following.follow(cold.catalog, cold.table()) == ("status",)
    compare(cold)


def test_columns_that_exchange_their_names_unfollowed_do_not_exchange_their_values(lake: Lake) -> None:
    """Without event triggers: an error, and the value where it was. The marking trigger copies by places."""
    make_twins(lake)
    alter(lake, "add column other text")
    assert following.follow(lake.catalog, lake.table()) == ("other",)
    with lake.connect() as connection:
        both(connection, "update public.{t} set other = 'o' || id where id % 2 = 0")
    for change in ("rename column status to x", "rename column other to status", "rename column x to other"):
        run(lake.catalog, f"alter table public._events {change}")
    with lake.connect() as connection:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="it has not followed them yet"):
            run(connection, "update public.events set amount = 3 where id = 8")
        for name in ("_events", "plain"):
            run(connection, f"update public.{name} set amount = 3 where id = 8")
    following.follow(lake.catalog, lake.table())
    with lake.connect() as connection:
        for change in ("rename column status to x", "rename column other to status", "rename column x to other"):
            run(connection, f"alter table public.plain {change}")
    compare(lake)


def test_a_typed_table_is_not_managed(lake: Lake) -> None:
    """ALTER TYPE ... CASCADE renames its columns, and is no ALTER TABLE."""
    run(lake.catalog, "create type public.event as (id bigint, ts timestamptz, status text, other text)")
    run(lake.catalog, "create table public.events of public.event (primary key (id, ts)) partition by range (ts)")
    with pytest.raises(UsageError, match="is a typed table"):
        lake.add()
    run(lake.catalog, "alter table public.events not of")
    lake.add()


def test_a_column_of_a_temporary_type_does_not_take_the_relation_with_it(cold: Lake) -> None:
    """When the session ends, Postgres drops the type with all that uses it, and asks no event trigger."""
    with cold.connect() as connection:
        run(connection, "create type pg_temp.mood as enum ('well')")
        pid = connection.info.backend_pid
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="temporary type"):
            run(connection, "alter table public._events add column mood pg_temp.mood")
    while rows(cold.catalog, "select from pg_stat_activity where pid = %s", [pid]):
        pass
    compare(cold)


def test_a_column_does_not_get_a_name_that_a_rename_passes_through(cold: Lake) -> None:
    with (
        cold.connect() as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported, match="begins as those of Frostline"),
    ):
        run(connection, "alter table public._events rename column amount to frostline_3")
    compare(cold)


@pytest.mark.parametrize(
    "change", ["alter column id drop identity", "alter id drop identity if exists, alter status drop default"]
)
def test_a_column_is_an_identity_no_more(cold: Lake, change: str) -> None:
    """Its sequence goes, which the relation's default needs."""
    alter(cold, change)
    with cold.connect() as connection:
        both(connection, "insert into public.{t} (id, ts, status) values (9001, '2024-02-02 02:02+00', 'x')")
        with pytest.raises(psycopg.errors.NotNullViolation):
            run(connection, "insert into public.events (ts, status) values ('2024-02-02 02:02+00', 'x')")
    alter(cold, "alter column id add generated by default as identity (start 9002)")
    with cold.connect() as connection:
        both(connection, "insert into public.{t} (ts, status) values ('2090-02-02 02:02+00', 'x')")
    compare(cold)


PASSED_ON = {
    "unique": "alter table {t} add constraint {t}_once unique (status, id, ts)",
    "statistics": "create statistics {t}_together (dependencies) on status, amount from {t}",
    "statistics target": "alter table {t} alter column status set statistics 300",
    "attribute options": "alter table {t} alter column status set (n_distinct = 5)",
    "storage": "alter table {t} alter column data set storage external",
    "index": "create index {t}_status on {t} (status)",
    "expression index": "create unique index {t}_lower on {t} (lower(status), id, ts) where amount > 0",
    "cluster": "create index {t}_amount on only {t} (amount)",
    "replica identity": "alter table {t} replica identity full",
    "trigger": "create trigger noted after insert or update or delete on {t} for each row execute function noted()",
    "statement trigger": "create trigger noted_all after update on {t} for each statement execute function noted()",
    "constraint": "alter table {t} add constraint {t}_check check (amount > -5) not valid",
}
"""What the heap has, and cold rows need not."""
TAKEN_AWAY = {
    "unique": "alter table {t} drop constraint {t}_once",
    "statistics": "drop statistics {t}_together",
    "index": "drop index {t}_status",
    "expression index": "drop index {t}_lower",
    "cluster": "drop index {t}_amount",
    "trigger": "drop trigger noted on {t}",
    "statement trigger": "drop trigger noted_all on {t}",
    "constraint": "alter table {t} drop constraint {t}_check",
}
NOTED = """
create table public.note (told text);
create function public.noted() returns trigger language plpgsql as
    'begin insert into public.note values (tg_op || coalesce(new.id, old.id)); return null; end'"""
WRITTEN = (
    "insert into public.{t} (id, ts, status, amount) values (9001, '2024-02-02 02:02+00', 'cold', 1), (9002, '2090-02-02+00', 'hot', 2)",
    "update public.{t} set status = status || '!' where id in (4, 9001, 9002)",
    "delete from public.{t} where id in (5, 9002)",
)


@pytest.mark.parametrize("what", PASSED_ON)
def test_what_only_the_heap_has_passes_while_rows_are_cold_and_goes_again(cold: Lake, what: str) -> None:
    """No row of the lake is asked for, nothing of ours is in the way, and jobs go on with it."""
    run(cold.catalog, NOTED)
    run(cold.catalog, "alter server frostline_lake options (set port '1')")
    with cold.connect() as connection:
        run(connection, "set search_path = public")
        for name in ("_events", "plain"):
            run(connection, PASSED_ON[what].format(t=name))
    run(cold.catalog, f"alter server frostline_lake options (set port '{cold.server.port}')")
    with cold.connect() as connection:
        for statement in WRITTEN:
            both(connection, statement)
    compare(cold)
    told = value(cold.catalog, "select count(*) from public.note")
    assert told == {"trigger": 13, "statement trigger": told}.get(what, 0)
    assert cold.fold("events")[0].error is None
    assert value(cold.catalog, "select count(*) from public.note") == told, "a row that moves is not changed"
    compare(cold)
    with cold.connect() as connection:
        run(connection, "set search_path = public")
        for name in ("_events", "plain") if what in TAKEN_AWAY else ():
            run(connection, TAKEN_AWAY[what].format(t=name))
        both(connection, "update public.{t} set status = 'again' where id in (6, 61)")
    cold.thaw()
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_storage_parameters_of_a_partition_pass_and_stay(cold: Lake) -> None:
    """Of those that are hot, and DEFAULT; what a thaw makes anew has none."""
    options = "select relid::regclass, reloptions from pg_partition_tree('public._events') join pg_class on oid = relid where reloptions is not null"
    leaves = "select relid::regclass::text from pg_partition_tree('public._events') where isleaf"
    with cold.connect() as connection:
        partitions = [name for (name,) in rows(connection, leaves)]
        for name in partitions:
            run(connection, f"alter table {name} set (fillfactor = 70, autovacuum_enabled = off)")
            run(connection, f"alter table {name} reset (autovacuum_enabled)")
    assert len(rows(cold.catalog, options)) == len(partitions)
    with cold.connect() as connection:
        for statement in WRITTEN:
            both(connection, statement)
    assert cold.fold("events")[0].error is None
    compare(cold)
    assert len(rows(cold.catalog, options)) == len(partitions)


def test_a_unique_constraint_is_held_by_hot_rows_as_on_every_table(cold: Lake) -> None:
    """It contains the tier key, so a cold row cannot be equal to a hot one; among cold ones the heap has the new versions only."""
    alter(cold, "add unique (status, ts)")
    twice = "insert into public.{t} (id, ts, status) values (9001, '2090-02-02+00', 'x'), (9002, '2090-02-02+00', 'x')"
    for name in ("events", "plain"):
        with cold.connect() as connection, pytest.raises(psycopg.errors.UniqueViolation):
            run(connection, twice.format(t=name))
    compare(cold)
