"""Long lists of keys, as applications write them and as postgres_fdw sends them; and what is too long."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import errors
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first, some

from frostline.model.names import RemoteName
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer

Connect = Callable[[str], psycopg.Connection]
ROWS = 1_000
REMOTE = '"x"."7[,1000)"'


def events() -> Table:
    return lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8")], "key", TierKind.BIGINT)


@pytest.fixture(autouse=True)
def published(stored: StoredTables) -> None:
    """A thousand rows, with ids that are twice the key."""
    stored.add(events())
    stored.publish(7, 1, {"id": [2 * number for number in range(ROWS)], "key": list(range(ROWS))})


@pytest.fixture
def client(lake_server: LakeServer, empty_database: str, connect: Connect) -> psycopg.Connection:
    """A Postgres with the foreign table `events`."""
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, lake_server.port)
    lakeserver.create_foreign_table(connection, events(), RemoteName(7, None, ROWS), "events")
    return connection


@pytest.fixture
def direct(lake_server: LakeServer) -> Iterator[psycopg.Connection]:
    """A client of the lake server itself."""
    with psycopg.connect(lakeserver.lake_dsn(lake_server), autocommit=True) as connection:
        yield connection


def listed(count: int) -> str:
    return ",".join(map(str, range(count)))


@pytest.mark.parametrize(
    ("condition", "count"),
    first(
        3,
        [
            (f"id in ({listed(30_000)})", ROWS),
            (f"id <> all ('{{{listed(1_000)}}}')", ROWS // 2),
            (f"id = any ('{{{listed(300_000)}}}')", ROWS),
            (" or ".join(f"id = {number}" for number in range(3_000)), ROWS),
            (f"(id, key) in ({','.join(f'({2 * number}, {number})' for number in range(2_000))})", ROWS),
            (" or ".join(f"(id = {number} and key > 499)" for number in range(2_000)), ROWS // 2),
        ],
    ),
    ids=["in", "all", "longer than DuckDB gets", "or", "pairs", "or of and"],
)
def test_postgres_fdw_sends_long_lists(client: psycopg.Connection, condition: str, count: int) -> None:
    assert client.execute(f"select count(*) from events where {condition}".encode()).fetchone() == (count,)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("length", some([100_000, 300_000], 100_000))
def test_a_long_array_may_be_a_parameter(client: psycopg.Connection, mode: str, length: int) -> None:
    client.execute(f"set plan_cache_mode = {mode}".encode())
    query = "select count(*) from events where id = any (%s::bigint[])"
    assert client.execute(query, [list(range(length))], prepare=True).fetchone() == (ROWS,)


def test_what_is_too_long_is_refused_with_a_way_out(direct: psycopg.Connection) -> None:
    megabytes = f"select id from {REMOTE} where id in ({'1,' * 2_000_000}1)"
    with pytest.raises(errors.StatementTooComplex) as refused:
        direct.execute(megabytes.encode())
    assert "any ($1)" in (refused.value.diag.message_hint or "")
    keys = "{" + listed(2_000) + "}"
    cursor = psycopg.RawCursor(direct)
    assert len(cursor.execute(f"select id from {REMOTE} where id = any ($1)".encode(), [keys]).fetchall()) == ROWS


def test_what_is_too_deep_is_refused_and_the_server_lives_on(direct: psycopg.Connection) -> None:
    for middle in ("(" * 300_000, "not " * 100_000, "f(" * 40_000, "1" + " + 1" * 40_000, "- " * 50_000):
        with pytest.raises((errors.StatementTooComplex, errors.SyntaxError)):
            direct.execute(f"select {middle} from {REMOTE}".encode())
    assert direct.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("link", [" + 0", "::bigint", " - - 0"])
def test_what_is_just_not_too_deep_is_answered(direct: psycopg.Connection, link: str) -> None:
    query = f"select count(*) from {REMOTE} where (id{link * 400}) >= 0"
    assert direct.execute(query.encode()).fetchone() == (ROWS,)
