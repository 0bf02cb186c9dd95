"""The gap of postgres_fdw, held open: the lake has committed a transaction, and Postgres has not come to its own commit.

Every transaction that has said NOTIFY takes a lock between the two. Here a session has it that waits for a standby which
does not exist. What docs/design/lake-tables.md says under "Cost" is what must happen then.
"""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import OwnServers, Served, connected, kill
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until, until_true

from frostline.catalog import lake_tables as catalog
from frostline.catalog.connect import connect as open_connection
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_register, lake_tables
from frostline.runtime.postgres import Postgres

pytestmark = pytest.mark.slow

NO_STANDBY = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
IS_HELD = "select count(*) from pg_locks where locktype = 'object' and classid = 'pg_database'::regclass and objid = 0 and granted"
IN_THE_GAP = IS_HELD.replace("and granted", "and not granted")
WRITES = ("insert into log values (1, 'new')", "update other set n = n + 1", "insert into heap values (1)")


@pytest.fixture
def server(own_servers: OwnServers) -> Postgres:
    """A server that the test kills."""
    return own_servers.new("server", NO_STANDBY)


@pytest.fixture
def lake(server: Postgres, served: Served) -> Lake:
    """Two lake tables and a table of Postgres."""
    lake = served(server)
    for name, columns in {"log": ("id bigint", "word text"), "other": ("n bigint",)}.items():
        lake_tables.create(lake.catalog, lake.settings, Name("public", name), columns, Layout())
    run(lake.catalog, "create table public.heap (id bigint)")
    with connected(server) as psql:
        run(psql, "insert into other values (0)")
    return lake


@contextmanager
def in_the_gap(server: Postgres, *statements: str) -> Generator[tuple[psycopg.Connection, Future[None]]]:
    """A session whose COMMIT of these statements is in the gap, for the block."""
    with (
        connected(server) as holder,
        connected(server) as psql,
        connected(server) as watcher,
        ThreadPoolExecutor(2) as pool,
    ):
        run(holder, "set synchronous_commit = on")
        held = pool.submit(run, holder, "create temp table written (); notify nobody")
        until_true(watcher, IS_HELD)
        committed = pool.submit(_commit, psql, statements)
        try:
            until(lambda: committed.done() or value(watcher, IN_THE_GAP), "nobody came to the gap")
            assert not committed.done(), committed.exception()
            yield psql, committed
        finally:
            with suppress(psycopg.Error):
                holder.cancel()
            with suppress(psycopg.Error):
                held.result()


def _commit(psql: psycopg.Connection, statements: tuple[str, ...]) -> None:
    with psql.transaction():
        for statement in (*statements, "notify nobody"):
            run(psql, statement)


def contents(server: Postgres) -> tuple[object, ...]:
    """Of both lake tables, and of the heap."""
    with connected(server) as psql:
        queries = ("select id, word from log", "select n from other", "select id from heap")
        return tuple(rows(psql, query) for query in queries)


BEFORE = ([], [(0,)], [])
LAKE_ONLY = ([(1, "new")], [(1,)], [])
ALL = ([(1, "new")], [(1,)], [(1,)])


def restarted(server: Postgres) -> None:
    """As after a crash of the machine's power, or of one backend."""
    kill(server)
    server.start()


def test_when_postgres_dies_in_the_gap_the_lake_has_all_of_it_and_the_heap_nothing(
    server: Postgres, lake: Lake
) -> None:
    with in_the_gap(server, *WRITES) as (_, committed):
        assert contents(server) == LAKE_ONLY
        restarted(server)
        with pytest.raises(psycopg.OperationalError):
            committed.result()
    assert contents(server) == LAKE_ONLY


def test_a_commit_that_is_cancelled_in_the_gap_is_rolled_back_in_postgres_only(server: Postgres, lake: Lake) -> None:
    with in_the_gap(server, *WRITES) as (psql, committed):
        psql.cancel()
        with pytest.raises(errors.QueryCanceled):
            committed.result()
    assert contents(server) == LAKE_ONLY


def test_who_comes_through_the_gap_has_committed_both(server: Postgres, lake: Lake) -> None:
    with in_the_gap(server, *WRITES) as (_, committed):
        pass
    committed.result()
    assert contents(server) == ALL


def test_a_transaction_that_writes_lake_tables_only_is_atomic_wherever_postgres_dies(
    server: Postgres, lake: Lake
) -> None:
    with in_the_gap(server, *WRITES[:2]) as (_, committed):
        restarted(server)
        with pytest.raises(psycopg.OperationalError):
            committed.result()
    assert contents(server) == LAKE_ONLY


MADE = ("select frostline.create_lake_table('public', 'made', '[{\"name\": \"n\", \"type\": \"int\"}]')", "insert into made values (7)")  # fmt: skip


def test_a_table_that_is_made_in_the_gap_is_in_the_catalog_and_can_be_registered(server: Postgres, lake: Lake) -> None:
    with in_the_gap(server, *MADE) as (_, committed):
        restarted(server)
        with pytest.raises(psycopg.OperationalError):
            committed.result()
    with open_connection(lake.dsn, purpose="tests") as connection:
        assert "made" in {table.table for table in catalog.listed(connection)}
        assert value(connection, "select to_regclass('public.made')") is None
        lake_register.register(connection, lake.settings, Pointer("public", "made"), Name("public", "made"), None)
    with connected(server) as psql:
        assert value(psql, "select n from made") == 7


def test_a_table_that_is_dropped_in_the_gap_has_its_foreign_table_still(server: Postgres, lake: Lake) -> None:
    with in_the_gap(server, "select frostline.drop_lake_table('public', 'log')") as (_, committed):
        restarted(server)
        with pytest.raises(psycopg.OperationalError):
            committed.result()
    with connected(server) as psql:
        with pytest.raises(psycopg.Error, match="there is no lake table"):
            rows(psql, "select * from log")
        run(psql, "drop foreign table log")


def test_postgres_never_refuses_a_serializable_transaction_after_the_lake_has_committed(
    server: Postgres, lake: Lake
) -> None:
    """It would with 40001, after which clients run it again: so the lake takes no change of such a transaction."""
    run(lake.catalog, "create table public.duty (id int primary key, is_on boolean)")
    run(lake.catalog, "insert into public.duty values (1, true), (2, true)")
    with connected(server) as first, connected(server) as second:
        for session in (first, second):
            run(session, "begin isolation level serializable")
            assert value(session, "select count(*) from duty where is_on") == 2
            assert value(session, "select count(*) from log") == 0
        _refused(second, "insert into log values (1, 'off duty')")
        run(second, "update duty set is_on = false where id = 2")
        run(first, "update duty set is_on = false where id = 1")
        run(first, "commit")
        with pytest.raises(errors.SerializationFailure):
            run(second, "commit")
    assert contents(server) == BEFORE


def _refused(session: psycopg.Connection, statement: str) -> None:
    run(session, "savepoint here")
    with pytest.raises(errors.FeatureNotSupported, match="not changed at SERIALIZABLE"):
        run(session, statement)
    run(session, "rollback to here")
