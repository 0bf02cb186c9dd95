"""Stock Postgres with postgres_fdw reads Parquet files through the lake server."""

import decimal
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first

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
        "amount": [decimal.Decimal(f"{number}.50") for number in numbers],
        "note": [f"note {number}" for number in numbers],
    }


@pytest.fixture
def client(lake_server: LakeServer, stored: StoredTables, empty_database: str, connect: Connect) -> psycopg.Connection:
    """A Postgres connection with the foreign table `events`: 100 rows of January to April 2024 in two files."""
    stored.add(events())
    stored.publish(7, 1, rows(0, 50), rows(50, 50))
    connection = connect(empty_database)
    lakeserver.create_foreign_server(connection, lake_server.port)
    lakeserver.create_foreign_table(connection, events(), RemoteName(7, None, START + 100 * DAY), "events")
    return connection


def plan_of(connection: psycopg.Connection, query: str) -> str:
    return "\n".join(
        line[0] for line in connection.execute(f"explain (verbose, costs off) {query}".encode()).fetchall()
    )


def count(connection: psycopg.Connection, condition: str) -> int:
    row = connection.execute(f"select count(*) from events where {condition}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_every_row_arrives_with_its_values(client: psycopg.Connection) -> None:
    received = client.execute("select id, ts, status, amount, note from events order by id").fetchall()
    assert len(received) == 100
    assert [str(value) for value in received[1]] == ["1", "2024-01-02 00:00:00+00:00", "fail", "1.50", "note 1"]
    assert received[2][2] is None


def test_conditions_are_sent_and_answered(client: psycopg.Connection) -> None:
    assert "WHERE ((id = 5))" in plan_of(client, "select id from events where id = 5")
    assert client.execute("select id from events where id = 5").fetchall() == [(5,)]
    assert count(client, "status = 'ok' and amount > 10") == 30
    assert count(client, "status = any ('{ok,fail}') and ts < '2024-02-01'") == 21


def test_what_duckdb_may_order_otherwise_is_answered_by_postgres(
    client: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "frostline.server"):
        assert count(client, "note > 'note 5'") == 54
    assert "engine=postgres" in caplog.text


def test_only_rows_within_the_foreign_tables_bounds_are_returned(client: psycopg.Connection) -> None:
    part = RemoteName(7, START + 10 * DAY, START + 60 * DAY)
    lakeserver.create_foreign_table(client, events(), part, "part")
    assert client.execute("select min(id), max(id), count(*) from part").fetchone() == (10, 59, 50)


def test_the_snapshot_column_pins_the_snapshot(client: psycopg.Connection, stored: StoredTables) -> None:
    stored.publish(7, 2, rows(0, 10))
    assert count(client, "frostline_snapshot = 1") == 100
    assert count(client, "frostline_snapshot = 2") == 10
    assert count(client, "true") == 10
    assert count(client, "frostline_snapshot = null::bigint") == 0
    assert client.execute("select distinct frostline_snapshot from events").fetchall() == [(2,)]
    assert client.execute("select distinct frostline_snapshot from events where frostline_snapshot = 1").fetchall() == [
        (1,)
    ]


def test_the_snapshot_may_come_from_another_table_at_run_time(client: psycopg.Connection, stored: StoredTables) -> None:
    stored.publish(7, 2, rows(0, 10))
    client.execute("create table seam as select 1::bigint as snapshot_id")
    query = "select count(*) from events where frostline_snapshot = (select snapshot_id from seam)"
    assert "frostline_snapshot = $1::bigint" in plan_of(client, query.replace("count(*)", "id"))
    assert client.execute(query).fetchone() == (100,)
    client.execute("update seam set snapshot_id = null")
    assert client.execute(query).fetchone() == (0,)


def test_parameters_of_generic_plans_are_sent(client: psycopg.Connection) -> None:
    client.execute("set plan_cache_mode = force_generic_plan")
    client.execute(
        "prepare q (bigint, text, timestamptz) as"
        " select id from events where id < $1 and status = $2 and ts > $3 order by 1"
    )
    assert "$1::bigint" in plan_of(client, "execute q (10, 'ok', '2024-01-02')")
    for _ in range(3):
        assert client.execute("execute q (10, 'ok', '2024-01-02')").fetchall() == [(3,), (6,), (9,)]
    assert client.execute("execute q (10, null, '2024-01-02')").fetchall() == []
    client.execute("prepare l (text) as select count(*) from events where note ~ $1")
    assert client.execute("execute l ('9$')").fetchone() == (10,)


def test_order_and_limit_are_sent(client: psycopg.Connection) -> None:
    query = "select id from events where status is not null order by amount desc limit 3 offset 1"
    assert "LIMIT 3::bigint" in plan_of(client, query)
    assert client.execute(query).fetchall() == [(97,), (96,), (94,)]
    assert client.execute("select note from events order by note desc limit 1").fetchone() == ("note 99",)


def test_joins_of_foreign_tables_are_answered(client: psycopg.Connection) -> None:
    query = "select count(*) from events a join events b on a.id = b.id + 1 where a.status = 'ok'"
    assert client.execute(query).fetchone() == (33,)
    assert client.execute(
        "select a.id, b.id from events a left join events b on a.id = b.id and b.id > 98 where a.id > 97 order by 1"
    ).fetchall() == [(98, None), (99, 99)]


def test_a_rescan_starts_again(client: psycopg.Connection) -> None:
    client.execute("create table few as select 1 as n union all select 2")
    client.execute("set enable_hashjoin = off; set enable_mergejoin = off; set enable_material = off")
    assert client.execute("select count(*) from few left join events on events.id < few.n + 5").fetchone() == (13,)


def test_savepoints_and_errors_inside_a_transaction(client: psycopg.Connection) -> None:
    with client.transaction():
        assert count(client, "id < 3") == 3
        with pytest.raises(psycopg.errors.DivisionByZero), client.transaction():
            count(client, "amount / (id - id) > 1")
        assert count(client, "id < 4") == 4


def test_analyze_learns_the_statistics(client: psycopg.Connection) -> None:
    client.execute("analyze events")
    assert client.execute("select reltuples from pg_class where relname = 'events'").fetchone() == (100,)
    assert client.execute("select count(*) from pg_stats where tablename = 'events'").fetchone() == (6,)


def test_analyze_of_a_large_table_takes_a_sample(client: psycopg.Connection, stored: StoredTables) -> None:
    stored.publish(7, 2, rows(0, 95))
    client.execute("alter foreign table events alter id set statistics 1")
    for method in ("system", "bernoulli", "random", "off"):
        if client.info.server_version >= 160000:
            client.execute(f"alter foreign table events options (add analyze_sampling '{method}')".encode())
        client.execute("analyze events (id)")
        client.execute(
            "alter foreign table events options (drop analyze_sampling)"
        ) if client.info.server_version >= 160000 else None
    assert client.execute("select reltuples > 0 from pg_class where relname = 'events'").fetchone() == (True,)


def test_a_table_without_files_is_empty(client: psycopg.Connection, stored: StoredTables) -> None:
    stored.add(lakeserver.table(8, events().columns, "ts", TierKind.TIMESTAMPTZ))
    lakeserver.create_foreign_table(client, stored.resolve(8), RemoteName(8, None, START), "nothing")
    assert client.execute("select * from nothing where note > 'a' and id > 3").fetchall() == []
    assert client.execute("select count(*) from nothing").fetchone() == (0,)
    client.execute("analyze nothing")


def test_columns_are_found_by_field_id_after_a_rename(client: psycopg.Connection, stored: StoredTables) -> None:
    renamed = [
        column(4, "price", "numeric", precision=12, scale=2),
        column(1, "number", "int8"),
        column(9, "added", "text"),
    ]
    stored.add(lakeserver.table(7, [events().column("ts"), *renamed], "ts", TierKind.TIMESTAMPTZ))
    lakeserver.create_foreign_table(client, stored.resolve(7), RemoteName(7, None, START + 5 * DAY), "renamed")
    assert client.execute("select number, price::text, added from renamed where price > 3").fetchall() == [
        (3, "3.50", None),
        (4, "4.50", None),
    ]


def test_a_missing_file_is_named_in_the_error(client: psycopg.Connection, stored: StoredTables) -> None:
    lost = Path(stored.files(7, 1)[0].path)
    lost.unlink()
    with pytest.raises(psycopg.errors.IoError, match=lost.name) as caught:
        count(client, "id = 5")
    assert "frostline verify" in str(caught.value.diag.message_hint)
    assert count(client, "ts > '2024-03-01'") == 39


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(lake_server: LakeServer) -> None:
    messages: list[str] = []
    for user, password in ((lakeserver.USER, "wrong"), ("nobody", lakeserver.PASSWORD)):
        dsn = conninfo.make_conninfo(lakeserver.lake_dsn(lake_server), user=user, password=password)
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(dsn)
        messages.append(str(caught.value).replace(user, "?"))
    assert messages[0] == messages[1]
    assert "password authentication failed" in messages[0]


@pytest.mark.parametrize(
    "refused",
    first(
        8,
        [
            "select * from read_parquet('/etc/passwd')",
            "select * from pg_catalog.pg_authid",
            'select pg_read_file(\'/etc/passwd\') from "x"."7[,9)"',
            'select pg_sleep(100) from "x"."7[,9)"',
            "select set_config('a.b', 'c', false) from \"x\".\"7[,9)\"",
            "select query_to_xml('select 1', true, true, '') from \"x\".\"7[,9)\"",
            "select table_to_xml('pg_class', true, true, '') from \"x\".\"7[,9)\"",
            'select (select rolpassword from pg_authid limit 1) from "x"."7[,9)"',
            'with x as (delete from "x"."7[,9)" returning 1) select * from x',
            'select * into t from "x"."7[,9)"',
            'select * from "x"."7[,9)" for update',
            "attach '/tmp/x.db'",
            "copy (select 1) to '/tmp/x'",
            "set memory_limit = '100GB'",
            "set timezone = 'Europe/Berlin'",
            "create table t (a int)",
            'insert into "x"."7[,9)" values (1)',
            "do $$ begin end $$",
            "select",
            'select 1 from "x"."99[,9)"',
            'select nothing from "x"."7[,9)"',
            "syntax error",
        ],
    ),
)
def test_everything_else_is_refused(
    client: psycopg.Connection, lake_server: LakeServer, connect: Connect, refused: str
) -> None:
    direct = connect(lakeserver.lake_dsn(lake_server))
    with pytest.raises(psycopg.Error) as caught:
        direct.execute(refused.encode())
    assert caught.value.sqlstate not in (None, "XX000")
    assert direct.execute("select 1").fetchone() == (1,)


def test_a_direct_client_is_served(client: psycopg.Connection, lake_server: LakeServer, connect: Connect) -> None:
    direct = connect(lakeserver.lake_dsn(lake_server))
    name = '"public.events"."7[,9999999999999999)"'
    assert direct.execute("show server_version").fetchone() == ("15.0",)
    assert direct.execute(f"select count(*), max(amount) from {name}".encode()).fetchone() == (
        100,
        decimal.Decimal("99.50"),
    )
    assert len(direct.execute(f"select * from {name} where id between 3 and 7".encode()).fetchall()) == 5
    for _ in range(8):
        assert direct.execute(
            f"select id from {name} where id = %s::bigint".encode(), ["5"], prepare=True
        ).fetchall() == [(5,)]
    with direct.transaction(), direct.cursor("c") as cursor:
        cursor.execute(f"select id from {name} order by id".encode())
        assert [row[0] for row in cursor.fetchmany(3)] == [0, 1, 2]
        assert len(cursor.fetchall()) == 97


def test_many_sessions_at_once(client: psycopg.Connection, empty_database: str) -> None:
    answers: list[object] = []

    def ask() -> None:
        with psycopg.connect(empty_database) as connection:
            answers.extend(
                connection.execute("select count(*), sum(id) from events where status = 'ok' or id > 90").fetchall()
                for _ in range(5)
            )

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[(40, sum({*range(0, 100, 3), *range(91, 100)}))]] * 60


def test_a_dropped_client_disturbs_nobody(
    client: psycopg.Connection, lake_server: LakeServer, connect: Connect
) -> None:
    for sent in (
        b"",
        b"\x00\x00\x00",
        struct.pack("!ii", 8, 80877103),
        struct.pack("!ii", 2**30, 196608),
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", lake_server.port)) as raw:
            raw.sendall(sent)
    stuck = connect(lakeserver.lake_dsn(lake_server))
    stuck.execute("begin")
    stuck.execute('declare c cursor for select * from "x"."7[,9999999999999999)"')
    with socket.socket(fileno=os.dup(stuck.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)
    assert count(client, "true") == 100


def test_a_running_query_can_be_cancelled(
    client: psycopg.Connection, lake_server: LakeServer, stored: StoredTables, connect: Connect
) -> None:
    direct = connect(lakeserver.lake_dsn(lake_server))
    name = '"x"."7[,9999999999999999)"'
    crossing = f"select count(*) from {name} a, {name} b, {name} c, {name} d, {name} e"
    timer = threading.Timer(1, direct.cancel_safe)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        direct.execute(crossing.encode())
    assert direct.execute("select 1").fetchone() == (1,)


def test_too_many_sessions_are_refused(stored: StoredTables) -> None:
    server = LakeServer("127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, None, max_sessions=1)
    server.start()
    refused = pytest.raises(psycopg.OperationalError, match="too many clients")
    with psycopg.connect(lakeserver.lake_dsn(server)), refused:
        psycopg.connect(lakeserver.lake_dsn(server))
    server.stop()
