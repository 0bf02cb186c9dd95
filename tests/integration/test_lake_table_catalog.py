"""The catalog's part of lake tables: their names and pointers, and the commit of many at once."""

import threading
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from frostline.catalog import lake_tables, pointers
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.catalog.lake_tables import CommitLost, LakeTableExists, NoSuchLakeTable
from frostline.catalog.pointers import LakeMove, LakePointer, Move, Pointer

READINGS, TOTALS = Pointer("public", "readings"), Pointer("other", "totals")


@pytest.fixture
def catalog(database: str) -> Iterator[Connection]:
    with open_connection(database, purpose="tests") as connection:
        yield connection


def made(catalog: Connection, pointer: Pointer) -> LakePointer:
    """A lake table at its metadata 0."""
    place = f"file:///lake/{pointer.table}"
    return lake_tables.create(catalog, pointer, str(uuid.uuid4()), place, f"{place}/metadata/0")


def moved(table: LakePointer, number: int, to: int) -> LakeMove:
    return LakeMove(table.id, f"{table.location}/metadata/{number}", f"{table.location}/metadata/{to}")


def places(catalog: Connection) -> list[str]:
    return [table.metadata_location.rpartition("/")[2] for table in lake_tables.listed(catalog)]


def test_a_lake_table_is_made_listed_renamed_and_dropped(catalog: Connection) -> None:
    readings = made(catalog, READINGS)
    assert (readings.pointer, readings.owner) == (READINGS, catalog.info.user)
    assert lake_tables.listed(catalog) == [readings] == [lake_tables.load(catalog, READINGS)]
    with pytest.raises(LakeTableExists):
        made(catalog, READINGS)
    renamed = lake_tables.rename(catalog, READINGS, Pointer("new", "name"))
    assert (renamed.id, renamed.pointer) == (readings.id, Pointer("new", "name"))
    lake_tables.commit(catalog, [moved(readings, 0, 1)])
    with pytest.raises(NoSuchLakeTable):
        lake_tables.load(catalog, READINGS)
    lake_tables.drop(catalog, renamed.pointer)
    assert lake_tables.listed(catalog) == []
    (gone,) = lake_tables.dropped(catalog)
    assert gone.metadata_location.endswith("/1")
    lake_tables.forget(catalog, gone.id)
    assert lake_tables.dropped(catalog) == []
    made(catalog, READINGS)


def test_a_name_that_any_other_table_of_the_catalog_has_is_refused(catalog: Connection) -> None:
    pointers.swap_copies(catalog, "somebody", [Move(TOTALS, None, "file:///theirs/0")])
    with pytest.raises(LakeTableExists):
        made(catalog, TOTALS)
    made(catalog, READINGS)
    with pytest.raises(LakeTableExists):
        lake_tables.rename(catalog, READINGS, TOTALS)
    assert [table.pointer for table in lake_tables.listed(catalog)] == [READINGS]


def test_a_commit_of_many_tables_moves_all_pointers_or_none(catalog: Connection) -> None:
    readings, totals = made(catalog, READINGS), made(catalog, TOTALS)
    lake_tables.commit(catalog, [moved(readings, 0, 1), moved(totals, 0, 1)])
    assert places(catalog) == ["1", "1"]
    with pytest.raises(CommitLost, match=f"lake table {totals.id} "):
        lake_tables.commit(catalog, [moved(totals, 0, 2), moved(readings, 1, 2)])
    assert places(catalog) == ["1", "1"]


def test_a_commit_to_a_dropped_table_or_one_that_is_no_lake_table_changes_nothing(catalog: Connection) -> None:
    readings = made(catalog, READINGS)
    lake_tables.drop(catalog, READINGS)
    other = made(catalog, READINGS)
    for move in (moved(readings, 0, 1), LakeMove(other.id + 1, "file:///x/0", "file:///x/1")):
        with pytest.raises(CommitLost):
            lake_tables.commit(catalog, [move])
    assert places(catalog) == ["0"]


def test_two_commits_at_once_do_not_wait_for_each_other_in_a_circle_and_one_is_lost(
    catalog: Connection, database: str
) -> None:
    readings, totals = made(catalog, READINGS), made(catalog, TOTALS)
    moves, ends = [moved(readings, 0, 1), moved(totals, 0, 1)], list[str]()

    def commit(mine: list[LakeMove]) -> None:
        with open_connection(database, purpose="tests") as connection:
            try:
                lake_tables.commit(connection, mine)
                ends.append("committed")
            except (CommitLost, psycopg.Error) as error:
                ends.append(type(error).__name__)

    threads = [threading.Thread(target=commit, args=[mine]) for mine in (moves, moves[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["CommitLost", "committed"]


def test_a_table_that_was_renamed_since_it_was_loaded_is_committed_to_all_the_same(catalog: Connection) -> None:
    readings = made(catalog, READINGS)
    lake_tables.rename(catalog, READINGS, TOTALS)
    lake_tables.commit(catalog, [moved(readings, 0, 1)])
    assert [(table.pointer, table.metadata_location[-1]) for table in lake_tables.listed(catalog)] == [(TOTALS, "1")]
