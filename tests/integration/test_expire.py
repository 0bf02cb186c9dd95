"""Expiry: a state of the lake goes only when nobody can read it, and its files only when nothing else needs them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import (
    EVERYTHING,
    JOBS,
    STATES,
    change,
    count_with_duckdb,
    count_with_pyiceberg,
    expired,
    files,
    forget,
    location,
    make_states,
    needed,
    snapshot_ids,
)

from frostline.catalog import jobs, pins, seams
from frostline.errors import UnavailableError
from frostline.lake import expected, paths, snapshots
from frostline.pipeline import expire, verify
from frostline.relation import bound
from frostline.server.provider import CatalogTables

pytestmark = pytest.mark.spark


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Three snapshots, of which nobody needs the first two."""
    make_states(lake)
    return lake


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def test_what_nobody_needs_goes_and_everybody_reads_the_same(events: Lake, tmp_path: Path) -> None:
    before, seam, had = rows(events.catalog, EVERYTHING), seams.get(events.catalog, events.table()), files(events)
    would = expired(events, dry_run=True)
    assert (files(events), value(events.catalog, JOBS)) == (had, 0)
    result = expired(events)
    assert result == would
    assert (result.snapshots, result.files > 6, result.left, result.waiting) == (2, True, 0, ())
    now = seams.get(events.catalog, events.table())
    assert (now.frost_line, now.snapshot_id) == (seam.frost_line, seam.snapshot_id)
    assert now.metadata_location == location(events) != seam.metadata_location
    assert snapshot_ids(events) == [seam.snapshot_id]
    assert files(events) == needed(events)
    assert len(had - files(events)) == result.files
    assert [(seam.metadata_location,), (location(events),)] == rows(events.catalog, STATES)
    log = snapshots.read_metadata(location(events)).metadata_log
    assert [entry.metadata_file for entry in log] == [seam.metadata_location]
    assert rows(events.catalog, EVERYTHING) == before
    assert count_with_pyiceberg(location(events)) == count_with_duckdb(location(events), tmp_path) == 100
    assert verify.run(events.catalog, events.table()).faults == ()


@pytest.mark.slow
def test_without_anything_to_do_there_is_no_commit_and_no_job(events: Lake) -> None:
    expired(events)
    before = (seams.get(events.catalog, events.table()), rows(events.catalog, STATES), files(events))
    for _ in range(2):
        assert expired(events).snapshots == 0
    assert (seams.get(events.catalog, events.table()), rows(events.catalog, STATES), files(events)) == before
    assert value(events.catalog, JOBS) == 1
    change(events)
    assert expired(events).snapshots == 1, "and it goes on when there is something again"
    assert files(events) == needed(events)


def test_a_table_without_a_lake_is_left_alone(lake: Lake) -> None:
    run(lake.catalog, "create table public.events (id int, k int, primary key (id, k)) partition by range (k)")
    lake.add(hot="10")
    assert expired(lake) == expire.Result(lake.table())


def test_it_keeps_what_the_policy_keeps(events: Lake) -> None:
    run(events.catalog, "update frostline.managed_table set snapshot_retention = '1 hour'")
    assert expired(events) == expire.Result(events.table())
    run(events.catalog, "update frostline.lake_state set replaced_at = replaced_at - interval '2 hours'"
        " where snapshot_id = %s", (snapshot_ids(events)[0],))  # fmt: skip
    first, second, third = snapshot_ids(events)
    assert expired(events).snapshots == 1
    assert snapshot_ids(events) == [second, third]
    assert first not in snapshot_ids(events)
    assert count_with_pyiceberg(location(events), second) == 100, "time travel to a snapshot that was kept"
    assert files(events) == needed(events)


def test_a_transaction_goes_on_reading_its_old_state(events: Lake, other: psycopg.Connection) -> None:
    """What came before it goes, also in the same run; the server reads its state anew from files that are there."""
    other.execute("begin isolation level repeatable read")
    before = rows(other, EVERYTHING)
    for _ in range(2):
        change(events)
        result = expired(events)
        assert f"still open: {other.info.backend_pid}" in " ".join(result.waiting)
        assert rows(other, EVERYTHING) == before
    assert len(snapshot_ids(events)) == 3, "its own, and what came after it"
    other.execute("commit")
    assert rows(other, EVERYTHING) != before
    assert expired(events).snapshots == 2
    assert files(events) == needed(events)


def test_a_transaction_that_has_only_a_snapshot_yet_counts_too(events: Lake, other: psycopg.Connection) -> None:
    before = rows(events.catalog, EVERYTHING)
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pg_catalog.pg_class limit 1")
    change(events)
    expired(events)
    assert rows(other, EVERYTHING) == before


@pytest.mark.slow
def test_an_open_cursor_on_the_seam_does_not_hold_it_up(
    events: Lake, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the seam's page in use, for which VACUUM would wait; without a standby nothing depends on that."""
    monkeypatch.setattr(bound, "_STANDBY_PATIENCE_S", 1)
    run(events.catalog, "insert into frostline.managed_table (schema_name, table_name, tier_key, tier_kind, lake_partition,"
        " hot_span, grace_period) values ('s', 't', 'k', 'bigint', 'truncate[1]', 1, '0')")  # fmt: skip
    run(events.catalog, "insert into frostline.seam (table_id, line_integer) select max(table_id), 1 from"
        " frostline.managed_table")  # fmt: skip
    run(other, "begin; declare c cursor for select * from frostline.seam; fetch 1 from c")
    with ThreadPoolExecutor(1) as pool:
        expiring = pool.submit(expired, events)
        try:
            assert expiring.result(timeout=60).snapshots == 2
        finally:
            other.execute("rollback")


@pytest.mark.slow
def test_xids_of_another_server_count_from_now(events: Lake, other: psycopg.Connection) -> None:
    run(events.catalog, "update frostline.lake_state set replaced_xid = '9000000000' where replaced_xid is not null")
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pg_catalog.pg_class limit 1")
    assert expired(events).snapshots == 0
    other.execute("commit")
    assert expired(events).snapshots == 2


@pytest.mark.slow
def test_states_from_before_the_catalog_knew_them_begin_their_time_now(events: Lake) -> None:
    run(events.catalog, "update frostline.managed_table set snapshot_retention = '1 hour'")
    run(events.catalog, "delete from frostline.lake_state where replaced_at is not null")
    first, *_ = snapshots.read_metadata(location(events)).metadata_log
    paths.delete(first.metadata_file)
    assert expired(events).snapshots == 0
    known = rows(
        events.catalog, "select snapshot_id from frostline.lake_state where replaced_at is not null order by 1"
    )
    assert set(known) >= {(snapshot_id,) for snapshot_id in snapshot_ids(events)[:-1]}
    run(events.catalog, "update frostline.lake_state set replaced_at = replaced_at - interval '2 hours'")
    assert expired(events).snapshots == 2
    assert files(events) == needed(events)


@pytest.mark.slow
def test_a_snapshot_that_a_tag_names_is_kept(events: Lake) -> None:
    """Another engine may have put one there."""
    first = snapshot_ids(events)[0]
    where = Path(location(events).removeprefix("file://"))
    content = json.loads(where.read_text())
    content["refs"]["audit"] = {"snapshot-id": first, "type": "tag"}
    where.write_text(json.dumps(content))
    run(events.catalog, "delete from frostline.file_checksum where path = %s", [location(events)])
    expected._known.pop(location(events))
    forget()
    assert expired(events).snapshots == 1
    assert first in snapshot_ids(events)
    assert count_with_pyiceberg(location(events), first) == 100


@pytest.mark.slow
def test_nothing_goes_while_a_file_that_stays_cannot_be_read(events: Lake) -> None:
    """Nobody knows then what it needs."""
    snapshot = snapshots.read_metadata(location(events)).current_snapshot()
    assert snapshot
    hidden = Path(snapshot.manifest_list.removeprefix("file://"))
    hidden.rename(hidden.with_suffix(".away"))
    forget()
    before = files(events)
    (result,) = expire.run(events.catalog, events.settings, [events.table()])
    assert isinstance(result.error, UnavailableError)
    assert files(events) == before
    assert len(snapshot_ids(events)) == 3
    hidden.with_suffix(".away").rename(hidden)
    assert expired(events).snapshots == 2


@pytest.mark.slow
def test_a_snapshot_whose_files_are_long_gone_goes(events: Lake) -> None:
    """As in a restored database whose original has expired it."""
    first = snapshots.find(location(events), snapshot_ids(events)[0])
    paths.delete(first.manifest_list)
    forget()
    assert expired(events).snapshots == 2
    assert verify.run(events.catalog, events.table()).faults == ()


@pytest.mark.slow
def test_files_of_another_history_are_left(events: Lake) -> None:
    run(events.catalog, "update frostline.job set server = 'another/1/2/3' where kind = 'archive'")
    before = files(events)
    result = expired(events)
    assert (result.snapshots, result.left > 0, result.files > 0) == (2, True, True)
    (job,) = rows(events.catalog, "select job_id from frostline.job where kind = 'archive'")
    assert {written for written in before if paths.job_of(written) == job[0]} <= files(events)
    last = jobs.last(events.catalog, events.table())
    assert last is not None
    assert f"{result.left} left" in value(events.catalog, "select detail from frostline.job where kind = 'expire'")


@pytest.mark.slow
def test_own_history_of_a_copy_says_nothing(events: Lake) -> None:
    """A restored table names the original, and not the copy: then only the copy's own jobs are its own."""
    run(events.catalog, "update frostline.job set server = 'original'")
    run(events.catalog, "update frostline.own_history set server = 'original'")
    before = files(events)
    result = expired(events)
    assert (result.snapshots, result.files) == (2, 0)
    assert before <= files(events)


@pytest.mark.slow
def test_the_lake_server_finds_a_snapshot_whose_metadata_file_has_gone(events: Lake) -> None:
    """The same snapshot is in several states; the server remembers the first that it met."""
    served, table, third = CatalogTables(events.dsn), events.table(), snapshot_ids(events)[-1]
    files_there = served.files(table.id, third)
    old = location(events)
    expired(events)
    with pins.held(events.dsn, table, location(events)):
        change(events)
        change(events)
        assert expired(events).snapshots == 1
        assert paths.size_bytes(old) is None, "or this shows nothing"
        assert served.files(table.id, third) == files_there


@pytest.mark.slow
def test_a_failure_to_delete_is_told_and_loses_nothing(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> Iterator[str]:
        raise OSError("the store is away")
        yield ""

    before = rows(events.catalog, EVERYTHING)
    monkeypatch.setattr(expire.paths, "delete_each", full)
    (result,) = expire.run(events.catalog, events.settings, [events.table()])
    assert isinstance(result.error, UnavailableError)
    assert len(snapshot_ids(events)) == 1
    forget()
    assert rows(events.catalog, EVERYTHING) == before
    assert value(events.catalog, "select state from frostline.job where kind = 'expire'") == "published"


def test_the_command_says_what_went_and_what_waits(
    events: Lake, other: psycopg.Connection, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", events.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(events.warehouse))
    other.execute("begin isolation level repeatable read")
    rows(other, EVERYTHING)
    change(events)
    said = command("expire", "--dry-run", "--output", "json")
    (would,) = json.loads(said.stdout)
    assert (said.exit_code, would["snapshots"], len(snapshot_ids(events))) == (0, 2, 4)
    said = command("expire", "events", "--output", "json")
    (did,) = json.loads(said.stdout)
    assert did == would
    assert str(other.info.backend_pid) in did["waits"][0]
    assert command("expire", "nosuch").exit_code == 2
