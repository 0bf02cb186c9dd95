"""A run is killed at every step: the last version stays visible, whole, and the next run leaves nothing of it."""

from collections.abc import Iterator

import pytest
from tests.fixtures import copies, killed
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.statements import rows, run

from frostline.catalog import snapshot_versions
from frostline.failpoints import Failpoint
from frostline.lake import paths, reachable, snapshots
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables, snapshot_drop

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS, PLAIN, READINGS = Name("public", "events"), Name("public", "plain"), Name("public", "readings")
DROP = [Failpoint.SNAPSHOT_DROP_BEFORE_COMMIT, Failpoint.SNAPSHOT_DROPPED, Failpoint.SNAPSHOT_DELETED_ONE]
CREATE = [failpoint for failpoint in Failpoint if failpoint.value.startswith("snapshot_") and failpoint not in DROP]
_CUT = "select namespace, lake_table, metadata_location from frostline.snapshot_cut where name = 'nightly' order by 2"
_POINTERS = """
select table_namespace, table_name, metadata_location from frostline.iceberg_tables
 where table_namespace = 'nightly.public' order by 2"""


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> Iterator[World]:
    """A managed table with cold and hot rows, a plain one and a lake table with the same ones, and a first version."""
    made = World(shared_lake)
    made.fill()
    made.archive()
    made.fill()
    columns = ["id bigint", "ts timestamptz", "status text", "amount numeric(12,2)"]
    lake_tables.create(shared_lake.catalog, shared_lake.settings, READINGS, columns, Layout(["month(ts)"]))
    run(made.connection, "insert into public.readings select * from public.plain")
    copies.create(shared_lake, "public.*")
    yield made
    made.connection.close()


def kill(world: World, action: str, failpoint: Failpoint, *arguments: str) -> None:
    ended = killed.run(world.lake, action, *arguments, failpoint=failpoint)
    if failpoint in killed.IN_TASKS:
        assert "Spark gave up" in ended.said
    else:
        assert ended.returncode == killed.KILLED, ended.said


def create(world: World) -> None:
    """Make a version with tasks in this process, which is quicker. Those that are killed are Spark's."""
    with pytest.MonkeyPatch.context() as patch:
        copies.without_spark(world.lake, patch)
        copies.create(world.lake, "public.*")


def readable(world: World, version: int | None = None) -> None:
    """The copies of all three tables are there, and have the same rows."""
    there = copies.shown(world.lake, version=version)
    query = "select id, epoch_us(ts), status, amount from copy order by all"
    expected = copies.by_duckdb(there[PLAIN], query)
    assert copies.by_duckdb(there[EVENTS], query) == copies.by_duckdb(there[READINGS], query) == expected != []


def nothing_is_left(world: World) -> None:
    """Every file belongs to a version that is there, and every version has all its files."""
    needed: set[str] = set()
    for location in snapshot_versions.needed(world.lake.catalog, "nightly"):
        needed |= {location, *reachable.current(snapshots.read_metadata(location))}
    root = paths.snapshot_root(world.lake.settings.warehouse, "nightly")
    assert {file.location for file in paths.below(root)} == needed
    assert rows(world.lake.catalog, "select state from frostline.snapshot where state = 'running'") == []


@pytest.mark.parametrize("failpoint", CREATE)
def test_killed_while_a_version_is_made(world: World, failpoint: Failpoint) -> None:
    catalog = world.lake.catalog
    before = rows(catalog, _CUT)
    changed = "update public.{t} set amount = amount + 1 where id % 3 = 0"
    world.both(changed)
    run(world.connection, changed.format(t="readings"))
    kill(world, "snapshot", failpoint)
    assert (rows(catalog, _CUT) == before) == (failpoint is not Failpoint.SNAPSHOT_PUBLISHED)
    assert rows(catalog, _CUT) == rows(catalog, _POINTERS)
    readable(world)
    create(world)
    readable(world)
    nothing_is_left(world)
    snapshot_drop.drop(catalog, world.lake.settings, "nightly", keep=1)
    nothing_is_left(world)


@pytest.mark.parametrize("failpoint", DROP)
def test_killed_while_a_version_is_dropped(world: World, failpoint: Failpoint) -> None:
    create(world)
    create(world)
    *_, older, newest = snapshot_versions.versions(world.lake.catalog, "nightly")
    kill(world, "snapshot drop", failpoint, str(newest.version))
    is_dropped = failpoint is not Failpoint.SNAPSHOT_DROP_BEFORE_COMMIT
    now = snapshot_versions.versions(world.lake.catalog, "nightly")[-1]
    assert now.version == (older if is_dropped else newest).version
    assert rows(world.lake.catalog, _CUT) == rows(world.lake.catalog, _POINTERS)
    readable(world)
    readable(world, older.version)
    snapshot_drop.drop(world.lake.catalog, world.lake.settings, "nightly", keep=1)
    readable(world)
    nothing_is_left(world)


def test_the_sweep_deletes_what_a_dead_run_left(
    world: World, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(world, "snapshot", Failpoint.SNAPSHOT_STAGED)
    with pytest.raises(AssertionError):
        nothing_is_left(world)
    monkeypatch.setenv("FROSTLINE_DSN", world.lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(world.lake.warehouse))
    said = command("sweep")
    assert (said.exit_code, "files of dead runs" in said.stderr) == (0, True)
    nothing_is_left(world)
    readable(world)
