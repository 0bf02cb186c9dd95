"""Stock Postgres with postgres_fdw reads Parquet files through the lake server."""

from collections.abc import Callable

import psycopg
import pytest
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column

from frostline.model.names import RemoteName
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, from_text
from frostline.model.types import Collation
from frostline.server.listen import LakeServer

pytestmark = pytest.mark.usefixtures("lake_server")

DAY = 86_400_000_000
START = from_text(TierKind.TIMESTAMPTZ, "2024-01-01 00:00:00+00")
Connect = Callable[[str], psycopg.Connection]


def events() -> Table:
    return lakeserver.table(
        7,
        [
            column(1, "id", "int8"),
            column(2, "ts", "timestamptz"),
            column(3, "status", "text", collation=Collation.BYTES),
            column(4, "amount", "numeric", precision=12, scale=2),
            column(5, "note", "text", collation=Collation.LINGUISTIC),
        ],
        "ts",
        TierKind.TIMESTAMPTZ,
    )


def rows(first: int, count: int) -> dict[str, list[object]]:
    numbers = range(first, first + count)
    return {
        "id": list(numbers),
        "ts": [START + number * DAY for number in numbers],
        "status": [("ok", "fail", None)[number % 3] for number in numbers],
        "amount": [f"{number}.50" for number in numbers],
        "note": [f"note {number}" for number in numbers],
    }


@pytest.fixture
def client(lake_server: LakeServer, stored: StoredTables, empty_database: str, connect: Connect) -> psycopg.Connection:
    """A Postgres connection with the foreign table `events`: 100 rows of January to April 2024 in two files."""
    import decimal

    stored.add(events())
    data = [rows(0, 50), rows(50, 50)]
    for part in data:
        part["amount"] = [decimal.Decimal(str(value)) for value in part["amount"]]
    stored.publish(7, 1, *data)
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, lake_server.port)
    lakeserver.create_foreign_table(connection, events(), RemoteName(7, None, START + 100 * DAY), "events")
    return connection


def test_every_row_arrives_with_its_values(client: psycopg.Connection) -> None:
    found = client.execute("select id, ts, status, amount, note from events order by id").fetchall()
    assert len(found) == 100
    assert [str(value) for value in found[1]] == ["1", "2024-01-02 00:00:00+00:00", "fail", "1.50", "note 1"]
    assert found[2][2] is None


def test_conditions_are_sent_and_answered(client: psycopg.Connection) -> None:
    plan = client.execute("explain (verbose, costs off) select id from events where id = 5").fetchall()
    assert any("WHERE ((id = 5))" in line[0] for line in plan)
    assert client.execute("select id from events where id = 5").fetchall() == [(5,)]
    assert client.execute("select count(*) from events where status = 'ok' and amount > 10").fetchone() == (30,)
    assert client.execute("select count(*) from events where note > 'note 5'").fetchone() == (54,)


def test_a_direct_client_connects(client: psycopg.Connection, lake_server: LakeServer, connect: Connect) -> None:
    direct = connect(lakeserver.lake_dsn(lake_server))
    assert direct.execute("select 1").fetchone() == (1,)
    assert (
        direct.execute('select count(*), max(amount) from "public.events"."7[,9999999999999999)"').fetchone()[0] == 100
    )
