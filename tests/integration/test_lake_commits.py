"""Commits to lake tables: what is shared by those that come at the same moment, what a server remembers, large inserts."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StaticTable
from tests.fixtures.lake import Lake
from tests.fixtures.lake_commits import (
    as_one_group,
    current,
    made,
    only_what_is_named_is_there,
    pointer,
)

from frostline.lake import lake_publish, lake_table, paths, snapshots
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import Layout
from frostline.model.lake_tables import RowId
from frostline.server.writes import rows, transaction

FIELDS = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes"),
    *("value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "split_offsets", "sort_order_id", "spec_id"),
)


def test_transactions_that_commit_together_share_their_files(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "log", "id bigint", "who bigint")
    made(lake, "other", "id bigint")
    first = sessions()
    first.execute("insert into log select n, 0 from generate_series(1, 6) n")
    before = current(lake, "log")

    def write(who: int, session: psycopg.Connection) -> None:
        with session.transaction():
            session.execute("update log set who = %s where id = %s", [who, who])
            session.execute("insert into log values (%s, %s)", [10 + who, who])
            session.execute("insert into other values (%s)", [who])

    writers = [(who, sessions()) for who in range(1, 5)]
    ended = as_one_group(lake, *(lambda writer=writer: write(*writer) for writer in writers))
    assert ended == [None] * 4
    now = current(lake, "log")
    assert len(now.metadata.snapshots) == len(before.metadata.snapshots) + 1
    assert (len(now.data), len(now.deletes)) == (2, 1), "new rows in one file, gone ones in another"
    assert len(current(lake, "other").data) == 1
    rows_now = first.execute("select id, who from log order by id").fetchall()
    assert rows_now == [*((n, n) for n in range(1, 5)), (5, 0), (6, 0), *((10 + n, n) for n in range(1, 5))]
    assert first.execute("select id from other order by id").fetchall() == [(n,) for n in range(1, 5)]
    only_what_is_named_is_there(lake, "log")


def test_who_leaves_the_group_takes_its_rows_out_of_the_common_files(
    lake: Lake, sessions: Callable[[], psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody at another server changes the same row after the common files were written, and before the move."""
    made(lake, "log", "id bigint", "who text")
    made(lake, "other", "id bigint")
    first, adds, changes = sessions(), sessions(), sessions()
    first.execute("insert into log select n, 'nobody' from generate_series(1, 3) n")
    adds.execute("begin; insert into log values (10, 'adds')")
    changes.execute("begin; update log set who = 'changes' where id = 1")
    changes.execute("insert into log values (11, 'changes')")
    changes.execute("insert into other values (1)")
    node = transaction.Lake(lake.dsn, str(lake.warehouse))
    publish, waiting = lake_publish.publish, [True]

    def faster(change: Change, *others: Any, **more: Any) -> Outcome:
        if waiting and waiting.pop():
            elsewhere = transaction.LakeTransaction(node, lambda _table, _wanted: {})
            assert elsewhere.changes(pointer(lake, "log").id).remove(RowId(0, 0))
            elsewhere.commit()
        return publish(change, *others, **more)

    monkeypatch.setattr(lake_publish, "publish", faster)
    try:
        ended = as_one_group(lake, lambda: adds.execute("commit"), lambda: changes.execute("commit"))
    finally:
        node.close()
    assert ended[0] is None
    assert isinstance(ended[1], psycopg.errors.SerializationFailure)
    left = first.execute("select id, who from log order by id").fetchall()
    assert left == [(2, "nobody"), (3, "nobody"), (10, "adds")]
    only_what_is_named_is_there(lake, "log")
    assert not current(lake, "other").data
    only_what_is_named_is_there(lake, "other")


def test_a_value_that_the_lake_cannot_hold_ends_its_own_transaction_only(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake, "prices", "id bigint", "price numeric(6,2)")
    writers = [sessions() for _ in range(3)]
    writers[0].execute("insert into prices values (10, 10)")
    deletes = sessions()
    deletes.execute("begin; delete from prices")
    for number, (session, price) in enumerate(zip(writers, ("1.5", "NaN", "2.5"), strict=True)):
        session.execute(f"begin; insert into prices values ({number}, '{price}')".encode())
    ended = as_one_group(lake, *(lambda session=session: session.execute("commit") for session in [deletes, *writers]))
    assert [type(error) for error in ended if error] == [psycopg.errors.NumericValueOutOfRange]
    assert ended[2] is not None
    assert writers[0].execute("select id, price::text from prices order by id").fetchall() == [(0, "1.50"), (2, "2.50")]
    only_what_is_named_is_there(lake, "prices")


def test_what_a_server_remembers_of_its_commits_is_what_others_read(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    """More commits than manifests: those of a size are written together, and every entry keeps its numbers."""
    made(lake, "log", "id bigint", "kind text", "bytes bytea", layout=Layout(["kind"], ["id desc"]))
    psql, commits = sessions(), 20
    for turn in range(commits):
        psql.execute("insert into log values (%s, 'a', '\\x00ff'), (%s, %s, null)", [turn, turn, "b" * (turn % 3)])
        if turn % 2:
            psql.execute("update log set kind = 'c' where id = %s and kind = 'a'", [turn - 1])
    remembered, read = lake_table.state(pointer(lake, "log").metadata_location), current(lake, "log")
    assert remembered is not read
    assert remembered.metadata == read.metadata
    assert tuple(remembered.history) == tuple(read.history)
    assert len(read.metadata.snapshots) == commits * 3 // 2
    assert len(read.manifests) < commits
    for ours, theirs in ((remembered.data, read.data), (remembered.deletes, read.deletes)):
        assert {path: described(file) for path, file in ours.items()} == {
            path: described(file) for path, file in theirs.items()
        }
    assert list(map(numbered, remembered.manifests)) == list(map(numbered, read.manifests))
    for manifest in read.manifests:
        io = paths.file_io(manifest.manifest_path)
        assert listed(lake_table.entries(manifest)) == listed(snapshots.entries(manifest, io))
    by_pyiceberg = StaticTable.from_metadata(read.location).scan().to_arrow().sort_by([("id", "ascending")])
    ours = psql.execute("select id, kind, bytes from log order by id").fetchall()
    assert sorted(map(str, by_pyiceberg.to_pylist())) == sorted(
        str({"id": row[0], "kind": row[1], "bytes": row[2]}) for row in ours
    )


def described(file: Any) -> list[object]:
    return [getattr(file, name) or None for name in FIELDS]


def numbered(manifest: ManifestFile) -> list[object]:
    return [
        manifest.manifest_path,
        manifest.content,
        manifest.sequence_number,
        manifest.min_sequence_number,
        manifest.added_snapshot_id,
        manifest.added_files_count,
        manifest.existing_files_count,
    ]


def listed(entries: list[Any]) -> list[tuple[object, ...]]:
    return [
        (each.data_file.file_path, each.snapshot_id, each.sequence_number, each.file_sequence_number)
        for each in entries
    ]


WIDE = (
    "id bigint not null",
    "t text",
    "b bytea",
    "n numeric(12,3)",
    "ts timestamptz",
    "j jsonb",
    "ok boolean",
    "d date",
)
SOURCE = """
create table public.source as
select n::bigint as id, case when n % 7 <> 0 then repeat(chr(228), n % 5) || n end as t,
       case when n % 5 <> 0 then decode(lpad(to_hex(n), 8, '0'), 'hex') end as b,
       case when n % 3 <> 0 then (n / 8.0)::numeric(12,3) end as n,
       case when n % 11 = 0 then 'infinity'::timestamptz else '2000-01-01 00:00+00'::timestamptz - n * interval '1 day' end as ts,
       jsonb_build_object('n', n, 't', case when n % 2 = 0 then 'x"y' end) as j, n % 2 = 0 as ok,
       case when n % 13 = 0 then '0044-03-15 BC'::date else '2000-01-01'::date + n end as d
  from generate_series(1, 12000) n"""


def test_many_rows_arrive_as_they_were_sent_whatever_way_they_come(
    lake: Lake, sessions: Callable[[], psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """40,000 parameters a statement, and several files a transaction."""
    monkeypatch.setattr(rows, "_PIECE_ROWS", 5_000)
    made(lake, "wide", *WIDE)
    psql = sessions()
    psql.execute(SOURCE)
    psql.execute("begin; set local bytea_output = 'escape'; insert into wide select * from source")
    assert psql.execute("select count(*) from wide").fetchall() == [(12_000,)]
    psql.execute("savepoint here; insert into wide (d, id) select d, id from source; rollback to here; commit")
    assert same(psql, "wide", "source") == [(0, 0, 12_000)]
    assert len(current(lake, "wide").data) > 1
    only_what_is_named_is_there(lake, "wide")
    made(lake, "copied", *WIDE)
    with psql.cursor().copy("copy source to stdout") as copy:
        text = b"".join(bytes(part) for part in copy)
    with psql.cursor().copy("copy copied from stdin") as copy:
        copy.write(text)
    assert same(psql, "copied", "source") == [(0, 0, 12_000)]


def same(psql: psycopg.Connection, one: str, other: str) -> list[tuple[object, ...]]:
    return psql.execute(
        f"""select (select count(*) from (table {one} except all table {other}) x),
                   (select count(*) from (table {other} except all table {one}) x), (select count(*) from {one})""".encode()
    ).fetchall()


def test_of_a_large_insert_that_fails_nothing_is_left(
    lake: Lake, sessions: Callable[[], psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_PIECE_ROWS", 2_000)
    made(lake, "wide", "id bigint not null", "n numeric(6,2)")
    psql = sessions()
    psql.execute("insert into wide values (1, 1)")
    for query, error in (
        ("select nullif(n, 9000), 1 from generate_series(1, 12000) n", psycopg.errors.NotNullViolation),
        (
            "select n, case n when 11000 then 'NaN'::numeric else n % 7 end from generate_series(1, 12000) n",
            psycopg.errors.NumericValueOutOfRange,
        ),
    ):
        with pytest.raises(error):
            psql.execute(f"insert into wide {query}".encode())
        psql.execute("begin")
        psql.execute("insert into wide values (2, 2)")
        psql.execute("insert into wide select n, 1 from generate_series(1, 12000) n; rollback")
    assert psql.execute("select id, n::int from wide").fetchall() == [(1, 1)]
    only_what_is_named_is_there(lake, "wide")
