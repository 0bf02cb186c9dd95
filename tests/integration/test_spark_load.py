"""Large cold batches from Spark go into the lake as files: once, and with every key only once, whoever writes meanwhile."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests.fixtures.batches import STAGES, Row, World, by_sql, frame, new, old
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline import failpoints, spark
from frostline.catalog import seams
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.model.tiers import from_text
from frostline.pipeline import verify
from frostline.pipeline.load import Declined
from frostline.relation import loading
from frostline.spark import write_load
from frostline.spark.writes import Written

pytestmark = pytest.mark.spark

INSERT = "insert into public.events values (%s, %s, %s, %s, %s)"
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and pid = %s"
)
DRIVER = "select pid from pg_stat_activity where application_name = 'frostline spark write' and datname = current_database() and backend_type = 'client backend' order by backend_start limit 1"


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> Iterator[World]:
    """After all tests, whatever they loaded is as its checksums say."""
    make_twins(shared_lake)
    yield World(shared_lake)
    assert verify.run(shared_lake.catalog, shared_lake.table()).faults == ()


@pytest.fixture
def own_world(lake: Lake) -> World:
    """One that no other test has: what is hot, cold and in its grace period changes."""
    make_twins(lake)
    return World(lake)


def _cold(world: World, count: int = 3, **columns: Any) -> list[Row]:
    return [new(number, hot=False, **columns) for number in world.ids(count)]


def _marks(world: World) -> int:
    return value(world.lake.catalog, f'select count(*) from frostline_overlay."{world.lake.table().internal}"')


def _when(monkeypatch: pytest.MonkeyPatch, place: Failpoint, act: Callable[[], object]) -> None:
    """Do something the first time that a write gets there."""
    done: list[Failpoint] = []

    def reached(here: Failpoint) -> None:
        if here is place and not done:
            done.append(here)
            act()

    monkeypatch.setattr(failpoints, "reached", reached)


def _until_waiting(world: World, pid: int) -> None:
    """A minute at most, should nobody wait: the test then fails by what comes of it."""
    until = time.monotonic() + 60
    while not value(world.lake.catalog, WAITING, [pid]) and time.monotonic() < until:
        time.sleep(0.02)


def test_cold_rows_become_files_and_hot_ones_do_not(world: World) -> None:
    before = _marks(world)
    cold, hot = _cold(world, 5), [new(number, hot=True) for number in world.ids(2)]
    early = [Row(world.ids(1)[0], datetime(1999, 5, 6, 7, 8, 9, 123456, tzinfo=UTC), "ä'\n", None, None)]
    given = [*cold, *hot, *early]
    assert world.both(given, lake_rows=6, label="files") == Written(8, inserted=8, as_files=6)
    assert _marks(world) == before
    assert rows(world.lake.catalog, "select kind, state, rows from frostline.job order by job_id desc limit 1") == [
        ("load", "published", 6)
    ]
    assert world.write(given, lake_rows=6, label="files") == Written(8, applied=False)
    assert world.both(_cold(world, 5), lake_rows=6) == Written(5, inserted=5)
    world.compare()


def test_columns_that_are_not_given_get_what_the_relation_gives_them(world: World) -> None:
    given = frame(world.session, [new(number, hot=False) for number in range(3)]).select("ts", "data")
    run(world.lake.catalog, "select setval('public.events_id_seq', 500000)")
    done = spark.write(given, "events", dsn=world.lake.dsn, lake_rows=3)
    assert done == Written(3, inserted=3, as_files=3)
    for number in range(3):
        run(
            world.lake.catalog,
            "insert into public.plain (id, ts, data) values (%s, '2024-02-03', '{\"a\": 1}')",
            [500001 + number],
        )
    world.compare()


def test_a_key_that_exists_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match=r"duplicate key \(id, ts\) = \(6, 2024-01-01 06:00:00\+00\)") as caught:
        world.write([*_cold(world), old(6)], lake_rows=1, label="exists")
    assert caught.value.hint == "mode='upsert' replaces rows whose key exists"
    (there,) = _cold(world, 1)
    world.both([there])  # by a mark
    with pytest.raises(UsageError, match="duplicate key"):
        world.write([*_cold(world), there], lake_rows=1)
    twice = _cold(world)
    with pytest.raises(UsageError, match="could not create unique index"):
        world.write([*twice, twice[0]], lake_rows=1)
    with pytest.raises(UsageError, match="violates check constraint"):
        world.write(_cold(world, amount=Decimal(-1)), lake_rows=1)
    world.compare()
    assert world.both(twice, lake_rows=1, label="exists").as_files == 3  # the label was not taken


@pytest.mark.slow
def test_a_key_that_was_deleted_since_the_last_fold_can_be_loaded(world: World) -> None:
    world.both([old(7)], "delete")
    assert world.both([old(7, status="again"), *_cold(world)], lake_rows=3) == Written(4, inserted=4, as_files=3)
    loaded = _cold(world)
    world.both(loaded, lake_rows=3)
    world.both(loaded[:2], "delete")
    world.both([loaded[2]._replace(status="changed")], "upsert")
    assert world.both([*loaded[:2], *_cold(world)], lake_rows=3).as_files == 3


# What others do meanwhile


def _other(world: World, row: Row, level: str = "read committed") -> psycopg.Connection:
    """A transaction that has begun, at that level."""
    connection = world.lake.connect()
    run(connection, f"begin isolation level {level}")
    run(connection, "select count(*) from public.plain where id = %s", [row.id])
    return connection


@pytest.mark.parametrize("end", first(1, ["commit", "rollback"]))
def test_a_load_waits_for_a_writer_that_has_marked_a_key(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    given = _cold(world)
    with _other(world, given[1]) as connection, ThreadPoolExecutor(1) as pool:
        ended: list[Future[Any]] = []

        def mark() -> None:
            run(connection, INSERT, given[1]._replace(status="another"))
            ended.append(
                pool.submit(lambda: (_until_waiting(world, value(world.lake.catalog, DRIVER)), run(connection, end))[1])
            )

        _when(monkeypatch, Failpoint.LOAD_STAGED, mark)
        if end == "rollback":
            assert world.both(given, lake_rows=3) == Written(3, inserted=3, as_files=3)
        else:
            with pytest.raises(UsageError, match="duplicate key"):
                world.write(given, lake_rows=2)
            by_sql(world.lake.catalog, "append", [given[1]._replace(status="another")])
        ended[0].result(30)
    world.compare()


@pytest.mark.parametrize(
    ("level", "error"),
    [
        ("read committed", psycopg.errors.UniqueViolation),
        ("repeatable read", psycopg.errors.SerializationFailure),
    ],
)
def test_a_writer_that_comes_while_a_key_is_claimed_waits_and_finds_it(
    world: World, monkeypatch: pytest.MonkeyPatch, level: str, error: type[Exception]
) -> None:
    given = _cold(world)
    with _other(world, given[1], level) as connection, ThreadPoolExecutor(1) as pool:
        inserted: list[Future[Any]] = []

        def come() -> None:
            inserted.append(pool.submit(run, connection, INSERT, given[1]._replace(status="another")))
            _until_waiting(world, connection.info.backend_pid)

        _when(monkeypatch, Failpoint.LOAD_BEFORE_COMMIT, come)
        assert world.both(given, lake_rows=3).as_files == 3
        with pytest.raises(error):
            inserted[0].result(30)
        run(connection, "rollback")
    world.compare()


@pytest.mark.slow
def test_a_writer_that_saw_a_mark_go_looks_into_the_lake(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold takes the mark of a deleted key away, and a load brings the key back, both after the writer's snapshot."""
    (gone, *others) = _cold(world)
    world.both([gone, *others], lake_rows=3)
    world.both([gone], "delete")
    with _other(world, gone, "repeatable read") as connection:
        assert world.lake.fold("events")[0].error is None
        assert world.both([gone, *_cold(world)], lake_rows=4).as_files == 4
        with pytest.raises(psycopg.errors.SerializationFailure):
            run(connection, INSERT, gone)
        run(connection, "rollback")
    world.compare()


@pytest.mark.slow
def test_of_a_deadlock_one_is_told_and_every_row_is_there_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = given = _cold(world)
    refused: list[Exception] = []
    with _other(world, first) as connection, ThreadPoolExecutor(1) as pool:
        ended: list[Future[Any]] = []

        def cross() -> None:
            _until_waiting(world, value(world.lake.catalog, DRIVER))
            try:
                run(connection, INSERT, first._replace(status="another"))
            except psycopg.Error as error:
                refused.append(error)
            run(connection, "rollback")

        def mark() -> None:
            run(connection, INSERT, last._replace(status="another"))
            ended.append(pool.submit(cross))

        _when(monkeypatch, Failpoint.LOAD_STAGED, mark)
        assert world.both(given, lake_rows=3).as_files == 3
        ended[0].result(30)
    assert all(isinstance(error, psycopg.errors.DeadlockDetected) for error in refused)


@pytest.mark.slow
def test_who_is_always_in_the_way_is_a_conflict(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.Loading, "claim", lambda _: False)
    monkeypatch.setattr(write_load, "_PAUSE_S", 0.01)
    with pytest.raises(ConflictError, match="others write the same keys"):
        world.write(_cold(world), lake_rows=3)
    world.compare()


def test_a_constraint_that_is_added_meanwhile_is_heeded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add = "alter table public._events add constraint short check (length(status) < 30) not valid"
    _when(monkeypatch, Failpoint.LOAD_STAGED, lambda: run(world.lake.catalog, add))
    try:
        with pytest.raises(UsageError, match="violates check constraint"):
            world.write(_cold(world, status="x" * 40), lake_rows=3)
    finally:
        run(world.lake.catalog, "alter table public._events drop constraint short")
    world.compare()


def test_lost_in_commit_the_label_tells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _cold(world)
    end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'frostline spark write' and datname = current_database() and state = 'idle in transaction'"
    with monkeypatch.context() as patch:
        _when(patch, Failpoint.LOAD_BEFORE_COMMIT, lambda: value(world.lake.catalog, end))
        with pytest.raises(UnavailableError, match=r"nothing was written to public\.events"):
            world.write(given, lake_rows=3, label="lost load")
    assert world.both(given, lake_rows=3, label="lost load").as_files == 3


# When it is not done


OBSTACLES = {
    "row security": "alter table public._events enable row level security",
    "a foreign key": "create table public.f (id int primary key); alter table public._events add f int references public.f",
    "a unique index": "create unique index on public._events (ts, id, status)",
    "a check of its own": "alter table public.events_hot add check (id > 0)",
    "a trigger": "create trigger t before insert on public._events for each row execute function suppress_redundant_updates_trigger()",
    "a rule": "create rule r as on insert to public._events do also nothing",
    "published": "create publication p for table public._events",
    "older version": "update pg_proc set prosrc = prosrc || ' ' where proname = 'mark_' || (select table_id from frostline.managed_table)",
}


@pytest.mark.parametrize("what", OBSTACLES)
def test_what_files_would_bypass_is_an_obstacle(world: World, what: str) -> None:
    assert loading.obstacle(world.lake.catalog, world.lake.table()) is None
    with world.lake.catalog.transaction(force_rollback=True):
        run(world.lake.catalog, OBSTACLES[what])
        assert what in (loading.obstacle(world.lake.catalog, world.lake.table()) or "")


def test_with_an_obstacle_the_rows_go_through_the_relation(world: World) -> None:
    run(world.lake.catalog, "create unique index extra on public._events (id, ts, status)")
    try:
        done = world.both(_cold(world), lake_rows=3)
    finally:
        run(world.lake.catalog, "drop index public.extra")
    why = "it has a unique index besides its primary key"
    assert done == Written(3, inserted=3, not_as_files=why)
    with pytest.raises(UsageError, match="lake_rows is 0"):
        world.write([], lake_rows=0)


@pytest.mark.slow
def test_two_keys_with_one_hash_are_looked_up_as_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.Loading, "key_of", lambda *_: ("-1", "2024-01-01"))
    with pytest.raises(UsageError, match="duplicate key"):  # by the relation, after files were declined
        world.write([*_cold(world), old(8)], lake_rows=3)
    assert value(world.lake.catalog, "select error from frostline.job order by job_id desc limit 1") == (
        "the lake has another key with the hash of one of its keys"
    )


@pytest.mark.slow
def test_a_role_with_grants_only_writes_through_the_relation(world: World) -> None:
    run(world.lake.catalog, "create role loader login in role pg_monitor")
    try:
        with world.lake.connect() as connection:
            run(connection, "set role loader")
            declined = write_load._ours(connection, write_load.Batch(world.lake.table().name, "append", None))
            assert declined == Declined("only Frostline's role may put files into the lake")
    finally:
        run(world.lake.catalog, "drop role loader")


@pytest.mark.slow
def test_rows_before_what_was_removed_are_refused(world: World) -> None:
    table = world.lake.table()
    removed = from_text(table.tier_kind, "2024-01-01 00:00:00+00")
    with world.lake.catalog.transaction():
        seams.retain(world.lake.catalog, table, removed)
    try:
        with pytest.raises(UsageError, match="older than the retention period"):
            world.write([Row(1, datetime(2023, 1, 1, tzinfo=UTC)), *_cold(world)], lake_rows=2)
    finally:
        run(world.lake.catalog, "update frostline.seam set retained_timestamptz = null")
    world.compare()


@pytest.mark.slow
def test_loaded_files_live_on_as_all_others(own_world: World) -> None:
    """What was loaded is changed, folded, merged, thawed and compared."""
    world, lake = own_world, own_world.lake
    assert verify.run(lake.catalog, lake.table()).faults == ()
    loaded = _cold(world, 6)
    world.both(loaded, lake_rows=6)
    world.both([row._replace(status="later") for row in loaded[:2]], "upsert")
    world.both(loaded[2:3], "delete")
    assert lake.fold("events")[0].error is None
    world.compare()
    assert lake.compact("events")[0].error is None
    assert verify.run(lake.catalog, lake.table()).faults == ()
    world.compare()
    lake.thaw(first="2024-02-01 00:00+00")
    world.compare()
    assert world.both([new(number, hot=False) for number in world.ids(2)], lake_rows=1) == Written(2, inserted=2)


def test_a_partition_in_its_grace_period_takes_its_rows_itself(own_world: World) -> None:
    """February and March are hot once more, and archived again."""
    world, lake = own_world, own_world.lake
    lake.thaw(first="2024-02-01 00:00+00")
    run(lake.catalog, "update frostline.managed_table set grace_period = '1 day', held_from = null")
    assert lake.archive("events")[0].error is None
    done = world.both(_cold(world), lake_rows=3)
    assert "is in its grace period" in str(done.not_as_files)
    early = [Row(number, datetime(2024, 1, 9, tzinfo=UTC)) for number in world.ids(3)]
    assert world.both(early, lake_rows=3).as_files == 3
    lake.undo()
    world.compare()
    assert verify.run(lake.catalog, lake.table()).faults == ()
    assert value(lake.catalog, STAGES) == 0
