"""Lake tables look after themselves: the worker compacts, expires and sweeps them, and status tells without the lake."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from tests.fixtures import lake_past
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.lake_past import ROWS, files, forget, history, needed, pointer
from tests.fixtures.statements import run, value

from frostline.catalog import lake_upkeep
from frostline.model.work import Action, Kind
from frostline.observe import status, survey
from frostline.observe.metrics import exposition
from frostline.observe.metrics.worker import families
from frostline.pipeline import lake_sweep
from frostline.pipeline.job import JobContext
from frostline.runtime.worker import Worker

JOBS = "select string_agg(kind || ' ' || state, ', ' order by job_id) from frostline.job where lake_table_id = 1"


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    lake_past.make(lake)
    with lake.connect() as connection:
        for number in range(6):
            connection.execute("insert into readings select n, 'a', n from generate_series(1, 10) n")
            connection.execute("delete from readings where id = %s", (number,))
        yield connection


def worker(lake: Lake) -> Worker:
    return Worker(JobContext(lake.catalog, lake.settings, lake.session), threading.Event())


def done(round_: list[Action]) -> list[Kind]:
    return [action.kind for action in round_]


def test_the_worker_does_what_is_due_by_itself_and_nothing_twice(lake: Lake, session: psycopg.Connection) -> None:
    before = session.execute(ROWS).fetchall()
    working = worker(lake)
    assert done(working.round()) == [Kind.COMPACT], "it has never been looked at"
    assert lake_past.lake_tables.show(lake.catalog, pointer(lake)).files == 1
    assert working.round() == []
    lake_past.age(lake)
    run(lake.catalog, "update frostline.lake_table set swept_at = now() - interval '2 days'")
    assert done(working.round()) == [Kind.EXPIRE, Kind.SWEEP]
    forget()
    assert len(history(lake)) == 1
    assert files(lake) == needed(lake)
    assert working.round() == []
    assert value(lake.catalog, JOBS) == "compact published, expire published"
    assert session.execute(ROWS).fetchall() == before


def test_it_looks_after_some_commits_or_some_time(lake: Lake, session: psycopg.Connection) -> None:
    working = worker(lake)
    working.round()
    for _ in range(3):
        session.execute("insert into readings values (1, 'x', 1)")
    assert working.round() == [], "not after three commits"
    (seen,) = status.read(lake.catalog).lake_tables
    assert (seen.state.commits, seen.standing.look and seen.standing.look.files) == (3, 1)
    run(lake.catalog, "update frostline.lake_look set looked_at = now() - interval '6 minutes'")
    assert done(working.round()) == [Kind.COMPACT]
    for _ in range(16):
        session.execute("insert into readings values (1, 'x', 1)")
    assert done(working.round()) == [Kind.COMPACT]
    assert lake_past.lake_tables.show(lake.catalog, pointer(lake)).files == 1


def test_a_failure_is_told_and_tried_again_later(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", lake.settings.warehouse)
    hidden = lake.warehouse.with_name("hidden")
    shutil.move(lake.warehouse, hidden)
    forget()
    working = worker(lake)
    assert done(working.round()) == [Kind.COMPACT]
    assert working.round() == []
    (state,) = survey.list_all(lake.catalog)
    assert state.failures[Kind.COMPACT].count == 1
    told = json.loads(command("--output", "json", "status").stdout)
    assert any("compact failed once" in problem["problem"] for problem in told["problems"])
    shutil.move(hidden, lake.warehouse)
    run(lake.catalog, "update frostline.job set changed_at = now() - interval '1 hour'")
    assert done(working.round()) == [Kind.COMPACT]
    assert survey.list_all(lake.catalog)[0].failures == {}
    listed = json.loads(command("--output", "json", "jobs", "readings").stdout)
    assert [(job["kind"], job["state"]) for job in listed] == [("compact", "published"), ("compact", "failed")]


def test_status_and_metrics_tell_what_was_seen_without_the_lake(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", lake.settings.warehouse)
    worker(lake).round()
    session.execute("insert into readings values (100, 'x', 1)")
    shutil.move(lake.warehouse, lake.warehouse.with_name("hidden"))
    (told,) = json.loads(command("--output", "json", "status").stdout)["lake_tables"]
    assert (told["rows"], told["files"], told["delete_files"], told["commits_since"]) == (40, 1, 0, 1)
    assert (told["table"], told["last_job"].split()[0], told["next_action"]) == ("public.readings", "compact", None)
    assert "40 rows" in command("status").stdout
    text = exposition.text(families(lake.catalog))
    assert 'frostline_lake_table_rows{table="public.readings"} 40' in text
    assert 'frostline_lake_table_commits{table="public.readings"} 1' in text


def test_of_a_restored_database_it_says_so_and_only_compacts(lake: Lake, session: psycopg.Connection) -> None:
    run(lake.catalog, "update frostline.lake_table set server = 'elsewhere', swept_at = now() - interval '2 days'")
    working = worker(lake)
    assert done(working.round()) == [Kind.COMPACT]
    lake_past.age(lake)
    assert working.round() == []
    (seen,) = status.read(lake.catalog).lake_tables
    assert [problem.command for problem in seen.problems] == ["frostline sweep --take-over"]


def test_a_job_whose_session_is_gone_is_called_failed_by_the_next_one(lake: Lake, session: psycopg.Connection) -> None:
    with lake.connect() as other:
        number = lake_upkeep.start(other, pointer(lake), "compact")
        (state,) = survey.list_all(lake.catalog)
        assert state.leased_by is not None
        assert worker(lake).round() == [], "somebody is at it"
    lake_sweep.sweep_table(lake.catalog, lake.settings, pointer(lake), timedelta(days=3))
    lake_upkeep.start(lake.catalog, pointer(lake), "expire")
    assert value(lake.catalog, f"select state from frostline.job where job_id = {number}") == "failed"


def test_policy_is_set_shown_and_taken_away(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", lake.settings.warehouse)

    def shown() -> tuple[object, ...]:
        told = json.loads(command("--output", "json", "lake", "show", "readings").stdout)
        return told["snapshot_retention"], told["min_snapshots"], told["target_file_size_bytes"]

    assert shown() == ("5 days", 1, 256_000_000)
    words = ("--snapshot-retention", "1 day", "--min-snapshots", "7", "--target-file-size", "64MB")
    assert command("lake", "set", "readings", *words).exit_code == 0
    assert shown() == ("1 day", 7, 64_000_000)
    location = pointer(lake).metadata_location
    assert command("lake", "set", "readings", *words).exit_code == 0
    assert pointer(lake).metadata_location == location, "it is so already"
    assert command("lake", "set", "readings", "--unset", "min-snapshots").exit_code == 0
    assert shown() == ("1 day", 1, 64_000_000)
    for wrong in (("--snapshot-retention", "1 minute"), ("--snapshot-retention", "soon"), ()):
        assert command("lake", "set", "readings", *wrong).exit_code == 2
    assert session.execute("select count(*) from readings").fetchone() == (40,)


def write_until(over: threading.Event, lake: Lake, first: int, done: list[int], refused: list[str]) -> None:
    """Read and write in one transaction after the other, and note which were acknowledged."""
    with lake.connect() as connection:
        for number in range(first, first + 1000):
            if over.is_set():
                return
            try:
                with connection.transaction():
                    connection.execute("select count(*) from readings")
                    connection.execute("insert into readings values (%s, 'w', 1)", (number,))
                    if number % 3 == 0:
                        connection.execute("update readings set value = 2 where id = %s", (number,))
                done.append(number)
            except psycopg.Error as error:
                refused.append(error.sqlstate or "")


@pytest.mark.slow
def test_writers_and_readers_go_on_while_everything_is_compacted_expired_and_swept(
    lake: Lake, session: psycopg.Connection
) -> None:
    """What was acknowledged is there, once. A transaction that is older than the history is told so."""
    session.execute("delete from readings")
    done, refused, over = list[int](), list[str](), threading.Event()
    writers = [threading.Thread(target=write_until, args=(over, lake, first, done, refused)) for first in (1000, 2000)]
    for thread in writers:
        thread.start()
    working = worker(lake)
    try:
        for _ in range(4):
            run(lake.catalog, "update frostline.lake_look set looked_at = now() - interval '1 hour'")
            run(lake.catalog, "update frostline.former_lake_state set replaced_at = replaced_at - interval '10 days'")
            run(lake.catalog, "update frostline.lake_table set swept_at = now() - interval '2 days'")
            dead = Path(pointer(lake).location.removeprefix("file://")) / "data" / "dead.parquet"
            dead.touch()
            os.utime(dead, (0, 0))
            working.round()
            assert not dead.exists()
    finally:
        over.set()
        for thread in writers:
            thread.join()
    assert [number for (number,) in session.execute("select id from readings order by id")] == sorted(done)
    assert len(done) > 4
    assert set(refused) <= {"40001", "72000"}
    assert value(lake.catalog, "select count(*) >= 3 from frostline.job where kind = 'expire' and state = 'published'")
