"""Tables that live in the lake alone, as psql sees them: reads, writes, transactions, conflicts."""

import json
import shutil
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import UsageError
from frostline.lake import lake_commit, lake_table
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.relation import foreign_server
from frostline.server.writes import transaction
from frostline.server.writes.shared import Lake as Node

READINGS = ("id bigint not null", "ts timestamptz", "device text", "value double precision", "data jsonb")


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


def test_what_could_not_be_written_is_not_forgotten_by_going_back_to_a_later_savepoint(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "readings", "id bigint not null", "price numeric(6,2)")
    psql = sessions()
    psql.execute("insert into readings values (1, 1), (2, 2)")
    for change, error in (
        ("update readings set id = nullif(id, id + (random() * 0)::int) where id = 1", psycopg.errors.NotNullViolation),
        ("insert into readings values (3, 'NaN')", psycopg.errors.NumericValueOutOfRange),
    ):
        psql.execute("begin")
        psql.execute(change.encode())
        psql.execute("savepoint later")
        with pytest.raises(error):
            psql.execute("select * from readings")
        psql.execute("rollback to later")
        with pytest.raises(error):
            psql.execute("commit")
    assert all_of(psql, "select id, price from readings order by id") == [(1, 1), (2, 2)]


def test_a_cursor_that_is_read_again_does_not_see_what_was_written_since(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    """Its condition is one for Postgres, so that the rows are loaded anew each time; as postgres_fdw reads it again."""
    made(lake, "readings", "id bigint", "word text")
    sessions().execute("insert into readings values (1, 'a'), (2, 'b')")
    number = catalog.load(lake.catalog, Pointer("public", "readings")).id
    asked = f"select ctid, id from lake.lake_{number} where upper(word) like '_'"
    with psycopg.connect(host="127.0.0.1", port=lake.server.port, **_way_in(lake)) as direct:
        direct.execute(f"declare c1 cursor for {asked}".encode())
        rows = direct.execute("fetch 10 from c1").fetchall()
        assert sorted(row[1] for row in rows) == [1, 2]
        direct.execute(f"update lake.lake_{number} set word = 'z' where id = 1".encode())
        direct.execute("move backward all in c1")
        assert direct.execute("fetch 10 from c1").fetchall() == rows
        assert direct.execute("fetch 10 from c1").fetchall() == []


def _way_in(lake: Lake) -> dict[str, Any]:
    _, mapping = foreign_server.options(lake.catalog)
    assert mapping is not None
    return {"dbname": "lake", "user": mapping["user"], "password": mapping["password"]}


def test_a_warehouse_that_went_away_in_a_transaction_is_noticed_before_its_commit(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    psql = sessions()
    psql.execute("begin")
    psql.execute("insert into readings (id) values (1)")
    away = lake.warehouse.rename(lake.warehouse.with_name("away"))
    lake.warehouse.mkdir()
    with pytest.raises(psycopg.Error):
        psql.execute("commit")
    shutil.rmtree(lake.warehouse)
    away.rename(lake.warehouse)
    assert all_of(psql, "select count(*) from readings") == [(0,)]


def test_bytes_are_the_same_however_the_session_prints_them(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "readings", "id bigint", "bytes bytea")
    psql = sessions()
    texts = [b"aabbcc", b"", b"\\x41", b"a\\b", bytes(range(256)), None]
    for output in ("escape", "hex"):
        psql.execute(f"set bytea_output = {output}".encode())
        psql.cursor().executemany("insert into readings values (%s, %s)", list(enumerate(texts)))
        psql.execute("update readings set bytes = bytes where random() < 2")
        read = all_of(psql, "select id, encode(bytes, 'hex') from readings order by id")
        assert read == [(number, None if text is None else text.hex()) for number, text in enumerate(texts)]
        psql.execute("delete from readings")


def test_purging_a_table_whose_folder_has_another_one_in_it_is_refused(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    sessions().execute("insert into readings (id) values (1)")
    inner = catalog.load(lake.catalog, Pointer("public", "readings"))
    outer = inner.location.rpartition("/")[0]
    uuid = "00000000-0000-0000-0000-000000000001"
    catalog.create(lake.catalog, Pointer("app", "outer"), uuid, outer, f"{outer}/metadata/00000-a.metadata.json")
    with pytest.raises(UsageError, match=r"has files of public\.readings too"):
        lake_tables.drop(lake.catalog, lake.settings, Name("app", "outer"), purge=True)
    assert all_of(sessions(), "select id from readings") == [(1,)]
    lake_tables.drop(lake.catalog, lake.settings, Name("app", "outer"), purge=False)


def test_files_outside_of_the_tables_folder_are_not_served(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    """Who may commit to one lake table must not be able to have the lake server read another table's files."""
    made(lake, "secrets", "id bigint")
    made(lake, "own", "id bigint")
    psql = sessions()
    psql.execute("insert into secrets values (1)")
    theirs, mine = (catalog.load(lake.catalog, Pointer("public", name)) for name in ("secrets", "own"))
    stolen = Added(data=list(lake_table.state(theirs.metadata_location).data.values()))
    staged = lake_commit.stage(mine.id, lake_table.state(mine.metadata_location), stolen)
    catalog.commit(lake.catalog, [staged.move])
    with pytest.raises(psycopg.Error, match="is not in the table's folder"):
        psql.execute("select * from own")
    assert all_of(psql, "select * from secrets") == [(1,)]


def test_a_commit_whose_answer_was_lost_is_known_when_its_snapshot_is_expired(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "log", "id bigint")
    sessions().execute("insert into log values (1)")
    now = lake_table.state(catalog.load(lake.catalog, Pointer("public", "log")).metadata_location)
    first = lake_commit.stage(1, now, Added(data=list(now.data.values())))
    then = lake_table.state(first.move.location)
    second = lake_commit.stage(1, then, Added(data=list(now.data.values())))
    later = lake_table.state(second.move.location)
    expired = later.metadata.model_copy(
        update={"snapshots": [each for each in later.metadata.snapshots if each.snapshot_id == second.move.snapshot_id]}
    )
    assert lake_commit.leads_to(later.location, expired, first.move)
    assert not lake_commit.leads_to(now.location, now.metadata, first.move)


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


def test_statements_over_several_lake_and_postgres_tables_mean_what_they_mean_in_postgres(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    made(lake, "devices", "device text", "factor int")
    psql = sessions()
    psql.execute("create table local (device text, extra int)")
    psql.execute("insert into local values ('a', 100)")
    psql.execute("insert into devices values ('a', 2), ('b', 3)")
    psql.execute(
        "insert into readings (id, device, value) select n, chr(96 + n % 3 + 1), n from generate_series(1, 6) n"
    )
    psql.execute("update readings r set value = value * factor from devices d where d.device = r.device and r.id < 4")
    expected = [(1, "b", 3.0), (2, "c", 2.0), (3, "a", 6.0), (4, "b", 4.0), (5, "c", 5.0), (6, "a", 6.0)]
    assert all_of(psql, "select id, device, value from readings order by id") == expected
    psql.execute("update readings r set value = value + extra from local l where l.device = r.device")
    assert all_of(psql, "select id, value from readings where device = 'a' order by id") == [(3, 106.0), (6, 106.0)]
    psql.execute("delete from readings r using devices d where d.device = r.device and d.factor = 3")
    assert all_of(psql, "select id from readings order by id") == [(2,), (3,), (5,), (6,)]
    psql.execute("delete from readings where device like 'c%' and data is null")
    assert all_of(psql, "select r.id, d.factor from readings r join devices d using (device) order by 1") == [
        (3, 2),
        (6, 2),
    ]
    psql.execute("with gone as (delete from readings returning *) insert into devices select device, id from gone")
    assert all_of(psql, "select count(*), sum(factor) from devices") == [(4, 14)]
    psql.execute("""
        do $$ declare n int; begin
            for n in 1..3 loop
                begin
                    insert into readings (id) values (n);
                    if n = 2 then raise exception 'no'; end if;
                exception when others then null;
                end;
            end loop;
        end $$""")
    assert all_of(psql, "select id from readings order by id") == [(1,), (3,)]
    psql.execute("prepare put(bigint) as insert into readings (id) values ($1)")
    for number in range(10, 18):
        psql.execute(f"execute put({number})".encode())
    assert all_of(psql, "select count(*) from readings where id >= 10") == [(8,)]
    psql.execute("analyze readings")


def test_many_writers_lose_no_update_and_share_snapshots(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    """Some of them at another lake server, which knows nothing of the first one."""
    made(lake, "counters", "id bigint", "n bigint")
    made(lake, "log", "id bigint", "who bigint")
    first = sessions()
    first.execute("insert into counters select id, 0 from generate_series(1, 3) id")
    done = list[int]()

    def count(who: int, session: psycopg.Connection) -> None:
        for turn in range(6):
            try:
                with session.transaction():
                    session.execute("insert into log values (%s, %s)", [turn, who])
                    session.execute("update counters set n = n + 1 where id = %s", [turn % 3 + 1])
                done.append(who)
            except psycopg.errors.SerializationFailure:
                continue

    def append(node: Node, who: int) -> None:
        log = catalog.load(lake.catalog, Pointer("public", "log")).id
        for turn in range(6):
            elsewhere = transaction.LakeTransaction(node, lambda _table, _wanted: {})
            elsewhere.changes(log).insert([[str(turn), str(who)]])
            elsewhere.commit()
            done.append(who)

    node = Node(lake.dsn, str(lake.warehouse))
    try:
        jobs = [threading.Thread(target=count, args=[who, sessions()]) for who in range(4)]
        jobs += [threading.Thread(target=append, args=[node, who]) for who in (10, 11)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    finally:
        node.close()
    assert done.count(10) == done.count(11) == 6, "rows that are only added never conflict"
    counted = [who for who in done if who < 10]
    assert all_of(first, "select sum(n), count(*) from counters") == [(len(counted), 3)]
    assert all_of(first, "select count(*) from log") == [(len(done),)]
    commits, snapshots = len(done), state(lake, "log").snapshots
    assert snapshots <= commits


def test_a_commit_whose_connection_is_lost_happens_once(lake: Lake, sessions: Callable[[], psycopg.Connection]) -> None:
    """The lake server's own session is ended again and again while others commit: no client learns of it."""
    made(lake, "log", "who bigint", "turn bigint")
    made(lake, "counters", "who bigint", "n bigint")
    first = sessions()
    first.execute("insert into counters select who, 0 from generate_series(0, 3) who")

    def write(who: int, session: psycopg.Connection, disturber: psycopg.Connection) -> None:
        for turn in range(6):
            with session.transaction():
                session.execute("insert into log values (%s, %s)", [who, turn])
                session.execute("update counters set n = n + 1 where who = %s", [who])
                if turn % 2 == who % 2:
                    disturber.execute("""select pg_terminate_backend(pid) from pg_stat_activity
                                          where datname = current_database()
                                            and application_name = 'frostline lake commits'""")

    writers = [threading.Thread(target=write, args=[who, sessions(), sessions()]) for who in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert all_of(first, "select who, turn from log order by 1, 2") == [(who, n) for who in range(4) for n in range(6)]
    assert all_of(first, "select who, n from counters order by 1") == [(who, 6) for who in range(4)]


def test_the_command_line_makes_shows_and_drops_them(
    lake: Lake, command: Command, sessions: Callable[[], psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    made_it = command("lake", "create", "readings", "--column", "id bigint", "--column", '"The Time" timestamptz',
                      "--partition", "day(The Time)", "--sort", "id desc")  # fmt: skip
    assert made_it.exit_code == 0, made_it.stderr
    again = command("lake", "create", "readings", "--column", "id bigint")
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)
    for wrong in (["id nonsense"], ["id"], ["id bigint); drop table x; --"], ["id bigint", "--partition", "day(id)"]):
        assert command("lake", "create", "others", "--column", *wrong).exit_code == 2, wrong
    sessions().execute("insert into readings select n, now() from generate_series(1, 5) n")
    shown = json.loads(command("lake", "show", "readings", "--output", "json").stdout)
    assert (shown["rows"], shown["partition"], shown["sort"]) == (5, "day(The Time)", "id DESC")
    assert "public.readings" in command("lake", "list").stdout
    assert command("lake", "drop", "readings", "--purge").exit_code == 0
    assert (files(lake), command("lake", "show", "readings").exit_code) == (set(), 2)
    assert [table.table for table in catalog.dropped(lake.catalog)] == []


def test_a_condition_deletes_more_rows_than_are_read_at_once(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    """What is read ahead for clients is printed already; whoever deletes wants the rows."""
    made(lake, "readings", "id bigint not null")
    psql = sessions()
    psql.execute("insert into readings select n from generate_series(1, 60000) n")
    assert psql.execute("delete from readings where id > 10").rowcount == 59_990
    assert all_of(psql, "select count(*), max(id) from readings") == [(10, 10)]
