"""One job a table at a time, and a worker that was paused for too long publishes nothing."""

import os
import signal
import time
from contextlib import ExitStack
from typing import Any

import pytest
from tests.fixtures import killed
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until_true

from frostline.catalog import jobs, lake_files, leases, seams
from frostline.catalog.connect import connect
from frostline.errors import ConflictError
from frostline.failpoints import PAUSE, Failpoint

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.events e"
UNTIL_RUN_OUT = (
    "select pg_sleep(greatest(0, extract(epoch from expires_at - clock_timestamp())) + 0.1) from frostline.lease"
)


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Six months of rows, registered and not archived."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add()
    return lake


def epoch(lake: Lake) -> int:
    current = value(lake.catalog, "select epoch from frostline.lease")
    assert isinstance(current, int)
    return current


def test_a_second_job_is_refused_and_told_who_runs(events: Lake) -> None:
    refused = pytest.raises(ConflictError, match=r"another job is running on public.events: process \d+ on ")
    with connect(events.dsn, purpose="other") as other, leases.held(other, events.table()), refused:
        events.clean()
    assert events.clean().waiting == ()


def test_a_lease_ends_with_its_session(events: Lake) -> None:
    with connect(events.dsn, purpose="other") as other, leases.held(other, events.table()):
        other.close()
        until_true(
            events.catalog,
            "select not exists (select from pg_stat_activity where application_name = 'frostline other')",
        )
        assert events.clean().waiting == ()
    assert epoch(events) == 2


def test_a_lease_is_renewed_while_it_is_held(events: Lake) -> None:
    with leases.held(events.catalog, events.table(), 6):
        first = value(events.catalog, "select expires_at from frostline.lease")
        until_true(events.catalog, "select expires_at > %s from frostline.lease", [first])
        with events.catalog.transaction():
            leases.require(events.catalog, events.table())


@pytest.mark.slow
def test_a_lease_that_ran_out_is_not_renewed(events: Lake) -> None:
    with leases.held(events.catalog, events.table(), 0.6):
        run(events.catalog, "update frostline.lease set expires_at = clock_timestamp()")
        time.sleep(1)
        with pytest.raises(ConflictError, match="lost its lease"):
            leases.require(events.catalog, events.table())


@pytest.mark.slow
def test_a_transaction_may_be_longer_than_the_lease(events: Lake) -> None:
    """The renewal waits for the row that the holder has locked, and must count from when it gets it."""
    with leases.held(events.catalog, events.table(), 3):
        with events.catalog.transaction():
            leases.require(events.catalog, events.table())
            run(events.catalog, UNTIL_RUN_OUT)
        until_true(events.catalog, "select expires_at > clock_timestamp() from frostline.lease")
        with events.catalog.transaction():
            leases.require(events.catalog, events.table())


def test_nobody_takes_a_lease_over_while_its_holder_publishes(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_beat", lambda *_: None)
    table = events.table()
    other = connect(events.dsn, purpose="other")
    with other, leases.held(events.catalog, table, 3), events.catalog.transaction():
        leases.require(events.catalog, table)
        run(events.catalog, UNTIL_RUN_OUT)
        refused = pytest.raises(ConflictError, match="another job is running")
        with refused, leases.held(other, table):
            pytest.fail("two hold it")


@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_that_was_paused_cannot_publish(events: Lake) -> None:
    before = events.value(EVERYTHING)
    worker = killed.start(events, "archive", failpoint=Failpoint.ARCHIVE_RAISED_BOUND + PAUSE)
    try:
        os.waitpid(worker.pid, os.WUNTRACED)  # it stands still just before it publishes
        run(events.catalog, "update frostline.lease set expires_at = clock_timestamp()")  # and for very long
        (result,) = events.archive()
        assert result.error is None
        published = seams.get(events.catalog, events.table()), lake_files.recorded(events.catalog, events.table())
        worker.send_signal(signal.SIGCONT)
        said, _ = worker.communicate(timeout=120)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == 1
    assert "lost its lease of public.events" in said
    assert events.value("select state from frostline.job order by job_id limit 1") == "failed"
    assert (seams.get(events.catalog, events.table()), lake_files.recorded(events.catalog, events.table())) == published
    assert events.value(EVERYTHING) == before
    assert epoch(events) == 2


def test_a_job_that_was_called_failed_stays_failed(events: Lake) -> None:
    """Its files may be gone already."""
    job = jobs.start(events.catalog, events.table(), "fold", 0, 0)
    jobs.fail(events.catalog, job, "somebody else says so")
    with pytest.raises(ConflictError, match=f"job {job} was abandoned"):
        jobs.advance(events.catalog, job, jobs.State.PUBLISHED)


def test_a_worker_that_lost_its_lease_at_once_leaves_the_next_ones_job_alone(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_beat", lambda *_: None)
    late, other = connect(events.dsn, purpose="late"), connect(events.dsn, purpose="other")
    take = leases._take  # pyright: ignore[reportPrivateUsage]

    def paused(connection: leases.Connection, *rest: Any) -> int | None:
        epoch = take(connection, *rest)
        if connection is late:
            run(other, "update frostline.lease set expires_at = clock_timestamp()")
            stack.enter_context(jobs.exclusive(other, events.table()))
            jobs.start(other, events.table(), "fold", 0, 0)
        return epoch

    monkeypatch.setattr(leases, "_take", paused)
    with late, other, ExitStack() as stack:
        refused = pytest.raises(ConflictError, match="lost its lease")
        with refused, jobs.exclusive(late, events.table()):
            pytest.fail("two hold it")
        assert events.value("select state from frostline.job") == "planned"


@pytest.mark.spark
@pytest.mark.slow
def test_two_workers_at_once_publish_each_range_once(events: Lake) -> None:
    before = events.value(EVERYTHING)
    workers = [killed.start(events, "archive") for _ in range(2)]
    said = [worker.communicate(timeout=240)[0] for worker in workers]
    codes = sorted(worker.returncode for worker in workers)
    assert codes in ([0, 0], [0, 1]), said
    assert events.value(EVERYTHING) == before
    assert events.value("select count(*) from frostline.job where state in ('published', 'cleaned')") == 1
    assert len(events.data_files()) == 6
