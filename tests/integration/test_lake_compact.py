"""Compaction of lake tables: the same rows in fewer files, whatever others commit meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import lake_past
from tests.fixtures.lake import Lake

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import UnavailableError
from frostline.lake import lake_publish, lake_rewrite, lake_table
from frostline.lake.lake_table import Layout
from frostline.model import upkeep
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_tables, lake_verify
from frostline.pipeline.compact import Result

COLUMNS = ("id bigint not null", "kind text", "value double precision")
ROWS = "select id, kind, value::text from public.readings order by id"


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    """A table of two partitions with three files each, of which some rows are deleted and replaced."""
    layout = Layout(["kind"], ["id desc"])
    lake_tables.create(lake.catalog, lake.settings, Name("public", "readings"), COLUMNS, layout)
    with lake.connect() as connection:
        for first in (1, 11, 21):
            connection.execute(
                "insert into readings select n, case n %% 2 when 0 then 'even' else 'odd' end, "
                "case when n %% 5 = 0 then '-0'::float8 else n end from generate_series(%s::int, %s::int) n",
                (first, first + 9),
            )
        connection.execute("delete from readings where id in (2, 3, 12)")
        connection.execute("update readings set value = 'NaN' where id = 21")
        yield connection


def pointer(lake: Lake) -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", "readings"))


def compacted(lake: Lake) -> Result:
    (result,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert result.error is None
    return result


def files(lake: Lake) -> tuple[int, int, int]:
    """Data files, delete files and rows, as the metadata says."""
    shown = lake_tables.show(lake.catalog, pointer(lake))
    return shown.files, shown.delete_files, shown.rows


def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something once, between a compaction's writing and its commit."""
    stage, waiting = lake_rewrite.stage, [do]

    def staged(*args: object, **options: object) -> object:
        made = stage(*args, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if waiting:
            waiting.pop()()
        return made

    monkeypatch.setattr(lake_rewrite, "stage", staged)


def test_the_same_rows_are_in_one_file_a_partition_and_no_delete_file_is_left(
    lake: Lake, session: psycopg.Connection
) -> None:
    before = session.execute(ROWS).fetchall()
    result = compacted(lake)
    assert (result.merged_files, result.written_files) == (7, 2)
    assert session.execute(ROWS).fetchall() == before
    assert session.execute("select count(*) from readings where value = 0 and value::text = '-0'").fetchone() == (6,)
    assert files(lake) == (2, 0, 27)
    others = StaticTable.from_metadata(pointer(lake).metadata_location).scan().to_arrow()
    found: list[Any] = others.column("id").to_pylist()
    assert sorted(found) == [row[0] for row in before]
    assert not compacted(lake).changed, "there is nothing left to do"
    session.execute("delete from readings where kind = 'odd'")
    assert compacted(lake).written_files == 0, "no row is left of that file"
    assert files(lake) == (1, 0, 13)


def test_what_is_committed_meanwhile_is_there_afterwards_and_no_row_is_lost_or_doubled(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        session.execute("insert into readings values (100, 'even', 1)")
        session.execute("delete from readings where id = 4")

    before = session.execute(ROWS).fetchall()
    meanwhile(monkeypatch, write)
    result = compacted(lake)
    expected = sorted([*(row for row in before if row[0] != 4), (100, "even", "1")])
    assert session.execute(ROWS).fetchall() == expected
    assert result.written_files >= 2, "what was written of the other partition is committed, the rest is done again"
    assert files(lake) == (2, 0, 27)
    data = {path.name for path in lake.data_files()}
    named = {file.rpartition("/")[2] for file in _all_named(lake)}
    assert data <= named, "what came to nothing is deleted"


def _all_named(lake: Lake) -> set[str]:
    """Every data and delete file that some snapshot has."""
    table = StaticTable.from_metadata(pointer(lake).metadata_location)
    return {
        entry.data_file.file_path
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }


def test_of_two_compactions_at_once_one_comes_to_nothing(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.execute(ROWS).fetchall()
    others = list[Result]()
    meanwhile(monkeypatch, lambda: others.append(compacted(lake)))
    mine = compacted(lake)
    assert (mine.changed, others[0].changed) == (False, True)
    assert session.execute(ROWS).fetchall() == before
    assert files(lake) == (2, 0, 27)


def test_a_transaction_that_has_read_goes_on_reading_and_conflicts_only_where_it_changes_rows(
    lake: Lake, session: psycopg.Connection
) -> None:
    with lake.connect() as other:
        other.execute("begin")
        before = other.execute(ROWS).fetchall()
        other.execute("insert into readings values (200, 'odd', 2)")
        session.execute("begin")
        session.execute("update readings set value = 1 where id = 5")
        compacted(lake)
        assert other.execute(ROWS).fetchall() == [*before, (200, "odd", "2")]
        other.execute("commit")
        with pytest.raises(psycopg.errors.SerializationFailure):
            session.execute("commit")
        assert files(lake) == (3, 0, 28)


def test_a_store_that_fails_after_the_commit_takes_no_file_of_it_along(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests of what was committed were counted in the lake, and an error there passed for one before the commit."""
    before, commit = session.execute(ROWS).fetchall(), lake_publish.commit

    def fails(_: str) -> None:
        raise UnavailableError("the store is away", hint="wait")

    def committed(*arguments: Any, **options: Any) -> Any:
        outcome = commit(*arguments, **options)
        monkeypatch.setattr(lake_table, "state", fails)
        return outcome

    with monkeypatch.context() as broken:
        broken.setattr(upkeep, "manifests_are_many", lambda _: True)
        broken.setattr(lake_publish, "commit", committed)
        (result,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    monkeypatch.undo()
    assert isinstance(result.error, UnavailableError)
    lake_past.forget()
    assert lake_verify.run(lake.catalog, pointer(lake)).faults == ()
    assert session.execute(ROWS).fetchall() == before
    assert files(lake) == (2, 0, len(before))
