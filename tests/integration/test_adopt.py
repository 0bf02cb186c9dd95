"""`frostline table adopt`: what somebody dropped of a managed table is made again, and what cannot be is said before."""

import json
from collections.abc import Callable

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import some
from tests.fixtures.remembered import remembered
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import leases, lost, seams
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.partitions import partition_mode
from frostline.relation import adoption, bound, foreign_server, guard, removal, renewal
from frostline.relation.registration import Request

pytestmark = pytest.mark.spark
Add = Callable[..., Table]
EVENTS = Name("public", "events")

FOREIGN = """
select c.oid::regclass::text from pg_class c where c.relkind = 'f' and c.relispartition order by pg_get_expr(c.relpartbound, c.oid) !~ 'infinity'"""
CHANGES = """
update public.events set status = 'changed' where id = 1;
insert into public.events (ts, status) values ('2024-02-02', 'late'), ('2090-01-01', 'far'), ('2026-12-31', 'hot');
delete from public.events where id = 2"""
NOTHING_LOST = {
    "relation": "drop view public.events cascade",
    "inner view": 'drop view frostline_relation."events_{id}" cascade',
    "lake table": 'drop table frostline_lake."events_{id}" cascade',
    "lake": "drop schema frostline_lake cascade",
    "foreign tables": 'drop foreign table frostline_lake."events_{id} until 2024-07-01 00:00:00+00"',
    "foreign server": "drop server frostline_lake cascade",
    "extension": "drop extension postgres_fdw cascade",
    "a door": 'drop view frostline_write."update hot {id}" cascade; drop view public.events',
}


@pytest.fixture
def cold(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Six months in the lake and no more in the heap, rows of every kind, and marks."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(lake.settings.lake_port))
    make_archived(lake, grace="0")
    return lake


@remembered
def make_archived(lake: Lake, grace: str) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, rows_a_month=10)
    run(
        lake.catalog,
        "create table public.hot partition of public.events for values from ('2026-12-01') to ('2027-01-01')",
    )
    lake.add(grace=grace)
    lake.archive()
    with lake.connect() as app:
        run(app, CHANGES)


def contents(lake: Lake) -> list[tuple[str]]:
    with lake.connect() as connection:
        run(connection, "set timezone = 'UTC'")
        return rows(connection, "select e::text from public.events e order by 1")


def drop(lake: Lake, statement: str) -> None:
    run(lake.catalog, statement.format(id=lake.table().id))


def restore_server(lake: Lake) -> None:
    port = lake.server.port
    foreign_server.ensure(lake.catalog, host="127.0.0.1", port=port, user="frostline", password="secret")


@pytest.mark.parametrize("what", some(NOTHING_LOST, "relation", "foreign server"))
def test_what_holds_no_rows_comes_back_with_every_row(cold: Lake, what: str) -> None:
    before, table = contents(cold), cold.table()
    drop(cold, NOTHING_LOST[what])
    restore_server(cold)
    done = adoption.adopt(cold.catalog, EVENTS)
    assert done.lost
    assert contents(cold) == before
    assert lost.read(cold.catalog) == []
    assert renewal.is_current(cold.catalog, table)
    assert adoption.adopt(cold.catalog, EVENTS).lost == ()
    with cold.connect() as app:
        run(app, "update public.events set status = 'again' where id in (1, 3); delete from public.events where id = 4")
        run(app, "insert into public.events (ts, status) values ('2024-03-03', 'again'), ('2090-01-01', 'again')")
    assert cold.value("select count(*) from public.events where status = 'again'") == 4
    cold.fold()
    assert cold.value("select count(*) from public.events where status = 'again'") == 4


def test_a_lost_overlay_is_built_from_the_heap_and_deletions_are_lost(cold: Lake) -> None:
    before = contents(cold)
    drop(cold, "drop schema frostline_overlay cascade")
    with pytest.raises(
        UsageError, match=r"overlay frostline_overlay.* is gone: cold rows that were deleted"
    ) as refused:
        adoption.adopt(cold.catalog, EVENTS)
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("frostline table adopt public.events --accept-lost-changes")
    adoption.adopt(cold.catalog, EVENTS, accept_lost_changes=True)
    after = contents(cold)
    assert set(before) <= set(after)
    assert cold.value("select array_agg(id order by id) from public.events where id in (1, 2)") == [1, 2]
    assert len(after) == len(before) + 1
    cold.fold()
    assert contents(cold) == after


@pytest.mark.slow
def test_in_the_grace_period_a_lost_overlay_comes_back_with_its_deletions(lake: Lake) -> None:
    make_archived(lake, grace="10 years")
    before = contents(lake)
    drop(lake, "drop schema frostline_overlay cascade")
    adoption.adopt(lake.catalog, EVENTS, accept_lost_changes=True)
    assert contents(lake) == before
    lake.fold()
    assert contents(lake) == before
    lake.undo()
    assert contents(lake) == before


def test_a_lost_heap_comes_back_empty_and_the_cold_rows_are_there(cold: Lake) -> None:
    cold_rows = [row for row in contents(cold) if "2024" in row[0]]
    drop(cold, "drop table public._events cascade")
    with pytest.raises(CorruptionError, match=r"heap public\._events .* is gone") as gone:
        cold.table()
    assert "frostline table adopt public.events" in (gone.value.hint or "")
    with pytest.raises(UsageError, match="its hot rows are lost"):
        adoption.adopt(cold.catalog, EVENTS)
    adoption.adopt(cold.catalog, EVENTS, accept_lost_changes=True)
    assert contents(cold) == cold_rows
    with cold.connect() as app:
        run(app, "update public.events set status = 'again' where id in (1, 3)")
        run(app, "insert into public.events (id, ts, status) values (500, '2090-01-01', 'again')")
        run(app, "delete from public.events where id = 5")
    after = contents(cold)
    assert len(after) == len(cold_rows)
    cold.fold()
    cold.clean()
    assert contents(cold) == after
    cold.thaw()
    removal.remove(cold.catalog, EVENTS)
    assert contents(cold) == after


@pytest.mark.slow
def test_heap_and_overlay_together_do_not_come_back(cold: Lake) -> None:
    drop(cold, "drop table public._events cascade; drop schema frostline_overlay cascade")
    with pytest.raises(CorruptionError, match="both gone"):
        adoption.adopt(cold.catalog, EVENTS, accept_lost_changes=True)
    assert value(cold.catalog, "select to_regnamespace('frostline_overlay')") is None


@pytest.mark.slow
def test_a_lost_marking_function_is_made_again_and_what_changed_meanwhile_is_marked(cold: Lake) -> None:
    drop(cold, "drop function frostline_relation.mark_{id} cascade")
    with cold.connect() as app:
        run(
            app,
            "insert into public.events (id, ts, status) overriding system value values (900, '2024-05-05', 'unseen')",
        )
    assert cold.value("select count(*) from public.events where id = 900") == 0
    with pytest.raises(UsageError, match=r"marking trigger on public\.events_default is gone"):
        adoption.adopt(cold.catalog, EVENTS)
    adoption.adopt(cold.catalog, EVENTS, accept_lost_changes=True)
    assert cold.value("select count(*) from public.events where id = 900") == 1


@pytest.mark.parametrize(("kind", "name"), [("table", "_events"), ("view", "events")], ids=["heap", "relation"])
def test_what_has_another_name_is_not_made_twice(
    catalog: Connection, events: str, add: Add, kind: str, name: str
) -> None:
    table = add(events)
    run(catalog, f"alter {kind} public.{name} rename to other")
    with pytest.raises(UsageError, match=rf"public\.{name} is called public\.other now") as refused:
        adoption.adopt(catalog, table.name, accept_lost_changes=True)
    assert refused.value.hint is not None
    run(catalog, refused.value.hint.removeprefix("give it its name back: "))
    assert lost.read(catalog) == []


def test_before_anything_is_archived_an_overlay_is_no_loss(catalog: Connection, events: str, add: Add) -> None:
    table = add(events)
    run(catalog, "insert into public.events (ts) values ('2024-01-05')")
    run(catalog, f"drop table frostline_overlay.events_{table.id} cascade")
    adoption.adopt(catalog, table.name)
    assert value(catalog, "select count(*) from public.events") == 1
    assert lost.read(catalog) == []


def test_the_relation_gets_owner_grants_and_comments_of_the_heap(catalog: Connection, events: str, add: Add) -> None:
    run(catalog, "grant select on public.events to pg_monitor; comment on table public.events is 'what happened'")
    table = add(events)
    run(catalog, "drop view public.events")
    adoption.adopt(catalog, table.name)
    assert value(catalog, "select has_table_privilege('pg_monitor', 'public.events', 'select')") is True
    assert value(catalog, "select obj_description('public.events'::regclass)") == "what happened"


def test_a_dry_run_changes_nothing_and_a_table_without_a_lake_is_refused(
    catalog: Connection, events: str, add: Add
) -> None:
    table = add(events)
    run(catalog, "drop view public.events")
    assert any("create view" in text for text in adoption.adopt(catalog, table.name, dry_run=True).statements)
    assert [record.what for record in lost.read(catalog)] == ["relation"]
    make_events(catalog, "public.other")
    other = partition_mode.add(catalog, Request(Name("public", "other"), Policy(partition_interval="1 month"))).table
    with pytest.raises(UsageError, match="partition mode"):
        adoption.adopt(catalog, other.name)


def test_status_and_doctor_name_what_is_gone_and_the_command_brings_it_back(cold: Lake, command: Command) -> None:
    before = contents(cold)
    drop(cold, "drop view public.events")
    problem = {
        "problem": "public.events: its relation public.events is gone",
        "command": "frostline table adopt public.events",
    }
    assert problem in json.loads(command("status", "--output", "json").stdout)["problems"]
    findings = {finding["name"]: finding for finding in json.loads(command("doctor", "--output", "json").stdout)}
    assert findings["objects of tables"]["state"] == "fault"
    assert findings["objects of tables"]["hint"] == "frostline table adopt public.events"
    said = command("table", "adopt", "events", "--output", "json")
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["made"] == "relation public.events"
    assert contents(cold) == before
    drop(cold, "drop table public._events cascade")
    told = [
        told_problem["problem"] for told_problem in json.loads(command("status", "--output", "json").stdout)["problems"]
    ]
    assert "public.events: its heap public._events is gone" in told
    assert not any("cannot be read" in text for text in told)
    assert command("table", "adopt", "events").exit_code == 2


def test_a_guard_that_is_switched_off_is_doubtful(cold: Lake, command: Command) -> None:
    def looked() -> dict[str, str]:
        return {finding["name"]: finding for finding in json.loads(command("doctor", "--output", "json").stdout)}[
            "guards"
        ]

    assert looked()["hint"] == "as a superuser: frostline init"
    assert guard.ensure(cold.catalog)
    assert (looked()["state"], looked()["hint"]) == ("ok", None)
    run(cold.catalog, "alter event trigger frostline_lost_objects disable")
    assert looked()["state"] == "warning"
    assert "alter event trigger frostline_lost_objects enable" in looked()["hint"]


def test_nobody_else_works_on_the_table_meanwhile(cold: Lake) -> None:
    table = cold.table()
    drop(cold, "drop view public.events")
    with psycopg.connect(cold.dsn, autocommit=True) as other, leases.held(other, table), pytest.raises(ConflictError):
        adoption.adopt(cold.catalog, EVENTS)


def test_an_overlay_that_was_emptied_is_seen_and_filled_again(cold: Lake) -> None:
    before = contents(cold)
    assert lost.read(cold.catalog) == []
    drop(cold, 'truncate frostline_overlay."events_{id}"')
    assert contents(cold) != before
    (gone,) = lost.read(cold.catalog)
    assert str(gone) == "mark of rows in public.events_default is gone"
    with pytest.raises(UsageError, match="the overlay was emptied, or did not get them"):
        adoption.adopt(cold.catalog, EVENTS)
    adoption.adopt(cold.catalog, EVENTS, accept_lost_changes=True)
    after = contents(cold)
    assert set(before) < set(after)
    assert len(after) == len(before) + 1
    assert lost.read(cold.catalog) == []


@pytest.mark.parametrize("which", ["the first", "the last"])
def test_one_of_several_foreign_tables_is_missed_and_made_again(cold: Lake, which: str) -> None:
    before = contents(cold)
    table, line = cold.table(), seams.get(cold.catalog, cold.table()).frost_line
    bound.raise_to(cold.catalog, table, line + 86_400_000_000, lambda _: None)
    assert lost.read(cold.catalog) == []
    foreign = [name for (name,) in rows(cold.catalog, FOREIGN)]
    assert len(foreign) == 2
    if which == "the last":
        run(cold.catalog, "update frostline.seam set line_timestamptz = line_timestamptz + interval '1 hour'")
    missing = foreign[0 if which == "the first" else 1]
    with cold.connect() as app:
        assert guard.ensure(cold.catalog)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot detach frostline_lake"):
            run(app, f"alter table frostline_lake.{table.internal} detach partition {missing}")
    run(cold.catalog, f"alter table frostline_lake.{table.internal} detach partition {missing}")
    (gone,) = lost.read(cold.catalog)
    assert gone.what == "foreign table"
    adoption.adopt(cold.catalog, EVENTS)
    assert lost.read(cold.catalog) == []
    assert contents(cold) == before
