"""Expiry and sweep on servers of their own: prepared transactions, slots, standbys, and a copy that shares the warehouse."""

import struct
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from psycopg import errors, pq
from psycopg.conninfo import make_conninfo
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import (
    DATABASE,
    DIFFERENCE,
    OwnServers,
    Served,
    archive_below,
    connected,
    kill,
    make_ranges,
    write_both,
)
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import age, count_with_pyiceberg, expired, files, location, snapshot_ids, swept
from tests.fixtures.waiting import until_true

from frostline.pipeline import verify
from frostline.pipeline.sweep import Request
from frostline.relation import bound
from frostline.runtime.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def in_states(lake: Lake, *lines: int) -> None:
    """`events` archived line by line: one state of the lake for each, which may go at once."""
    make_ranges(lake)
    run(lake.catalog, "update frostline.managed_table set snapshot_retention = '0'")
    for line in lines:
        assert archive_below(lake, line).error is None


def test_a_prepared_transaction_and_a_slot_hold_old_states(own_servers: OwnServers, served: Served) -> None:
    server = own_servers.new("prepared", {"max_prepared_transactions": "5"})
    lake = served(server)
    in_states(lake, 200)
    with connected(server) as connection:
        run(
            connection,
            "begin; insert into public.reference (id, k) values (100001, 950); prepare transaction 'old one'",
        )
        assert archive_below(lake, 300).error is None
        result = expired(lake)
        assert (result.snapshots, "old one" in " ".join(result.waiting)) == (0, True)
        run(connection, "rollback prepared 'old one'")
    assert expired(lake).snapshots == 1
    with _slot_with_xmin(server, "held"):
        assert archive_below(lake, 400).error is None
        result = expired(lake)
        assert (result.snapshots, "held" in " ".join(result.waiting)) == (0, True)
    assert expired(lake).snapshots == 1


@contextmanager
def _slot_with_xmin(server: Postgres, name: str) -> Generator[None]:
    """A physical slot that has told, as a standby with feedback does, which transactions it still needs."""
    with connected(server) as connection:
        run(connection, "select pg_create_physical_replication_slot(%s, true)", (name,))
        xid = int(value(connection, "select pg_current_xact_id()::text"))
        start = value(connection, "select pg_current_wal_flush_lsn()::text")
        following = pq.PGconn.connect(make_conninfo(server.dsn(DATABASE), replication="true").encode())
        try:
            following.exec_(f"START_REPLICATION SLOT {name} PHYSICAL {start}".encode())
            following.put_copy_data(b"h" + struct.pack("!qIIII", 0, xid, 0, 0, 0))
            following.flush()
            until_true(connection, "select xmin is not null from pg_replication_slots")
        finally:
            following.finish()
        yield
        run(connection, "select pg_drop_replication_slot(%s)", (name,))


def test_a_standby_that_is_behind_holds_them_and_one_that_follows_ends_its_old_queries(
    own_servers: OwnServers, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = own_servers.new("primary")
    lake = served(primary)
    in_states(lake, 200)
    options = {"max_standby_streaming_delay": "500ms"}
    standby = own_servers.copied(primary, "standby", "--write-recovery-conf", options=options)
    standby.start()
    monkeypatch.setattr(bound, "_STANDBY_PATIENCE_S", 1)
    with connected(standby) as old, connected(standby) as other:
        run(old, "begin isolation level repeatable read")
        assert rows(old, DIFFERENCE) == [(0, 0)]
        run(other, "select pg_wal_replay_pause()")
        assert archive_below(lake, 300).error is None
        had = files(lake)
        result = expired(lake)
        assert (result.snapshots, "1 standbys are behind" in " ".join(result.waiting)) == (0, True)
        assert files(lake) == had
        assert rows(old, DIFFERENCE) == [(0, 0)]
        monkeypatch.setattr(bound, "_STANDBY_PATIENCE_S", 60)
        run(other, "select pg_wal_replay_resume()")
        assert expired(lake).snapshots == 1
        with pytest.raises(errors.OperationalError, match="conflict with recovery"):
            rows(old, DIFFERENCE)
        assert rows(other, DIFFERENCE) == [(0, 0)]


@pytest.fixture
def original(own_servers: OwnServers) -> Postgres:
    """The server that is dumped."""
    return own_servers.new("original")


@pytest.fixture
def lake(original: Postgres, served: Served) -> Lake:
    """Three states of `events`, and garbage that a lost deletion left."""
    lake = served(original)
    in_states(lake, 200, 300, 400)
    return lake


def test_a_restored_copy_deletes_nothing_that_the_original_has(
    own_servers: OwnServers, original: Postgres, lake: Lake, served: Served
) -> None:
    """They share the warehouse: what is old to one may be what the other reads."""
    snapshots, theirs = snapshot_ids(lake), files(lake)
    copy = served(_restored(own_servers, original))
    result = expired(copy)
    assert (result.snapshots, result.files, result.left > 0) == (2, 0, True)
    for line in (500, 600):
        assert archive_below(copy, line).error is None
    before = files(copy)
    result = expired(copy)
    assert (result.snapshots, result.files > 0) == (2, True)
    assert theirs < files(copy)
    assert len(before - files(copy)) == result.files, "its own go"
    age(copy)
    assert swept(copy).orphans == ()
    assert theirs < files(copy)
    assert [count_with_pyiceberg(location(lake), snapshot) > 0 for snapshot in snapshots] == [True] * 3
    assert verify.run(lake.catalog, lake.table()).faults == ()
    _both_go_on(original, lake)
    _it_takes_over(original, copy)


def _restored(own_servers: OwnServers, original: Postgres) -> Postgres:
    file = own_servers.folder / "app.dump"
    own_servers.run("pg_dump", f"--dbname={original.dsn(DATABASE)}", "--format=custom", f"--file={file}")
    copy = own_servers.new("copy")
    own_servers.run("pg_restore", f"--dbname={copy.dsn(DATABASE)}", "--exit-on-error", str(file))
    return copy


def _both_go_on(original: Postgres, lake: Lake) -> None:
    with connected(original) as connection:
        write_both(connection, "update {} set n = n + 1 where id < 30")
        (folded,) = lake.fold("events")
        assert folded.error is None
        assert rows(connection, DIFFERENCE) == [(0, 0)]


def _it_takes_over(original: Postgres, copy: Lake) -> None:
    """The original is gone for good: now what only it needed goes."""
    kill(original)
    age(copy)
    result = swept(copy, Request(take_over=True))
    assert (len(result.orphans) > 0, result.left > 0) == (True, True), "of jobs after the dump nobody here knows"
    assert verify.run(copy.catalog, copy.table()).faults == ()
    assert rows(copy.catalog, DIFFERENCE) == [(0, 0)]
