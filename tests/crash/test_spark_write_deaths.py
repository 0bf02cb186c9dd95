"""Writing from Spark: whoever dies in the middle, and whatever others do meanwhile, it is written once or not at all."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.fixtures import killed
from tests.fixtures.batches import STAGES, Row, World, by_sql, new, old, when_staged
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins
from tests.fixtures.waiting import until_true

from frostline import failpoints
from frostline import spark as connector
from frostline.catalog import batches
from frostline.catalog.connect import connect as open_connection
from frostline.errors import ConflictError, OutcomeUnknown, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables, sweep
from frostline.relation import applying, removal, staging
from frostline.spark import write_apply, writes
from frostline.spark.writes import Written

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LABELS = "select label, mode, rows from frostline.applied_batch order by label"


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> World:
    make_twins(shared_lake)
    return World(shared_lake)


QUERY = """
select id, ts, 'killed' as status, cast(id as decimal(12,2)) as amount, '{{}}' as data
  from values ({0}L, timestamp '2024-02-03 00:00:00'), ({1}L, timestamp '2090-02-03 00:00:00'),
              (8L, timestamp '2024-01-01 08:00:00'), (68L, timestamp '2090-01-01 08:00:00') as t (id, ts)
"""
DRIVER = [
    failpoint for failpoint in Failpoint if failpoint.value.startswith("write") and failpoint not in killed.IN_TASKS
]
TASK = [failpoint for failpoint in killed.IN_TASKS if failpoint.value.startswith("write")]


def test_killed_and_started_again_it_is_written_once(world: World) -> None:
    """Each run finds what the ones before it have left. Only the last place is behind the commit."""
    numbers = world.ids(2)
    given = [
        Row(number, when, "killed", Decimal(number), "{}")
        for number, when in (
            (numbers[0], datetime(2024, 2, 3, tzinfo=UTC)), (numbers[1], datetime(2090, 2, 3, tzinfo=UTC)),
            (8, datetime(2024, 1, 1, 8, tzinfo=UTC)), (68, datetime(2090, 1, 1, 8, tzinfo=UTC)),
        )
    ]  # fmt: skip
    there = "select count(*) from public.events where status = 'killed' and id = %s"
    assert DRIVER[-1] is Failpoint.WRITE_APPLIED
    for failpoint in (*TASK, *DRIVER):
        ended = killed.run(world.lake, "write", "upsert", "killed", QUERY.format(*numbers), failpoint=failpoint)
        assert ended.returncode == (killed.KILLED if failpoint in DRIVER else 1), ended.said
        is_applied = failpoint is Failpoint.WRITE_APPLIED
        assert value(world.lake.catalog, there, [numbers[0]]) == is_applied, failpoint
    assert world.write(given, "upsert", label="killed") == Written(4, applied=False)
    _swept(world)
    by_sql(world.lake.catalog, "upsert", given)
    world.compare()
    assert ("killed", "upsert", 4) in rows(world.lake.catalog, LABELS)


def _swept(world: World) -> None:
    (result,) = sweep.run(world.lake.catalog, world.lake.settings, [world.lake.table()], sweep.Request())
    assert result.error is None


LOADED = """
select id, ts, 'killed' as status, cast(1 as decimal(12,2)) as amount, '{{}}' as data
  from values ({0}L, timestamp '2024-02-03 00:00:00'), ({1}L, timestamp '2024-03-03 00:00:00'),
              ({2}L, timestamp '2090-02-03 00:00:00') as t (id, ts)
"""
LOAD = [failpoint for failpoint in Failpoint if failpoint.value.startswith("load_")]
"""In the order in which a load gets there."""


def test_a_load_killed_at_every_step_and_started_again_is_written_once(world: World) -> None:
    """Each run finds what the ones before it have left, and dies one step later."""
    before = set(world.lake.data_files())
    numbers = world.ids(3)
    times = [datetime(year, month, 3, tzinfo=UTC) for year, month in ((2024, 2), (2024, 3), (2090, 2))]
    given = [Row(number, when, "killed", Decimal(1), "{}") for number, when in zip(numbers, times, strict=True)]
    there = "select count(*) from public.events where id = any (%s)"
    for failpoint in LOAD:
        ended = killed.run(world.lake, "write", "append", "loaded", LOADED.format(*numbers), "2", failpoint=failpoint)
        assert ended.returncode == killed.KILLED, ended.said
        assert value(world.lake.catalog, there, [numbers]) == 3 * (failpoint is Failpoint.LOAD_PUBLISHED), failpoint
    assert world.write(given, lake_rows=2, label="loaded") == Written(3, applied=False)
    by_sql(world.lake.catalog, "append", given)
    _swept(world)
    world.compare()
    cold = [new(number, hot=False) for number in world.ids(3)]
    assert world.both(cold, lake_rows=3).as_files == 3  # it begins with what the others left
    recorded = {path for (path,) in rows(world.lake.catalog, "select path from frostline.lake_file")}
    assert {f"file://{file}" for file in set(world.lake.data_files()) - before} <= recorded


APPEND = [failpoint for failpoint in Failpoint if failpoint.value.startswith("append_")]
"""In the order in which an append to a lake table gets there."""


def test_an_append_to_a_lake_table_killed_at_every_step_and_started_again_is_written_once(world: World) -> None:
    lake_tables.create(world.lake.catalog, world.lake.settings, Name("public", "readings"), ["id bigint"], Layout())
    query = "select id from range(1, 4, 1, 2)"
    with world.lake.connect() as reader:
        for failpoint in APPEND:
            ended = killed.run(world.lake, "append", "public.readings", "killed", query, failpoint=failpoint)
            assert ended.returncode == (1 if failpoint in killed.IN_TASKS else killed.KILLED), ended.said
            there = [(1,), (2,), (3,)] if failpoint is Failpoint.APPEND_PUBLISHED else []
            assert rows(reader, "select id from public.readings order by id") == there, failpoint
        again = connector.write(world.session.sql(query), "public.readings", dsn=world.lake.dsn, label="killed")
        assert again == Written(3, applied=False)
        assert rows(reader, "select id from public.readings order by id") == [(1,), (2,), (3,)]


def _abandoned(lake: Lake) -> None:
    """Leave a staging table, as a driver that dies."""
    with open_connection(lake.dsn, purpose="tests") as connection:
        relation = batches.relation(connection, Name.parse("events"))
        staging.make(connection, relation, relation.columns)
    until_true(lake.catalog, "select count(*) = 0 from pg_locks where locktype = 'advisory' and classid = 1179538516")


@pytest.mark.parametrize("how", ["write", "sweep"])
def test_an_abandoned_stage_goes_and_one_in_use_stays(world: World, how: str) -> None:
    _abandoned(world.lake)
    with open_connection(world.lake.dsn, purpose="tests") as connection:
        relation = batches.relation(connection, Name.parse("events"))
        in_use = staging.make(connection, relation, relation.columns)
        assert value(world.lake.catalog, STAGES) == 2
        if how == "write":
            world.write([])
        else:
            _swept(world)
        assert rows(world.lake.catalog, STAGES.replace("count(*)", "relname")) == [(in_use.table,)]
        assert staging.drop(connection, in_use.table)


def test_a_task_that_cannot_reach_postgres_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "dsn_of", lambda _: make_conninfo(world.lake.dsn, port=1))
    with pytest.raises(UnavailableError, match="a task lost Postgres while it copied rows"):
        world.write([new(world.ids(1)[0], hot=True)])
    world.compare()


def _ended_in_commit(monkeypatch: pytest.MonkeyPatch, world: World, also: Callable[[], object] = lambda: None) -> None:
    """Postgres ends the driver's session when all is done but the COMMIT."""
    end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'frostline spark write' and datname = current_database() and state = 'idle in transaction'"

    def reached(place: Failpoint) -> None:
        if place is Failpoint.WRITE_BEFORE_COMMIT:
            assert value(world.lake.catalog, end)
            also()

    monkeypatch.setattr(failpoints, "reached", reached)


def test_lost_in_commit_without_a_label_nobody_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _ended_in_commit(monkeypatch, world)
    with pytest.raises(OutcomeUnknown, match=r"lost Postgres while it committed the batch for public\.events"):
        world.write([new(world.ids(1)[0], hot=True)])
    _swept(world)
    world.compare()


@pytest.mark.quick
def test_lost_in_commit_the_label_tells_that_nothing_was_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [new(world.ids(1)[0], hot=True)]
    with monkeypatch.context() as patch:
        _ended_in_commit(patch, world)
        with pytest.raises(UnavailableError, match=r"nothing was written to public\.events"):
            world.write(given, label="lost")
    _swept(world)
    assert world.both(given, label="lost").applied


@pytest.mark.quick
def test_lost_in_commit_the_label_tells_that_it_was_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session commits the same in its place: the driver cannot tell that from a commit whose answer was lost."""
    given = [new(world.ids(1)[0], hot=True)]

    def commit() -> None:
        with world.lake.connect() as connection, connection.transaction():
            table = world.lake.table().id
            run(connection, "insert into frostline.applied_batch values (%s, 'found', 'append', 1)", [table])
            run(connection, "insert into public.events values (%s, %s, %s, %s, %s)", given[0])

    _ended_in_commit(monkeypatch, world, commit)
    assert world.write(given, label="found") == Written(1, inserted=1)
    by_sql(world.lake.catalog, "append", given)
    _swept(world)
    world.compare()


# What others do meanwhile


def test_a_key_that_another_inserts_during_an_upsert_is_updated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [new(number, hot=number % 2 == 0) for number in world.ids(2)]
    real = applying.Applying._run
    others = [row._replace(status="another") for row in given]

    def during(self: applying.Applying, name: str, **parts: Any) -> int:
        if name == "insert_missing":
            with world.lake.connect() as connection:
                while others:
                    run(connection, "insert into public.events values (%s, %s, %s, %s, %s)", others.pop())
        return real(self, name, **parts)

    monkeypatch.setattr(applying.Applying, "_run", during)
    assert world.both(given, "upsert") == Written(2, updated=2)


def test_an_upsert_that_never_gets_its_rows_is_a_conflict(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    real = applying.Applying._run

    def during(self: applying.Applying, name: str, **parts: Any) -> int:
        if name == "update":
            tries.append(name)
            with world.lake.connect() as connection:
                run(connection, "update public.events set amount = amount + 1 where id = 69 and ts >= '2090-01-01'")
            raise psycopg.errors.SerializationFailure("as the relation's trigger says it")
        return real(self, name, **parts)

    monkeypatch.setattr(applying.Applying, "_run", during)
    with pytest.raises(ConflictError):
        world.write([old(69)], "upsert")
    assert len(tries) == write_apply._TRIES
    run(world.lake.catalog, "update public.plain set amount = amount + 5 where id = 69")
    world.compare()


def test_archive_and_fold_publish_between_staging_and_applying(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_twins(lake)
    run(
        lake.catalog,
        "create table public.events_4 partition of public._events for values from ('2024-04-01 00:00+00') to ('2024-05-01 00:00+00')",
    )
    late = [Row(number, datetime(2024, 4, 2, number % 24, tzinfo=UTC)) for number in range(200, 210)]
    world = World(lake)
    assert world.both(late) == Written(10, inserted=10)
    world.both([old(2, status="to be folded"), old(23, status="to be folded")], "upsert")

    def publish() -> None:
        assert lake.archive("events")[0].error is None
        assert lake.fold("events")[0].error is None

    when_staged(monkeypatch, publish)
    before = lake.value("select snapshot_id from frostline.seam")
    changed = [old(2), old(23), old(63), *(row._replace(status="changed") for row in late[:5])]
    fresh = [Row(300, datetime(2024, 4, 3, tzinfo=UTC)), new(301, hot=False), new(302, hot=True)]
    assert world.both([*changed, *fresh], "upsert") == Written(11, inserted=3, updated=8)
    assert lake.value("select snapshot_id from frostline.seam") != before
    assert world.both([*changed[:2], *late[3:]], "delete") == Written(9, deleted=9)
    assert world.both([old(2), *late[3:]]) == Written(8, inserted=8)


def test_a_table_that_is_removed_meanwhile_is_left_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_twins(lake)
    world = World(lake)
    when_staged(monkeypatch, lambda: removal.remove(lake.catalog, Name.parse("events"), keep_lake=True))
    for mode in ("append", "delete"):
        with pytest.raises(UsageError, match=r"public\.events is not a table that Frostline manages"):
            world.write([old(61)._replace(id=900)] if mode == "append" else [old(61)], mode, label=mode)
    assert rows(lake.catalog, "select count(*), max(id) from public.events") == [(20, 80)]
    assert lake.value(STAGES) == 0
