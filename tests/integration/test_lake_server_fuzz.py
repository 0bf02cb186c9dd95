"""Broken conversations and SQL that is none of its business: the lake server refuses, and serves the next client."""

import base64
import logging
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import StoredTables, column
from tests.fixtures.quick import first
from tests.fixtures.statements import run

from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer
from frostline.server.protocol.frontend import MAX_MESSAGE_BYTES, MAX_STARTUP_BYTES

AUTHENTICATED = b"R\0\0\0\x08\0\0\0\0"
REMOTE = '"x"."7[,3)"'
ROUNDS = 150
Served = tuple[LakeServer, list[logging.LogRecord]]


MADE_BY_SOMEBODY = """
create function public.anything(bigint) returns bigint language sql as 'select 1::bigint';
create function public.equal(bigint, bigint) returns boolean language sql as 'select true';
create operator public.= (function = public.equal, leftarg = bigint, rightarg = bigint);
create operator public.+ (function = int8pl, leftarg = bigint, rightarg = bigint);
create domain public.word as bigint;
"""


class _Heard(logging.Handler):
    """Keeps what the server logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, shared_database: str) -> Iterator[Served]:
    """A lake server with one small table and a Postgres behind it, and the failures it logged."""
    directory, heard = tmp_path_factory.mktemp("lake"), _Heard()
    with psycopg.connect(shared_database, autocommit=True) as somebody:
        run(somebody, MADE_BY_SOMEBODY)
    stored = StoredTables(directory)
    columns = [column(1, "id", "int8"), column(2, "key", "int8"), column(3, "name", "text")]
    stored.add(lakeserver.table(7, columns, "key", TierKind.BIGINT))
    stored.publish(7, 1, {"id": [1, 2, 3], "key": [1, 2, 3], "name": ["a", "b", "c"]})
    running = LakeServer(
        "127.0.0.1", 0, stored, lakeserver.USER, lakeserver.PASSWORD, shared_database,
        warehouse=str(directory), max_sessions=20,
    )  # fmt: skip
    logging.getLogger("frostline").addHandler(heard)
    running.start()
    yield running, heard.records
    running.stop()
    logging.getLogger("frostline").removeHandler(heard)


@pytest.fixture
def server(served: Served) -> Iterator[LakeServer]:
    """The server. After each test nothing of it is left there, it has not failed, and a good client is served."""
    running, failures = served
    yield running
    wait_until_empty(running)
    assert [record.getMessage() for record in failures] == []
    with psycopg.connect(lakeserver.lake_dsn(running)) as connection:
        assert connection.execute(f"select id from {REMOTE} order by id".encode()).fetchall() == [(1,), (2,)]


@pytest.fixture
def impatient(stored: StoredTables) -> Iterator[LakeServer]:
    """A server that gives a login one second, which may be too short for a good client on a busy machine."""
    running = LakeServer(
        "127.0.0.1",
        0,
        stored,
        lakeserver.USER,
        lakeserver.PASSWORD,
        None,
        warehouse=str(stored.directory),
        startup_timeout_s=1,
    )
    running.start()
    yield running
    running.stop()


def wait_until_empty(running: LakeServer) -> None:
    """Every session that was opened has ended, and nobody is at the door."""
    deadline = time.monotonic() + 60
    while (running.session_count or running.stranger_count) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (running.session_count, running.stranger_count) == (0, 0)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(user: bytes = b"lake") -> bytes:
    body = struct.pack("!i", 196608) + b"user\0" + user + b"\0database\0lake\0\0"
    return struct.pack("!i", len(body) + 4) + body


def sasl_first(text: bytes = b"n,,n=,r=abcdefghijklmnopqrstuvwx") -> bytes:
    return message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(text)) + text)


LOGIN = [startup(), sasl_first(), message(b"p", b"c=biws,r=abcdef,p=" + base64.b64encode(b"x" * 32))]
"""A login by somebody who does not know the password."""

CURSOR = f"DECLARE c1 CURSOR FOR SELECT id, name FROM {REMOTE} WHERE ((frostline_snapshot = $1)) AND ((id < 9))"
CONVERSATION = [
    message(b"Q", b"SET search_path = pg_catalog\0"),
    message(b"Q", b"START TRANSACTION ISOLATION LEVEL REPEATABLE READ\0"),
    message(b"P", b"\0" + CURSOR.encode() + b"\0" + struct.pack("!hi", 1, 20)),
    message(b"B", b"\0\0" + struct.pack("!hhhi", 1, 0, 1, 1) + b"1" + struct.pack("!hh", 1, 0)),
    message(b"D", b"P\0"),
    message(b"E", b"\0" + struct.pack("!i", 0)),
    message(b"S", b""),
    message(b"Q", b"FETCH 1 FROM c1\0"),
    message(b"Q", b"MOVE BACKWARD ALL IN c1\0"),
    message(b"Q", b"FETCH 100 FROM c1\0"),
    message(b"Q", b"CLOSE c1\0"),
    message(b"Q", f"SELECT id, count(*), name || 'x' FROM {REMOTE} GROUP BY 1, 3\0".encode()),
    message(b"Q", b"SAVEPOINT s1\0"),
    message(b"Q", b"ROLLBACK TO SAVEPOINT s1\0"),
    message(b"Q", b"COMMIT TRANSACTION\0"),
]
"""What postgres_fdw says, and a query that Postgres has to finish."""


def mutated(messages: list[bytes], chance: random.Random) -> bytes:
    """The conversation with one to three things wrong in it."""
    broken = list(messages)
    for _ in range(chance.randint(1, 3)):
        chance.choice(MUTATIONS)(broken, chance)
    return b"".join(broken)


def _flip(messages: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(messages))
    data = bytearray(messages[at] or b"\0")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    messages[at] = bytes(data)


def _cut(messages: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(messages))
    messages[at] = messages[at][: chance.randrange(len(messages[at]) + 1)]


def _lie_about_length(messages: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(messages))
    size = chance.choice([-(2**31), -1, 0, 3, 4, 5, 100, MAX_STARTUP_BYTES + 1, MAX_MESSAGE_BYTES + 1, 2**31 - 1])
    messages[at] = messages[at][:1] + struct.pack("!i", size) + messages[at][5:]


def _drop(messages: list[bytes], chance: random.Random) -> None:
    if len(messages) > 1:
        del messages[chance.randrange(len(messages))]


def _repeat(messages: list[bytes], chance: random.Random) -> None:
    messages.insert(chance.randrange(len(messages) + 1), chance.choice(messages))


def _swap(messages: list[bytes], chance: random.Random) -> None:
    chance.shuffle(messages)


def _insert_noise(messages: list[bytes], chance: random.Random) -> None:
    noise = message(bytes([chance.randrange(256)]), chance.randbytes(chance.randrange(64)))
    messages.insert(chance.randrange(len(messages) + 1), noise)


MUTATIONS: list[Callable[[list[bytes], random.Random], None]] = [
    _flip, _flip, _flip, _cut, _lie_about_length, _drop, _repeat, _swap, _insert_noise,
]  # fmt: skip


def stranger(server: LakeServer, sent: bytes) -> bytes:
    """What somebody gets who does not log in."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        return lakeserver.exchange(raw, sent)


def friend(server: LakeServer, sent: bytes) -> bytes:
    """What a client gets that has logged in."""
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection, _socket_of(connection) as raw:
        return lakeserver.exchange(raw, sent)


def _socket_of(connection: psycopg.Connection) -> socket.socket:
    raw = socket.socket(fileno=os.dup(connection.fileno()))
    raw.settimeout(60)
    return raw


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_a_broken_login_gets_no_data(server: LakeServer, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(ROUNDS):
        answer = stranger(server, mutated(LOGIN + CONVERSATION, chance))
        assert AUTHENTICATED not in answer, (seed, number)
        assert b"D\0\0" not in answer, (seed, number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(1, range(4)))
def test_a_broken_conversation_ends_in_an_answer_or_a_hang_up(server: LakeServer, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        friend(server, mutated(CONVERSATION, chance))
        if server.session_count > 10:
            wait_until_empty(server)


def test_the_whole_conversation_is_one_that_it_serves(server: LakeServer) -> None:
    """Otherwise breaking it would show nothing."""
    answer = friend(server, b"".join(CONVERSATION))
    assert b"SERROR" not in answer
    assert answer.count(b"bx") == 1
    assert answer.endswith(message(b"Z", b"I"))


@pytest.mark.parametrize(("user", "password"), [("lake", "wrong"), ("lake", ""), ("nobody", "sesame"), ("", "sesame")])
def test_a_wrong_password_or_user_is_refused(server: LakeServer, user: str, password: str) -> None:
    dsn = make_conninfo(lakeserver.lake_dsn(server), user=user or "LAKE", password=password)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn)


def test_an_unknown_user_looks_like_a_wrong_password(server: LakeServer) -> None:
    """Salt and all, twice the same: nobody learns which users there are."""

    def salt(user: bytes) -> bytes:
        return stranger(server, startup(user) + sasl_first()).partition(b",s=")[2].partition(b",")[0]

    assert len(salt(b"nobody")) == len(salt(b"lake")) > 0
    assert salt(b"nobody") == salt(b"nobody") != salt(b"somebody")


def test_oversized_messages_are_refused_before_they_are_stored(server: LakeServer) -> None:
    big = b"\0" * MAX_STARTUP_BYTES
    assert b"C08P01" in stranger(server, struct.pack("!i", MAX_STARTUP_BYTES + 1) + big)
    assert b"C08P01" in stranger(server, startup() + b"p" + struct.pack("!i", MAX_STARTUP_BYTES + 1))
    assert b"C08P01" in friend(server, b"Q" + struct.pack("!i", MAX_MESSAGE_BYTES + 1))
    assert b"C08P01" in friend(server, b"Q" + struct.pack("!i", -5))


def dribble(raw: socket.socket, sent: bytes) -> None:
    for byte in sent:
        raw.sendall(bytes([byte]))
        time.sleep(0.05)


def test_a_client_that_dribbles_is_hung_up_on(impatient: LakeServer) -> None:
    """A byte now and then is no reason to keep the place of somebody who could log in."""
    raw = socket.create_connection(("127.0.0.1", impatient.port), timeout=60)
    with raw, pytest.raises((BrokenPipeError, ConnectionResetError)):
        dribble(raw, startup() + b"p" + struct.pack("!i", MAX_STARTUP_BYTES) + b"x" * 1200)


def test_a_crowd_at_the_door_does_not_keep_others_out_for_long(server: LakeServer) -> None:
    crowd = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(100)]
    with psycopg.connect(lakeserver.lake_dsn(server)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert server.session_count <= 1
    for client in crowd:
        client.close()


REFUSED = [
    "select * from read_csv('/etc/passwd')",
    "select * from read_parquet('{lake}')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from glob('/*')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('{lake}')",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from '/etc/passwd'",
    'select * from "/etc/passwd"',
    'select * from "x"."/etc/passwd"',
    'select * from "{lake}"',
    'select * from "x"."{lake}"',
    "from read_text('/etc/passwd')",
    "attach '/tmp/other.db' as other",
    "detach memory",
    "use memory",
    "copy (select 1) to '/tmp/frostline-fuzz-out'",
    "copy x from '/etc/passwd'",
    "copy x from program 'id'",
    "export database '/tmp/frostline-fuzz-out'",
    "import database '/tmp'",
    "install httpfs",
    "load httpfs",
    "load '/tmp/x.so'",
    "pragma database_list",
    "pragma enable_profiling",
    "call pragma_version()",
    "set memory_limit = '100GB'",
    "set enable_external_access = true",
    "set allowed_directories = ['/']",
    "set global threads = 64",
    "set temp_directory = '/tmp'",
    "set lock_configuration = false",
    "set s3_secret_access_key = 'x'",
    "reset lock_configuration; set threads = 1",
    "show tables",
    "show all",
    "describe x",
    "summarize x",
    "checkpoint",
    "vacuum",
    "analyze",
    "explain select 1",
    "create table t (x int)",
    "create temp table t (x int)",
    "create secret s (type s3)",
    "create macro m() as 1",
    "create function f() returns int language sql as 'select 1'",
    "do $$ begin null; end $$",
    "prepare p as select 1",
    "execute p",
    "listen x",
    "lock table x",
    "begin; prepare transaction 'x'",
    "insert into {remote} values (1)",
    "update {remote} set id = 1",
    "delete from {remote}",
    "truncate {remote}",
    "drop table {remote}",
    "select id into t from {remote}",
    "select id from {remote} for update",
    "with w as (delete from {remote} returning id) select * from w",
    "with w as (select 1) select * from w, {remote}",
    "select * from pg_catalog.pg_authid",
    "select * from pg_catalog.pg_user_mapping, {remote}",
    "select * from frostline.seam",
    "select * from information_schema.tables",
    'select * from postgres.public."7[,3)"',
    'select * from "x"."8[,3)"',
    'select * from "x"."7[,3); select 1"',
    "select id from {remote} where id in (select oid::int8 from pg_catalog.pg_class)",
    "select id from {remote} where exists (select from pg_catalog.pg_shadow)",
    "select (select passwd from pg_catalog.pg_shadow limit 1) from {remote}",
    "select pg_read_file('/etc/passwd') from {remote}",
    "select pg_ls_dir('/') from {remote}",
    "select pg_sleep(100) from {remote}",
    "select lo_import('/etc/passwd') from {remote}",
    "select set_config('search_path', 'x', false) from {remote}",
    "select current_setting('data_directory') from {remote}",
    "select pg_terminate_backend(1) from {remote}",
    "select query_to_xml('select * from pg_authid', true, true, '') from {remote}",
    "select table_to_xml('pg_authid', true, true, '') from {remote}",
    "select database_to_xml(true, true, '') from {remote}",
    "select nextval('frostline.overlay_version') from {remote}",
    "select txid_current() from {remote}",
    "select getenv('HOME') from {remote}",
    "select frostline.require(true, 'x') from {remote}",
    "select public.anything(id) from {remote}",
    "select ts_stat('select 1') from {remote}",
    "select s.pg_read_file from (select name from {remote}) s",
    "select s.query_to_xml from (select id from {remote}) s",
    "select ('/etc/passwd'::text).pg_read_file from {remote}",
    "select id operator(public.+) 1 from {remote}",
    "select id from {remote} where id operator(public.=) any (select id from {remote})",
    "select id from {remote} order by id using operator(public.<)",
    "select id::public.word from {remote}",
    "select * from {remote}, lateral (select * from read_text('/etc/passwd')) x",
    "select * from {remote}, generate_series(1, 10)",
    "select * from xmltable('/a' passing '<a/>' columns x int), {remote}",
    "select * from {remote} tablesample public.mine(1)",
    "select id from {remote} limit (select count(*) from pg_catalog.pg_authid)",
    "select id from {remote} union all select oid::int8 from pg_catalog.pg_authid",
    "select id from {remote} -- \n; copy x to '/tmp/frostline-fuzz-out'",
    "select id from {remote} /* */; attach '/tmp/x' /* ; */",
    "select 1; drop table frostline.seam",
    "/* /* nested */ */ pragma version",
    "select 1\0; attach 'x'",
    "declare c cursor for select * from read_text('/etc/passwd')",
    "declare c cursor for delete from {remote}",
    "fetch 1 from nowhere",
]


@pytest.mark.parametrize("statement", REFUSED)
@pytest.mark.parametrize("way", ["simple", "extended"])
def test_any_sql_but_its_own_is_refused(server: LakeServer, served: Served, statement: str, way: str) -> None:
    text = statement.replace("{remote}", REMOTE).replace("{lake}", "7-1-0.parquet").encode()
    with psycopg.connect(lakeserver.lake_dsn(server), autocommit=True) as connection:
        sent = connection.pgconn.exec_ if way == "simple" else lambda sql: connection.pgconn.exec_params(sql, [])
        result = sent(text.replace(b"\0", b" "))
        assert result.status == psycopg.pq.ExecStatus.FATAL_ERROR, result.status
        code = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
        assert code[:2] in ("0A", "42", "34", "22"), code
        connection.pgconn.exec_(b"rollback")
        assert connection.execute("select 1").fetchone() == (1,)
    assert not Path("/tmp/frostline-fuzz-out").exists()
