"""A streaming standby answers every question about both tiers, also while the primary moves rows; writes it refuses."""

import logging
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.command import Command
from tests.fixtures.commands import WORDS, try_all
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

from frostline.catalog import horizon
from frostline.relation import bound
from frostline.runtime.postgres import Postgres
from frostline.server import provider

pytestmark = pytest.mark.slow

QUESTIONS = (
    "select count(*), sum(n), min(k), max(k) from {}",
    "select * from {} where id = 5",
    "select id, v from {} where k between 40 and 60 order by k, id",
    "select k / 100, count(*), sum(id) from {} group by 1 order by 1",
    "select a.id, b.id from {} a join {} b on a.k = b.k + 1 where a.k < 200 order by 1, 2",
    "select id from {} where v like 'v1%' order by id limit 20",
    "select id from {} where v > 'v35' order by v, id",
    "select id from {} where v ~ '^v[0-9]7$' order by id",
    "select id, data ->> 'i' from {} where data @> '{{\"i\": 7}}' order by id",
    "select id from {} where id in (select id + 1 from {} where k < 100) order by id",
    "with few as materialized (select * from {} where k < 300) select count(*) from few",
    "select id, row_number() over (partition by k / 100 order by id) from {} where k < 250 order by 1",
    "select distinct left(v, 2) from {} order by 1",
    "select exists (select from {} where id = 1000000)",
)
FALLBACK = "select id from {} where v ~ '^v[0-9]7$' order by id"
"""What the lake server lets Postgres answer."""


@pytest.fixture
def primary(own_servers: OwnServers) -> Postgres:
    """A server whose changes are followed."""
    return own_servers.new("primary")


@pytest.fixture
def lake(primary: Postgres, served: Served) -> Lake:
    """`events` in both tiers, with rows changed after they were archived."""
    lake = served(primary)
    make_ranges(lake)
    archive_below(lake, 500)
    with connected(primary) as connection:
        write_both(connection, "update {} set v = 'changed' where id between 10 and 40")
        write_both(connection, "delete from {} where id between 50 and 60")
    return lake


@pytest.fixture
def standby(own_servers: OwnServers, primary: Postgres, lake: Lake) -> Postgres:
    """A hot standby with Postgres' own defaults, but for a shorter patience with queries in the way."""
    options = {"max_standby_streaming_delay": "500ms"}
    server = own_servers.copied(primary, "standby", "--write-recovery-conf", options=options)
    server.start()
    caught_up(primary, server)
    return server


def caught_up(primary: Postgres, standby: Postgres) -> None:
    """Wait until the standby has replayed what the primary has written."""
    with connected(primary) as connection:
        run(connection, "select pg_current_xact_id()")  # its commit flushes what others have only written
        written = value(connection, "select pg_current_wal_flush_lsn()::text")
    deadline = time.monotonic() + 60
    with connected(standby) as connection:
        while not value(connection, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def both(connection: psycopg.Connection, question: str) -> None:
    """The relation and the reference give the same answer."""
    texts = [
        question.replace("{}", f"public.{name}").replace("{{", "{").replace("}}", "}")
        for name in ("events", "reference")
    ]
    assert rows(connection, texts[0]) == rows(connection, texts[1]), question


@pytest.mark.spark
def test_it_answers_as_the_primary_does(
    lake: Lake, primary: Postgres, standby: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(standby) as connection:
        assert value(connection, "select pg_is_in_recovery()")
        assert rows(connection, DIFFERENCE) == [(0, 0)]
        for question in QUESTIONS:
            both(connection, question)
        with caplog.at_level(logging.DEBUG, "frostline.server"):
            both(connection, FALLBACK)
        assert "engine=postgres" in caplog.text, "or nothing shows that the fallback works there"
        _prepared_and_cursor(connection)
        with connection.transaction():
            run(connection, "set transaction isolation level repeatable read, read only")
            both(connection, QUESTIONS[0])
        _writes_are_refused(connection)


def _prepared_and_cursor(connection: psycopg.Connection) -> None:
    run(connection, "set plan_cache_mode = force_generic_plan")
    run(connection, "prepare by_key (int) as select id, v from public.events where k = $1 order by id")
    for key in (35, 705):
        expected = rows(connection, "select id, v from public.reference where k = %s order by id", (key,))
        assert rows(connection, f"execute by_key ({key})") == expected
    with connection.transaction():
        run(connection, "declare piece cursor for select id from public.events order by id")
        first = rows(connection, "fetch 100 from piece") + rows(connection, "fetch all from piece")
    assert first == rows(connection, "select id from public.reference order by id")


def _writes_are_refused(connection: psycopg.Connection) -> None:
    for statement in (
        "insert into public.events (k) values (999)",
        "insert into public.events (k) values (1)",
        "update public.events set n = 1 where id = 5",
        "update public.events set n = 1 where k >= 900",
        "delete from public.events where k < 100",
    ):
        with pytest.raises(errors.ReadOnlySqlTransaction):
            run(connection, statement)


@pytest.mark.spark
def test_it_is_right_at_every_moment_while_the_primary_archives_folds_and_cleans(
    lake: Lake, primary: Postgres, standby: Postgres
) -> None:
    with _reading(standby) as seen:
        for line in (600, 700, 800):
            with connected(primary) as connection:
                write_both(connection, f"update {{}} set n = n + 1 where id % 7 = {line // 100 % 7}")
            assert archive_below(lake, line).error is None
            (folded,) = lake.fold("events")
            assert folded.error is None
            lake.clean()
        caught_up(primary, standby)
    assert seen.count((0, 0)) > 5
    assert set(seen) == {(0, 0)}
    with connected(standby) as connection:
        assert rows(connection, DIFFERENCE) == [(0, 0)]
        assert value(connection, "select line_integer from frostline.seam") == 800


@contextmanager
def _reading(standby: Postgres) -> Generator[list[tuple[int, int]]]:
    """Compare the two tables again and again; a query that stands in the way of replay may be cancelled with 40001."""
    seen: list[tuple[int, int]] = []
    stop, failures = threading.Event(), list[Exception]()

    def read() -> None:
        try:
            with connected(standby) as connection:
                while not stop.is_set():
                    try:
                        seen.extend(rows(connection, DIFFERENCE))
                    except errors.SerializationFailure:
                        continue
        except Exception as error:  # noqa: BLE001  (whatever it is, the test fails with it)
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
    assert failures == []


BOUNDS = "select count(*) from pg_foreign_table"
VACUUMS = "select vacuum_count from pg_stat_user_tables where relid = 'frostline.seam'::regclass"


def _settle_until_it_ends(lake: Lake, primary: Postgres, standby: Postgres, connection: psycopg.Connection) -> None:
    """Clean waits until nobody on the primary needs the old seam; here that may be an autovacuum for a moment."""
    for _ in range(100):
        horizon.settle_standbys(lake.catalog)
        caught_up(primary, standby)
        both(connection, "select count(*), sum(id) from {}")
        time.sleep(0.1)


@pytest.mark.spark
def test_a_snapshot_with_an_old_frost_line_never_sees_an_emptied_partition(
    lake: Lake, primary: Postgres, standby: Postgres
) -> None:
    """It holds no lock on the partition, and TRUNCATE is not MVCC-safe: it must be ended before that is replayed."""
    with connected(standby) as connection:
        run(connection, "begin isolation level repeatable read")
        assert rows(connection, "select line_integer from frostline.seam") == [(500,)]
        run(lake.catalog, "update frostline.seam set snapshot_id = snapshot_id")
        caught_up(primary, standby)
        both(connection, "select count(*), sum(id) from {}")
        with pytest.raises(errors.OperationalError, match="conflict with recovery"):
            _settle_until_it_ends(lake, primary, standby, connection)
    before = value(lake.catalog, VACUUMS)
    assert len(archive_below(lake, 600).cleaned.emptied) == 1
    assert value(lake.catalog, VACUUMS) > before, "clean does it before it empties a partition"


@pytest.mark.spark
def test_an_archive_publishes_when_the_standby_knows_the_new_foreign_table(
    lake: Lake, standby: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound, "_STANDBY_PATIENCE_S", 120)
    line = "select line_integer from frostline.seam"
    with connected(standby) as connection, ThreadPoolExecutor(1) as pool:
        run(connection, "select pg_wal_replay_pause()")
        moving = pool.submit(archive_below, lake, 600)
        try:
            with lake.connect() as primary:
                while not moving.done() and value(primary, BOUNDS) == 1:
                    time.sleep(0.05)
                time.sleep(1)  # it would have published by now
                meanwhile = value(primary, line)
        finally:
            run(connection, "select pg_wal_replay_resume()")
        assert moving.result().error is None
    assert (meanwhile, lake.value(line)) == (500, 600)


@pytest.mark.spark
def test_it_goes_on_without_the_primary(
    lake: Lake, primary: Postgres, standby: Postgres, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what Postgres has to finish needs one that can write: a standby cannot make a temporary table."""
    own = served(primary, dsn=standby.dsn(DATABASE))
    caught_up(primary, standby)
    with connected(standby) as connection:
        assert rows(connection, DIFFERENCE) == [(0, 0)]
        with pytest.raises(errors.ConnectionFailure, match="the lake server's own Postgres is a standby"):
            both(connection, FALLBACK)
        own.server.stop()
        run(lake.catalog, f"alter server frostline_lake options (set port '{lake.settings.lake_port}')")
        caught_up(primary, standby)
        both(connection, FALLBACK)
        kill(primary)
        monkeypatch.setattr(provider, "TABLE_CACHED_S", 0)  # it will be a while until the primary is back
        assert rows(connection, DIFFERENCE) == [(0, 0)]
        with pytest.raises(errors.ConnectionFailure, match="the lake server cannot reach Postgres"):
            both(connection, FALLBACK)


@pytest.mark.spark
def test_a_command_that_writes_says_that_it_needs_the_primary(
    lake: Lake, standby: Postgres, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", standby.dsn(DATABASE))
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies.yaml").write_text("version: 1\ntables:\n  public.events:\n    grace_period: 3 days\n")
    ended = try_all(command, {0, 1, 2, 4})
    assert ended["status"] == ended["jobs"] == ended["table list"] == 0
    for name in ("archive", "fold", "clean", "expire", "sweep"):
        assert ended[name] == 2, name
        assert "this Postgres only reads" in command(*WORDS[name].split()).stderr, name
