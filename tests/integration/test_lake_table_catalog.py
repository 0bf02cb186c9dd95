"""The catalog's part of lake tables: their names and pointers, and the commit of many at once."""

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import psycopg
import pytest
from tests.fixtures.relay import relayed
from tests.fixtures.waiting import until_true

from frostline.catalog import lake_states, lake_tables, lake_upkeep, migrations, pointers
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


def _waits(catalog: Connection, who: Connection) -> None:
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    until_true(catalog, query, (who.info.backend_pid,))


def test_who_drops_one_table_and_writes_another_does_not_wait_in_a_circle_with_who_writes_both(
    catalog: Connection, database: str
) -> None:
    """Dropping first would lock the second table, while the other one has the first and wants the second."""
    readings, totals = made(catalog, READINGS), made(catalog, TOTALS)
    with ExitStack() as opened:
        writes, drops = (opened.enter_context(open_connection(database, purpose="tests")) for _ in range(2))
        commits = opened.enter_context(ThreadPoolExecutor(2))
        with catalog.transaction():
            catalog.execute("select from frostline.iceberg_tables where table_name = 'readings' for update")
            both = [moved(readings, 0, 1), moved(totals, 0, 1)]
            with open_connection(database, purpose="tests") as looks:
                written = commits.submit(lake_tables.commit, writes, both)
                _waits(looks, writes)
                dropped = commits.submit(lake_tables.define, drops, (), [totals.id], [moved(readings, 0, 2)])
                _waits(looks, drops)
        written.result()
        with pytest.raises(CommitLost, match=f"lake table {readings.id} "):
            dropped.result()
    assert places(catalog) == ["1", "1"]


def _held_commit(database: str, catalog: Connection, move: LakeMove, answers: int) -> bool:
    """Commit, and be stopped after so many answers; whether somebody else would wait then. False: it has ended before."""
    with relayed(database) as relay, open_connection(relay.dsn, purpose="tests") as connection:

        def commit() -> None:
            with suppress(psycopg.Error):
                lake_tables.commit(connection, [move])
            relay.held.set()

        relay.hold_after(answers)
        thread = threading.Thread(target=commit)
        thread.start()
        relay.held.wait()
        was_stopped = thread.is_alive()
        with catalog.transaction():
            catalog.execute("select from frostline.iceberg_tables for update nowait")
        relay.close()
        thread.join()
        return was_stopped


def test_nobody_waits_for_a_process_that_is_stopped_in_its_commit(catalog: Connection, database: str) -> None:
    """Wherever it is stopped. A lock that it held until its next message would be held for as long as it sleeps."""
    readings, stops = made(catalog, READINGS), 0
    while _held_commit(database, catalog, moved(readings, stops, stops + 1), stops):
        stops += 1
        assert places(catalog) == [str(stops)], "the stopped one's commit has happened"
    assert stops > 0


def test_a_process_that_is_stopped_in_a_longer_transaction_loses_it_after_a_while(
    catalog: Connection, database: str
) -> None:
    readings = made(catalog, READINGS)
    with open_connection(database, purpose="tests") as connection, connection.transaction(force_rollback=True):
        lake_tables.commit(connection, [moved(readings, 0, 1)])
        left = connection.execute("show idle_in_transaction_session_timeout").fetchone()
    assert left == ("30s",)
    assert places(catalog) == ["0"]


def test_a_table_that_was_renamed_since_it_was_loaded_is_committed_to_all_the_same(catalog: Connection) -> None:
    readings = made(catalog, READINGS)
    lake_tables.rename(catalog, READINGS, TOTALS)
    lake_tables.commit(catalog, [moved(readings, 0, 1)])
    assert [(table.pointer, table.metadata_location[-1]) for table in lake_tables.listed(catalog)] == [(TOTALS, "1")]


@pytest.mark.parametrize("is_copy", [False, True], ids=["the original", "a copy"])
def test_tables_from_before_the_lineages_are_not_claimed_by_a_copy(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, *, is_copy: bool
) -> None:
    """A database that is restored, and upgraded then, does not know that the other one was upgraded as well."""
    steps = migrations.known()
    with open_connection(empty_database, purpose="tests") as catalog:
        with monkeypatch.context() as older:
            older.setattr(migrations, "known", lambda: steps[:33])
            migrations.apply(catalog)
        catalog.execute(
            "insert into frostline.lake_table (table_uuid, namespace, table_name, owner, location)"
            " values (gen_random_uuid(), 'public', 'readings', session_user, 'file:///lake/readings')"
        )
        if is_copy:
            catalog.execute("update frostline.own_history set server = 'elsewhere'")
        migrations.apply(catalog)
        assert lake_upkeep.is_own(catalog, 1) == (not is_copy)
        lake_states.take_over(catalog)
        assert lake_upkeep.is_own(catalog, 1)
