"""The lake server's metrics, scraped over HTTP while Postgres asks it."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.scraped import Page, scrape
from tests.fixtures.statements import rows, run

from frostline.errors import UsageError
from frostline.model.names import RemoteName
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.observe.metrics import lake_server as lake_metrics
from frostline.observe.metrics.http import Endpoint
from frostline.runtime import lake_server as lake
from frostline.runtime.install import install
from frostline.runtime.postgres import free_port
from frostline.server.listen import LakeServer
from frostline.server.protocol.frontend import Describe, Parse
from frostline.server.session import Session
from frostline.settings import Settings

Connect = Callable[[str], psycopg.Connection]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
EVENTS = '"x"."7[,9999999)"'


def events() -> Table:
    return lakeserver.table(7, [column(1, "id", "int8"), column(2, "k", "int8")], "k", TierKind.BIGINT)


@pytest.fixture
def port(lake_server: LakeServer, stored: StoredTables) -> Iterator[int]:
    """Where the metrics of a lake server are, that has 100 rows in two files."""
    stored.add(events())
    halves = [{"id": list(range(first, first + 50)), "k": list(range(first, first + 50))} for first in (0, 50)]
    stored.publish(7, 1, *halves)
    endpoint = Endpoint("127.0.0.1", 0, lambda: lake_metrics.families(lake_server))
    yield endpoint.port
    endpoint.stop()


@pytest.fixture
def client(port: int, lake_server: LakeServer, empty_database: str, connect: Connect) -> psycopg.Connection:
    """A Postgres connection with the foreign table `events`."""
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, lake_server.port)
    lakeserver.create_foreign_table(connection, events(), RemoteName(7, None, 9_999_999), "events")
    return connection


def queries(page: Page) -> dict[str, float]:
    return {
        outcome: page.value("frostline_lake_queries_total", outcome=outcome) for outcome in ("ok", "error", "cancelled")
    }


def test_before_the_first_query_everything_is_there_and_zero(port: int) -> None:
    page = scrape(port)
    assert page.kinds == {
        "frostline_lake_queries_total": "counter",
        "frostline_lake_query_seconds": "histogram",
        "frostline_lake_rows_sent_total": "counter",
        "frostline_lake_sent_bytes_total": "counter",
        "frostline_lake_files_total": "counter",
        "frostline_lake_compared_bytes_total": "counter",
        "frostline_lake_sessions": "gauge",
        "frostline_lake_strangers": "gauge",
        "frostline_lake_turned_out_total": "counter",
        "frostline_lake_memory_bytes": "gauge",
    }
    assert {value for (name, _), value in page.samples.items() if name != "frostline_lake_memory_bytes"} == {0}


def test_the_page_describes_every_metric(port: int) -> None:
    # Those of lake tables are the worker's.
    described = re.findall(r"^\| `(frostline_lake_(?!table_)\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(described) == scrape(port).kinds


def test_queries_of_postgres_are_counted(client: psycopg.Connection, port: int) -> None:
    assert len(rows(client, "select * from events")) == 100
    page = scrape(port)
    assert queries(page) == {"ok": 1, "error": 0, "cancelled": 0}
    assert page.value("frostline_lake_rows_sent_total") == 100
    assert page.value("frostline_lake_sent_bytes_total") > 100 * 10
    assert page.value("frostline_lake_files_total", fate="opened") == 2
    assert page.value("frostline_lake_query_seconds_count") == 1
    assert page.value("frostline_lake_query_seconds_sum") > 0
    assert page.value("frostline_lake_sessions") == 1  # postgres_fdw keeps its connection
    assert page.value("frostline_lake_memory_bytes") > 0
    assert rows(client, "select id from events where k = 60") == [(60,)]
    after = scrape(port)
    assert queries(after)["ok"] == 2
    assert after.value("frostline_lake_rows_sent_total") == 101
    assert after.value("frostline_lake_files_total", fate="opened") == 3
    assert after.value("frostline_lake_files_total", fate="pruned") == 1


def test_a_query_that_postgres_breaks_off_is_counted_too(client: psycopg.Connection, port: int) -> None:
    assert len(rows(client, "select id from events limit 3")) == 3
    assert queries(scrape(port)) == {"ok": 1, "error": 0, "cancelled": 0}


def test_files_that_the_fallback_reads_are_counted(
    client: psycopg.Connection, lake_server: LakeServer, port: int
) -> None:
    with psycopg.connect(lakeserver.lake_dsn(lake_server), autocommit=True) as direct:
        received = rows(direct, f"select to_hex(id) from {EVENTS} where k = 10")
    assert received == [("a",)]
    assert scrape(port).value("frostline_lake_files_total", fate="opened") >= 1
    assert queries(scrape(port))["ok"] == 1


@pytest.mark.parametrize("wrong", ["select nothing from", f"select nosuch from {EVENTS}", 'select 1 from "x"."99[,5)"'])
def test_what_fails_is_counted_as_an_error_once(lake_server: LakeServer, port: int, wrong: str) -> None:
    with psycopg.connect(lakeserver.lake_dsn(lake_server), autocommit=True) as direct:
        with pytest.raises(psycopg.Error):
            run(direct, wrong)
        assert queries(scrape(port)) == {"ok": 0, "error": 1, "cancelled": 0}
        assert rows(direct, "select 1") == [(1,)]
    assert queries(scrape(port)) == {"ok": 1, "error": 1, "cancelled": 0}


def test_a_file_that_is_gone_is_an_error_of_the_query(
    client: psycopg.Connection, port: int, stored: StoredTables
) -> None:
    for file in stored.directory.glob("*.parquet"):
        file.unlink()
    with pytest.raises(psycopg.Error):
        rows(client, "select * from events")
    assert queries(scrape(port)) == {"ok": 0, "error": 1, "cancelled": 0}


def test_a_cancelled_query_is_counted_as_such(lake_server: LakeServer, port: int) -> None:
    crossing = f"select count(*) from {', '.join(f'{EVENTS} t{number}' for number in range(6))}"
    with psycopg.connect(lakeserver.lake_dsn(lake_server), autocommit=True) as direct:
        timer = threading.Timer(0.5, direct.cancel_safe)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            run(direct, crossing)
        timer.join()
    assert queries(scrape(port)) == {"ok": 0, "error": 0, "cancelled": 1}


def test_a_statement_that_is_only_described_is_no_query(lake_server: LakeServer, port: int) -> None:
    session = Session(lake_server.backend)
    answers = [*session.receive(Parse("named", f"select id from {EVENTS}")), *session.receive(Describe("S", "named"))]
    session.close()
    assert b"T" in [bytes(message)[:1] for message in answers]  # a row description
    assert queries(scrape(port)) == {"ok": 0, "error": 0, "cancelled": 0}


@pytest.fixture
def settings(empty_database: str, tmp_path: Path) -> Settings:
    """An installed database, whose lake server is to have metrics."""
    chosen = Settings(
        dsn=empty_database, warehouse=str(tmp_path), lake_port=free_port(), lake_metrics_port=free_port()
    )  # fmt: skip
    install(chosen)
    return chosen


def test_the_port_of_the_settings_is_open_while_the_lake_server_runs(settings: Settings) -> None:
    assert settings.lake_metrics_port
    with lake.running(settings):
        assert queries(scrape(settings.lake_metrics_port))["ok"] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", settings.lake_metrics_port))


def test_without_the_setting_there_is_no_port(settings: Settings) -> None:
    assert settings.lake_metrics_port
    with lake.running(settings.model_copy(update={"lake_metrics_port": None})), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", settings.lake_metrics_port))


def test_a_port_for_metrics_that_is_taken_stops_the_lake_server_again(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.lake_metrics_port or 0)):
        with pytest.raises(UsageError, match="cannot serve metrics"), lake.running(settings):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", settings.lake_port))
