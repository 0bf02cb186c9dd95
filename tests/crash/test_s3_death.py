"""The object store dies in the middle of everything, and comes back. Nothing is lost, and nothing is left over."""

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run
from tests.fixtures.states import forget

from frostline.catalog import lake_files
from frostline.errors import FrostlineError, UnavailableError
from frostline.failpoints import Failpoint
from frostline.lake import paths
from frostline.model.range import Range
from frostline.pipeline import archive, expire, fold, sweep, verify
from frostline.pipeline.sweep import Request
from frostline.pipeline.tasks import Progress
from frostline.tiers.proof import files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

AWAY = "the object store does not answer"
COLD = "update public.{t} set status = 'cold ' || status where id % 7 = 0"


@pytest.fixture
def world(mortal_lake: Lake) -> Iterator[World]:
    """A table with four months that can be archived, and a plain one beside it."""
    made = World(mortal_lake)
    for _ in range(4):
        made.fill()
    yield made
    made.connection.close()


def left_over(lake: Lake, store: Seaweed) -> list[str]:
    """What failed jobs have left in the store."""
    states = dict(rows(lake.catalog, "select job_id, state from frostline.job"))
    keys = store.objects(lake.settings.warehouse.split("/")[2])
    return [key for key in keys if states.get(paths.job_of(key)) == "failed"]


def dies_at(place: Failpoint, module: ModuleType, store: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store die when the job gets there, once."""

    def reached(here: Failpoint) -> None:
        if here is place:
            store.stop()

    monkeypatch.setattr(module, "reached", reached)


def is_away(error: FrostlineError | None) -> None:
    assert isinstance(error, UnavailableError), repr(error)
    assert AWAY in str(error)
    assert "s3_endpoint" in str(error.hint)


def test_it_dies_during_archive(world: World, own_seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = world.lake

    def stop_after_the_first(_table: object, progress: Progress) -> None:
        if progress.tasks and own_seaweed.process:
            own_seaweed.stop()

    (result,) = lake.archive(report=stop_after_the_first)
    is_away(result.error)
    world.compare()
    own_seaweed.start()
    assert left_over(lake, own_seaweed)

    with monkeypatch.context() as patched:
        dies_at(Failpoint.ARCHIVE_EXPORTED, archive, own_seaweed, patched)
        (result,) = lake.archive()
    is_away(result.error)
    assert "cannot use the warehouse s3://" in str(result.error)
    world.compare()
    own_seaweed.start()

    assert left_over(lake, own_seaweed)
    world.archive()
    assert left_over(lake, own_seaweed) == []
    world.compare()
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_it_dies_under_cold_rows_and_during_fold(
    world: World, own_seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = world.lake
    world.archive()
    world.fill()
    world.both(COLD)
    own_seaweed.stop()
    _no_file_is_blamed(world, monkeypatch)
    _readers_and_jobs_say_so(world)
    own_seaweed.start()
    world.compare()

    for place in (Failpoint.FOLD_REMEMBERED, Failpoint.FOLD_REWRITTEN):
        with monkeypatch.context() as patched:
            dies_at(place, fold, own_seaweed, patched)
            (result,) = lake.fold()
        is_away(result.error)
        own_seaweed.start()
        world.compare()
    assert left_over(lake, own_seaweed)
    (result,) = lake.fold()
    assert (result.error, result.written_files > 0) == (None, True)
    assert left_over(lake, own_seaweed) == []
    world.compare()
    assert verify.run(lake.catalog, lake.table()).faults == ()


def _no_file_is_blamed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store dies after it was asked how long a file is, and before the file is read."""
    catalog, table = world.lake.catalog, world.lake.table()
    recorded = lake_files.recorded(catalog, table)
    sizes = {file.path: file.size_bytes for file in recorded}
    everything = Range(table.tier_kind.lowest, table.tier_kind.highest)
    with monkeypatch.context() as patched:
        patched.setattr(paths, "size_bytes", sizes.get)
        with pytest.raises(UnavailableError, match=AWAY):
            verify.run(catalog, table)
        with pytest.raises(UnavailableError, match=AWAY):
            files.checked(recorded[0], table, everything)


def _readers_and_jobs_say_so(world: World) -> None:
    """A cold query is right or an error, a hot one is right; no job takes an absent store for a damaged file."""
    lake, table = world.lake, world.lake.table()
    count = "select count(*) from public.{}"
    # What the lake server still has of files that never change is as good as the files.
    with contextlib.suppress(psycopg.Error):
        assert rows(world.connection, count.format("events")) == rows(world.connection, count.format("plain"))
    forget()
    with pytest.raises(psycopg.Error, match=AWAY) as refusal:
        run(world.connection, count.format("events"))
    assert refusal.value.sqlstate in ("58030", "08006")
    assert rows(world.connection, f"select count(*) from public.events where ts >= '{world.first}'") == [(40,)]
    doing: list[Callable[[], object]] = [
        lambda: verify.run(lake.catalog, table),
        lambda: lake.thaw(first="1960-04-01 00:00+00"),
    ]
    for job in doing:
        with pytest.raises(UnavailableError) as away:
            job()
        is_away(away.value)
    world.keep_states("0")
    is_away(expire.run(lake.catalog, lake.settings, [table])[0].error)
    is_away(sweep.run(lake.catalog, lake.settings, [table], Request())[0].error)
    is_away(lake.fold()[0].error)
    is_away(lake.archive()[0].error)
