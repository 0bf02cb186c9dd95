"""Rows that come, go and move between the tiers while a row goes that they reference."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.interleaving import come_before
from tests.fixtures.keyed import Keyed, make, make_plain
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run, value
from tests.fixtures.waiting import until_true

from frostline.lake import commit
from frostline.relation import policy
from frostline.tiers import moment

pytestmark = pytest.mark.spark

WAITING = """
select count(*) > 0 from pg_stat_activity
 where datname = current_database() and wait_event_type = 'Lock' and backend_type = 'client backend'"""
ORPHANS = "select count(*) from public.c where p not in (select k from public.c_parent)"
NEW = "insert into public.c values (99, '2024-01-09', 'new', 8)"


@pytest.fixture
def cascading(lake: Lake) -> Lake:
    make(lake, "c", Keyed("on delete cascade on update cascade"))
    return lake


@pytest.fixture
def strict(lake: Lake) -> Lake:
    make(lake, "c", Keyed())
    return lake


@pytest.fixture
def deferred(lake: Lake) -> Lake:
    make(lake, "c", Keyed("deferrable initially deferred"))
    return lake


@contextmanager
def begun(lake: Lake, level: str = "read committed") -> Generator[psycopg.Connection]:
    """A transaction that has its snapshot."""
    with psycopg.connect(lake.dsn) as connection:
        run(connection, f"set transaction isolation level {level}")
        run(connection, "select 1 from public.c_parent limit 1")
        yield connection
        connection.rollback()


@contextmanager
def waiting(lake: Lake, statement: str) -> Generator["Future[object]"]:
    """The statement in a session of its own, which waits for somebody when the block begins."""
    with lake.connect() as other, ThreadPoolExecutor(1) as pool:
        done: Future[object] = pool.submit(run, other, statement)
        until_true(lake.catalog, WAITING)
        yield done


def test_a_delete_waits_for_a_cold_row_that_comes(cascading: Lake) -> None:
    with begun(cascading) as writer:
        run(writer, NEW)
        with waiting(cascading, "delete from public.c_parent where k = 8") as deleted:
            writer.commit()
            deleted.result(60)
    assert value(cascading.catalog, ORPHANS) == 0
    assert value(cascading.catalog, "select count(*) from public.c where id = 99") == 0


def test_a_delete_that_waited_is_refused(strict: Lake) -> None:
    with begun(strict) as writer:
        run(writer, NEW)
        with waiting(strict, "delete from public.c_parent where k = 8") as deleted:
            writer.commit()
            with pytest.raises(errors.ForeignKeyViolation):
                deleted.result(60)
    assert value(strict.catalog, ORPHANS) == 0


def test_a_cold_row_waits_for_a_delete(cascading: Lake) -> None:
    with begun(cascading) as deleter:
        run(deleter, "delete from public.c_parent where k = 8")
        with waiting(cascading, NEW) as inserted:
            deleter.commit()
            with pytest.raises(errors.ForeignKeyViolation):
                inserted.result(60)
    assert value(cascading.catalog, ORPHANS) == 0


def test_a_cold_row_that_is_deleted_with_its_parent_is_not_written_by_others(cascading: Lake) -> None:
    with begun(cascading) as deleter:
        run(deleter, "delete from public.c_parent where k = 4")
        with waiting(cascading, "update public.c set note = 'late' where id = 14") as updated:
            deleter.commit()
            with pytest.raises(errors.SerializationFailure):
                updated.result(60)
    assert value(cascading.catalog, "select count(*) from public.c where p = 4") == 0


def test_a_cold_row_that_is_written_goes_with_its_parent(cascading: Lake) -> None:
    with begun(cascading) as writer:
        run(writer, "update public.c set note = 'early' where id = 14")
        with waiting(cascading, "delete from public.c_parent where k = 4") as deleted:
            writer.commit()
            deleted.result(60)
    assert value(cascading.catalog, "select count(*) from public.c where p = 4") == 0


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_row_that_was_folded_since_the_snapshot_is_a_conflict(cascading: Lake, level: str) -> None:
    with begun(cascading, level) as deleter:
        run(cascading.catalog, NEW)
        cascading.fold("c")
        with pytest.raises(errors.SerializationFailure):
            run(deleter, "delete from public.c_parent where k = 8")
    assert value(cascading.catalog, ORPHANS) == 0
    assert value(cascading.catalog, "select count(*) from public.c where id = 99") == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_row_that_came_since_the_snapshot_is_seen(strict: Lake, level: str) -> None:
    with begun(strict, level) as deleter:
        run(strict.catalog, NEW)
        with pytest.raises((errors.ForeignKeyViolation, errors.SerializationFailure)):
            run(deleter, "delete from public.c_parent where k = 8")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_partition_that_was_cleaned_since_the_snapshot_is_a_conflict(strict: Lake, level: str) -> None:
    run(strict.catalog, "delete from public.c where p = 4 and ts <> '2024-03-05'")
    strict.fold("c")
    with begun(strict, level) as deleter:
        policy.change(strict.catalog, strict.table("c"), grace_period="0")
        assert strict.clean("c").emptied
        with pytest.raises(errors.SerializationFailure):
            run(deleter, "delete from public.c_parent where k = 4")
    with pytest.raises(errors.ForeignKeyViolation):
        run(strict.catalog, "delete from public.c_parent where k = 4")


def test_a_fold_during_a_delete(cascading: Lake) -> None:
    with begun(cascading) as deleter:
        run(deleter, "delete from public.c_parent where k in (1, 2, 4)")
        cascading.fold("c")
        deleter.commit()
    assert value(cascading.catalog, ORPHANS) == 0
    cascading.fold("c")
    assert value(cascading.catalog, ORPHANS) == 0


@pytest.mark.parametrize("parent", [1, 2, 4])
def test_what_is_deferred_finds_its_rows_after_a_fold(deferred: Lake, parent: int) -> None:
    """Of 1 a changed row is folded meanwhile, of 2 a new one; those of 4 are in the lake only."""
    run(deferred.catalog, f"delete from public.c where p = {parent} and ts > '2024-02-01'")
    deferred_rows = value(deferred.catalog, f"select count(*) from public.c where p = {parent}")
    with begun(deferred) as deleter:
        run(deleter, f"delete from public.c_parent where k = {parent}")
        deferred.fold("c")
        with pytest.raises(errors.ForeignKeyViolation):
            deleter.commit()
    assert value(deferred.catalog, f"select count(*) from public.c where p = {parent}") == deferred_rows > 0


def test_what_is_deferred_finds_its_rows_after_a_clean(deferred: Lake) -> None:
    run(deferred.catalog, "delete from public.c where p = 4 and ts <> '2024-03-05'")
    deferred.fold("c")
    policy.change(deferred.catalog, deferred.table("c"), grace_period="0")
    with begun(deferred) as deleter:
        run(deleter, "delete from public.c_parent where k = 4")
        assert not deferred.clean("c").emptied
        with pytest.raises(errors.ForeignKeyViolation):
            deleter.commit()
    assert value(deferred.catalog, ORPHANS) == 0


@pytest.mark.parametrize("place", [(moment, "exported"), (commit, "stage")], ids=["snapshot", "staged"])
def test_a_parent_that_goes_while_its_rows_are_archived(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    make_plain(lake, "c", Keyed("on delete cascade"))
    lake.add("c", grace="0")
    with lake.connect() as app, monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: run(app, "delete from public.c_parent where k = 4"))
        (result,) = lake.archive()
    assert done
    assert result.error is None
    assert value(lake.catalog, ORPHANS) == 0
    lake.fold("c")
    lake.clean("c")
    assert value(lake.catalog, "select count(*) from public._c where ts < '2090-01-01'") == 0
    assert value(lake.catalog, "select count(*) from public.c") == 18
