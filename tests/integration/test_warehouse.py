"""A warehouse that is not mounted, or is somebody else's, is not touched: no file goes there, and no row goes for it."""

import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import ModuleType

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.batches import World, new
from tests.fixtures.cold_twins import change, compare, make_archived
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake, running_on
from tests.fixtures.own_server import OwnServers, Served, archive_below, make_ranges
from tests.fixtures.quick import some
from tests.fixtures.remembered import anew
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import forget

from frostline.catalog import lake_files, pointers, seams, warehouses
from frostline.catalog.pointers import Pointer
from frostline.cli import main
from frostline.errors import UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import claim, warehouse
from frostline.lake.warehouse import Marker
from frostline.pipeline import archive, clean
from frostline.runtime import lake_server, worker
from frostline.runtime.install import install
from frostline.runtime.postgres import Postgres
from frostline.settings import Settings

TOUCHING = (
    ("archive",),
    ("fold",),
    ("clean",),
    ("thaw", "events", "--from", "2024-01-01"),
    ("verify",),
    ("retain",),
    ("truncate", "events", "--yes"),
    ("compact",),
    ("repair", "events", "--restore"),
    ("repair", "events", "--adopt"),
    ("expire",),
    ("sweep",),
    ("sweep", "--dry-run"),
    ("sweep", "--take-over"),
    ("snapshot", "create", "daily", "--tables", "public.plain"),
    ("snapshot", "drop", "daily"),
    ("table", "remove", "events", "--thaw"),
    ("lake", "create", "readings", "--column", "id bigint"),
    ("doctor",),
)
"""Commands that write to the warehouse, delete from it, or delete rows for what it has."""
ELSEWHERE = {"up", "init", "serve", "run", "undo", "demo"}
"""They look for the marker in ways of their own, which other tests are about."""
NEVER = {"psql", "grant", "token", "premake", "plan", "pin", "status", "jobs"}
"""They only know Postgres. A new command has to be in one of the three."""
OTHERS = "select (select count(*) from frostline.snapshot where state = 'published'), (select count(*) from frostline.own_history)"


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> Lake:
    """A table for which every job is due, and a snapshot."""
    make_archived(shared_lake, snapshot_retention="0")
    change(shared_lake)
    copies.create(shared_lake, "public.plain", name="daily")
    run(shared_lake.catalog, "update frostline.managed_table set grace_period = '0'")
    return shared_lake


@contextmanager
def unmounted(lake: Lake) -> Generator[None]:
    """An empty folder is in the warehouse's place, and nothing is in it afterwards."""
    hidden = lake.warehouse.with_name("away")
    lake.warehouse.rename(hidden)
    lake.warehouse.mkdir()
    forget()
    try:
        yield
        assert list(lake.warehouse.iterdir()) == []
    finally:
        shutil.rmtree(lake.warehouse)
        hidden.rename(lake.warehouse)
        forget()


def test_every_command_is_known_to_touch_the_warehouse_or_not() -> None:
    assert {words[0] for words in TOUCHING} | ELSEWHERE | NEVER == set(main.COMMANDS)


@pytest.mark.spark
@pytest.mark.parametrize("words", some(TOUCHING, ("archive",), ("clean",), ("verify",), tuples=True), ids=" ".join)
def test_an_empty_folder_in_its_place_is_refused(
    world: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", world.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(world.warehouse))
    before, others = seams.get(world.catalog, world.table()), rows(world.catalog, OTHERS)
    heap = value(world.catalog, "select count(*) from public._events")
    with unmounted(world):
        said = command(*words)
        assert said.exit_code == (1 if words == ("doctor",) else 4), said
        assert "it is not mounted, or it is not this database's" in said.stdout + said.stderr
        assert value(world.catalog, "select count(*) from public._events") == heap
    assert seams.get(world.catalog, world.table()) == before
    assert rows(world.catalog, OTHERS) == others
    compare(world)


@pytest.mark.spark
def test_the_first_archive_into_an_empty_folder_loses_no_row(lake: Lake) -> None:
    """The lake has nothing yet whose absence anybody would notice."""
    with unmounted(lake):
        with pytest.raises(AssertionError):
            make_archived(lake, grace="0")
        (refused,) = lake.archive("events")
        assert "is not mounted" in str(refused.error)
        assert value(lake.catalog, "select count(*) from public._events") == 80
    compare(lake)
    (result,) = lake.archive("events")
    assert (result.error, len(result.cleaned.emptied)) == (None, 3)
    compare(lake)


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_from_spark_is_refused(world: Lake) -> None:
    batch = World(world)
    with unmounted(world), pytest.raises(UnavailableError, match="is not mounted"):
        batch.write([new(number, hot=False) for number in batch.ids(3)], lake_rows=1)
    compare(world)


def test_servers_and_workers_do_not_start(lake: Lake) -> None:
    said: list[str] = []
    stop = Event()
    stop.set()
    with unmounted(lake):
        for begin in (
            lambda: lake_server.start(lake.settings),
            lambda: worker.run(lake.settings, stop, announce=said.append),
        ):
            with pytest.raises(UnavailableError, match="is not mounted"):
                begin()
    assert said == []


@pytest.mark.spark
def test_the_lake_server_opens_no_file_before_it_has_seen_the_marker(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with running_on(database, str(tmp_path / "the warehouse"), request) as lake:
        make_archived(lake)
    with running_on(database, str(tmp_path / "the warehouse"), request) as lake:
        marker = next((lake.warehouse / warehouse.FOLDER).iterdir())
        marker.rename(tmp_path / "marker")
        with lake.connect() as connection:
            with pytest.raises(psycopg.Error, match="is not this database's: it has no marker"):
                run(connection, "select count(*) from public.events")
            (tmp_path / "marker").rename(marker)
            assert value(connection, "select count(*) from public.events") == 80


@pytest.mark.spark
def test_somebody_elses_warehouse_is_refused(
    lake: Lake, empty_database: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_archived(lake)
    before = seams.get(lake.catalog, lake.table())
    other = tmp_path / "another"
    install(Settings(dsn=empty_database, warehouse=str(other)))
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(other))
    said = command("fold")
    assert (said.exit_code, "this database's warehouse is" in said.stderr) == (2, True), said
    shutil.rmtree(lake.warehouse)
    other.rename(lake.warehouse)
    (refused,) = lake.fold()
    assert isinstance(refused.error, UnavailableError)
    assert "is not this database's: it has no marker" in str(refused.error)
    assert seams.get(lake.catalog, lake.table()) == before


@pytest.mark.spark
@pytest.mark.slow
def test_two_databases_may_share_one(lake: Lake, empty_database: str, request: pytest.FixtureRequest) -> None:
    make_archived(lake, grace="0")
    install(Settings(dsn=empty_database, warehouse=str(lake.warehouse)))
    with running_on(empty_database, str(lake.warehouse), request) as other:
        make_archived(other, grace="0")
        for each_lake in (lake, other):
            change(each_lake)
            assert each_lake.fold()[0].error is None
            compare(each_lake)
    assert len(list((lake.warehouse / warehouse.FOLDER).iterdir())) == 2


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "place",
    some(
        [Failpoint.ARCHIVE_CAPTURED, Failpoint.ARCHIVE_EXPORTED, Failpoint.ARCHIVE_STAGED], Failpoint.ARCHIVE_EXPORTED
    ),
)
def test_it_is_unmounted_during_an_archive(lake: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint) -> None:
    with _unmounted_at(place, lake, archive, monkeypatch):
        with pytest.raises(AssertionError):
            anew(make_archived)(lake, grace="0")
        error = value(lake.catalog, "select error from frostline.job order by job_id desc limit 1")
        assert "is empty: it is not mounted, or it is not this database's" in error
        assert list(lake.warehouse.iterdir()) == []
        assert value(lake.catalog, "select count(*) from public._events") == 80
        assert lake_files.recorded(lake.catalog, lake.table()) == []
    compare(lake)
    assert lake.archive("events")[0].error is None
    compare(lake)


@contextmanager
def _unmounted_at(place: Failpoint, lake: Lake, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    hidden = lake.warehouse.with_name("away")

    def reached(here: Failpoint) -> None:
        if here is place:
            lake.warehouse.rename(hidden)
            lake.warehouse.mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(module, "reached", reached)
        yield
    shutil.rmtree(lake.warehouse)
    hidden.rename(lake.warehouse)
    forget()


@pytest.mark.spark
@pytest.mark.parametrize("place", [Failpoint.CLEAN_BEFORE_VERIFY, Failpoint.CLEAN_VERIFIED])
def test_it_is_unmounted_before_a_partition_is_emptied(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    make_archived(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    with _unmounted_at(place, lake, clean, monkeypatch):
        with pytest.raises(Exception, match=r"is not mounted|is missing|not there"):
            lake.clean()
        assert value(lake.catalog, "select count(*) from public._events") == 80
    assert lake.clean().waiting == ()
    compare(lake)


@pytest.fixture
def mount(lake: Lake) -> Iterator[Callable[[], None]]:
    """A disk of its own for the warehouse, which can be unmounted; only root can make one."""
    words = ["mount", "-t", "tmpfs", "tmpfs", str(lake.warehouse)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    unmount = ["umount", "--lazy", str(lake.warehouse)]
    yield lambda: subprocess.run(unmount, check=True) and None
    subprocess.run(unmount, check=False)


@pytest.mark.spark
def test_a_real_disk_is_unmounted(lake: Lake, mount: Callable[[], None]) -> None:
    """The folder below has the marker of the warehouse that there was before: each has an identity of its own."""
    assert claim.claim(lake.catalog, str(lake.warehouse), anew=True)
    make_archived(lake)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    mount()
    forget()
    with pytest.raises(UnavailableError, match="is not this database's: it has no marker"):
        lake.clean()
    assert len(lake.undo().partitions) == 3
    compare(lake)


def marked(lake: Lake) -> bool:
    claimed = warehouses.find(lake.catalog)
    return claimed is not None and warehouse.is_there(Marker(claimed.location, claimed.identity))


@pytest.mark.slow
@pytest.mark.spark
def test_a_warehouse_from_before_there_were_markers_is_adopted_if_it_is_there(lake: Lake) -> None:
    make_archived(lake)
    shutil.rmtree(lake.warehouse / warehouse.FOLDER)
    run(lake.catalog, "delete from frostline.warehouse")
    with pytest.raises(UsageError, match="has no warehouse yet"):
        warehouse.require(lake.catalog, str(lake.warehouse))
    with unmounted(lake), pytest.raises(UnavailableError, match="has no file of this database, not even"):
        claim.claim(lake.catalog, str(lake.warehouse))
    with pytest.raises(UsageError, match="this database's warehouse has"):
        claim.claim(lake.catalog, str(lake.warehouse.with_name("another")))
    assert claim.claim(lake.catalog, str(lake.warehouse))
    assert marked(lake)
    assert not claim.claim(lake.catalog, str(lake.warehouse))


@pytest.mark.slow
@pytest.mark.spark
def test_a_marker_that_is_lost_is_written_again_where_our_files_are(lake: Lake) -> None:
    shutil.rmtree(lake.warehouse / warehouse.FOLDER)
    with pytest.raises(UnavailableError, match="is not mounted"):
        claim.claim(lake.catalog, str(lake.warehouse))  # nothing of ours is there, so nobody can know
    assert claim.claim(lake.catalog, str(lake.warehouse), anew=True)
    make_archived(lake)
    shutil.rmtree(lake.warehouse / warehouse.FOLDER)
    assert claim.claim(lake.catalog, str(lake.warehouse))
    assert marked(lake)
    assert lake.fold()[0].error is None


@pytest.mark.slow
@pytest.mark.spark
def test_a_warehouse_is_given_up_only_when_no_row_is_in_it(lake: Lake, tmp_path: Path) -> None:
    make_archived(lake)
    other = str(tmp_path / "another")
    with pytest.raises(UsageError, match=r"rows of public\.events are in the warehouse that there was"):
        claim.claim(lake.catalog, other, anew=True)
    lake.undo()
    with pytest.raises(UsageError, match=r"this database's warehouse is .*the warehouse; it is not"):
        claim.claim(lake.catalog, other)
    assert claim.claim(lake.catalog, other, anew=True)
    seam = seams.get(lake.catalog, lake.table())
    assert (seam.snapshot_id, seam.metadata_location) == (None, None)
    assert pointers.find(lake.catalog, Pointer.of(lake.table())) is None
    compare(lake)


@pytest.mark.spark
@pytest.mark.slow
def test_a_copy_whose_files_the_original_has_expired_is_told_so(
    own_servers: OwnServers, served: Served, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = own_servers.new("original")
    lake = served(original)
    make_ranges(lake)
    archive_below(lake, 300)
    copy = served(_restored(own_servers, original))
    metadata = seams.get(copy.catalog, copy.table()).metadata_location or ""
    monkeypatch.setenv("FROSTLINE_DSN", copy.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(copy.warehouse))
    assert command("verify").exit_code == 0
    for gone in (next(iter(lake.data_files())), Path(metadata.removeprefix("file://"))):
        gone.unlink()
        forget()
        said = command("verify")
        assert said.exit_code in (1, 4)
        assert str(gone) in said.stdout + said.stderr
        assert "the database that this one was restored or promoted from may have expired it" in said.stderr
        assert "mount" not in said.stderr


def _restored(own_servers: OwnServers, original: Postgres) -> Postgres:
    file = own_servers.folder / "app.dump"
    own_servers.run("pg_dump", f"--dbname={original.dsn('app')}", "--format=custom", f"--file={file}")
    copy = own_servers.new("copy")
    own_servers.run("pg_restore", f"--dbname={copy.dsn('app')}", "--exit-on-error", str(file))
    return copy


@pytest.mark.slow
@pytest.mark.spark
def test_tasks_look_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster the folder may be mounted here and not there; so this process sees it, and the tasks do not."""
    make_archived(lake)
    change(lake)
    monkeypatch.setattr(warehouse, "check", lambda: None)
    monkeypatch.setattr(warehouse, "guarded", lambda *_: warehouse.used(Marker(f"file://{lake.warehouse}", "another")))
    (refused,) = lake.fold()
    assert "is not this database's: it has no marker" in str(refused.error)
