"""Where DuckDB's habits, or a client's, could make the lake server's answer another than Postgres'."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first

from frostline.model.names import RemoteName
from frostline.model.tables import Column, Table
from frostline.model.tiers import TierKind
from frostline.model.types import Collation
from frostline.server.listen import LakeServer

pytestmark = pytest.mark.usefixtures("lake_server")

Connect = Callable[[str], psycopg.Connection]
Serve = Callable[..., psycopg.Connection]
REMOTE = '"public.rows"."7[,1000)"'
DATE, TIMESTAMP, TEXT_ARRAY = 1082, 1114, 1009


def table(*columns: Column) -> Table:
    return lakeserver.table(7, [column(1, "id", "int8"), column(2, "key", "int8"), *columns], "key", TierKind.BIGINT)


@pytest.fixture
def serve(lake_server: LakeServer, stored: StoredTables, empty_database: str, connect: Connect) -> Serve:
    """Makes the foreign table `lake_rows` with columns id, key and the given ones."""

    def serve_columns(*columns: tuple[Column, list[object]]) -> psycopg.Connection:
        served = table(*(each for each, _ in columns))
        numbers = list(range(len(columns[0][1])))
        stored.add(served)
        stored.publish(7, 1, {"id": numbers, "key": numbers, **{each.name: values for each, values in columns}})
        connection = connect(empty_database)
        lakeserver.create_foreign_server(connection, lake_server.port)
        lakeserver.create_foreign_table(connection, served, RemoteName(7, None, 1000), "lake_rows")
        return connection

    return serve_columns


@pytest.fixture
def direct(serve: Serve, lake_server: LakeServer, connect: Connect) -> psycopg.Connection:
    """A client of the lake server itself, which has five rows."""
    serve(
        (column(3, "n", "int4"), [5, 4, 3, 2, 1]),
        (column(4, "day", "date"), [0, 1, 2, 3, 4]),
        (column(5, "name", "text", collation=Collation.BYTES), ["a", "b", "é", None, "e"]),
    )
    return connect(lakeserver.lake_dsn(lake_server))


def test_names_that_differ_by_case_only_are_different_columns(serve: Serve) -> None:
    connection = serve(
        (column(3, "Amount", "int4"), [1, 2, 3]),
        (column(4, "amount", "int4"), [30, 20, 10]),
        (column(5, "AMOUNT", "text", collation=Collation.BYTES), ["x", "y", "z"]),
    )
    rows = connection.execute('select "Amount", amount, "AMOUNT" from lake_rows order by id').fetchall()
    assert rows == [(1, 30, "x"), (2, 20, "y"), (3, 10, "z")]
    assert connection.execute('select id from lake_rows where amount > 10 and "Amount" > 1').fetchall() == [(1,)]
    assert connection.execute('select "Amount" from lake_rows order by amount limit 1').fetchone() == (3,)
    assert connection.execute('select sum(amount), sum("Amount") from lake_rows').fetchone() == (60, 6)


@pytest.mark.parametrize("name", ["c0", "C1", "select", 'a"b', "a'b", "*", "a:3", "rowid", "é", "file_row_number"])
def test_a_column_may_have_any_name(serve: Serve, name: str) -> None:
    connection = serve((column(3, name, "int4"), [9, 10, 1]))
    quoted = '"' + name.replace('"', '""') + '"'
    query = f"select id, {quoted} from lake_rows where {quoted} > 1 order by {quoted} limit 1"
    assert connection.execute(query.encode()).fetchall() == [(0, 9)]


def test_blanks_that_are_no_ascii_belong_to_an_arrays_element(serve: Serve) -> None:
    values: list[object] = ["a", "\u00a0a", "\u00a0", "\u3000", " a"]
    connection = serve((column(3, "name", "text", collation=Collation.BYTES), values))
    for value in values:
        rows = connection.execute("select name from lake_rows where name = any (%s::text[])", [[value]]).fetchall()
        assert rows == [(value,)]


def test_zero_is_found_where_all_zeros_are_negative(serve: Serve, stored: StoredTables) -> None:
    stored.by_duckdb = True
    connection = serve((column(3, "f", "float8"), [-0.0] * 500), (column(4, "g", "float4"), [-0.0] * 500))
    for condition in ("f = 0", "f = '-0'", "not (f <> 0)", "g = 0", "g = 0::real", "g is not distinct from 0::real"):
        assert connection.execute(f"select count(*) from lake_rows where {condition}".encode()).fetchone() == (500,)


def test_bytes_are_found_in_files_with_bloom_filters(serve: Serve, stored: StoredTables) -> None:
    stored.by_duckdb = True
    values: list[object] = [b"\0", b"\xff", b"\\", b"\n", b"'"] * 100
    connection = serve((column(3, "b", "bytea"), values))
    for value in values[:5]:
        for form in ("b = %s", "not (b <> %s)", "b = any (array[%s])", "b is not distinct from %s"):
            query = f"select count(*) from lake_rows where {form}"
            assert connection.execute(query.encode(), [value]).fetchone() == (100,)


def test_going_back_to_a_savepoint_closes_the_cursors_opened_since(serve: Serve) -> None:
    connection = serve((column(3, "n", "int4"), [1, 2, 3]))
    failed = connection.execute(
        "create function fail_often() returns int language plpgsql as $$ declare failed int = 0; begin"
        " for i in 1..1100 loop begin"
        "   perform 1 / (key - key) from lake_rows offset 0;"
        " exception when division_by_zero then failed = failed + 1; end; end loop;"
        " return failed; end $$; select fail_often()"
    )
    assert failed.nextset()
    assert failed.fetchone() == (1100,)


@pytest.mark.parametrize(
    ("query", "expected"),
    first(
        8,
        [
            (f"select n as id, id as n from {REMOTE} order by n limit 1", [(5, 0)]),
            (f"select count(*) from {REMOTE} a natural join {REMOTE} b", [(4,)]),
            (f"select count(*) from {REMOTE} a join {REMOTE} b using (n)", [(5,)]),
            (f"select t::text from {REMOTE} t where id = 2", [("(2,2,3,1970-01-03,é,1)",)]),
            (f"select * from {REMOTE} where name = 'b'", [(1, 1, 4, "1970-01-02", "b", 1)]),
            (f"select * from {REMOTE} where name || '' = 'b'", [(1, 1, 4, "1970-01-02", "b", 1)]),
            ('select id + 0 from "x" /* a */ /* b */ . "7[,2)" -- c', [(0,), (1,)]),
            ('select abort.id + 0 from "x"."7[,1)" abort', [(0,)]),
            (f"select name, 'é;' from {REMOTE} where name || 'é' = 'éé' ; ", [("é", "é;")]),
            (f"select id from {REMOTE} where " + "not " * 1000 + "id = 1", [(1,)]),
            (
                f"select id from {REMOTE} where " + "(n = 1 or " * 700 + "id = 1" + ")" * 700 + " order by id",
                [(1,), (4,)],
            ),
            (f"select id from {REMOTE} where id in (" + "1, " * 100_000 + "2) order by id", [(1,), (2,)]),
            (
                f"select count(*) from {REMOTE} where " + " and ".join(f"n <> {number}" for number in range(2, 3000)),
                [(1,)],
            ),
            (f"select id from {REMOTE} where " + " or ".join(f"n = {number}" for number in range(5, 3000)), [(0,)]),
            (f"select id from {REMOTE} where id = {'9' * 6000}", []),
        ],
    ),
)
def test_a_direct_client_gets_postgres_answer(
    direct: psycopg.Connection, query: str, expected: list[tuple[object, ...]]
) -> None:
    received = [tuple(str(value) for value in row) for row in direct.execute(query.encode()).fetchall()]
    assert received == [tuple(str(value) for value in row) for row in expected]


def test_postgres_reads_a_backslash_as_the_lake_server_did(
    direct: psycopg.Connection, empty_database: str, connect: Connect
) -> None:
    admin = connect(empty_database)
    off = sql.SQL("alter database {} set standard_conforming_strings = off")
    if admin.info.server_version >= 190000:
        pytest.skip("this Postgres knows no other way to read a backslash")
    admin.execute(off.format(sql.Identifier(admin.info.dbname)))
    hidden = "' union all select 5 --'"
    query = f"select id from {REMOTE} where name || '' = '\\' or name || '' = {hidden}"
    assert direct.execute(query.encode()).fetchall() == []


@pytest.mark.parametrize(
    ("refused", "sqlstate"),
    first(
        8,
        [
            (f"select ('/etc/passwd'::text).pg_read_file from {REMOTE}", "0A000"),
            (f"select (name).pg_ls_dir from {REMOTE}", "0A000"),
            (f"select a.row_to_json from {REMOTE} a, {REMOTE} b", "42703"),
            (f"select 'x'::public.word from {REMOTE}", "0A000"),
            (f"select n from {REMOTE} as t (n, id)", "0A000"),
            (f"select id from {REMOTE} where id = $1", "42P02"),
            (f"select id from {REMOTE} where frostline_snapshot = $1", "42P02"),
            (f"select id from {REMOTE} where frostline_snapshot = '²'", "22P02"),
            (f"select id from {REMOTE} where id % '²' = 1", "22P02"),
            (f"select id from {REMOTE} where id = '٣'", "22P02"),
            (f"select id from {REMOTE} limit 99999999999999999999", "22003"),
            (f"select id from {REMOTE} tablesample system ('much')", "0A000"),
            (f"select id from {REMOTE} where random() < 'much'", "0A000"),
            (f"select id from {REMOTE} where id = " + "1 + " * 100_000 + "1", "54001"),
            (f"select id from {REMOTE} where " + "(" * 100_000 + "true" + ")" * 100_000, "54001"),
            (" union ".join([f"select id from {REMOTE}"] * 20_000), "54001"),
            (f"select id from {REMOTE}; drop table t; select 1", "0A000"),
            ("rollback to savepoint nowhere", "3B001"),
            ("fetch -1 from c", "0A000"),
            ("fetch 0 from c", "0A000"),
        ],
    ),
)
def test_what_is_refused_is_refused_cleanly(direct: psycopg.Connection, refused: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        direct.execute(refused.encode())
    assert caught.value.sqlstate == sqlstate
    assert direct.execute("select 1").fetchone() == (1,)


def test_a_declared_parameter_type_counts(direct: psycopg.Connection) -> None:
    def ids(condition: str, type_oid: int, value: bytes) -> list[bytes | None]:
        query = f"select id from {REMOTE} where {condition} order by id"
        result = direct.pgconn.exec_params(query.encode(), [value], [type_oid])
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
        return [result.get_value(row, 0) for row in range(result.ntuples)]

    assert ids("day < $1", TIMESTAMP, b"1970-01-02 12:00:00") == [b"0", b"1"]
    assert ids("day < $1", DATE, b"1970-01-02") == [b"0"]
    assert ids("day < $1", 0, b"1970-01-02 12:00:00") == [b"0"]
    assert ids("name = any ($1)", TEXT_ARRAY, "{é,e}".encode()) == [b"2", b"4"]
