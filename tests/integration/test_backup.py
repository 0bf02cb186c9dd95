"""Backups: a dump restored elsewhere, and a base backup recovered to a moment, have every row of both tiers."""

from pathlib import Path

import psycopg
import pytest
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
from tests.fixtures.waiting import until_true

from frostline.pipeline import clean, verify
from frostline.runtime.postgres import Postgres

pytestmark = pytest.mark.slow

EVERYTHING = "select id, e::text from public.events e order by id, k"
CHANGES = (
    "update {} set v = 'changed', n = n + 1 where id between 10 and 40",
    "delete from {} where id between 50 and 60",
    "insert into {} (id, k, v) values (100001, 5, 'late'), (100002, 905, 'new')",
    "update {} set k = k + 450 where id between 300 and 305",
)

SECRETS = """
create table public.secrets (id int, k int, owner text, primary key (id, k)) partition by range (k);
create table public.secrets_1 partition of public.secrets for values from (0) to (100);
create table public.secrets_2 partition of public.secrets for values from (100) to (200);
insert into public.secrets values (1, 1, 'reader'), (2, 2, 'another'), (3, 150, 'reader'), (4, 160, 'another');
alter table public.secrets enable row level security;
create policy own on public.secrets using (owner = current_user);
grant select on public.secrets to reader
"""
MANY_TRANSACTIONS = "do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$"
READER = "create role reader login password 'reader'"


@pytest.fixture
def old(own_servers: OwnServers) -> Postgres:
    """The server that is backed up. It has seen more transactions than a new one."""
    server = own_servers.new("old")
    with connected(server) as connection:
        run(connection, MANY_TRANSACTIONS)
        run(connection, READER)
    return server


@pytest.fixture
def lake(old: Postgres, served: Served) -> Lake:
    """`events` in both tiers, with changed cold rows, one range archived and not cleaned; `secrets` with row security."""
    lake = served(old)
    make_ranges(lake)
    run(lake.catalog, SECRETS)
    lake.add("public.secrets", hot="60", grace="0")
    assert archive_below(lake, 300).error is None
    (secrets,) = lake.archive("secrets")
    assert (secrets.partitions, secrets.error) == (1, None)
    run(lake.catalog, "update frostline.managed_table set grace_period = '10 years' where table_name = 'events'")
    assert len(archive_below(lake, 400).cleaned.waiting) == 1
    with connected(old) as connection:
        for statement in CHANGES:
            write_both(connection, statement)
    return lake


def restored(own_servers: OwnServers, old: Postgres, lake: Lake) -> Postgres:
    """A new server with a dump of the old one, made and restored as the guide says."""
    file = own_servers.folder / "app.dump"
    lake.server.stop()  # a dump does not need the lake
    own_servers.run("pg_dump", f"--dbname={old.dsn(DATABASE)}", "--format=custom", f"--file={file}")
    new = own_servers.new("new")
    with connected(new) as connection:
        run(connection, READER)
    own_servers.run("pg_restore", f"--dbname={new.dsn(DATABASE)}", "--exit-on-error", str(file))
    return new


@pytest.mark.spark
def test_a_restored_dump_goes_on_where_it_was(
    own_servers: OwnServers, old: Postgres, lake: Lake, served: Served
) -> None:
    before = rows(lake.catalog, EVERYTHING)
    last_job = value(lake.catalog, "select max(job_id) from frostline.job")
    new = restored(own_servers, old, lake)
    kill(old)
    now = served(new)
    assert rows(now.catalog, EVERYTHING) == before
    assert rows(now.catalog, DIFFERENCE) == [(0, 0)]
    _row_security_holds(new)
    _identities_go_on(now)
    _writes_and_jobs_go_on(now, new)
    # Files are named by the job: the next number is the old server's too, whose files may still be needed.
    first_job = "select min(job_id) from frostline.job where server = frostline.this_server()"
    assert value(now.catalog, first_job) > last_job + 1_000_000


def _row_security_holds(server: Postgres) -> None:
    dsn = make_conninfo(server.dsn(DATABASE), user="reader", password="reader")
    with psycopg.connect(dsn) as reader:
        assert rows(reader, "select id from public.secrets order by id") == [(1,), (3,)]


def _identities_go_on(lake: Lake) -> None:
    ids = [
        value(lake.catalog, f"insert into public.{t} (v) values ('n') returning id") for t in ("events", "reference")
    ]
    assert ids[0] == ids[1] == 401


def _writes_and_jobs_go_on(lake: Lake, server: Postgres) -> None:
    """Write, archive, fold, clean and verify; after each step the relation equals the reference."""
    with connected(server) as connection:
        for statement in (
            "update {} set n = n + 10 where id < 100",
            "delete from {} where id between 200 and 220",
            "insert into {} (id, k, v) values (200001, 7, 'late again')",
        ):
            write_both(connection, statement)
            assert rows(connection, DIFFERENCE) == [(0, 0)]
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(lake.catalog, "insert into public.events (id, k) select id, k from public.reference where k < 300 limit 1")
    assert archive_below(lake, 700).error is None
    assert rows(lake.catalog, DIFFERENCE) == [(0, 0)]
    (folded,) = lake.fold("events")
    assert (folded.error, folded.marks > 0, folded.taken) == (None, True, folded.marks)
    assert rows(lake.catalog, DIFFERENCE) == [(0, 0)]
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    assert lake.clean().waiting == ()
    assert rows(lake.catalog, DIFFERENCE) == [(0, 0)]
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.spark
def test_clean_does_not_believe_in_another_servers_transactions(
    own_servers: OwnServers, old: Postgres, lake: Lake, served: Served
) -> None:
    """They have not happened here yet, so every snapshot looks older than they are, for ever."""
    lake.fold("events")
    new = restored(own_servers, old, lake)
    now = served(new)
    run(now.catalog, "update frostline.managed_table set grace_period = '0'")
    published: int = value(now.catalog, "select max(published_xid)::text::bigint from frostline.archived_partition")
    assert published > value(now.catalog, "select pg_current_xact_id()::text::bigint"), "or this shows nothing"
    with connected(new) as open_before:
        run(open_before, "begin isolation level repeatable read; select 1 from pg_class limit 1")
        (waiting,) = now.clean().waiting
        assert waiting == clean.Waiting(
            "public.p300",
            f"a transaction from before it was published is still open: {open_before.info.backend_pid}",
        )
    with connected(new) as open_after:
        run(open_after, "begin isolation level repeatable read; select 1 from pg_class limit 1")
        assert now.clean() == clean.Result(("public.p300",), ())
        assert rows(open_after, DIFFERENCE) == [(0, 0)]


@pytest.fixture
def wal(own_servers: OwnServers) -> Path:
    """Where the server keeps its finished WAL files."""
    return own_servers.directory("wal")


@pytest.mark.spark
def test_recovery_to_a_moment_before_the_last_archive_has_the_rows_of_then(
    own_servers: OwnServers, wal: Path, served: Served
) -> None:
    old = own_servers.new("archived", {"archive_mode": "on", "archive_command": f"cp %p {wal}/%f"})
    lake = served(old)
    make_ranges(lake)
    archive_below(lake, 300)
    recovery = {
        "restore_command": f"cp {wal}/%f %p",
        "recovery_target_name": "before",
        "recovery_target_action": "promote",
    }
    new = own_servers.copied(old, "recovered", options=recovery, signal="recovery.signal")
    with connected(old) as connection:
        for statement in CHANGES:
            write_both(connection, statement)
        before = rows(connection, EVERYTHING)
        run(connection, "select pg_create_restore_point('before')")
        write_both(connection, "update {} set v = 'after' where id between 20 and 120")
    _go_on(lake)
    _finish_wal(old)
    kill(old)
    new.start()
    _wait_for_promotion(new)
    now = served(new)
    assert rows(now.catalog, EVERYTHING) == before
    assert rows(now.catalog, DIFFERENCE) == [(0, 0)]
    _writes_and_jobs_go_on(now, new)


def _go_on(lake: Lake) -> None:
    """What the recovered server must know nothing of: a fold, an archive, a clean."""
    (folded,) = lake.fold("events")
    assert folded.taken > 0
    result = archive_below(lake, 600)
    assert (result.partitions, len(result.cleaned.emptied), result.error) == (3, 3, None)
    assert rows(lake.catalog, DIFFERENCE) == [(0, 0)]


def _finish_wal(server: Postgres) -> None:
    """Wait until all of the WAL so far is in the archive."""
    with connected(server) as connection:
        last = value(connection, "select pg_walfile_name(pg_switch_wal())")
        archived = "select coalesce(last_archived_wal >= %s, false) from pg_stat_archiver"
        until_true(connection, archived, (last,))


def _wait_for_promotion(server: Postgres) -> None:
    with connected(server) as connection:
        until_true(connection, "select not pg_is_in_recovery()")
