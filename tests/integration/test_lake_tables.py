"""Tables that live in the lake alone, as psql sees them: reads, writes, transactions, conflicts."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures.lake import Lake

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables

READINGS = ("id bigint not null", "ts timestamptz", "device text", "value double precision", "data jsonb")


@pytest.fixture
def sessions(lake: Lake) -> Iterator[Callable[[], psycopg.Connection]]:
    """Opens sessions in which each statement is a transaction unless it begins one."""
    opened = list[psycopg.Connection]()

    def session() -> psycopg.Connection:
        opened.append(psycopg.connect(lake.dsn, autocommit=True))
        return opened[-1]

    yield session
    for connection in opened:
        connection.close()


def made(lake: Lake, name: str = "readings", *columns: str, layout: Layout = Layout()) -> None:  # noqa: B008
    lake_tables.create(lake.catalog, lake.settings, Name("public", name), columns or READINGS, layout)


def all_of(session: psycopg.Connection, query: str) -> list[tuple[object, ...]]:
    return session.execute(query.encode()).fetchall()


def files(lake: Lake) -> set[Path]:
    return set((lake.warehouse / "~lake").rglob("*.parquet"))


def state(lake: Lake, name: str = "readings") -> lake_tables.Shown:
    return lake_tables.show(lake.catalog, catalog.load(lake.catalog, Pointer("public", name)))


def test_rows_are_inserted_read_updated_and_deleted_with_plain_sql(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, layout=Layout(["day(ts)", "bucket(4, device)"], ["ts"]))
    psql = sessions()
    assert all_of(psql, "select * from readings") == []
    psql.execute(
        """insert into readings values (1, '2024-01-01 10:00+00', 'a', 1.5, '{"k": 1}'), (2, null, null, null, null)"""
    )
    psql.execute("insert into readings (id, device) select n, 'd' || n from generate_series(3, 12) n")
    with psql.cursor().copy("copy readings (id, ts, device) from stdin") as copy:
        copy.write("13\tinfinity\tx\n14\t0044-03-15 12:00:00+00 BC\ty\n")
    assert all_of(psql, "select count(*), sum(id) from readings") == [(14, 105)]
    assert all_of(psql, "select ts = 'infinity' from readings where id = 13") == [(True,)]
    assert all_of(psql, "select ts::text from readings where id = 14") == [("0044-03-15 12:00:00+00 BC",)]
    assert all_of(psql, "select id from readings where data->>'k' = '1'") == [(1,)]
    assert psql.execute("update readings set value = value + 1, device = 'new' where id = 1").rowcount == 1
    assert all_of(psql, "select device, value, data from readings where id = 1") == [("new", 2.5, {"k": 1})]
    assert psql.execute("update readings set device = device || random()::text where id in (3, 4)").rowcount == 2
    assert psql.execute("delete from readings where id between 5 and 8").rowcount == 4
    assert (
        psql.execute(
            "delete from readings where id in (select n from generate_series(9, 10) n where random() < 2)"
        ).rowcount
        == 2
    )
    assert [row[0] for row in all_of(psql, "select id from readings order by id")] == [1, 2, 3, 4, 11, 12, 13, 14]
    shown = state(lake)
    assert shown.rows == 8
    others = StaticTable.from_metadata(shown.pointer.metadata_location)
    ids: list[Any] = others.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    assert sorted(ids) == [1, 2, 3, 4, 11, 12, 13, 14], "PyIceberg reads the same"


def test_a_transaction_sees_one_cut_and_its_own_writes_and_leaves_nothing_when_it_is_rolled_back(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    made(lake, "totals", "n bigint")
    writer, reader = sessions(), sessions()
    writer.execute("insert into readings (id) values (1), (2)")
    reader.execute("begin isolation level repeatable read")
    assert all_of(reader, "select count(*) from readings") == [(2,)]
    before = files(lake)
    writer.execute("begin")
    writer.execute("insert into readings (id) values (3)")
    writer.execute("insert into totals values (3)")
    assert all_of(writer, "select count(*) from readings") == [(3,)]
    writer.execute("savepoint one")
    writer.execute("update readings set device = 'changed'")
    writer.execute("delete from readings where id = 3")
    writer.execute("insert into totals values (4)")
    assert all_of(writer, "select id, device from readings order by id") == [(1, "changed"), (2, "changed")]
    writer.execute("rollback to one")
    assert all_of(writer, "select id, device from readings order by id") == [(1, None), (2, None), (3, None)]
    writer.execute("delete from readings where id = 1")
    writer.execute("commit")
    assert all_of(reader, "select count(*) from readings") == [(2,)]
    assert all_of(reader, "select count(*) from totals") == [(0,)], "all tables are of one cut, the first that was read"
    reader.execute("commit")
    assert all_of(reader, "select id from readings order by id") == [(2,), (3,)]
    assert all_of(reader, "select * from totals") == [(3,)]
    after = files(lake)
    assert len(after - before) == 3, "a file for each table, and one of deletes: what was undone left nothing"
    writer.execute("begin")
    writer.execute("insert into readings (id) select n from generate_series(1, 10) n")
    writer.execute("update readings set device = 'x'")
    assert all_of(writer, "select count(*) from readings") == [(12,)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        writer.execute("select 1 / 0")
    writer.execute("rollback")
    assert (files(lake), state(lake).rows) == (after, 2)


def test_changes_of_the_same_row_conflict_and_of_others_do_not(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    one, two = sessions(), sessions()
    one.execute("insert into readings (id, value) select n, 0 from generate_series(1, 10) n")
    for session in (one, two):
        session.execute("begin isolation level repeatable read")
        assert all_of(session, "select count(*) from readings") == [(10,)]
    one.execute("update readings set value = value + 1 where id = 1")
    two.execute("update readings set value = value + 1 where id = 2")
    two.execute("insert into readings (id) values (11)")
    one.execute("commit")
    two.execute("commit")
    assert all_of(one, "select id, value from readings where id < 3 order by id") == [(1, 1.0), (2, 1.0)]
    for session in (one, two):
        session.execute("begin isolation level repeatable read")
        session.execute("update readings set value = value + 1 where id = 1")
    one.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        two.execute("commit")
    assert all_of(two, "select value from readings where id = 1") == [(2.0,)]
    assert all_of(two, "select count(*) from readings") == [(11,)]


def test_null_is_refused_where_there_may_be_none_and_returning_tells_what_was_written(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "readings", "id bigint not null default 7", "amount numeric(6,2)", "word varchar(3)")
    psql = sessions()
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("insert into readings values (null, 1, 'a')")
    assert all_of(psql, "insert into readings (amount, word) values (1.005, 'b') returning *") == [
        (7, Decimal("1.01"), "b")
    ]
    assert all_of(psql, "update readings set amount = amount * 1.005 returning id, amount") == [(7, Decimal("1.02"))]
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        psql.execute("update readings set word = word || 'too long'")
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("update readings set id = null where random() < 2")
    assert all_of(psql, "update readings set word = left(random()::text, 1) where random() < 2 returning word") == [
        ("0",)
    ]
    assert all_of(psql, "delete from readings where random() < 2 returning id, word") == [(7, "0")]
    assert all_of(psql, "select * from readings") == []
