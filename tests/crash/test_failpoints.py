"""A process is killed at every failpoint: readers see every row at that moment, and the next run leaves nothing behind."""

from collections.abc import Iterator

import pytest
from tests.fixtures import killed, states
from tests.fixtures.lake import Lake
from tests.fixtures.months import World, contents
from tests.fixtures.statements import run, value

from frostline.catalog import lake_files
from frostline.failpoints import Failpoint
from frostline.model import lake_grid
from frostline.relation import policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CORRECTIONS = (
    "update public.{t} set amount = amount + 1000, status = 'corrected' where ts >= '{month}' and id % 5 = 0",
    "delete from public.{t} where ts >= '{month}' and id % 7 = 0",
    "insert into public.{t} values (1000, '{month}'::timestamptz + interval '20 d', 'late', 5)",
    "update public.{t} set ts = ts + interval '1 h' where ts >= '{month}' and id = 11",
)
OF_TWO_MONTHS = (
    "update public.{t} set amount = amount + 1 where ts >= '{month}'::timestamptz - interval '1 month' and id % 4 = 0",
)
"""After a fold, one file of the lake has rows of both."""


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> Iterator[World]:
    """One for all tests of this module: each adds a month and leaves it in the lake."""
    made = World(shared_lake)
    yield made
    made.connection.close()


def _kill(world: World, action: str, failpoint: Failpoint, *arguments: str) -> None:
    ended = killed.run(world.lake, action, *arguments, failpoint=failpoint)
    if failpoint in killed.IN_TASKS:
        assert ended.returncode == 1, ended.said
        assert "Spark gave up" in ended.said
    else:
        assert ended.returncode == killed.KILLED, ended.said
    world.compare()


def _of(*prefixes: str) -> list[Failpoint]:
    return [failpoint for failpoint in Failpoint if failpoint.value.partition("_")[0] in prefixes]


ARCHIVE = _of("archive", "export", "clean")
FOLD = _of("fold", "rewrite")
VERIFY = _of("verify")
UNDO = _of("undo", "trim")
THAW = _of("thaw")
CONVERT = _of("convert")
"""Tried in tests/integration/test_conversion.py: they need no lake."""
PARTITIONS = _of("premake", "partition")
"""Tried in tests/integration/test_partition_mode.py, for the same reason."""
COMPACT = _of("compact")
RETAIN = [*_of("retain"), *_of("trim")]
TRUNCATE = _of("truncate")
EXPIRE = _of("expire")
FENCE = [Failpoint.SWEEP_FENCED]
"""Lake tables have it alone; tried in test_lake_upkeep_killed.py."""
SWEEP = [failpoint for failpoint in _of("sweep") if failpoint not in FENCE]
WORKER = _of("worker")
"""Tried in tests/integration/test_worker.py."""
SNAPSHOT = _of("snapshot")
"""Tried in test_snapshot_killed.py."""
REST = _of("rest")
"""Tried in tests/integration/test_snapshot_rest.py."""
ADOPT = _of("adopt")
"""Tried in tests/integration/test_adopt_lake.py."""
WRITE, LOAD = _of("write"), _of("load")
"""Tried in test_spark_write_deaths.py."""
LEAVE, FILL = _of("leave"), _of("fill")
"""Tried in tests/integration/test_leaving.py and test_filled_columns.py."""
CREATE, APPEND = _of("create"), _of("append")
"""Tried in tests/integration/test_lake_create_as.py and test_spark_lake_write.py."""


def test_every_failpoint_is_tried() -> None:
    here = ARCHIVE + FOLD + VERIFY + UNDO + THAW + COMPACT + RETAIN + TRUNCATE + EXPIRE + SWEEP
    there = (
        FENCE + CONVERT + PARTITIONS + WORKER + SNAPSHOT + REST + ADOPT + WRITE + LOAD + CREATE + APPEND + LEAVE + FILL
    )
    assert set(here + there) == set(Failpoint)


@pytest.mark.parametrize("failpoint", ARCHIVE)
def test_killed_in_archive(world: World, failpoint: Failpoint) -> None:
    world.fill()
    _kill(world, "archive", failpoint)
    world.both("update public.{t} set amount = -1 where ts >= '{month}' and id = 2")
    world.lake.archive()
    world.lake.fold()  # a partition that was archived with this mark is cleaned after it is folded
    world.archive()
    world.compare()
    world.nothing_is_left()
    before = world.state()
    world.archive()
    assert world.state() == before


@pytest.mark.parametrize("failpoint", FOLD)
def test_killed_in_fold(world: World, failpoint: Failpoint) -> None:
    world.fill()
    world.archive()
    world.both(*CORRECTIONS)
    _kill(world, "fold", failpoint)
    (result,) = world.lake.fold()
    assert result.error is None
    world.compare()
    assert value(world.lake.catalog, f"select count(*) from frostline_overlay.{world.lake.table().internal}") == 0
    world.nothing_is_left()
    before = world.state()
    world.lake.fold()
    assert world.state() == before


@pytest.mark.parametrize("failpoint", VERIFY)
def test_killed_in_verify(world: World, failpoint: Failpoint) -> None:
    world.fill()
    world.archive()
    before = world.state()
    _kill(world, "verify", failpoint)
    assert world.state() == before
    world.nothing_is_left()


@pytest.mark.parametrize("failpoint", UNDO)
def test_killed_in_undo(world: World, failpoint: Failpoint) -> None:
    world.fill()
    if world.first[5:7] == "12":  # one file of the lake has rows of one year only
        world.fill()
    world.archive()
    world.fill()
    world.set_grace("1 day")
    try:
        world.lake.archive()
        world.both(*OF_TWO_MONTHS)
        world.lake.fold()
        world.both(*CORRECTIONS[:2])
        _kill(world, "undo", failpoint)
        if world.lake.table().held_from:
            world.lake.clean()  # it was done already; there is nothing more to undo
        else:
            world.lake.undo()
        world.compare()
        world.nothing_is_left(in_grace=1)
    finally:
        world.set_grace("0")
        world.release()
    world.lake.archive()
    world.lake.fold()
    world.archive()
    world.compare()
    world.nothing_is_left()


@pytest.mark.parametrize("failpoint", THAW)
def test_killed_in_thaw(world: World, failpoint: Failpoint) -> None:
    world.fill()
    world.archive()
    world.both(*CORRECTIONS)
    _kill(world, "thaw", failpoint, world.first)
    world.both("update public.{t} set amount = -2 where ts >= '{month}' and id = 4")
    if not world.lake.table().held_from:
        world.lake.thaw(first=world.first)
    world.compare()
    world.release()
    world.lake.archive()
    world.lake.fold()
    world.archive()
    world.compare()
    world.nothing_is_left()


def _archive_two_months(world: World) -> None:
    """Of one year: a lake partition is a year, and so one file can have rows of both."""
    world.fill()
    if world.first[5:7] == "12":
        world.fill()
    world.fill()
    world.archive()


@pytest.mark.parametrize("failpoint", COMPACT)
def test_killed_in_compact(world: World, failpoint: Failpoint) -> None:
    _archive_two_months(world)
    _kill(world, "compact", failpoint)
    (result,) = world.lake.compact()
    assert result.error is None
    world.compare()
    table = world.lake.table()
    files = lake_files.recorded(world.lake.catalog, table)
    assert len({lake_grid.cell_end("year", table.tier_kind, file.lower) for file in files}) == len(files)
    world.nothing_is_left()
    before = world.state()
    world.lake.compact()
    assert world.state() == before


@pytest.mark.parametrize("failpoint", RETAIN)
def test_killed_in_retain(world: World, failpoint: Failpoint) -> None:
    _archive_two_months(world)
    world.lake.compact()
    world.both(*OF_TWO_MONTHS, *CORRECTIONS)
    world.keep_from(world.first)
    try:
        _kill(world, "retain", failpoint)
        world.both("update public.{t} set amount = -2 where ts >= '{month}' and id = 4")
        (result,) = world.lake.retain()
        assert (result.error, result.line) == (None, world.first.replace("00:00+00", "00:00:00+00"))
        world.compare()
        world.nothing_is_left()
        before = world.state()
        world.lake.retain()
        assert world.state() == before
    finally:
        policy.change(world.lake.catalog, world.lake.table(), retention_period=None)
    world.lake.fold()
    world.compare()


@pytest.mark.parametrize("failpoint", TRUNCATE)
def test_killed_in_truncate(world: World, failpoint: Failpoint) -> None:
    """All rows of both tiers are there, or none."""
    world.fill()
    world.archive()
    world.both(*CORRECTIONS)
    world.fill()
    ended = killed.run(world.lake, "truncate", failpoint=failpoint)
    assert ended.returncode == killed.KILLED, ended.said
    is_done = failpoint in (Failpoint.TRUNCATE_PUBLISHED, Failpoint.TRUNCATE_LOWERED_BOUND)
    if is_done:
        run(world.connection, "truncate public.plain")
    world.compare()
    assert (contents(world.connection, "events") == []) is is_done
    world.lake.truncate()
    run(world.connection, "truncate public.plain")
    world.compare()
    world.nothing_is_left()
    world.fill()
    world.archive()
    world.both(*CORRECTIONS)
    world.lake.fold()
    world.compare()
    world.nothing_is_left()


@pytest.fixture
def old_states(world: World) -> Iterator[World]:
    """The lake has states that nobody needs, and need not be kept."""
    world.fill()
    world.archive()
    world.both(*CORRECTIONS)
    world.lake.fold()
    world.keep_states("0")
    yield world
    world.keep_states("7 days")


def _only_what_is_needed_is_left(world: World) -> None:
    states.age(world.lake)
    states.swept(world.lake)
    assert states.files(world.lake) == states.needed(world.lake)
    world.compare()
    world.nothing_is_left()
    before = world.state(), states.files(world.lake)
    assert (states.expired(world.lake).snapshots, states.swept(world.lake).orphans) == (0, ())
    assert (world.state(), states.files(world.lake)) == before


@pytest.mark.parametrize("failpoint", EXPIRE)
def test_killed_in_expire(old_states: World, failpoint: Failpoint) -> None:
    _kill(old_states, "expire", failpoint)
    states.expired(old_states.lake)
    assert len(states.snapshot_ids(old_states.lake)) == 1
    _only_what_is_needed_is_left(old_states)


@pytest.mark.parametrize("failpoint", SWEEP)
def test_killed_in_sweep(old_states: World, failpoint: Failpoint) -> None:
    """There is something to sweep because an expiry died before it could delete."""
    _kill(old_states, "expire", Failpoint.EXPIRE_PUBLISHED)
    states.age(old_states.lake)
    _kill(old_states, "sweep", failpoint)
    _only_what_is_needed_is_left(old_states)
