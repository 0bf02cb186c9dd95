"""The lake server's own sessions in Postgres may end or be disturbed. The client's own is another one, and is told so."""

import threading
from collections.abc import Callable, Iterator

import duckdb
import psycopg
import pytest
from psycopg import conninfo, errors, sql
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.waiting import until

from frostline.errors import UnavailableError
from frostline.model.names import RemoteName
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.model.types import Collation
from frostline.server.engine import UnreadableFile
from frostline.server.engine import explained as explained_engine
from frostline.server.listen import LakeServer
from frostline.server.own_session import OwnSessionFailed, explained
from frostline.server.provider import CatalogTables

Connect = Callable[[str], psycopg.Connection]
REMOTE = '"x"."7[,10000)"'
BY_POSTGRES = f"select id from {REMOTE} order by note"
"""Under a linguistic collation only Postgres knows the order."""
OWN = "from pg_stat_activity where application_name = 'frostline lake server' and datname = current_database()"


def events() -> Table:
    columns = [
        column(1, "id", "int8"),
        column(2, "key", "int8"),
        column(3, "note", "text", collation=Collation.LINGUISTIC),
    ]
    return lakeserver.table(7, columns, "key", TierKind.BIGINT)


@pytest.fixture
def client(lake_server: LakeServer, stored: StoredTables) -> Iterator[psycopg.Connection]:
    """A client of the lake server itself, with more rows in its lake than one fetch brings."""
    stored.add(events())
    numbers = range(9_000)
    stored.publish(7, 1, {"id": numbers, "key": numbers, "note": [f"note {number}" for number in numbers]})
    with psycopg.connect(lakeserver.lake_dsn(lake_server), autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres(empty_database: str, connect: Connect) -> psycopg.Connection:
    """Somebody who may end sessions."""
    return connect(empty_database)


def half_read(client: psycopg.Connection) -> None:
    client.execute("begin")
    client.execute(f"declare c cursor for {BY_POSTGRES}".encode())
    assert len(client.execute("fetch 10 from c").fetchall()) == 10


def test_a_lost_session_is_not_the_clients(client: psycopg.Connection, postgres: psycopg.Connection) -> None:
    half_read(client)
    assert postgres.execute(f"select pg_terminate_backend(pid) {OWN}".encode()).fetchall() == [(True,)]
    with pytest.raises(errors.ConnectionFailure, match="the lake server lost its own session in Postgres") as refused:
        client.execute("fetch all from c")
    assert refused.value.sqlstate == "08006"
    assert "run the query again" in (refused.value.diag.message_hint or "")
    client.execute("rollback")
    assert len(client.execute(BY_POSTGRES.encode()).fetchall()) == 9_000


def test_postgres_fdw_passes_it_on_as_such(
    client: psycopg.Connection,
    lake_server: LakeServer,
    postgres: psycopg.Connection,
    empty_database: str,
    connect: Connect,
) -> None:
    reader = connect(empty_database)
    lakeserver.create_foreign_server(reader, lake_server.port)
    lakeserver.create_foreign_table(reader, events(), RemoteName(7, None, 10_000), "events")
    reader.execute("alter server lake options (set fetch_size '10')")
    reader.execute("begin")
    reader.execute("declare c cursor for select id from events where note > 'note'")
    assert len(reader.execute("fetch 10 from c").fetchall()) == 10
    postgres.execute(f"select pg_terminate_backend(pid) {OWN}".encode())
    with pytest.raises(errors.ConnectionFailure, match="lost its own session"):
        reader.execute("fetch all from c")
    reader.execute("rollback")
    assert reader.execute("select count(*) from events where note > 'note'").fetchone() == (9_000,)


def test_a_cancel_that_the_client_did_not_ask_for_is_not_told_as_one(
    client: psycopg.Connection, postgres: psycopg.Connection
) -> None:
    crossing = f"select count(*) from {REMOTE} a, {REMOTE} b where upper(a.note) > lower(b.note)"
    running = f"{OWN} and query like 'fetch%' and state = 'active'"

    def cancel() -> None:
        until(lambda: postgres.execute(f"select pg_cancel_backend(pid) {running}".encode()).fetchall())

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(errors.SystemError, match="canceling statement due to user request") as refused:
        client.execute(crossing.encode())
    thread.join()
    assert refused.value.sqlstate == "58000"
    assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize(
    "setting",
    [
        "statement_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '50ms'",
        "idle_session_timeout = '50ms'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
    ],
)
def test_limits_that_are_meant_for_others_do_not_end_a_clients_query(
    client: psycopg.Connection, postgres: psycopg.Connection, setting: str
) -> None:
    name = sql.Identifier(postgres.info.dbname)
    postgres.execute(sql.SQL("alter database {} set " + setting).format(name))  # pyright: ignore[reportArgumentType]
    half_read(client)
    threading.Event().wait(0.2)
    assert len(client.execute("fetch all from c").fetchall()) == 8_990


def test_a_transaction_timeout_does_not_either(client: psycopg.Connection, postgres: psycopg.Connection) -> None:
    if postgres.info.server_version < 170_000:
        pytest.skip("this Postgres has none")
    name = sql.Identifier(postgres.info.dbname)
    postgres.execute(sql.SQL("alter database {} set transaction_timeout = '2s'").format(name))
    half_read(client)
    threading.Event().wait(2.5)
    assert len(client.execute("fetch all from c").fetchall()) == 8_990


def test_a_role_that_may_make_no_temporary_table_is_told_apart_from_the_clients(
    client: psycopg.Connection, lake_server: LakeServer, postgres: psycopg.Connection, empty_database: str
) -> None:
    name = sql.Identifier(postgres.info.dbname)
    postgres.execute("create role small login password 'small'")
    try:
        postgres.execute(sql.SQL("revoke temporary on database {} from public").format(name))
        dsn = conninfo.make_conninfo(empty_database, user="small", password="small")
        object.__setattr__(lake_server.backend, "postgres_dsn", dsn)
        with pytest.raises(errors.SystemError, match="which the lake server's role may not make"):
            client.execute(BY_POSTGRES.encode())
    finally:
        postgres.execute("drop role small")


def test_a_catalog_that_hangs_up_is_unavailable(empty_database: str) -> None:
    tables = CatalogTables(empty_database)
    with pytest.raises(UnavailableError, match="lost its own session"):
        tables._ask(lambda connection: connection.execute("select pg_terminate_backend(pg_backend_pid())"))
    with pytest.raises(OwnSessionFailed, match="SQLSTATE 40001"):
        tables._ask(lambda connection: connection.execute("do $$begin raise 'x' using errcode = '40001'; end$$"))


SESSIONS = ("08", "24", "25", "26", "28", "2D", "34", "3B", "3D", "40", "55", "57")
"""Classes that speak of a session or transaction."""


def test_no_client_takes_it_for_its_own_session() -> None:
    for state in sorted(errors._sqlcodes):
        error = explained(errors.lookup(state)("said"), None, was_cancelled=False)
        if state[:2] in SESSIONS:
            assert (error.sqlstate in ("08006", "58000"), "own session" in str(error)) == (True, True), state
        if state[:2] in ("22", "42", "53"):
            assert error.sqlstate == state


def test_a_cancel_that_the_client_asked_for_is_one() -> None:
    for kind in (errors.QueryCanceled, errors.AdminShutdown):
        assert explained(kind("said"), None, was_cancelled=True).sqlstate == "57014"


def test_a_file_whose_name_has_the_word_in_it_was_not_cancelled() -> None:
    failed = explained_engine(duckdb.IOException("IO Error: cannot open /lake/INTERRUPTS/1.parquet"))
    assert isinstance(failed, UnreadableFile)
