"""Commits of many transactions when one of them cannot be: it is told so by itself, and all others go on."""

import json
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.typedef import Record
from tests.fixtures.lake import Lake
from tests.fixtures.lake_commits import as_one_group, committer_of, current, made, only_what_is_named_is_there, pointer
from tests.fixtures.waiting import until_true

from frostline.catalog import lake_tables
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.lake import lake_commit, lake_table, paths
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import Layout

Sessions = Callable[[], psycopg.Connection]


def put(lake: Lake, name: str, location: str) -> None:
    """As an engine does that knows the catalog's tables, and asks nobody."""
    lake.catalog.execute(
        "update frostline.iceberg_tables set metadata_location = %s where table_name = %s", [location, name]
    )


def put_equality_delete(lake: Lake, name: str) -> None:
    base = current(lake, name)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"{base.metadata.location}/data/theirs.parquet",
        file_format="PARQUET",
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        equality_ids=[1],
    )
    file.spec_id = 0
    put(lake, name, lake_commit.stage(1, base, Added(deletes=[file])).move.location)


def put_format_3(lake: Lake, name: str) -> None:
    base = current(lake, name)
    written = json.loads(base.metadata.model_dump_json()) | {"format-version": 3, "next-row-id": 0}
    location = f"{base.metadata.location}/metadata/00009-{uuid.uuid4()}.metadata.json"
    with paths.file_io(location).new_output(location).create() as file:
        file.write(json.dumps(written).encode())
    put(lake, name, location)


def put_nonsense(lake: Lake, name: str) -> None:
    location = f"{current(lake, name).metadata.location}/metadata/00009-{uuid.uuid4()}.metadata.json"
    with paths.file_io(location).new_output(location).create() as file:
        file.write(b"{}")
    put(lake, name, location)


@pytest.mark.parametrize(
    ("spoil", "sqlstate", "why"),
    [
        (put_equality_delete, "08006", "EQUALITY_DELETES"),
        (put_format_3, "0A000", "is of format 3, and lake tables are of format 2"),
        (put_nonsense, "XX001", "metadata .* is damaged"),
    ],
    ids=["equality-deletes", "format-3", "nonsense"],
)
def test_a_table_that_another_engine_has_made_unreadable_is_the_fault_of_nobody_else(
    lake: Lake, sessions: Sessions, spoil: Callable[[Lake, str], None], sqlstate: str, why: str
) -> None:
    for name in ("spoiled", "log"):
        made(lake, name, "id bigint")
    first, both, deletes = sessions(), sessions(), sessions()
    deletes.execute("insert into spoiled values (0); insert into log values (0)")
    first.execute("begin; insert into log values (1)")
    both.execute("begin; insert into log values (2); insert into spoiled values (2)")
    deletes.execute("begin; delete from spoiled where id = 0")
    spoil(lake, "spoiled")
    waiting = (first, both, deletes)
    ended = as_one_group(lake, *(lambda session=session: session.execute("commit") for session in waiting))
    assert ended[0] is None
    for error in ended[1:]:
        assert isinstance(error, psycopg.Error)
        assert error.sqlstate == sqlstate
        with pytest.raises(psycopg.Error, match=why):
            raise error
    assert first.execute("select id from log order by id").fetchall() == [(0,), (1,)]
    only_what_is_named_is_there(lake, "log")
    for statement in ("select * from spoiled", "insert into spoiled values (3)"):
        with pytest.raises(psycopg.Error, match=why):
            first.execute(statement.encode())


def test_a_table_that_is_purged_between_the_look_at_its_pointer_and_that_at_its_files_is_gone(
    lake: Lake, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "log"):
        made(lake, name, "id bigint")
    first, second, psql = sessions(), sessions(), sessions()
    psql.execute("insert into gone values (0)")
    first.execute("begin; insert into log values (1)")
    second.execute("begin; insert into gone values (1)")
    psql.execute("insert into gone values (2)")
    catalog = committer_of(lake)._catalog
    cut, was_asked = catalog.cut, list[bool]()

    def purged() -> Mapping[int, LakePointer]:
        seen = cut()
        if not was_asked:
            was_asked.append(True)
            gone = lake_tables.drop(lake.catalog, Pointer("public", "gone"))  # as another engine's client does
            for _ in paths.delete_each([file.location for file in paths.below(gone.location)]):
                pass
            lake_table.state.cache_clear()
        return seen

    monkeypatch.setattr(catalog, "cut", purged)
    ended = as_one_group(lake, lambda: first.execute("commit"), lambda: second.execute("commit"))
    assert ended[0] is None
    assert isinstance(ended[1], psycopg.errors.UndefinedTable)
    assert psql.execute("select id from log").fetchall() == [(1,)]


def test_a_table_whose_metadata_cannot_be_written_is_the_fault_of_nobody_else(lake: Lake, sessions: Sessions) -> None:
    made(lake, "broken", "id bigint", layout=Layout(["id"]))
    made(lake, "log", "id bigint")
    first, second, third = sessions(), sessions(), sessions()
    first.execute("begin; insert into log values (1)")
    second.execute("begin; insert into broken values (1)")
    third.execute("begin; insert into log values (2); insert into broken values (2)")
    folder = paths.local_path(current(lake, "broken").metadata.location)
    assert folder is not None
    (folder / "metadata").rename(folder / "aside")
    (folder / "metadata").write_text("no folder")
    waiting = (first, second, third)
    ended = as_one_group(lake, *(lambda session=session: session.execute("commit") for session in waiting))
    assert ended[0] is None
    assert [getattr(error, "sqlstate", None) for error in ended[1:]] == ["08006", "08006"]
    assert first.execute("select id from log").fetchall() == [(1,)]
    (folder / "metadata").unlink()
    (folder / "aside").rename(folder / "metadata")
    only_what_is_named_is_there(lake, "broken")
    assert pointer(lake, "broken").previous_location is None


def test_a_commit_that_postgres_ends_for_a_deadlock_is_done_again(lake: Lake, sessions: Sessions) -> None:
    """Somebody locks pointers in another order, as a client may that knows the catalog's tables only.

    Postgres ends the one that looks for a circle first: the other one looks after an hour only, and waits before us.
    """
    for name in ("first", "second"):
        made(lake, name, "id bigint")
    psql, watching = sessions(), sessions()
    psql.execute("begin; insert into first values (1); insert into second values (1)")
    lock = "select from frostline.iceberg_tables where table_name = %s for update"
    waiting = (
        "select count(*) = %s from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    )
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    with psycopg.connect(lake.dsn) as holder, psycopg.connect(lake.dsn) as other, ThreadPoolExecutor(2) as threads:
        holder.execute(lock, ["first"])
        other.execute("set deadlock_timeout = '1h'")
        other.execute(lock, ["second"])
        committed = threads.submit(psql.execute, "commit")
        until_true(watching, waiting, (1,))
        locked = threads.submit(other.execute, lock, ["first"])
        until_true(watching, waiting, (2,))
        holder.rollback()
        locked.result()
        other.rollback()
        committed.result()
    assert psql.execute("select (select count(*) from first), (select count(*) from second)").fetchall() == [(1, 1)]
    until_true(watching, deadlocks)


@pytest.mark.parametrize("rows", [1 << 28, (1 << 28) + 1])
def test_rows_of_a_file_with_more_than_can_be_told_apart_are_read_and_not_changed(
    lake: Lake, sessions: Sessions, rows: int
) -> None:
    """The number of rows is what the catalog says of the file: its last row would be taken for the next file's first."""
    made(lake, "log", "id bigint")
    psql = sessions()
    psql.execute("insert into log values (1), (2)")
    base, empty = current(lake, "log"), pointer(lake, "log").previous_location
    (known,) = base.data.values()
    large = DataFile.from_args(
        content=known.content,
        file_path=known.file_path,
        file_format="PARQUET",
        partition=known.partition,
        record_count=rows,
        file_size_in_bytes=known.file_size_in_bytes,
    )
    large.spec_id = 0
    assert empty is not None
    put(lake, "log", lake_commit.stage(1, lake_table.state(empty), Added(data=[large])).move.location)
    psql.execute("insert into log values (3)")
    assert psql.execute("select id from log order by id").fetchall() == [(1,), (2,), (3,)]
    for statement in ("delete from log where id = 1", "update log set id = 9 where id = 2 and random() < 2"):
        if rows <= 1 << 28:
            assert psql.execute(statement.encode()).rowcount == 1
        else:
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="has 268435457 rows"):
                psql.execute(statement.encode())
    left = [(3,), (9,)] if rows <= 1 << 28 else [(1,), (2,), (3,)]
    assert psql.execute("select id from log order by id").fetchall() == left
