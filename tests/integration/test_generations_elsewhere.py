"""A dump and a standby of a table whose lake has files of three generations of its columns."""

import psycopg
import pytest
from tests.fixtures.generations import age, alter, archive, both, is_whole
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import DATABASE, OwnServers, Served, connected, kill
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until_true

from frostline.relation import policy
from frostline.runtime.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SHOWN = "select t::text from public.{} t order by number, at"
FOURTH = (
    "drop column past",
    "rename column state to past",
    "add column state int default 4",
    "alter column level set default 9",
)


@pytest.fixture
def first(own_servers: OwnServers) -> Postgres:
    """The server that the table is made on."""
    return own_servers.new("first")


@pytest.fixture
def aged(first: Postgres, served: Served) -> Lake:
    """Files of three generations; nothing of them is in the heap any more."""
    lake = served(first)
    age(lake)
    policy.change(lake.catalog, lake.table(), grace_period="0")
    assert lake.fold()[0].error is None
    assert lake.clean().waiting == ()
    both(lake, "update {t} set amount = 1 where number % 5 = 0", "delete from {t} where number in (102, 302, 502)")
    return lake


def goes_on(lake: Lake) -> None:
    """A fourth generation, writes, and jobs."""
    alter(lake, FOURTH)
    both(
        lake,
        "update {t} set past = past || '!' where number % 3 = 0",
        "insert into {t} (number, at) values (9, '2024-02-05+00')",
    )
    is_whole(lake)
    assert lake.fold()[0].error is None
    is_whole(lake)
    both(lake, "insert into {t} (number, at) select i, '2024-07-05+00' from generate_series(701, 709) i")
    archive(lake)
    is_whole(lake)


def test_a_restored_dump_goes_on(own_servers: OwnServers, first: Postgres, aged: Lake, served: Served) -> None:
    """Its columns have other numbers there, without the gaps that dropped ones left."""
    before = rows(aged.catalog, SHOWN.format("events"))
    file = own_servers.folder / "app.dump"
    aged.server.stop()
    own_servers.run("pg_dump", f"--dbname={first.dsn(DATABASE)}", "--format=custom", f"--file={file}")
    second = own_servers.new("second")
    own_servers.run("pg_restore", f"--dbname={second.dsn(DATABASE)}", "--exit-on-error", str(file))
    kill(first)
    lake = served(second)
    assert rows(lake.catalog, SHOWN.format("events")) == before
    is_whole(lake)
    goes_on(lake)


def test_a_standby_answers_as_the_plain_table_does(own_servers: OwnServers, first: Postgres, aged: Lake) -> None:
    standby = own_servers.copied(first, "standby", "--write-recovery-conf")
    standby.start()
    with connected(standby) as connection:
        for step in (lambda: None, lambda: goes_on(aged), aged.compact):
            step()
            _catches_up(first, connection)
            assert rows(connection, SHOWN.format("events")) == rows(connection, SHOWN.format("plain"))


def _catches_up(first: Postgres, standby: psycopg.Connection) -> None:
    with connected(first) as connection:
        run(connection, "select pg_current_xact_id()")  # its commit flushes what others have only written
        written = value(connection, "select pg_current_wal_flush_lsn()::text")
    until_true(standby, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,))
