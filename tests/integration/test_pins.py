"""Pins: a reader outside Postgres keeps the state that it reads, whatever upkeep does, until it ends or dies."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import (
    JOBS,
    change,
    count_with_pyiceberg,
    expired,
    files,
    location,
    make_states,
    needed,
    snapshot_ids,
)
from tests.fixtures.waiting import until_true

from frostline.catalog import lake_states, pins, seams
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.errors import ConflictError, UsageError
from frostline.model.tables import Table

pytestmark = pytest.mark.spark

PINS = "select count(*) from frostline.pin"
RENEWING = "select count(*) from pg_stat_activity where application_name = 'frostline pin'"
READ_SEAM = "select metadata_location from frostline.seam"


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Two snapshots."""
    make_states(lake, folds=1)
    return lake


@pytest.fixture
def reader(lake: Lake) -> Iterator[Connection]:
    """The transaction in which a reader outside Postgres reads the seam."""
    with open_connection(lake.dsn, purpose="tests") as connection:
        yield connection


def test_a_pin_keeps_the_snapshot_and_the_metadata_file_of_its_state(events: Lake) -> None:
    pinned, snapshot = location(events), snapshot_ids(events)[-1]
    with pins.held(events.dsn, events.table(), pinned) as pin_id:
        change(events)
        change(events)
        result = expired(events)
        assert (result.snapshots, snapshot in snapshot_ids(events)) == (2, True)
        assert any(f"snapshot {snapshot}: pinned by process" in reason for reason in result.waiting)
        assert count_with_pyiceberg(pinned, snapshot) == count_with_pyiceberg(location(events), snapshot) == 100
        assert rows(events.catalog, "select pin_id from frostline.pin") == [(pin_id,)]
    assert value(events.catalog, PINS) == 0
    assert expired(events).snapshots == 1
    assert files(events) == needed(events)


@pytest.mark.slow
def test_a_dead_readers_pin_holds_nothing(events: Lake) -> None:
    pins.make(events.catalog, events.table(), location(events), 0.01)
    change(events)
    until_true(events.catalog, "select expires_at < clock_timestamp() from frostline.pin")
    assert expired(events).snapshots == 2
    assert value(events.catalog, PINS) == 0


def test_a_pin_is_renewed_while_it_is_held(events: Lake) -> None:
    with pins.held(events.dsn, events.table(), location(events), seconds=0.6):
        first = value(events.catalog, "select expires_at::text from frostline.pin")
        until_true(events.catalog, f"select expires_at > timestamptz '{first}' + interval '1 s' from frostline.pin")


@pytest.mark.slow
def test_several_pins_are_renewed_by_one_connection(events: Lake) -> None:
    held = pins.held_together(events.dsn, [(events.table(), location(events))] * 3, seconds=0.6)
    with pytest.raises(ConflictError, match="ran out"), held as made:
        _lose_one(events, made)
    assert value(events.catalog, PINS) == 0


def _lose_one(events: Lake, made: tuple[int, ...]) -> None:
    """The others go on."""
    assert len(set(made)) == 3
    pins.release(events.catalog, made[0])
    first = value(events.catalog, "select max(expires_at)::text from frostline.pin")
    until_true(events.catalog, f"select min(expires_at) > timestamptz '{first}' + interval '1 s' from frostline.pin")
    assert value(events.catalog, RENEWING) == 1


@pytest.mark.slow
def test_a_pin_that_was_lost_is_told_at_the_end(events: Lake) -> None:
    with (
        pytest.raises(ConflictError, match="ran out while it was read"),
        pins.held(events.dsn, events.table(), location(events)) as pin_id,
    ):
        pins.release(events.catalog, pin_id)


@pytest.mark.slow
def test_what_ran_out_is_not_renewed(events: Lake) -> None:
    """Upkeep may have decided by then."""
    held = pins.held(events.dsn, events.table(), location(events), seconds=0.3)
    with pytest.raises(ConflictError, match="ran out"), held:
        _let_it_run_out(events)


def _let_it_run_out(events: Lake) -> None:
    run(events.catalog, "update frostline.pin set expires_at = clock_timestamp() - interval '1 s'")
    time.sleep(0.5)  # it would have been renewed by now
    assert value(events.catalog, "select expires_at < clock_timestamp() from frostline.pin")


def test_a_state_that_is_gone_cannot_be_pinned(events: Lake) -> None:
    old = location(events)
    change(events)
    change(events)
    expired(events)
    with pytest.raises(ConflictError, match=r"the lake of public\.events has no state") as refused:
        pins.make(events.catalog, events.table(), old, 60)
    assert "read T, S" in (refused.value.hint or "")
    assert value(events.catalog, PINS) == 0


# A reader in a REPEATABLE READ transaction reads S, pins it on another connection, and ends the transaction. Expiry looks
# at live snapshots first and at pins afterwards. Each of these puts the reader's steps between two steps of expiry.

Step = Callable[[], object]


def before(monkeypatch: pytest.MonkeyPatch, module: object, name: str, step: Step, *, call: int = 1) -> None:
    """Do the step right before the so manieth call of the function."""
    real = getattr(module, name)
    calls: list[None] = []

    def late(*arguments: object, **options: object) -> object:
        calls.append(None)
        if len(calls) == call:
            step()
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, late)


def begun(reader: Connection, events: Lake) -> str:
    """The reader has read its state, which is then replaced."""
    run(reader, "begin isolation level repeatable read")
    read = value(reader, READ_SEAM)
    change(events)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2])
def test_a_reader_that_pins_and_ends_before_the_live_snapshots_are_read_is_seen(
    events: Lake, reader: Connection, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """If pins were read first, it would be seen by neither, and only the lock would save it."""
    expired(events)
    state, table = begun(reader, events), events.table()

    def pin_and_end() -> None:
        pins.make(events.catalog, table, state, 60)
        run(reader, "commit")

    before(monkeypatch, lake_states, "list_all", pin_and_end, call=call)
    expired(events)
    assert count_with_pyiceberg(state) == 100
    assert value(events.catalog, JOBS) == 1, "there was nothing to do the second time"


@pytest.mark.slow
def test_a_pin_that_is_committed_after_the_plan_and_before_the_lock_is_seen(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, table = location(events), events.table()
    change(events)
    before(monkeypatch, lake_states, "lock", lambda: _in_a_session_of_its_own(events, table, old))
    assert expired(events).snapshots == 1, "the other one goes"
    assert count_with_pyiceberg(old) == 100


def _in_a_session_of_its_own(events: Lake, table: Table, state: str) -> None:
    with open_connection(events.dsn, purpose="tests") as connection:
        pins.make(connection, table, state, 60)


@pytest.mark.slow
def test_a_pin_that_is_being_made_is_passed_over(events: Lake, reader: Connection) -> None:
    old, table = location(events), events.table()
    change(events)
    run(reader, "begin")
    pins.make(reader, table, old, 60)
    run(events.catalog, "set lock_timeout = '10s'")  # rather an error than a test without an end
    assert expired(events).snapshots == 1
    run(reader, "commit")
    assert count_with_pyiceberg(old) == 100
    assert expired(events).snapshots == 0


@pytest.mark.slow
def test_a_pin_that_comes_during_the_commit_waits_and_is_refused(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old, table = location(events), events.table()
    change(events)
    refused: list[str] = []

    def pin() -> None:
        try:
            _in_a_session_of_its_own(events, table, old)
        except ConflictError as error:
            refused.append(error.message)

    thread = threading.Thread(target=pin)

    def start() -> None:
        thread.start()
        with events.connect() as connection:
            until_true(
                connection, "select count(*) = 1 from pg_catalog.pg_stat_activity where wait_event_type = 'Lock'"
            )

    before(monkeypatch, lake_states, "delete", start)
    assert expired(events).snapshots == 2
    thread.join()
    assert refused == [f"the lake of public.events has no state {old} any more"]


@pytest.mark.slow
def test_a_pin_that_runs_out_during_the_commit_does_not_break_it(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row is still there then, and so is its foreign key."""
    old, table = location(events), events.table()
    change(events)
    real = pins.remove_dead
    monkeypatch.setattr(pins, "remove_dead", lambda *_: None)
    pins.make(events.catalog, table, old, 0.01)
    until_true(events.catalog, "select expires_at < clock_timestamp() from frostline.pin")
    assert expired(events).snapshots == 1
    monkeypatch.setattr(pins, "remove_dead", real)
    assert expired(events).snapshots == 1


def test_the_commands_list_and_release_pins(events: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", events.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(events.warehouse))
    pin_id = pins.make(events.catalog, events.table(), location(events), 60)
    (shown,) = json.loads(command("pin", "list", "--output", "json").stdout)
    snapshot = seams.get(events.catalog, events.table()).snapshot_id
    assert (shown["id"], shown["table"], shown["snapshot_id"], shown["alive"]) == (
        pin_id, "public.events", snapshot, True,
    )  # fmt: skip
    assert command("pin", "release", pin_id).exit_code == 0
    said = command("pin", "release", pin_id)
    assert (said.exit_code, said.stderr.splitlines()) == (
        2, [f"error: there is no pin {pin_id}", "hint: frostline pin list"],
    )  # fmt: skip
    with pytest.raises(UsageError):
        pins.release(events.catalog, pin_id)
