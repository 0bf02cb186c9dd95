"""A process is killed at every failpoint: readers see every row at that moment, and the next run leaves nothing behind."""

from collections.abc import Iterator

import pytest
from tests.fixtures import killed
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.statements import value

from frostline.failpoints import Failpoint

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
    one = World(shared_lake)
    yield one
    one.connection.close()


def _kill(world: World, action: str, failpoint: Failpoint, *arguments: str) -> None:
    process = killed.start(world.lake, action, *arguments, failpoint=failpoint)
    said, _ = process.communicate(timeout=240)
    if failpoint in killed.IN_TASKS:
        assert process.returncode == 1, said
        assert "Spark gave up" in said
    else:
        assert process.returncode == killed.KILLED, said
    world.compare()


def _of(*prefixes: str) -> list[Failpoint]:
    return [one for one in Failpoint if one.value.partition("_")[0] in prefixes]


ARCHIVE = _of("archive", "export", "clean")
FOLD = _of("fold", "rewrite")
VERIFY = _of("verify")
UNDO = _of("undo", "trim")
THAW = _of("thaw")


def test_every_failpoint_is_tried() -> None:
    assert set(ARCHIVE + FOLD + VERIFY + UNDO + THAW) == set(Failpoint)


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
