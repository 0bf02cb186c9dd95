"""`frostline jobs`: the history of the tables."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.fixtures.command import Command
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.catalog import archived_partitions, jobs
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.relation import removal

Listed = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def history(
    catalog: Connection, add: Callable[..., Table], database: str, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Two tables; of `events` a published job and a failed one, of `Visits` one that runs."""
    monkeypatch.setenv("FROSTLINE_DSN", database)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "/nowhere")
    for name in ("public.events", 'public."Visits"'):
        make_events(catalog, name.replace('"Visits"', "visits"))
    run(catalog, 'alter table public.visits rename to "Visits"')
    events, visits = add("public.events"), add('public."Visits"')
    ids = [
        jobs.start(catalog, table, kind, 0, 1)
        for table, kind in ((events, "archive"), (events, "fold"), (visits, "thaw"))
    ]
    jobs.advance(catalog, ids[0], State.PUBLISHED, rows=12, size_bytes=3456)
    jobs.describe(catalog, ids[0], "what it did")
    jobs.fail(catalog, ids[1], "no room in postgresql://me:secret@host/db")
    run(
        catalog,
        "update frostline.job set ended_at = started_at + interval '90.5 s' where job_id = any(%s)",
        (ids[:2],),
    )
    return ids


@pytest.fixture
def listed(command: Command, history: list[int]) -> Listed:
    """Runs `frostline jobs` with JSON output."""

    def call(*words: object) -> list[dict[str, Any]]:
        said = command("jobs", *words, "--output", "json")
        assert said.exit_code == 0, said.stderr
        return json.loads(said.stdout)

    return call


def test_the_newest_job_comes_first(listed: Listed, history: list[int]) -> None:
    running, failed, published = listed()
    assert [record["id"] for record in (running, failed, published)] == history[::-1]
    assert (running["table"], running["kind"], running["state"]) == ('public."Visits"', "thaw", "planned")
    assert running["duration_s"] >= 0
    started = published.pop("started")
    assert started.endswith("+0000")
    assert published == {
        "id": history[0],
        "table": "public.events",
        "kind": "archive",
        "state": "published",
        "rows": 12,
        "size_bytes": 3456,
        "duration_s": 90.5,
        "detail": "what it did",
        "error": None,
    }


def test_a_failed_job_says_why_and_no_password(listed: Listed, history: list[int]) -> None:
    (failed,) = listed("--failed")
    assert (failed["id"], failed["state"], failed["duration_s"]) == (history[1], "failed", 90.5)
    assert failed["error"] == "no room in postgresql://me:***@host/db"


def test_one_table_and_not_more_than_asked_for(listed: Listed, history: list[int]) -> None:
    assert [record["id"] for record in listed("events")] == [history[1], history[0]]
    assert [record["id"] for record in listed("events", "--limit", 1)] == [history[1]]
    assert [record["id"] for record in listed('"Visits"')] == [history[2]]
    assert listed('"Visits"', "--failed") == []


@pytest.mark.slow
def test_a_job_that_was_cleaned_later_took_no_longer_for_it(
    listed: Listed, history: list[int], catalog: Connection, add: Callable[..., Table]
) -> None:
    events = add("public.events")
    archived_partitions.record(catalog, events, history[0], Name("public", "events_1"), None, 1)
    archived_partitions.set_cleaned(catalog, events, 1)
    (cleaned,) = [record for record in listed() if record["id"] == history[0]]
    assert (cleaned["state"], cleaned["duration_s"]) == ("cleaned", 90.5)


@pytest.mark.slow
def test_the_jobs_of_a_removed_table_stay_under_its_name(
    listed: Listed, history: list[int], catalog: Connection, command: Command
) -> None:
    removal.remove(catalog, Name("public", "events"), keep_lake=True)
    assert [record["id"] for record in listed()] == history[::-1]
    assert [(record["id"], record["table"]) for record in listed("events")] == [
        (history[1], "public.events"),
        (history[0], "public.events"),
    ]
    assert [record["id"] for record in listed("events", "--failed")] == [history[1]]


@pytest.mark.slow
def test_a_table_that_is_managed_again_has_its_old_jobs_and_begins_without_failures(
    listed: Listed, history: list[int], catalog: Connection, add: Callable[..., Table]
) -> None:
    removal.remove(catalog, Name("public", "events"), keep_lake=True)
    again = add("public.events")
    job = jobs.start(catalog, again, "archive", 0, 1)
    assert [record["id"] for record in listed("events")] == [job, history[1], history[0]]
    assert jobs.failures(catalog, again) == {}
    assert jobs.untidied(catalog, again) == []


def test_an_interrupted_job_is_no_failure_but_leaves_its_files_to_the_next(
    listed: Listed, history: list[int], catalog: Connection, add: Callable[..., Table]
) -> None:
    events = add("public.events")
    job = jobs.start(catalog, events, "archive", 0, 1)
    jobs.fail(catalog, job, jobs.STOPPED, interrupted=True)
    assert (listed()[0]["id"], listed()[0]["state"]) == (job, "interrupted")
    assert [record["id"] for record in listed("--failed")] == [history[1]]
    assert list(jobs.failures(catalog, events)) == ["fold"]
    assert [(total.failed, total.done) for total in jobs.totals(catalog) if total.kind == "archive"] == [(0, 1)]
    assert jobs.untidied(catalog, events) == [history[1], job]
    last = jobs.last(catalog, events)
    assert last
    assert last.state is State.INTERRUPTED


def test_a_table_that_is_not_managed_and_a_wrong_limit_are_refused(command: Command, history: list[int]) -> None:
    for words, named in ((("nosuch",), "nosuch"), (("--limit", "0"), "0"), (("--limit", "many"), "many")):
        said = command("jobs", *words)
        assert (said.exit_code, said.stdout) == (2, "")
        assert named in said.stderr.splitlines()[0]


def test_people_get_a_table(command: Command, history: list[int]) -> None:
    said = command("jobs")
    head, *lines = said.stdout.splitlines()
    assert head.split() == [
        "id",
        "table",
        "kind",
        "state",
        "rows",
        "size",
        "started",
        "duration",
        "s",
        "detail",
        "error",
    ]
    assert len(lines) == 3
    assert "3.46 kB" in lines[2]
