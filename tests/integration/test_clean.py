"""Clean: an archived heap partition goes only when nobody can need it, and only when the lake surely has its rows."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import horizon, jobs
from frostline.catalog.jobs import State
from frostline.errors import CorruptionError
from frostline.pipeline import clean

ROWS = 200
EVERYTHING = "select count(*), md5(string_agg(e::text, '|' order by id)) from public.events e"
PARTITIONS = "select count(*) from pg_class where relname ~ '^events_[0-9]$' and relkind = 'r' and relispartition"


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Three months of rows, registered with a long grace period, not yet archived."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=ROWS)
    lake.add(grace="10 years")
    return lake


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """The same rows in both tiers, and no grace period any more."""
    make_archived_events(lake, months=3, rows_a_month=ROWS, grace="10 years")
    end_grace(lake)
    return lake


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def end_grace(lake: Lake) -> None:
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")


def oldest_file(lake: Lake) -> Path:
    """The file with the rows of the first partition."""
    return Path(
        value(lake.catalog, "select path from frostline.lake_file order by lower limit 1").removeprefix("file://")
    )


def reasons(result: clean.Result) -> set[str]:
    return {waiting.reason for waiting in result.waiting}


def test_a_clean_partition_is_gone_and_the_relation_answers_the_same(archived: Lake) -> None:
    before = rows(archived.catalog, EVERYTHING)
    result = archived.clean()
    assert result == clean.Result(("public.events_1", "public.events_2", "public.events_3"), ())
    assert value(archived.catalog, PARTITIONS) == 0
    assert value(archived.catalog, "select count(*) from public._events") == 0
    assert rows(archived.catalog, EVERYTHING) == before
    job = jobs.last(archived.catalog, archived.table())
    assert job is not None
    assert job.state is State.CLEANED
    assert archived.clean() == clean.NOTHING


@pytest.mark.slow
def test_a_role_that_may_not_vacuum_the_seam_is_told_so(lake: Lake) -> None:
    assert horizon.settle_standbys(lake.catalog)
    run(lake.catalog, "create role frostline_nobody")
    try:
        run(lake.catalog, "set role frostline_nobody")
        assert not horizon.settle_standbys(lake.catalog)
    finally:
        run(lake.catalog, "reset role")
        run(lake.catalog, "drop role frostline_nobody")


def test_it_waits_for_the_grace_period(events: Lake) -> None:
    (result,) = events.archive()
    assert len(result.cleaned.waiting) == 3
    assert all("grace period until" in reason for reason in reasons(events.clean()))
    assert value(events.catalog, "select count(*) from public._events") == 3 * ROWS
    end_grace(events)
    assert len(events.clean().emptied) == 3


def test_it_waits_for_a_snapshot_from_before_the_publish(events: Lake, other: psycopg.Connection) -> None:
    """That transaction has the old frost line, so it reads these rows in the heap; TRUNCATE would empty it under it."""
    other.execute("begin isolation level repeatable read")
    before = rows(other, EVERYTHING)
    other.execute("savepoint here")  # releases nothing: the snapshot is what counts
    events.archive()
    end_grace(events)
    assert reasons(events.clean()) == {
        f"a transaction from before it was published is still open: {other.info.backend_pid}"
    }
    assert rows(other, EVERYTHING) == before
    other.execute("commit")
    assert len(events.clean().emptied) == 3
    assert rows(other, EVERYTHING) == before


@pytest.mark.slow
def test_it_waits_for_an_old_snapshot_that_has_not_read_the_table_yet(events: Lake, other: psycopg.Connection) -> None:
    """It holds no lock on the table, so only the check of the snapshots can notice it."""
    before = rows(events.catalog, EVERYTHING)
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pg_class limit 1")
    events.archive()
    end_grace(events)
    assert events.clean().emptied == ()
    assert rows(other, EVERYTHING) == before


@pytest.mark.slow
def test_a_snapshot_from_after_the_publish_holds_nothing_up(archived: Lake, other: psycopg.Connection) -> None:
    before = rows(archived.catalog, EVERYTHING)
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pg_class limit 1")
    assert len(archived.clean().emptied) == 3
    assert rows(other, EVERYTHING) == before


def test_it_waits_for_changed_rows_to_be_folded(archived: Lake) -> None:
    run(archived.catalog, "update public.events set status = 'changed' where id = 5")
    run(archived.catalog, "delete from public.events where id = 6")
    before = rows(archived.catalog, EVERYTHING)
    result = archived.clean()
    assert result.emptied == ("public.events_2", "public.events_3")
    assert [(waiting.partition, waiting.reason) for waiting in result.waiting] == [
        ("public.events_1", "2 changed rows of its range wait to be folded")
    ]
    assert value(archived.catalog, "select count(*) from public.events_1") == ROWS - 1
    assert rows(archived.catalog, EVERYTHING) == before


@pytest.mark.parametrize(
    "use",
    first(1, ["select from public.events_1 limit 1", "update public.events_1 set status = 'changed' where id = 5"]),
)
def test_it_waits_for_those_who_use_the_partition(archived: Lake, other: psycopg.Connection, use: str) -> None:
    other.execute("begin")
    run(other, use)
    result = archived.clean()
    assert result.emptied == ("public.events_2", "public.events_3")
    assert reasons(result) == {"it is being read or written"}
    other.execute("rollback")
    assert archived.clean().emptied == ("public.events_1",)


def test_a_change_that_commits_just_before_the_lock_is_kept(archived: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the comparison with the lake and the lock on the partition."""
    real = clean.heap.empty

    def late(*arguments: object) -> bool:
        with archived.connect() as writer:
            run(writer, "update public.events set status = 'just now' where id = 5")
        return real(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(clean.heap, "empty", late)
    result = archived.clean()
    assert "a row of its range was changed just now" in reasons(result)
    assert archived.value("select status from public.events where id = 5") == "just now"
    assert value(archived.catalog, "select count(*) from public.events_1") == ROWS


@pytest.mark.parametrize("damage", first(1, ["deleted", "truncated", "overwritten"]))
def test_a_damaged_file_stops_it_and_the_heap_keeps_its_rows(archived: Lake, damage: str) -> None:
    file = oldest_file(archived)
    content = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes(content[:-100] if damage == "truncated" else bytes(len(content)))
    with pytest.raises(CorruptionError, match=file.name) as stopped:
        archived.clean()
    assert "frostline verify public.events" in (stopped.value.hint or "")
    assert value(archived.catalog, "select count(*) from public._events") == 3 * ROWS
    assert (
        value(archived.catalog, "select count(*) from frostline.archived_partition where cleaned_at is not null") == 0
    )
    file.write_bytes(content)
    assert len(archived.clean().emptied) == 3


def test_a_heap_that_differs_from_the_lake_is_not_emptied(archived: Lake) -> None:
    run(archived.catalog, 'alter table public.events_2 disable trigger "!frostline_mark"')
    run(archived.catalog, "update public.events_2 set status = 'only here' where id = 250")
    with pytest.raises(CorruptionError, match=r"public\.events_2 is not emptied"):
        archived.clean()
    assert value(archived.catalog, "select status from public.events_2 where id = 250") == "only here"


@pytest.mark.slow
def test_a_partition_that_got_rows_since_it_was_emptied_is_not_dropped(
    archived: Lake, other: psycopg.Connection
) -> None:
    other.execute("begin; lock table only public._events in access share mode")
    assert len(archived.clean().emptied) == 3
    assert value(archived.catalog, PARTITIONS) == 3
    run(archived.catalog, "insert into public.events (ts, status) values ('2024-01-05 03:04:05', 'late')")
    before = rows(archived.catalog, EVERYTHING)
    other.execute("commit")
    assert archived.clean() == clean.NOTHING
    assert value(archived.catalog, PARTITIONS) == 1
    assert value(archived.catalog, "select status from public.events_1") == "late"
    assert rows(archived.catalog, EVERYTHING) == before


@pytest.mark.slow
def test_rows_below_the_line_go_to_the_default_partition_once_theirs_is_gone(archived: Lake) -> None:
    archived.clean()
    run(archived.catalog, "insert into public.events (ts, status) values ('2024-01-05 03:04:05', 'late')")
    assert value(archived.catalog, "select count(*) from public.events") == 3 * ROWS + 1
    assert value(archived.catalog, "select count(*) from public.events_default") == 1


@pytest.mark.slow
def test_a_partition_that_somebody_dropped_counts_as_cleaned(archived: Lake) -> None:
    before = rows(archived.catalog, EVERYTHING)
    run(archived.catalog, "drop table public.events_2")
    assert len(archived.clean().emptied) == 3
    assert rows(archived.catalog, EVERYTHING) == before


@pytest.mark.slow
def test_the_foreign_tables_are_merged(archived: Lake) -> None:
    run(
        archived.catalog,
        "create table public.events_4 partition of public._events for values from ('2024-04-01') to ('2024-05-01')",
    )
    run(archived.catalog, "insert into public.events (ts) values ('2024-04-05')")
    before = rows(archived.catalog, EVERYTHING)
    with archived.connect() as reader, reader.transaction():
        run(reader, "select count(*) from public.events")
        archived.archive()
        assert value(archived.catalog, "select count(*) from pg_foreign_table") == 2
    archived.clean()
    assert value(archived.catalog, "select count(*) from pg_foreign_table") == 1
    assert rows(archived.catalog, EVERYTHING) == before


def test_the_command_says_what_was_cleaned_and_what_waits(
    archived: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", archived.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(archived.warehouse))
    run(archived.catalog, "update public.events set status = 'changed' where id = 5")
    said = command("clean", "events", "--output", "json")
    assert said.exit_code == 0
    states = {record["partition"]: record["state"] for record in json.loads(said.stdout)}
    assert states == {
        "public.events_1": "waits: 1 changed rows of its range wait to be folded",
        "public.events_2": "cleaned",
        "public.events_3": "cleaned",
    }


@pytest.mark.slow
def test_the_command_reports_corruption_with_exit_code_one(
    archived: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", archived.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(archived.warehouse))
    file = oldest_file(archived)
    file.unlink()
    said = command("clean", "events")
    assert (said.exit_code, said.stdout) == (1, "")
    assert file.name in said.stderr
    assert "hint: frostline verify public.events" in said.stderr
