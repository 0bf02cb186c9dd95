"""Sweep: what belongs to nothing goes, once it is old enough and surely ours. Nothing that is needed ever does."""

import json
import os
import random
import shutil
import time
import uuid
from pathlib import Path

import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import (
    EVERYTHING,
    JOBS,
    STATES,
    age,
    change,
    count_with_pyiceberg,
    expired,
    files,
    location,
    make_states,
    needed,
    snapshot_ids,
    swept,
)

from frostline.catalog import jobs, leases, pins
from frostline.catalog.connect import connect as open_connection
from frostline.errors import ConflictError, UsageError
from frostline.lake import paths
from frostline.pipeline import sweep, verify
from frostline.pipeline.sweep import Request, Result

pytestmark = pytest.mark.spark


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Two snapshots."""
    make_states(lake, folds=1)
    return lake


def folder(lake: Lake) -> Path:
    return Path(paths.table_location(lake.settings.warehouse, lake.table()).removeprefix("file://"))


def put(file: Path, *, days: float = 10, content: bytes = b"x") -> str:
    """A file that is so old."""
    file.write_bytes(content)
    then = time.time() - days * 86400
    os.utime(file, (then, then))
    return f"file://{file}"


def data_name(job: int) -> str:
    return f"data/job-{job}-{uuid.uuid4().hex}.parquet"


def metadata_name(job: int) -> str:
    commit = paths.commit_uuid(job)
    return random.choice(
        [
            f"metadata/00007-{commit}.metadata.json",
            f"metadata/{commit}-m0.avro",
            f"metadata/snap-{random.getrandbits(60)}-0-{commit}.avro",
        ]
    )


def job_ids(lake: Lake) -> list[int]:
    return [job_id for (job_id,) in rows(lake.catalog, "select job_id from frostline.job")]


def test_only_old_garbage_of_our_own_jobs_goes(events: Lake) -> None:
    """Garbage of every kind among the lake's own files, all of which are as old."""
    chosen = random.Random(20240115)
    random.seed(chosen.random())
    age(events)
    real, here = files(events), folder(events)
    goes = {
        put(here / name(job), content=bytes(chosen.randrange(1000)))
        for job in job_ids(events)
        for name in (data_name, metadata_name)
        for _ in range(chosen.randrange(2, 20))
    }
    others = {
        put(here / name(10**6 + chosen.randrange(10**6))) for name in (data_name, metadata_name) for _ in range(5)
    }
    strange = {put(here / f"{part}/{name}") for part in ("data", "metadata") for name in STRANGE}
    young = {put(here / name(job), days=2.9) for job in job_ids(events) for name in (data_name, metadata_name)}
    size = sum(Path(path.removeprefix("file://")).stat().st_size for path in goes)
    result = swept(events)
    assert files(events) == real | others | strange | young
    assert ({orphan.location for orphan in result.orphans}, result.size_bytes) == (goes, size)
    assert (result.left, set(result.unknown)) == (len(others), strange)
    last = jobs.last(events.catalog, events.table())
    assert last is not None
    assert (last.kind, last.state, last.size_bytes) == ("sweep", "published", size)
    assert verify.run(events.catalog, events.table()).faults == ()
    assert value(events.catalog, "select count(*) from public.events") == 100


STRANGE = (
    "notes.txt",
    "job-1-short.parquet",
    "part-0001.snappy.parquet",
    "version-hint.text",
    "a b.parquet",
    ".hidden",
)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_whatever_was_done_before_what_is_needed_stays(lake: Lake, seed: int) -> None:
    """Changes, expiries, pins and lost deletions in any order; then everything is old, and swept."""
    make_states(lake, folds=1)
    chosen, pinned = random.Random(seed), list[tuple[str, int]]()
    for _ in range(6):
        step = chosen.choice(["change", "change", "expire", "pin", "garbage"])
        match step:
            case "change":
                change(lake)
            case "expire":
                expired(lake)
            case "pin":
                pins.make(lake.catalog, lake.table(), location(lake), 600)
                pinned.append((location(lake), snapshot_ids(lake)[-1]))
            case _:
                put(folder(lake) / data_name(chosen.choice(job_ids(lake))))
    before = rows(lake.catalog, EVERYTHING)
    must, snapshots = needed(lake), snapshot_ids(lake)
    age(lake)
    swept(lake)
    assert files(lake) == must
    assert rows(lake.catalog, EVERYTHING) == before
    for state, snapshot in pinned:
        assert count_with_pyiceberg(state, snapshot) == 100
    assert [count_with_pyiceberg(location(lake), snapshot_id) for snapshot_id in snapshots] == [100] * len(snapshots)


@pytest.mark.slow
def test_what_an_expiry_could_not_delete_is_swept(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sweep.paths, "delete_each", lambda _: iter(()))
        expired(events)
    assert files(events) > needed(events)
    age(events)
    assert len(swept(events).orphans) >= 4
    assert files(events) == needed(events)


@pytest.mark.slow
@pytest.mark.parametrize("other_name", ["link", "slashes", "copy"])
def test_another_name_of_the_warehouse_makes_nothing_garbage(events: Lake, tmp_path: Path, other_name: str) -> None:
    for file in folder(events).rglob("*.*"):
        long_ago = time.time() - 10 * 86400
        os.utime(file, (long_ago, long_ago))
    another = tmp_path / "another"
    if other_name == "copy":
        shutil.copytree(events.warehouse, another)
    else:
        another.symlink_to(events.warehouse)
    named = f"/{events.warehouse}" if other_name == "slashes" else str(another)
    settings = events.settings.model_copy(update={"warehouse": named})
    for request in (Request(dry_run=True), Request(take_over=True)):
        (result,) = sweep.run(events.catalog, settings, [events.table()], request)
        assert isinstance(result.error, UsageError)
        assert "this database's warehouse is" in str(result.error)
    assert verify.run(events.catalog, events.table()).faults == ()


@pytest.mark.slow
def test_without_anything_to_delete_there_is_no_job(events: Lake) -> None:
    age(events)
    before = files(events)
    assert swept(events) == Result(events.table())
    assert (files(events), value(events.catalog, JOBS)) == (before, 0)


def test_a_dry_run_lists_and_deletes_nothing(events: Lake) -> None:
    job = job_ids(events)[0]
    garbage = put(folder(events) / data_name(job), days=5, content=b"12345")
    before = files(events)
    (orphan,) = swept(events, Request(dry_run=True)).orphans
    assert (orphan.location, orphan.size_bytes, orphan.age.days) == (garbage, 5, 5)
    assert swept(events, Request(older_than="6 days", dry_run=True)).orphans == ()
    put(folder(events) / data_name(job), days=1 / 86_400)  # the file system's clock may be a little behind ours
    assert len(swept(events, Request(older_than="0", dry_run=True)).orphans) == 2
    assert len(files(events)) == len(before) + 1
    assert value(events.catalog, JOBS) == 0


@pytest.mark.parametrize(
    ("age", "message"),
    first(
        2,
        [
            ("59 minutes", "is less than an hour"),
            ("0", "less"),
            ("soon", "not an interval"),
            ("-1 day", "not positive"),
        ],
    ),
)
def test_a_short_age_is_refused(lake: Lake, age: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sweep.run(lake.catalog, lake.settings, [], Request(older_than=age))


@pytest.mark.slow
def test_the_age_is_told_by_the_stores_clock(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose own clock is years ahead deletes nothing that is young."""
    monkeypatch.setattr(time, "time", lambda: 4e9)
    put_now = folder(events) / data_name(job_ids(events)[0])
    put_now.write_bytes(b"x")
    assert swept(events).orphans == ()
    assert not list(folder(events).rglob(".frostline-clock"))


@pytest.mark.slow
def test_files_of_another_history_are_left_until_they_are_taken_over(events: Lake) -> None:
    run(events.catalog, "update frostline.job set server = 'original'")
    run(events.catalog, "update frostline.own_history set server = 'original'")
    garbage = {put(folder(events) / data_name(job)) for job in job_ids(events)}
    assert (swept(events).orphans, swept(events).left) == ((), len(garbage))
    looked = swept(events, Request(take_over=True, dry_run=True))
    assert {orphan.location for orphan in looked.orphans} == garbage
    assert swept(events).orphans == (), "a dry run takes nothing over"
    assert {orphan.location for orphan in swept(events, Request(take_over=True)).orphans} == garbage
    assert rows(events.catalog, "select server = frostline.this_server() from frostline.own_history order by 1") == [
        (False,),
        (True,),
    ]


def test_it_waits_for_a_running_job(events: Lake) -> None:
    put(folder(events) / data_name(job_ids(events)[0]))
    before = files(events)
    with open_connection(events.dsn, purpose="tests") as worker, leases.held(worker, events.table()):
        (result,) = sweep.run(events.catalog, events.settings, [events.table()], Request())
    assert isinstance(result.error, ConflictError)
    assert files(events) == before


@pytest.mark.slow
def test_a_state_keeps_its_files_even_if_the_current_metadata_has_lost_it(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, snapshot = rows(events.catalog, STATES)[0][0], snapshot_ids(events)[0]
    with monkeypatch.context() as patched:
        patched.setattr(sweep.paths, "delete_each", lambda _: iter(()))
        expired(events)
    values = (events.table().id, old, snapshot)
    run(events.catalog, "insert into frostline.lake_state values (%s, %s, %s, 1, now(), now(), '3')", values)
    age(events)
    swept(events)
    assert snapshot not in snapshot_ids(events), "or this shows nothing"
    assert count_with_pyiceberg(old, snapshot) == 100


def test_the_command_counts_and_lists(events: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", events.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(events.warehouse))
    garbage = put(folder(events) / data_name(job_ids(events)[0]), content=b"123")
    foreign = put(folder(events) / data_name(10**6))
    strange = put(folder(events) / "data/notes.txt")
    said = command("sweep", "--dry-run", "--output", "json")
    (listed,) = json.loads(said.stdout)
    assert (listed["path"], listed["size_bytes"], listed["age_s"] // 86400) == (garbage, 3, 10)
    said = command("sweep", "events", "--older-than", "2 days", "--output", "json")
    assert json.loads(said.stdout) == [
        {"table": "public.events", "files": 1, "size_bytes": 3, "left_files": 1, "unknown_files": 1, "error": None}
    ]
    assert "1 files of another lineage were left" in said.stderr
    assert f"{strange} is not Frostline's" in said.stderr
    assert files(events) >= {foreign, strange}
    assert command("sweep", "--older-than", "1 minute").exit_code == 2
