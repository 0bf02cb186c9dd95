"""Hostile statements on lake tables through postgres_fdw: what Postgres does with a plain table, or a clear error."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run
from tests.fixtures.waiting import until_true

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.relation import foreign_server


@pytest.fixture
def psql(lake: Lake) -> Iterator[psycopg.Connection]:
    """A session with a lake table `t` of ten rows, in which each statement is a transaction unless it begins one."""
    made(lake, "t", "id bigint not null", "word text", "n numeric(8,2)")
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        connection.execute("insert into t select i, 'w' || i, i from generate_series(1, 10) i")
        yield connection


def made(lake: Lake, name: str, *columns: str) -> None:
    lake_tables.create(lake.catalog, lake.settings, Name("public", name), columns, Layout())


def rows(session: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return session.execute(query.encode()).fetchall()


def test_rows_are_changed_by_a_join_that_the_lake_server_finds_and_postgres_finishes(psql: psycopg.Connection) -> None:
    """Such a join is asked for with FOR UPDATE OF an alias."""
    psql.execute("create table few as select i as k from generate_series(1, 5) i")
    psql.execute("update t set word = f.word from t f where f.id = t.id + 1 and t.id = any (select k from few)")
    assert [row[0] for row in rows(psql, "select word from t order by id")][:6] == ["w2", "w3", "w4", "w5", "w6", "w6"]
    psql.execute("delete from t using t f where f.id = t.id + 1 and f.id in (select k from few) and random() < 2")
    assert rows(psql, "select array_agg(id order by id) from t") == [([5, 6, 7, 8, 9, 10],)]


def test_a_batch_may_have_as_many_values_as_postgres_fdw_sends_at_once(psql: psycopg.Connection, lake: Lake) -> None:
    """65,535: the protocol's number of parameters has no sign."""
    made(lake, "wide", *(f"c{place} int" for place in range(12)))
    psql.execute(f"insert into wide select {', '.join('i' * 12)} from generate_series(1, 6000) i".encode())
    assert rows(psql, "select count(*), sum(c11) from wide") == [(6000, 6000 * 6001 // 2)]


def test_a_lake_table_may_have_as_many_columns_as_a_table_of_postgres(psql: psycopg.Connection, lake: Lake) -> None:
    made(lake, "widest", *(f"c{place} int" for place in range(1600)))
    listed = ", ".join(f"i + {place}" for place in range(1600))
    psql.execute(f"insert into widest select {listed} from generate_series(1, 90) i".encode())
    psql.execute("update widest set c5 = 0 where c0 = 1 and random() < 2")
    psql.execute("delete from widest where c0 = 2")
    assert rows(psql, "select count(*), sum(c0), sum(c1599), min(c5) from widest") == [(89, 4093, 146_404, 0)]


def test_a_cursor_sees_the_rows_of_its_moment_whatever_its_transaction_writes(psql: psycopg.Connection) -> None:
    psql.execute("begin")
    psql.execute("declare asked cursor with hold for select id, word from t order by id")
    assert rows(psql, "fetch 2 from asked") == [(1, "w1"), (2, "w2")]
    psql.execute("update t set word = 'after'")
    psql.execute("savepoint later")
    psql.execute("delete from t where id = 4")
    psql.execute("rollback to later")
    assert rows(psql, "fetch 3 from asked") == [(3, "w3"), (4, "w4"), (5, "w5")]
    psql.execute("delete from t where id = 8")
    psql.execute("commit")
    assert rows(psql, "fetch all from asked") == [(number, f"w{number}") for number in range(6, 11)]
    assert rows(psql, "select count(*), min(word) from t") == [(9, "after")]


def test_triggers_of_a_foreign_table_are_obeyed_and_seen_in_what_is_returned(psql: psycopg.Connection) -> None:
    psql.execute("""
        create function loud() returns trigger language plpgsql as $$
        begin new.word := upper(new.word); return new; end $$;
        create function never() returns trigger language plpgsql as $$ begin return null; end $$;
        create trigger loud before insert or update on t for each row execute function loud();
        create trigger never before delete on t for each row execute function never()""")
    assert rows(psql, "insert into t values (20, 'abc', 2) returning word") == [("ABC",)]
    assert rows(psql, "update t set word = word || 'd' where id = 20 returning word, n") == [("ABCD", 2)]
    assert rows(psql, "delete from t where id = 20 returning id") == []
    assert rows(psql, "select word from t where id = 20") == [("ABCD",)]


def test_what_cannot_be_done_is_refused_and_leaves_nothing(psql: psycopg.Connection) -> None:
    psql.execute("begin read only")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        psql.execute("insert into t values (20)")
    psql.execute("rollback; begin; insert into t values (20)")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        psql.execute("prepare transaction 'later'")
    psql.execute("rollback")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        psql.execute("truncate t")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation), psql.cursor().copy("copy t from stdin") as copy:
        copy.write("20\ta\t1\nnonsense\tb\t2\n")
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        psql.execute("update t set n = 1e9 where id = 3")
    assert rows(psql, "select count(*), max(id), sum(n) from t") == [(10, 10, 55)]


def test_a_savepoint_that_was_gone_back_to_can_be_gone_back_to_again(psql: psycopg.Connection, lake: Lake) -> None:
    """postgres_fdw makes a new one instead; another client need not."""
    psql.execute("begin; insert into t values (20); savepoint here; insert into t values (21); rollback to here")
    psql.execute("insert into t values (22); rollback to here; insert into t values (23); commit")
    assert rows(psql, "select array_agg(id order by id) from t where id >= 20") == [([20, 23],)]
    _, mapping = foreign_server.options(lake.catalog)
    assert mapping is not None
    number = catalog.load(lake.catalog, Pointer("public", "t")).id
    put = sql.SQL("insert into lake.{}(id) values ($1)").format(sql.Identifier(f"lake_{number}"))
    with (
        psycopg.connect(
            host="127.0.0.1", port=lake.server.port, dbname="lake", user=mapping["user"], password=mapping["password"]
        ) as direct,
        psycopg.RawCursor(direct) as client,
    ):
        for statement, params in (
            (put, ["30"]),
            ("savepoint here", None),
            (put, ["31"]),
            ("rollback to here", None),
            (put, ["32"]),
            ("rollback to here", None),
            (put, ["33"]),
        ):
            client.execute(statement, params)  # pyright: ignore[reportArgumentType]
        direct.commit()
    assert rows(psql, "select array_agg(id order by id) from t where id >= 30") == [([30, 33],)]


def test_a_commit_that_is_cancelled_may_have_happened_and_is_whole(psql: psycopg.Connection, lake: Lake) -> None:
    """postgres_fdw gives up at once; the lake server is at it. The guide says to look."""
    psql.execute("create table plain (id int)")
    psql.execute("begin; insert into t values (20), (21); insert into plain values (20)")
    waits = "from pg_stat_activity where application_name = 'frostline lake commits' and wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as other, lake.catalog.transaction():
        run(lake.catalog, "select from frostline.iceberg_tables for update")
        committing = other.submit(psql.execute, "commit")
        until_true(lake.catalog, f"select count(*) {waits}")
        run(lake.catalog, f"select pg_cancel_backend({psql.info.backend_pid})")
        with pytest.raises(psycopg.errors.QueryCanceled):
            committing.result()
    until_true(lake.catalog, f"select not exists (select {waits})")
    assert rows(psql, "select count(*) from plain") == [(0,)]
    assert rows(psql, "select count(*) from t where id >= 20") == [(2,)]
