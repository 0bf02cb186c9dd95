"""`frostline truncate`: both tiers are emptied at once, as TRUNCATE empties the plain table beside it."""

import io
import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures import copies, killed, states
from tests.fixtures.cold_twins import APRIL, FEBRUARY, both, change, compare, line, make_archived, shown
from tests.fixtures.command import Command
from tests.fixtures.interleaving import come_before
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import PARTITIONS, ROWS, TABLE
from tests.fixtures.waiting import until

from frostline.catalog import archived_partitions, lake_files, leases, patience, pins, seams
from frostline.errors import ConflictError, FrostlineError, UnavailableError, UsageError
from frostline.failpoints import PAUSE, Failpoint
from frostline.lake import paths
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.partitions import partition_mode
from frostline.pipeline import truncate, verify
from frostline.relation import bound, form, heap, policy, registration
from frostline.relation.registration import Request

pytestmark = pytest.mark.spark


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Rows of three months in the lake and, in their grace period, in the heap; marks; and a plain table with the same rows."""
    make_archived(lake)
    change(lake)
    return lake


@pytest.fixture
def cleaned(lake: Lake) -> Lake:
    """The same three months in the lake only, and marks."""
    make_archived(lake, grace="0")
    change(lake)
    return lake


@pytest.fixture
def reader(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def truncate_both(lake: Lake, *, restart_identity: bool = False) -> truncate.Result:
    done = lake.truncate(restart_identity=restart_identity)
    identities = "restart identity" if restart_identity else "continue identity"
    with lake.connect() as connection:
        run(connection, f"truncate public.plain {identities}")
    return done


def is_as_new(lake: Lake) -> None:
    """Nothing is in either tier, and nothing says that anything was archived."""
    catalog, table = lake.catalog, lake.table()
    assert line(lake) == table.tier_kind.lowest
    assert lake_files.recorded(catalog, table) == []
    assert archived_partitions.list_all(catalog, table) == []
    assert value(catalog, f'select count(*) from frostline_overlay."{table.internal}"') == 0
    assert value(catalog, f"select count(*) from {table.heap}") == 0
    assert bound.current(catalog, table) is None
    assert verify.run(catalog, table).faults == ()


def live_on(lake: Lake) -> None:
    """What a table does in its life: rows of all ages, changes, archive, fold, clean, undo."""
    with lake.connect() as connection:
        both(connection, ROWS.replace("{name}", "{t}"))
        both(connection, "insert into public.{t} (id, ts, status) values (900, '2018-01-01', 'old')")
        compare(lake)
    (result,) = lake.archive("events")
    assert result.error is None
    compare(lake)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'later' where status = 'row 3'")
        both(connection, "delete from public.{t} where status = 'row 4'")
    compare(lake)
    (folded,) = lake.fold("events")
    assert folded.error is None
    compare(lake)
    policy.change(lake.catalog, lake.table(), grace_period="0")
    lake.clean()
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.parametrize("made", ["archived", "cleaned"])
def test_both_tiers_are_empty_and_the_table_is_as_new(made: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(made)
    done = truncate_both(lake)
    assert (done.lake_rows, done.lake_files, done.marks > 0) == (60, 3, True)
    compare(lake)
    is_as_new(lake)
    live_on(lake)


def test_undo_and_thaw_find_nothing_to_bring_back(archived: Lake) -> None:
    archived.truncate()
    with pytest.raises(UsageError, match="no archived partition"):
        archived.undo()
    with pytest.raises(UsageError, match=r"nothing of public.events is archived"):
        archived.thaw(first=FEBRUARY)
    assert archived.value("select count(*) from public.events") == 0


def test_beside_its_table(lake: Lake) -> None:
    make_archived(lake, grace="0")
    form.change(lake.catalog, lake.table(), "everything")
    run(lake.catalog, "update public.everything set status = 'changed' where id = 1")
    lake.truncate()
    assert [lake.value(f"select count(*) from public.{name}") for name in ("events", "everything")] == [0, 0]
    is_as_new(lake)
    run(lake.catalog, ROWS.format(name="events"))
    (result,) = lake.archive("events")
    assert result.error is None
    assert lake.value("select count(*) from public.everything") == 80
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_a_table_that_was_never_archived(lake: Lake) -> None:
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    for name in ("events", "plain"):
        run(lake.catalog, ROWS.format(name=name))
    lake.add()
    truncate_both(lake)
    is_as_new(lake)
    live_on(lake)


def test_twice_is_no_more_than_once(cleaned: Lake) -> None:
    truncate_both(cleaned)
    seam = seams.get(cleaned.catalog, cleaned.table())
    assert truncate_both(cleaned).lake_rows == 0
    assert seams.get(cleaned.catalog, cleaned.table()) == seam
    live_on(cleaned)


@pytest.mark.parametrize("restart", [True, False])
def test_sequences_go_on_or_begin_again_as_on_a_plain_table(cleaned: Lake, restart: bool) -> None:
    truncate_both(cleaned, restart_identity=restart)
    with cleaned.connect() as connection:
        both(connection, "insert into public.{t} (status) values ('next')")
        assert (value(connection, "select id from public.events") == 1) is restart
    compare(cleaned)


TRIGGERS = """
create table public.seen (who text, operation text, at text);
create function public.see() returns trigger language plpgsql as $$ begin
    insert into seen values (tg_argv[0], tg_op, tg_when);
    return null;
end $$;
create trigger seen before truncate on public.{heap} for each statement execute function public.see('{name}');
create trigger seen_too after truncate on public.{heap} for each statement execute function public.see('{name}')"""


def test_triggers_of_the_user_fire_as_on_a_plain_table(archived: Lake) -> None:
    run(archived.catalog, TRIGGERS.format(heap="_events", name="events"))
    run(archived.catalog, TRIGGERS.format(heap="plain", name="plain").split("$$;")[1])
    truncate_both(archived)
    query = "select operation, at from public.seen where who = '{}' order by at"
    fired = [rows(archived.catalog, query.format(name)) for name in ("events", "plain")]
    assert fired[0] == fired[1] == [("TRUNCATE", "AFTER"), ("TRUNCATE", "BEFORE")]


def test_rows_that_such_a_trigger_writes_stay(archived: Lake) -> None:
    for heap_name in ("_events", "plain"):
        run(
            archived.catalog,
            f"create function public.again_{heap_name}() returns trigger language plpgsql as $$ begin insert into"
            f" public.{heap_name} (id, ts, status) values (1, '2024-01-05', 'first'), (2, '2019-01-01', 'older'); return null; end $$;"
            f"create trigger again after truncate on public.{heap_name} for each statement"
            f" execute function public.again_{heap_name}()",
        )
    truncate_both(archived)
    compare(archived)
    assert archived.value("select count(*) from public.events") == 2
    archived.archive("events")
    compare(archived)
    assert verify.run(archived.catalog, archived.table()).faults == ()


def test_a_trigger_of_a_role_with_fewer_rights_is_refused(archived: Lake) -> None:
    run(
        archived.catalog,
        "create role owner_of_events; grant create, usage on schema public to owner_of_events;"
        "create function public.bomb() returns trigger language plpgsql as $$ begin raise 'with your rights'; end $$;"
        "alter function public.bomb() owner to owner_of_events;"
        "create trigger bomb before truncate on public.events_hot for each statement execute function public.bomb();"
        "alter table public._events owner to owner_of_events",
    )
    before = shown(archived.catalog)
    try:
        with pytest.raises(
            UsageError, match=r"trigger bomb on .*events_hot calls .*bomb.* of a role with fewer rights"
        ):
            archived.truncate()
        assert shown(archived.catalog) == before
        run(archived.catalog, "alter table public.events_hot disable trigger bomb")
        archived.truncate()
        assert archived.value("select count(*) from public.events") == 0
    finally:
        run(archived.catalog, "drop owned by owner_of_events cascade; drop role owner_of_events")


def test_who_may_not_truncate_the_heap_may_not_truncate_the_table(archived: Lake) -> None:
    catalog = archived.catalog
    run(catalog, "create role clerk; grant usage on schema frostline, frostline_overlay, frostline_relation to clerk")
    run(catalog, "grant select on all tables in schema frostline, frostline_overlay to clerk")
    run(catalog, "grant execute on all functions in schema frostline to clerk")
    try:
        with catalog.transaction():
            run(catalog, "set local role clerk")
            with pytest.raises(UsageError, match=r"role .* may not truncate public\._events") as raised:
                truncate.planned(catalog, archived.table())
        assert "grant truncate on public._events to" in (raised.value.hint or "")
        run(catalog, "grant truncate on public._events to clerk")
        with catalog.transaction():
            run(catalog, "set local role clerk")
            assert truncate.planned(catalog, archived.table()).lake_rows == 60
    finally:
        run(catalog, "drop owned by clerk; drop role clerk")


def test_a_foreign_key_that_points_at_it_refuses_it(lake: Lake) -> None:
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, ROWS.format(name="events"))
    request = Request(Name.parse("events"), Policy("1 month", "0"), None, "everything")
    registration.add(lake.catalog, request)
    lake.archive()
    run(
        lake.catalog,
        "create table public.notes (id bigint, ts timestamptz, foreign key (id, ts) references public.events);"
        "insert into public.notes select id, ts from public.events order by id limit 1",
    )
    with pytest.raises(
        UsageError, match=r"foreign key notes_id_ts_fkey on public.notes points at public.events"
    ) as raised:
        lake.truncate()
    assert "alter table public.notes drop constraint notes_id_ts_fkey" in (raised.value.hint or "")
    assert lake.value("select count(*) from public.everything") == 80
    run(lake.catalog, "drop table public.notes")
    lake.truncate()
    assert lake.value("select count(*) from public.everything") == 0


def test_a_table_without_a_lake_is_truncated_by_postgres(lake: Lake, command: Command, env: None) -> None:
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    partition_mode.add(lake.catalog, Request(Name.parse("events"), Policy(), None, None))
    said = command("truncate", "events", "--yes")
    assert (said.exit_code, "has no lake" in said.stderr) == (2, True)
    run(lake.catalog, "truncate public.events")


@pytest.fixture
def env(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(lake.settings.lake_port))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_command_asks_tells_and_can_only_look(
    cleaned: Lake, command: Command, env: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shown(cleaned.catalog)
    dry = command("truncate", "events", "--dry-run", "--output", "json")
    marks = value(cleaned.catalog, f'select count(*) from frostline_overlay."{cleaned.table().internal}"')
    told: dict[str, Any] = {
        "table": "public.events",
        "lake_rows": 60,
        "lake_files": 3,
        "overlay_rows": marks,
        "partitions": 2,
        "old_frost_line": APRIL,
        "frost_line": None,
    }
    assert (dry.exit_code, json.loads(dry.stdout)) == (0, told | {"changed": False})
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    said = command("truncate", "events")
    assert (said.exit_code, "frostline truncate public.events --yes" in said.stderr) == (2, True)
    monkeypatch.setattr(sys, "stdin", _Terminal("n\n"))
    said = command("truncate", "events")
    assert (said.exit_code, "60 in the lake" in said.stderr, "nothing was changed" in said.stderr) == (2, True, True)
    assert shown(cleaned.catalog) == before
    monkeypatch.setattr(sys, "stdin", _Terminal("y\n"))
    said = command("truncate", "events", "--output", "json")
    assert (said.exit_code, json.loads(said.stdout)) == (0, told | {"changed": True})
    is_as_new(cleaned)
    said = command("jobs", "events", "--output", "json")
    assert next((job["kind"], job["state"], job["rows"]) for job in json.loads(said.stdout)) == (
        "truncate",
        "published",
        60,
    )


@pytest.mark.parametrize("name", ["public._events", "public._events_parent cascade"])
def test_the_refusal_of_truncate_names_the_command(archived: Lake, name: str) -> None:
    if "cascade" in name:
        run(
            archived.catalog,
            "create table public._events_parent (id int primary key); alter table public._events"
            " add column parent int references public._events_parent",
        )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as raised:
        run(archived.catalog, f"truncate {name}")
    assert raised.value.diag.message_hint == "All rows of both tiers go by: frostline truncate public.events"


def test_the_lake_server_need_not_be_there(cleaned: Lake) -> None:
    cleaned.server.stop()
    cleaned.truncate()
    assert cleaned.value("select count(*) from public.events") == 0, "and nobody asks it afterwards"
    with cleaned.connect() as connection:
        run(connection, "insert into public.events (ts, status) values ('2024-01-05', 'old'), ('2090-02-02', 'new')")
    assert cleaned.value("select count(*) from public.events") == 2


def test_without_the_warehouse_nothing_happens(cleaned: Lake) -> None:
    before = shown(cleaned.catalog)
    away = cleaned.warehouse.with_name("away")
    cleaned.warehouse.rename(away)
    with pytest.raises(UnavailableError, match="warehouse"):
        cleaned.truncate()
    away.rename(cleaned.warehouse)
    assert shown(cleaned.catalog) == before


def test_a_warehouse_that_goes_away_before_the_commit(cleaned: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, away = shown(cleaned.catalog), cleaned.warehouse.with_name("away")
    came = come_before(monkeypatch, truncate, "patiently", lambda: cleaned.warehouse.rename(away))
    with pytest.raises(UnavailableError, match="warehouse"):
        cleaned.truncate()
    assert came
    away.rename(cleaned.warehouse)
    assert shown(cleaned.catalog) == before
    truncate_both(cleaned)
    is_as_new(cleaned)


def test_while_a_job_runs_it_is_refused(cleaned: Lake) -> None:
    with cleaned.connect() as other, leases.held(other, cleaned.table(), 60), pytest.raises(ConflictError):
        cleaned.truncate()
    assert cleaned.value("select count(*) from public.events") == cleaned.value("select count(*) from public.plain")


def test_who_holds_the_table_is_not_waited_for_for_ever(
    cleaned: Lake, reader: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    reader.execute("begin")
    before = shown(reader)
    with pytest.raises(UnavailableError, match=r"public.events is still in use; nothing was changed"):
        cleaned.truncate()
    assert shown(reader) == before
    reader.execute("commit")
    assert shown(reader) == before
    truncate_both(cleaned)
    live_on(cleaned)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_reader_from_before_sees_no_heap_and_the_lake_as_it_was(
    cleaned: Lake, reader: psycopg.Connection, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TRUNCATE of a plain table, it takes the heap's rows from under him; the marks and the lake are his snapshot's."""
    monkeypatch.setattr(truncate, "_BOUND_PATIENCE_S", 0.3)  # he stays for longer than it waits
    cold = rows(reader, "select id, e::text from public.events e where ts < '2024-04-01 00:00+00' order by id, ts")
    reader.execute("begin isolation level " + isolation)  # type: ignore[arg-type]
    reader.execute("select 1 from public.plain")
    cleaned.truncate()
    cleaned.clean()
    assert shown(reader) == cold
    reader.execute("commit")
    assert shown(reader) == []
    cleaned.clean()
    assert bound.current(cleaned.catalog, cleaned.table()) is None


STALE = {
    "update of a lake row": "update public.events set status = 'x' where id = 5",
    "delete of a lake row": "delete from public.events where id = 5",
    "update of a marked row": "update public.events set status = 'x' where id = 1",
    "delete of a marked row": "delete from public.events where id = 1",
    "insert of a cold row": "insert into public.events (id, ts) values (2, '2024-01-01 02:00+00')",
}


@pytest.mark.parametrize("what", some(STALE, "update of a lake row", "update of a marked row"))
def test_a_writer_from_before_brings_nothing_back(
    cleaned: Lake, reader: psycopg.Connection, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncate, "_BOUND_PATIENCE_S", 0.3)  # he stays for longer than it waits
    reader.execute("begin isolation level repeatable read")
    reader.execute("select 1 from public.plain")
    cleaned.truncate()
    with pytest.raises(psycopg.errors.SerializationFailure):
        run(reader, STALE[what])
    reader.execute("rollback")
    assert shown(reader) == []
    cleaned.clean()
    is_as_new(cleaned)


@pytest.mark.parametrize("what", some(STALE, "update of a lake row"))
def test_a_cold_writer_that_came_first_is_waited_for(
    cleaned: Lake, reader: psycopg.Connection, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has the heap; then the truncation takes what he wrote, too."""
    reader.execute("begin")
    run(reader, STALE[what])
    waited = list[int]()

    def wait(seconds: float) -> None:
        waited.append(1)
        if len(waited) == 3:
            reader.execute("commit")

    monkeypatch.setattr(patience.time, "sleep", wait)
    cleaned.truncate()
    assert len(waited) >= 3
    assert shown(reader) == []
    is_as_new(cleaned)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["archive", "fold"])
def test_a_job_that_was_paused_publishes_nothing(cleaned: Lake, job: str) -> None:
    """It lost its lease, so what it has exported of the rows from before never becomes visible."""
    run(cleaned.catalog, "insert into public.events (id, ts) values (700, '2024-04-02')")
    run(
        cleaned.catalog,
        "create table public.events_4 partition of public._events for values from ('2025-01-01') to ('2025-02-01');"
        "insert into public.events (id, ts) values (701, '2025-01-02')",
    )
    point = {"archive": Failpoint.ARCHIVE_STAGED, "fold": Failpoint.FOLD_STAGED}[job]
    process = killed.start(cleaned, job, failpoint=point + PAUSE)
    query = "select count(*) from frostline.job where kind = %s and state = 'exported'"
    until(lambda: value(cleaned.catalog, query, (job,)) == 1)
    run(cleaned.catalog, "update frostline.lease set expires_at = now() - interval '1 s'")
    try:
        cleaned.truncate()
    finally:
        process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 1, said
    assert cleaned.value("select count(*) from public.events") == 0
    run(cleaned.catalog, "truncate public.plain")
    live_on(cleaned)


def test_retention_holds_afterwards(cleaned: Lake) -> None:
    period = value(cleaned.catalog, "select (now() - timestamptz '2024-01-15 00:00+00')::text")
    policy.change(cleaned.catalog, cleaned.table(), retention_period=period)
    cleaned.retain()
    retained = seams.retained(cleaned.catalog, cleaned.table())
    cleaned.truncate()
    assert (seams.retained(cleaned.catalog, cleaned.table()), line(cleaned)) == (retained, retained)
    run(cleaned.catalog, "truncate public.plain")
    with cleaned.connect() as connection:
        for old in ("2024-01-05", "2018-01-01"):
            with pytest.raises(psycopg.errors.CheckViolation, match="older than its retention period"):
                run(connection, f"insert into public.events (ts) values ('{old}')")
        both(
            connection, "insert into public.{t} (id, ts) values (1, '2024-01-20'), (2, '2024-02-20'), (3, '2090-02-02')"
        )
    compare(cleaned)
    cleaned.archive("events")
    compare(cleaned)
    assert verify.run(cleaned.catalog, cleaned.table()).faults == ()


def test_a_partition_across_the_retention_line_goes_on_refusing_what_is_older(lake: Lake) -> None:
    make_archived(lake, grace="0")
    period = value(lake.catalog, "select (now() - timestamptz '2024-02-15 00:00+00')::text")
    policy.change(lake.catalog, lake.table(), retention_period=period)
    lake.retain()
    run(
        lake.catalog,
        "create table public.events_2 partition of public._events for values from ('2024-02-01') to ('2024-03-01')",
    )
    lake.truncate()
    assert line(lake) == heap.tier_value(lake.catalog, lake.table(), "--to", FEBRUARY)
    with lake.connect() as connection:
        with pytest.raises(psycopg.errors.CheckViolation, match="older than its retention period"):
            run(connection, "insert into public.events (ts) values ('2024-02-05')")
        run(connection, "insert into public.events (ts) values ('2024-02-25')")
    (result,) = lake.archive("events")
    assert (result.error, result.partitions) == (None, 1)
    assert lake.value("select count(*) from public.events") == 1


def test_what_was_held_is_held_no_longer(archived: Lake) -> None:
    archived.undo(to=FEBRUARY)
    assert archived.table().held_from is not None
    archived.truncate()
    assert archived.table().held_from is None


def test_pinned_files_stay_and_the_others_go_by_expiry(cleaned: Lake) -> None:
    seam = seams.get(cleaned.catalog, cleaned.table())
    files = [file.path for file in lake_files.recorded(cleaned.catalog, cleaned.table())]
    assert seam.metadata_location is not None
    pin = pins.make(cleaned.catalog, cleaned.table(), seam.metadata_location, 3600)
    cleaned.truncate()
    policy.change(cleaned.catalog, cleaned.table(), snapshot_retention="0")
    states.expired(cleaned)
    assert all(paths.size_bytes(file) is not None for file in files)
    pins.release(cleaned.catalog, pin)
    states.expired(cleaned)
    states.age(cleaned)
    states.swept(cleaned)
    assert [file for file in files if paths.size_bytes(file) is not None] == []
    assert verify.run(cleaned.catalog, cleaned.table()).faults == ()


def test_a_named_snapshot_keeps_the_rows_of_its_moment(cleaned: Lake) -> None:
    copies.create(cleaned, "public.events")
    (copy,) = copies.shown(cleaned).values()
    before = copies.by_duckdb(copy, "select id, status from copy order by all")
    assert len(before) == cleaned.value("select count(*) from public.plain")
    cleaned.truncate()
    policy.change(cleaned.catalog, cleaned.table(), snapshot_retention="0")
    states.expired(cleaned)
    states.age(cleaned)
    states.swept(cleaned)
    assert copies.by_duckdb(copy, "select id, status from copy order by all") == before


def test_another_engines_commit_is_not_built_upon(cleaned: Lake) -> None:
    run(
        cleaned.catalog,
        "alter table frostline.iceberg_tables disable trigger all;"
        "update frostline.iceberg_tables set metadata_location = metadata_location || 'x'",
    )
    with pytest.raises(FrostlineError):
        cleaned.truncate()
