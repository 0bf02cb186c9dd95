"""The worker: rounds on real tables, failures, who leads, and how the process stops."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until, until_noticed

from frostline.catalog import jobs, leases
from frostline.catalog.connect import connect
from frostline.errors import ConflictError
from frostline.failpoints import Failpoint
from frostline.model.names import Name
from frostline.model.work import Action, Kind
from frostline.observe import status, survey
from frostline.observe.metrics.worker import families
from frostline.pipeline.job import JobContext
from frostline.runtime.postgres import free_port
from frostline.runtime.worker import ACTIONS, Worker

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.{} e"
PATIENCE_S = 120.0


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Six months of rows, registered and not archived."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add()
    return lake


def worker(lake: Lake, stop: threading.Event | None = None) -> Worker:
    return Worker(JobContext(lake.catalog, lake.settings, lake.session), stop or threading.Event())


def kinds(lake: Lake) -> list[str]:
    """The jobs that did their work, in order."""
    rows = lake.catalog.execute("select kind from frostline.job where state <> 'failed' order by job_id").fetchall()
    return [kind for (kind,) in rows]


def wait_for(lake: Lake, query: str, process: subprocess.Popen[str] | None = None) -> None:
    """Until the query says true; an error if the process ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while not lake.value(query):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, query
        time.sleep(0.05)


def test_a_round_does_all_that_is_due_and_the_next_ones_find_nothing(events: Lake) -> None:
    before = events.value(EVERYTHING.format("events"))
    first = [action.kind for action in worker(events).round()]
    assert first == [Kind.PREMAKE, Kind.ARCHIVE]
    assert worker(events).round() == []
    run(events.catalog, "update frostline.managed_table set swept_at = now() - interval '1 day'")
    assert [action.kind for action in worker(events).round()] == [Kind.SWEEP]
    assert worker(events).round() == []
    assert events.value(EVERYTHING.format("events")) == before
    assert events.value(
        "select frost_line is not null from (select line_timestamptz as frost_line from frostline.seam) s"
    )
    assert kinds(events) == ["premake", "archive"]


@pytest.mark.slow
def test_changes_that_block_a_clean_are_folded_and_then_cleaned(events: Lake) -> None:
    run(events.catalog, "update frostline.managed_table set grace_period = '10 years'")
    worker(events).round()
    run(events.catalog, "update frostline.managed_table set grace_period = '0'")
    with events.connect() as application:
        application.execute("update public.events set status = 'changed' where id in (1, 600)")
    before = events.value(EVERYTHING.format("events"))
    assert [action.kind for action in worker(events).round()] == [Kind.FOLD, Kind.CLEAN]
    assert worker(events).round() == []
    assert value(events.catalog, "select count(*) from frostline.archived_partition where cleaned_at is null") == 0
    assert events.value(EVERYTHING.format("events")) == before


@pytest.mark.slow
def test_one_table_that_fails_waits_longer_each_time_and_the_others_go_on(events: Lake) -> None:
    make_events(events.catalog, "public.broken", months=1)
    run(events.catalog, "insert into public.broken (ts, amount) values ('2024-01-05', 'NaN')")
    events.add("broken")
    first = worker(events)
    first.round()
    assert events.value("select count(*) from frostline.lake_file") == 6
    failed = jobs.failures(events.catalog, events.table("broken"))[Kind.ARCHIVE]
    assert (failed.count, "'amount' has 1 values" in failed.error) == (1, True)
    assert Name.parse("broken") not in [action.name for action in first.round() if action.kind is Kind.ARCHIVE]
    run(events.catalog, "update frostline.job set changed_at = changed_at - interval '31 s' where state = 'failed'")
    first.round()
    assert jobs.failures(events.catalog, events.table("broken"))[Kind.ARCHIVE].count == 2
    run(events.catalog, "delete from public.broken")
    run(events.catalog, "update frostline.job set changed_at = changed_at - interval '1 hour' where state = 'failed'")
    first.round()
    assert jobs.failures(events.catalog, events.table("broken")) == {}


def test_an_error_before_the_job_began_is_written_down_too(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = events.settings.model_copy(update={"warehouse": "/proc/nowhere"})
    Worker(JobContext(events.catalog, settings, events.session), threading.Event()).round()
    assert jobs.failures(events.catalog, events.table())[Kind.ARCHIVE].count == 1

    def explode(*_: Any) -> bool:
        raise RuntimeError("boom\nmore")

    monkeypatch.setitem(cast(dict[Kind, Any], ACTIONS), Kind.PREMAKE, explode)
    run(events.catalog, "drop table public.events_6")
    run(events.catalog, "update frostline.managed_table set premake = 9")
    worker(events).round()
    assert jobs.failures(events.catalog, events.table())[Kind.PREMAKE].error == "unexpected RuntimeError: boom more"


@pytest.mark.slow
def test_a_table_whose_heap_is_lost_does_not_stop_the_others(events: Lake) -> None:
    make_events(events.catalog, "public.lost", months=1)
    events.add("lost")
    run(events.catalog, "alter table public._lost rename to somewhere")
    assert Kind.ARCHIVE in [action.kind for action in worker(events).round()]
    assert events.value("select count(*) from frostline.lake_file") == 6


def test_a_statement_that_is_cancelled_is_a_failure_and_no_reason_to_begin_anew(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_too_long(tools: JobContext, _: Any) -> bool:
        with tools.connection.transaction():
            tools.connection.execute("set local statement_timeout = '10ms'")
            tools.connection.execute("select pg_sleep(10)")
        return True

    monkeypatch.setitem(cast(dict[Kind, Any], ACTIONS), Kind.PREMAKE, take_too_long)
    assert [action.kind for action in worker(events).round()] == [Kind.PREMAKE, Kind.ARCHIVE]
    assert "a statement was cancelled" in jobs.failures(events.catalog, events.table())[Kind.PREMAKE].error
    assert kinds(events) == ["archive"]


@pytest.mark.slow
def test_somebody_who_rewrites_a_partition_for_hours_stops_neither_worker_nor_status(events: Lake) -> None:
    make_events(events.catalog, "public.other", months=1)
    events.add("other")
    with events.connect() as somebody, somebody.transaction():
        somebody.execute("lock table public.events_1 in access exclusive mode")
        assert len(survey.list_all(events.catalog)) == 2
        shown = status.read(events.catalog)
    assert [str(table.table.name) for table in shown.tables] == ["public.other"]
    assert "public.events cannot be read: canceling statement due to lock timeout" in shown.problems[0].what
    assert len(status.read(events.catalog).tables) == 2


def test_a_leased_table_is_left_alone(events: Lake) -> None:
    with connect(events.dsn, purpose="other") as other, leases.held(other, events.table()):
        assert worker(events).round() == []
        (state,) = survey.list_all(events.catalog)
        assert state.leased_by is not None
        late = worker(events)
        late.perform(Action(Kind.ARCHIVE, Name.parse("events"), "decided before somebody took the lease"))
        assert (Kind.ARCHIVE, Name.parse("events")) in late.tries
    assert jobs.failures(events.catalog, events.table()) == {}


def test_it_stops_between_two_actions(events: Lake) -> None:
    stop = threading.Event()
    stop.set()
    assert worker(events, stop).round() == []
    assert kinds(events) == []


def test_one_of_two_workers_leads_and_the_other_takes_over(events: Lake) -> None:
    with connect(events.dsn, purpose="one") as first, connect(events.dsn, purpose="two") as two:
        with leases.leading(first) as leadership:
            assert leases.still_leads(first, leadership)
            with pytest.raises(ConflictError, match="another worker leads: process"), leases.leading(two):
                pass
        with leases.leading(two):
            assert leases.leader(events.catalog) is not None
            two.close()
            wait_for(
                events, "select not exists (select from pg_stat_activity where application_name = 'frostline two')"
            )
            assert leases.leader(events.catalog) is None
            with leases.leading(first):
                pass


def test_a_leader_that_was_paused_learns_that_it_leads_no_more(events: Lake) -> None:
    with connect(events.dsn, purpose="one") as first, connect(events.dsn, purpose="two") as two:
        with leases.leading(first, 60) as leadership:
            run(events.catalog, "update frostline.leader set expires_at = now() - interval '1 s'")
            with leases.leading(two):
                assert not leases.still_leads(first, leadership)
            rounds: list[int] = []
            running = Worker(JobContext(first, events.settings, events.session), threading.Event())
            running.lead(lambda: bool(rounds.append(1)) or leases.still_leads(first, leadership))
        assert rounds == [1]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(events: Lake) -> Iterator[Start]:
    """`frostline run` as a process, with the run's own Java."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*words: str, **settings: Any) -> subprocess.Popen[str]:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("FROSTLINE_")}
        chosen = {"dsn": events.dsn, "warehouse": events.settings.warehouse, "lake_port": events.settings.lake_port}
        chosen |= {"worker_interval_s": 0.2, **settings}
        environment |= {f"FROSTLINE_{name.upper()}": str(setting) for name, setting in chosen.items()}
        command = [sys.executable, "-m", "frostline.cli.main", "run", *words]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(command, env=environment, text=True, **pipes)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready worker\n"
    return process


@pytest.mark.slow
def test_the_process_works_until_it_is_told_to_stop(events: Lake, start: Start) -> None:
    before = events.value(EVERYTHING.format("events"))
    port = free_port()
    process = ready(start(metrics_port=port))
    wait_for(events, "select count(*) = 6 from frostline.lake_file", process)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    assert 'frostline_jobs_total{table="public.events",kind="archive"} 1' in lines
    assert 'frostline_table_files{table="public.events"} 6' in lines
    assert "frostline_worker_leads 1" in lines
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert leases.leader(events.catalog) is None
    assert events.value(EVERYTHING.format("events")) == before


def test_the_page_describes_every_metric(events: Lake) -> None:
    worker(events).round()
    file = Path(__file__).parents[2] / "docs/reference/metrics.md"
    page = file.read_text(encoding="utf-8").partition("## Tables and jobs")[2]
    described = dict(re.findall(r"^\| `(frostline_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert described == {family.name: family.kind.value for family in families(events.catalog)}


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(events: Lake, start: Start) -> None:
    before = events.value(EVERYTHING.format("events"))
    with events.connect() as writer, writer.transaction():
        writer.execute("insert into public._events (ts) values ('2024-01-15')")  # capture waits for this
        process = ready(start())
        wait_for(events, "select exists (select from frostline.job where kind = 'archive')", process)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        until(lambda: _told_again(process))
        assert process.returncode == 130
        raise psycopg.Rollback
    assert events.value(EVERYTHING.format("events")) == before
    assert [done.kind for done in worker(events).round()][-1] is Kind.ARCHIVE
    assert events.value(EVERYTHING.format("events")) == before


def _told_again(process: "subprocess.Popen[str]") -> bool:
    """Send one signal more, and say whether that was the end: a busy machine may deliver the first two as one."""
    process.send_signal(signal.SIGTERM)
    return process.poll() is not None


@pytest.mark.slow
def test_a_step_that_does_not_end_is_abandoned(events: Lake, start: Start) -> None:
    before = events.value(EVERYTHING.format("events"))
    with events.connect() as writer, writer.transaction():
        writer.execute("insert into public._events (ts) values ('2024-01-15')")  # capture waits for this, for a minute
        process = ready(start())
        wait_for(events, "select exists (select from frostline.job where kind = 'archive')", process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=55)
        assert (process.returncode, "the current step was abandoned" in said) == (0, True), said
        raise psycopg.Rollback
    assert leases.leader(events.catalog) is None
    assert leases.current_holder(events.catalog, events.table()) is None
    assert events.value(EVERYTHING.format("events")) == before


@pytest.mark.slow
def test_it_ends_with_its_parent(start: Start) -> None:
    process = ready(start("--with-parent"))
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(60) == 0


@pytest.mark.slow
def test_it_waits_for_a_postgres_that_restarts(events: Lake, start: Start) -> None:
    process = ready(start())
    wait_for(events, "select exists (select from frostline.leader where holder is not null)", process)
    run(
        events.catalog,
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name in ('frostline worker', 'frostline lease') and datname = current_database()",
    )
    wait_for(events, "select epoch > 1 from frostline.leader", process)
    wait_for(events, "select count(*) = 6 from frostline.lake_file", process)


@pytest.mark.parametrize("place", [Failpoint.WORKER_BEFORE_ACTION, Failpoint.WORKER_AFTER_ACTION])
@pytest.mark.slow
def test_killed_around_an_action_the_next_worker_goes_on(events: Lake, start: Start, place: Failpoint) -> None:
    before = events.value(EVERYTHING.format("events"))
    process = start(failpoint=place.value)
    assert process.wait(60) == -signal.SIGKILL
    until_noticed(events.catalog)
    for _ in range(3):
        worker(events).round()
    assert events.value(EVERYTHING.format("events")) == before
    assert events.value("select count(*) from frostline.lake_file") == 6
