"""A relation beside its table: the table stays what it is, and the relation shows both tiers."""

import json
from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline import spark as connector
from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model import work
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.observe import status, survey
from frostline.pipeline import plan, verify
from frostline.relation import form, registration, removal, renewal
from frostline.relation.registration import Request

OLD = "2024-01-10 12:00+00"
"""A moment of the first month."""
NEW = "2124-01-10 12:00+00"
"""A moment that stays hot."""
EVERYTHING = "select count(*), md5(string_agg(e::text, '|' order by id, ts)) from public.{} e"
KIND = "select relkind::text from pg_class where oid = %s::regclass"


def beside(
    connection: Connection, name: str = "public.events", relation: str = "events_all", grace: str = "0"
) -> Table:
    request = Request(Name.parse(name), Policy("1 month", grace), relation_name=relation)
    return registration.add(connection, request).table


def keyed(connection: Connection, name: str = "public.events", months: int = 3) -> None:
    """A table whose keys the application chooses, and a plain one with the same rows."""
    run(
        connection,
        f"create table {name} (id int, ts timestamptz, status text default 'new', primary key (id, ts)) partition by range (ts)",
    )
    for month in range(1, months + 1):
        first, last = f"2024-{month:02}-01 00:00+00", f"2024-{month + 1:02}-01 00:00+00"
        run(connection, f"create table {name}_{month} partition of {name} for values from ('{first}') to ('{last}')")
    run(
        connection,
        f"create table {name}_hot partition of {name} for values from ('2124-01-01+00') to ('2125-01-01+00')",
    )
    run(connection, f"insert into {name} select i, '{OLD}', 'old' from generate_series(1, 20) i")
    run(connection, f"insert into {name} select i, '2024-02-10+00', 'old' from generate_series(21, 40) i")
    run(connection, f"insert into {name} select i, '{NEW}', 'hot' from generate_series(101, 110) i")
    run(connection, "create table public.plain (like public.events including defaults, primary key (id, ts))")
    run(connection, f"insert into public.plain select * from {name}")


def archived(lake: Lake, *names: str) -> None:
    assert all(result.error is None for result in lake.archive(*names))


def same(lake: Lake) -> None:
    """The relation shows what the plain table has."""
    assert rows(lake.catalog, EVERYTHING.format("events_all")) == rows(lake.catalog, EVERYTHING.format("plain"))


def both(connection: psycopg.Connection, statement: str, relation: str = "events_all") -> None:
    for name in (relation, "plain"):
        run(connection, statement.format(t=f"public.{name}"))


@pytest.fixture
def events(lake: Lake) -> Lake:
    """A table with a relation beside it: two months that are about to be archived, and rows that stay hot."""
    keyed(lake.catalog)
    beside(lake.catalog, grace="10 years")
    return lake


@pytest.fixture
def app(lake: Lake) -> Iterator[psycopg.Connection]:
    with lake.connect() as connection:
        yield connection


def end_grace(lake: Lake) -> None:
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")


def test_the_table_is_untouched_and_the_relation_shows_its_rows(catalog: Connection) -> None:
    keyed(catalog)
    run(catalog, "create view public.recent as select id, status from public.events")
    run(catalog, "create materialized view public.summary as select count(*) from public.events")
    run(catalog, "create function public.of_row(e public.events) returns int language sql as 'select e.id'")
    before = value(catalog, "select 'public.events'::regclass::oid")
    table = beside(catalog)
    assert (str(table.name), str(table.relation), str(table.heap)) == (
        "public.events",
        "public.events_all",
        "public.events",
    )
    assert value(catalog, "select 'public.events'::regclass::oid") == before
    assert value(catalog, KIND, ("public.events",)) == "p"
    assert rows(catalog, EVERYTHING.format("events_all")) == rows(catalog, EVERYTHING.format("plain"))
    assert value(catalog, "select pg_get_viewdef('public.recent'::regclass)").endswith("FROM public.events;")
    assert tables.get(catalog, Name.parse("events_all")) == tables.get(catalog, Name.parse("events"))


def test_registering_again_is_a_no_op_and_another_form_is_said_to_be_there(catalog: Connection) -> None:
    keyed(catalog)
    beside(catalog)
    for name, relation in (("events", "events_all"), ("events", None), ("events_all", None)):
        assert not registration.add(catalog, Request(Name.parse(name), Policy("1 month"), None, relation)).changed
    with pytest.raises(UsageError, match=r"its relation is public\.events_all") as refused:
        beside(catalog, relation="other")
    assert refused.value.hint == "frostline table set public.events --relation other"


@pytest.mark.parametrize("taken", ["plain", "events_1", "events_default", "events", "plain_type"])
def test_a_name_that_is_taken_is_refused(catalog: Connection, taken: str) -> None:
    keyed(catalog)
    run(catalog, "create type public.plain_type as enum ('a')")
    with pytest.raises(UsageError, match=f"the name public.{taken} is already taken"):
        beside(catalog, relation=taken)
    assert tables.list_all(catalog) == []


def test_a_heap_is_not_managed_a_second_time(catalog: Connection) -> None:
    make_events(catalog, "public.events")
    registration.add(catalog, Request(Name.parse("events"), Policy("1 month")))
    with pytest.raises(UsageError, match=r"public\._events is the heap of a managed table"):
        beside(catalog, "public._events", "other")


def test_an_old_row_that_the_application_inserts_appears_once(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    for name in ("events", "plain"):
        run(app, f"insert into public.{name} values (500, '{OLD}', 'late')")
        run(app, f"insert into public.{name} values (501, '1999-01-01', 'older')")
        run(app, f"update public.{name} set status = 'changed' where id in (3, 103)")
        run(app, f"delete from public.{name} where id in (4, 104)")
    same(events)
    end_grace(events)
    assert not any(result.error for result in events.fold())
    assert len(events.clean().emptied) == 3
    same(events)
    assert value(app, "select array_agg(id order by id) from public.events") == [*range(101, 104), *range(105, 111)]


def test_a_key_of_the_lake_cannot_be_inserted_again(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    end_grace(events)
    events.clean()
    assert value(app, "select count(*) from public.events where ts < '2124-01-01'") == 0
    for more in ("", " on conflict (id, ts) do update set status = 'again'", " on conflict do nothing"):
        with pytest.raises(psycopg.errors.UniqueViolation, match="primary key of events") as refused:
            run(app, f"insert into public.events values (5, '{OLD}', 'again'){more}")
        assert refused.value.diag.message_hint == "Update the row instead: update public.events_all ..."
    same(events)


def test_everything_that_a_table_does_works_on_the_table(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    for name in ("events", "plain"):
        run(
            app,
            f"insert into public.{name} values (101, '{NEW}', 'x') on conflict (id, ts) do update set status = 'upserted'",
        )
        run(
            app,
            f"insert into public.{name} values (6, '{OLD}', 'x') on conflict (id, ts) do update set status = 'upserted'",
        )
        run(app, f"insert into public.{name} values (102, '{NEW}', 'x') on conflict do nothing")
        run(
            app,
            f"merge into public.{name} t using (values (7, '{OLD}'::timestamptz), (103, '{NEW}'), (600, '{NEW}'), (601, '{OLD}')) s (id, ts)"
            " on t.id = s.id and t.ts = s.ts when matched then update set status = 'merged'"
            " when not matched then insert values (s.id, s.ts, 'merged')",
        )
        with app.transaction():
            assert len(rows(app, f"select id from public.{name} where id in (8, 105) for update")) == 2
            run(app, f"update public.{name} set status = 'locked' where id in (8, 105)")
        with app.cursor().copy(f"copy public.{name} from stdin") as copy:
            copy.write_row((700, OLD, "copied"))
    same(events)


def test_the_relation_is_written_as_any_other(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    both(app, f"insert into {{t}} values (800, '{OLD}', 'cold'), (801, '{NEW}', 'hot')")
    both(app, "update {t} set status = 'changed' where id in (1, 21, 101, 800)")
    both(app, "delete from {t} where id in (2, 22, 102, 801)")
    same(events)
    assert value(app, "select status from public.events where id = 1") == "changed"
    end_grace(events)
    assert not any(result.error for result in events.fold())
    events.clean()
    both(app, "update {t} set status = 'again' where id in (1, 30)")
    both(app, "delete from {t} where id = 31")
    same(events)
    assert not any(result.error for result in events.fold())
    same(events)
    assert verify.run(events.catalog, events.table()).faults == ()


def test_undo_and_thaw_bring_rows_back_into_the_table(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    both(app, "update {t} set status = 'changed' where id = 1")
    events.undo()
    same(events)
    assert rows(app, EVERYTHING.format("events")) == rows(app, EVERYTHING.format("plain"))
    run(events.catalog, "update frostline.managed_table set held_from = null, grace_period = '0'")
    archived(events)
    events.clean()
    both(app, "update {t} set status = 'again' where id in (2, 25)")
    events.thaw(first="2024-02-01")
    same(events)
    events.thaw()
    assert rows(app, EVERYTHING.format("events")) == rows(app, EVERYTHING.format("plain"))
    assert verify.run(events.catalog, events.table()).faults == ()


def test_removal_leaves_the_table_and_nothing_else(events: Lake, app: psycopg.Connection) -> None:
    archived(events)
    run(app, "create view public.reads as select id from public.events_all")
    events.thaw()
    with pytest.raises(UsageError, match=r"view public\.reads reads public\.events_all"):
        removal.remove(events.catalog, Name.parse("events"))
    run(app, "drop view public.reads")
    removal.remove(events.catalog, Name.parse("events_all"))
    assert value(app, "select to_regclass('public.events_all')") is None
    assert value(app, KIND, ("public.events",)) == "p"
    assert rows(app, EVERYTHING.format("events")) == rows(app, EVERYTHING.format("plain"))
    assert value(app, "select count(*) from pg_trigger where tgname like '!frostline%'") == 0
    assert value(app, "select to_regclass('public.events_default')") is None


def test_spark_and_snapshots_take_both_tiers_under_either_name(events: Lake) -> None:
    archived(events)
    end_grace(events)
    events.clean()
    for name in ("events", "events_all"):
        frame = connector.read(events.session(), name, dsn=events.dsn)
        assert sorted(row.id for row in frame.collect()) == [*range(1, 41), *range(101, 111)]
    made = copies.create(events, "public.*")
    assert {str(copy.name): copy.rows for copy in copies.shown(events).values()} == {
        "public.events": 50,
        "public.plain": 50,
    }
    assert made.atomic
    for name in ("events", "events_all"):
        assert connector.read(events.session(), name, dsn=events.dsn, as_of="nightly").count() == 50


def test_spark_writes_through_the_relation_under_either_name(events: Lake) -> None:
    archived(events)
    for number, name in ((900, "events"), (901, "events_all")):
        frame = events.session().createDataFrame([(number, "new")], "id int, status string")
        frame = frame.selectExpr("id", "timestamp '2024-01-10 12:00:00+00:00' as ts", "status")
        connector.write(frame, name, mode="append", dsn=events.dsn)
        run(events.catalog, f"insert into public.plain values ({number}, '{OLD}', 'new')")
    same(events)


@pytest.fixture
def environment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))


@pytest.mark.usefixtures("environment")
def test_commands_take_either_name_and_say_which_form_it_is(lake: Lake, command: Command) -> None:
    keyed(lake.catalog)
    said = command("table", "add", "events", "--relation", "events_all", "--hot", "1 month", "--output", "json")
    assert json.loads(said.stdout)["relation"] == "public.events_all"
    for name in ("events", "events_all"):
        for words in (("table", "show"), ("plan",), ("verify",), ("jobs",)):
            assert command(*words, name).exit_code == 0, words
    listed = json.loads(command("table", "list", "--output", "json").stdout)
    assert [(record["table"], record["relation"], record["heap"]) for record in listed] == [
        ("public.events", "public.events_all", "public.events")
    ]


CHILD = """
create table public.notes (note int primary key, id int, ts timestamptz,
    constraint of_event foreign key (id, ts) references public.events {action})"""


@pytest.fixture(params=["", "on delete cascade", "on delete set null", "deferrable initially deferred"])
def referenced(lake: Lake, request: pytest.FixtureRequest) -> Lake:
    """A table that another one references: a row of February, and a hot one."""
    keyed(lake.catalog)
    run(lake.catalog, CHILD.format(action=request.param))
    run(lake.catalog, f"insert into public.notes values (1, 25, '2024-02-10+00'), (2, 101, '{NEW}')")
    beside(lake.catalog, grace="0")
    return lake


def orphans(lake: Lake) -> object:
    """Rows of the other table whose row of the table is not there, and how many rows it has."""
    return rows(
        lake.catalog,
        "select count(*) filter (where not exists (select from public.events e where e.id = n.id and e.ts = n.ts)),"
        " count(*) from public.notes n where n.id is not null",
    )[0]


def test_archive_stops_at_a_partition_whose_rows_are_referenced(referenced: Lake) -> None:
    (result,) = referenced.archive()
    assert (result.error, result.partitions, result.cleaned.emptied) == (None, 1, ("public.events_1",))
    assert value(referenced.catalog, "select to_regclass('public.events_1')") is None
    same(referenced)
    (result,) = referenced.archive()
    assert result.error is not None
    assert "cannot archive public.events_2: foreign key of_event on public.notes references its rows (25," in str(
        result.error
    )
    run(referenced.catalog, "delete from public.notes where note = 1")
    (result,) = referenced.archive()
    assert (result.error, result.partitions) == (None, 2)
    assert orphans(referenced) == (0, 1)
    same(referenced)
    assert verify.run(referenced.catalog, referenced.table()).faults == ()


@pytest.mark.parametrize("referenced", [""], indirect=True)
def test_nobody_is_promised_a_partition_whose_rows_are_referenced(referenced: Lake) -> None:
    """Neither by `plan` nor by `status`, and the worker does not try it."""
    catalog, table = referenced.catalog, referenced.table()
    stays = "public.events_2: foreign key of_event on public.notes references its rows (25,"
    planned = plan.of_table(catalog, table)
    assert [str(partition.name) for partition in planned.plan.partitions] == ["public.events_1"]
    assert str(planned.stays).startswith(stays)
    archived(referenced)
    shown = status.of_table(catalog, table)
    assert shown.state.ripe_partitions == 0
    assert any(problem.what.startswith(f"archive ends before {stays}") for problem in shown.problems)
    assert work.Kind.ARCHIVE not in [action.kind for action in work.due(shown.state)]
    run(catalog, "delete from public.notes where note = 1")
    assert work.Kind.ARCHIVE in [action.kind for action in work.due(survey.of_table(catalog, table))]
    with referenced.connect() as other, other.transaction():
        run(other, "lock table public.notes in access exclusive mode")
        assert [state.ripe_partitions for state in survey.list_all(catalog)] == [2]


def test_a_row_that_is_referenced_after_it_was_archived_stays_in_the_table(referenced: Lake) -> None:
    run(referenced.catalog, "delete from public.notes where note = 1")
    run(referenced.catalog, "update frostline.managed_table set grace_period = '10 years'")
    archived(referenced)
    run(referenced.catalog, f"insert into public.notes values (3, 3, '{OLD}')")
    end_grace(referenced)
    cleaned = referenced.clean()
    assert [(waiting.partition, waiting.reason.split(" (")[0]) for waiting in cleaned.waiting] == [
        ("public.events_1", "foreign key of_event on public.notes references its rows")
    ]
    assert orphans(referenced) == (0, 2)
    same(referenced)
    run(referenced.catalog, "delete from public.notes where note = 3")
    assert referenced.clean().emptied == ("public.events_1",)
    same(referenced)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        run(referenced.catalog, f"insert into public.notes values (4, 4, '{OLD}')")


def test_a_fold_keeps_the_rows_that_are_referenced(referenced: Lake) -> None:
    run(referenced.catalog, "delete from public.notes where note = 1")
    archived(referenced)
    for name in ("events", "plain"):
        run(referenced.catalog, f"insert into public.{name} values (500, '{OLD}', 'late'), (501, '{OLD}', 'late')")
    run(referenced.catalog, f"insert into public.notes values (5, 500, '{OLD}')")
    (result,) = referenced.fold()
    assert (result.error, result.marks, result.taken) == (None, 2, 1)
    assert orphans(referenced) == (0, 2)
    same(referenced)
    run(referenced.catalog, "delete from public.notes where note = 5")
    (result,) = referenced.fold()
    assert (result.error, result.taken) == (None, 1)
    same(referenced)
    assert value(referenced.catalog, "select count(*) from public.events where ts < '2124-01-01'") == 0
    assert verify.run(referenced.catalog, referenced.table()).faults == ()


def test_a_relation_moves_between_its_two_places_in_the_middle_of_its_life(
    events: Lake, app: psycopg.Connection
) -> None:
    archived(events)
    run(app, "create view public.of_table as select id from public.events")
    run(app, "create view public.of_relation as select id from public.events_all")
    both(app, f"insert into {{t}} values (800, '{OLD}', 'cold'), (801, '{NEW}', 'hot')")
    end_grace(events)
    events.clean()
    table = form.change(events.catalog, events.table(), "events")
    assert (str(table.relation), str(table.heap)) == ("public.events", "public._events")
    assert events.table() == table
    assert renewal.is_current(events.catalog, table)
    assert rows(app, EVERYTHING.format("events")) == rows(app, EVERYTHING.format("plain"))
    for view in ("of_table", "of_relation"):
        assert value(app, f"select count(*) from public.{view}") == 52
    both(app, "update {t} set status = 'moved' where id in (1, 101, 800)", "events")
    both(app, f"insert into {{t}} values (802, '{OLD}', 'cold')", "events")
    assert rows(app, EVERYTHING.format("events")) == rows(app, EVERYTHING.format("plain"))
    assert not any(result.error for result in events.fold())
    table = form.change(events.catalog, events.table(), "everything")
    assert (str(table.relation), str(table.heap)) == ("public.everything", "public.events")
    assert renewal.is_current(events.catalog, table)
    assert rows(app, EVERYTHING.format("everything")) == rows(app, EVERYTHING.format("plain"))
    assert value(app, "select count(*) from public.of_table") == 53
    both(app, "delete from {t} where id in (2, 102, 802)", "everything")
    form.change(events.catalog, events.table(), "events_all")
    run(
        app,
        f"insert into public.events values (103, '{NEW}', 'x') on conflict (id, ts) do update set status = 'upserted'",
    )
    run(app, "update public.plain set status = 'upserted' where id = 103")
    same(events)
    assert not any(result.error for result in events.fold())
    assert verify.run(events.catalog, events.table()).faults == ()
    same(events)


def test_a_relation_cannot_take_the_place_of_a_table_that_something_holds(catalog: Connection) -> None:
    keyed(catalog)
    beside(catalog)
    run(catalog, CHILD.format(action=""))
    run(catalog, "create materialized view public.summary as select count(*) from public.events")
    table = tables.get(catalog, Name.parse("events"))
    with pytest.raises(UsageError) as refused:
        form.change(catalog, table, "events")
    for reason in ("foreign key of_event on notes points at it", "materialized view public.summary reads it"):
        assert reason in str(refused.value).replace("public.notes", "notes")
    with pytest.raises(UsageError, match="already taken"):
        form.change(catalog, table, "plain")
    assert tables.get(catalog, Name.parse("events")) == table


@pytest.fixture
def events_roles(catalog: Connection) -> Iterator[tuple[str, str]]:
    roles = ("beside_early", "beside_late")
    for role in roles:
        run(catalog, f"create role {role}")
    yield roles
    for role in roles:
        run(catalog, f"drop owned by {role}; drop role {role}")


def test_grants_follow_a_relation_that_moves(catalog: Connection, events_roles: tuple[str, str]) -> None:
    early, late = events_roles
    keyed(catalog)
    run(catalog, f"grant select on public.events to {early}")
    table = beside(catalog)
    run(catalog, f"grant select, insert on public.events to {late}")
    table = form.change(catalog, table, "events")
    right = "select has_table_privilege(%s, %s, %s)"
    assert value(catalog, right, (early, "public.events", "select"))
    assert value(catalog, right, (late, "public.events", "insert"))
    run(catalog, f"grant delete on public.events to {early}")
    form.change(catalog, table, "events_all")
    assert value(catalog, right, (early, "public.events", "delete"))
    assert value(catalog, right, (early, "public.events_all", "delete"))


@pytest.mark.usefixtures("environment")
def test_the_command_moves_a_relation(lake: Lake, command: Command) -> None:
    keyed(lake.catalog)
    lake.add()
    said = command("table", "set", "events", "--relation", "events_all", "--hot", "2 months", "--output", "json")
    records = json.loads(said.stdout)
    assert (records["relation"], records["heap"], records["hot"]) == ("public.events_all", "public.events", "2 mons")
    exported = command("table", "export")
    assert "relation: events_all" in exported.stdout or '"relation": "events_all"' in exported.stdout
    said = command("table", "set", "events_all", "--relation", "events", "--output", "json")
    assert json.loads(said.stdout)["heap"] == "public._events"
    assert not json.loads(command("table", "set", "events", "--relation", "events", "--output", "json").stdout)[
        "changed"
    ]
