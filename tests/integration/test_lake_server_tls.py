"""Encrypted connections to the lake server, as the settings ask for them."""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import duckdb
import psycopg
import pytest
import requests
from psycopg import conninfo
from pyiceberg.catalog.rest import RestCatalog
from tests.fixtures import lakeserver
from tests.fixtures.catalogserver import NUMBERS, numbers
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.other_engines import load

from frostline.catalog import tokens
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.lake import claim
from frostline.model.names import RemoteName
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.runtime import lake_server as lake
from frostline.runtime.postgres import free_port
from frostline.server.listen import LakeServer
from frostline.settings import Settings

Connect = Callable[[str], psycopg.Connection]
REMOTE = '"public.rows"."7[,100)"'
COMMAND = ("req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost", "-addext")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate that signed itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "server.crt"), str(folder / "server.key")
    command = [openssl, *COMMAND, "subjectAltName=IP:127.0.0.1", "-nodes", "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def rows() -> Table:
    return lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT)


@pytest.fixture
def encrypted(stored: StoredTables, empty_database: str, pair: tuple[str, str]) -> Iterator[LakeServer]:
    """A lake server with a certificate and three rows."""
    stored.add(rows())
    stored.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3]})
    encryption = lake.tls_context(*pair)
    server = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, empty_database, tls=encryption)
    server.start()
    yield server
    server.stop()


def test_a_client_that_asks_for_it_gets_a_checked_encrypted_connection(
    encrypted: LakeServer, pair: tuple[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.server.connection._CANCEL_PATIENCE_S", 60.0)
    dsn = conninfo.make_conninfo(lakeserver.lake_dsn(encrypted), sslmode="verify-full", sslrootcert=pair[0])
    direct = connect(dsn)
    assert direct.pgconn.ssl_in_use
    assert direct.execute(f"select id from {REMOTE} order by id".encode()).fetchall() == [(1,), (2,), (3,)]
    crossing = ", ".join(f"{REMOTE} t{number}" for number in range(30))
    timer = threading.Timer(0.5, direct.cancel_safe)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        direct.execute(f"select count(*) from {crossing}".encode())
    timer.join()
    plain = connect(conninfo.make_conninfo(lakeserver.lake_dsn(encrypted), sslmode="disable"))
    assert not plain.pgconn.ssl_in_use


def test_postgres_fdw_reads_through_it(encrypted: LakeServer, empty_database: str, connect: Connect) -> None:
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, encrypted.port)
    connection.execute("alter server lake options (add sslmode 'require')")
    # Where a client's own certificate would be: not in the home of whoever runs the tests, which Postgres cannot read.
    connection.execute("alter user mapping for public server lake options (add sslcert '/nowhere/client.crt')")
    lakeserver.create_foreign_table(connection, rows(), RemoteName(7, None, 100), "lake_rows")
    try:
        assert connection.execute("select sum(id) from lake_rows where key > 1").fetchone() == (5,)
    except psycopg.errors.SqlclientUnableToEstablishSqlconnection as error:
        if "SSL support is not compiled in" in str(error):
            pytest.skip("this Postgres was built without TLS")
        raise


def test_without_a_certificate_a_client_that_insists_is_refused(lake_server: LakeServer) -> None:
    dsn = conninfo.make_conninfo(lakeserver.lake_dsn(lake_server), sslmode="require")
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        psycopg.connect(dsn)


def test_the_catalog_server_uses_the_same_certificate(
    database: str, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # what they name counts for more than a session's own
        monkeypatch.delenv(variable, raising=False)
    settings = Settings(
        dsn=database,
        warehouse=str(tmp_path),
        lake_port=free_port(),
        lake_password="sesame",  # pyright: ignore[reportArgumentType]
        lake_tls_certificate=pair[0],
        lake_tls_key=pair[1],
        rest_listen="0.0.0.0",
        rest_port=free_port(),
    )
    with open_connection(database, purpose="tests") as connection:
        claim.claim(connection, str(tmp_path))
        token = tokens.create(connection, "postgres", may_write=True, days=None)[1]
    with lake.running(settings):
        address, headers = f"127.0.0.1:{settings.rest_port}/v1/config", {"Authorization": f"Bearer {token}"}
        assert requests.get(f"https://{address}", headers=headers, verify=pair[0], timeout=60).status_code == 200
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{address}", timeout=60)
        uri, encryption = f"https://127.0.0.1:{settings.rest_port}", cast(Any, {"ssl": {"cabundle": pair[0]}})
        catalog = RestCatalog("frostline", uri=uri, token=token, **encryption)
        catalog.create_namespace("app")
        catalog.create_table("app.numbers", NUMBERS).append(numbers(1, 2))
        with duckdb.connect() as engine:
            load(engine)
            engine.execute(f"set ca_cert_file = '{pair[0]}'")
            engine.execute(f"create secret (type iceberg, token '{token}')")
            engine.execute(f"attach 'frostline' as lake (type iceberg, endpoint '{uri}')")
            engine.execute("insert into lake.app.numbers values (3, 'by DuckDB')")
        assert set(catalog.load_table("app.numbers").scan().to_arrow()["id"].to_pylist()) == {1, 2, 3}
        catalog.close()


def test_the_settings_reach_the_server(database: str, pair: tuple[str, str], tmp_path: Path, connect: Connect) -> None:
    settings = Settings(
        dsn=database,
        warehouse=str(tmp_path),
        lake_port=free_port(),
        lake_password="sesame",  # pyright: ignore[reportArgumentType]
        lake_tls_certificate=pair[0],
        lake_tls_key=pair[1],
    )
    with open_connection(database, purpose="tests") as connection:
        claim.claim(connection, str(tmp_path))
    server = lake.start(settings)
    try:
        dsn = conninfo.make_conninfo(
            host="127.0.0.1", port=settings.lake_port, user=settings.lake_user, password="sesame", sslmode="require"
        )
        assert connect(dsn).execute("select 1").fetchone() == (1,)
    finally:
        server.stop()


def test_files_that_are_no_pair_are_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    certificate, key = pair
    nothing, text = str(tmp_path / "nothing"), str(tmp_path / "text")
    Path(text).write_text("no certificate")
    wrong = [(nothing, key), (certificate, nothing), (text, key), (certificate, text), (key, certificate)]
    for given in wrong:
        with pytest.raises(UsageError, match="cannot use the certificate"):
            lake.tls_context(*given)
    for given in ((certificate, None), (None, key)):
        with pytest.raises(UsageError, match="is set but"):
            lake.tls_context(*given)
    assert lake.tls_context(None, None) is None


def test_a_key_with_a_password_is_refused_without_asking_for_it(pair: tuple[str, str], tmp_path: Path) -> None:
    openssl, locked = str(shutil.which("openssl")), str(tmp_path / "locked.key")
    command = [openssl, "rsa", "-aes256", "-passout", "pass:sesame", "-in", pair[1], "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(UsageError, match="cannot use the certificate"):
        lake.tls_context(pair[0], locked)
