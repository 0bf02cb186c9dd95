"""Undo in the grace period when the lake is not mounted, lost or damaged: the heap has every row, so it works."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fixtures.cold_twins import FEBRUARY, at, both, change, compare, line, make_archived, release
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run, value
from tests.fixtures.states import forget

from frostline.catalog import lake_files, seams
from frostline.errors import CorruptionError, UnavailableError
from frostline.lake import claim
from frostline.pipeline import verify

pytestmark = pytest.mark.slow

JANUARY = "2024-01-01 00:00:00+00"
SILENCED = "alter table public.events_2 disable trigger all; {}; alter table public.events_2 enable trigger all"


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Three months in the lake and in the heap, with changes in each of them."""
    make_archived(lake)
    change(lake)
    return lake


def away(lake: Lake) -> Path:
    """Unmount the warehouse: an empty folder is in its place. Where it is now."""
    hidden = lake.warehouse.with_name("away")
    lake.warehouse.rename(hidden)
    lake.warehouse.mkdir()
    forget()
    return hidden


def back(lake: Lake, hidden: Path) -> None:
    """Mount it again. Nothing was written to the folder in its place."""
    lake.warehouse.rmdir()
    hidden.rename(lake.warehouse)
    forget()


def goes_on(lake: Lake) -> None:
    """Writes, an archive, a fold and a clean afterwards: every row is there once, and every file is what it must be."""
    both(lake.catalog, "update public.{t} set status = 'after the undo' where id in (1, 5, 28)")
    compare(lake)
    release(lake)
    (result,) = lake.archive("events")
    assert (result.error, result.partitions) == (None, 3)
    compare(lake)
    (folded,) = lake.fold("events")
    assert folded.error is None
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    assert lake.clean().waiting == ()
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()
    lake.thaw()
    compare(lake)


def lose_metadata(lake: Lake) -> None:
    for file in lake.warehouse.rglob("*.metadata.json"):
        file.unlink()


def halve_metadata(lake: Lake) -> None:
    for file in lake.warehouse.rglob("*.metadata.json"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose_manifests(lake: Lake) -> None:
    for file in lake.warehouse.rglob("*.avro"):
        file.unlink()


def lose_data(lake: Lake) -> None:
    for file in lake.data_files():
        file.unlink()


def damage_data(lake: Lake) -> None:
    for file in lake.data_files():
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 0xFF
        file.write_bytes(content)


@pytest.mark.spark
@pytest.mark.parametrize("harm", [lose_metadata, halve_metadata, lose_manifests, lose_data, damage_data])
def test_a_lake_that_was_harmed_does_not_keep_the_rows(archived: Lake, harm: Callable[[Lake], None]) -> None:
    (folded,) = archived.fold("events")
    assert folded.error is None
    both(archived.catalog, "update public.{t} set amount = 8 where id in (5, 28, 49)")
    harm(archived)
    forget()
    archived.undo()
    assert line(archived) == at(archived, JANUARY)  # below it there is a row in the lake
    hot = "select id, t::text from public.{} t where ts >= '2024-01-01 00:00+00' order by id, ts"
    with archived.connect() as connection:
        assert rows(connection, hot.format("events")) == rows(connection, hot.format("plain"))


@pytest.mark.spark
@pytest.mark.parametrize("harm", [lose_metadata, halve_metadata, lose_manifests, lose_data, damage_data])
def test_and_the_table_begins_anew(lake: Lake, harm: Callable[[Lake], None]) -> None:
    """When nothing is in the lake below the new line, what was lost there is not missed by anybody."""
    make_archived(lake)
    both(lake.catalog, "update public.{t} set status = 'changed' where id in (1, 25, 45)")
    harm(lake)
    forget()
    lake.undo()
    assert line(lake) == lake.table().tier_kind.lowest
    compare(lake)
    goes_on(lake)


@pytest.mark.spark
def test_a_warehouse_that_is_not_mounted_is_left_alone_and_settled_later(archived: Lake) -> None:
    before = seams.get(archived.catalog, archived.table())
    hidden = away(archived)
    result = archived.undo()
    assert "is not mounted" in str(result.lake_left)
    assert result.counted == ("public.events_1", "public.events_2", "public.events_3")
    assert list(archived.warehouse.iterdir()) == []
    after = seams.get(archived.catalog, archived.table())
    assert (after.snapshot_id, after.metadata_location) == (before.snapshot_id, before.metadata_location)
    assert after.frost_line < before.frost_line
    (refused,) = archived.archive("events")
    assert isinstance(refused.error, UnavailableError)
    back(archived, hidden)
    compare(archived)
    assert verify.run(archived.catalog, archived.table()).faults == ()
    goes_on(archived)


@pytest.mark.spark
@pytest.mark.quick
def test_a_file_across_the_line_is_hidden_then_trimmed(lake: Lake) -> None:
    """Fold puts the changes of a whole lake partition, here a year, into one file."""
    make_archived(lake, lake_partition="year")
    change(lake)
    lake.fold()
    february = at(lake, FEBRUARY)
    hidden = away(lake)
    lake.undo(to=FEBRUARY)
    assert line(lake) == february
    back(lake, hidden)
    compare(lake)
    assert any(file.lower < february <= file.upper for file in lake_files.recorded(lake.catalog, lake.table()))
    both(lake.catalog, "update public.{t} set amount = 77 where ts < '2024-03-01'")
    (folded,) = lake.fold("events")
    assert folded.error is None
    assert all(file.upper < february for file in lake_files.recorded(lake.catalog, lake.table()))
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()
    lake.undo()
    compare(lake)


@pytest.mark.spark
@pytest.mark.parametrize("job", ["archive", "fold", "compact", "retain"])
def test_whichever_job_comes_next_settles_it(archived: Lake, job: str) -> None:
    hidden = away(archived)
    archived.undo(to=FEBRUARY)
    back(archived, hidden)
    february = at(archived, FEBRUARY)
    (done,) = getattr(archived, job)("events")
    assert done.error is None
    assert all(file.upper < february for file in lake_files.recorded(archived.catalog, archived.table()))
    compare(archived)
    assert verify.run(archived.catalog, archived.table()).faults == ()


@pytest.mark.spark
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_readers_and_writers_that_are_open_across_it(archived: Lake, level: str) -> None:
    with archived.connect() as reader, archived.connect() as writer:
        for session in (reader, writer):
            run(session, f"begin isolation level {level}")
        before = value(reader, "select count(*) from public.events")
        both(writer, "update public.{t} set amount = 7 where id in (24, 29)")
        hidden = away(archived)
        archived.undo()
        back(archived, hidden)
        both(writer, "delete from public.{t} where id = 30")
        run(writer, "commit")
        shown = value(reader, "select count(*) from public.events")
        assert shown == (before if level == "repeatable read" else before - 1)
        run(reader, "commit")
    compare(archived)
    goes_on(archived)


@pytest.mark.spark
@pytest.mark.parametrize(
    "by_hand",
    [
        SILENCED.format("truncate public.events_2"),
        SILENCED.format("delete from public.events_2 where id between 30 and 40"),
        SILENCED.format("insert into public.events_2 select 10000 + id, ts from public.events_2"),
    ],
)
def test_a_partition_that_lacks_rows_stays_cold(archived: Lake, by_hand: str) -> None:
    """How many rows there must be is known without the lake."""
    run(archived.catalog, by_hand)
    before = seams.get(archived.catalog, archived.table())
    hidden = away(archived)
    with pytest.raises(
        CorruptionError, match=r"public\.events_2 has \d+ unchanged rows instead of .*nothing was changed"
    ):
        archived.undo()
    assert seams.get(archived.catalog, archived.table()) == before
    back(archived, hidden)
    compare(archived)


@pytest.mark.spark
def test_values_of_a_partition_without_changes_are_compared_all_the_same(lake: Lake) -> None:
    make_archived(lake)
    run(lake.catalog, SILENCED.format("update public.events_2 set status = 'behind our back'"))
    away(lake)
    with pytest.raises(CorruptionError, match=r"public\.events_2 differs from the lake: hash sum"):
        lake.undo()


@pytest.mark.spark
@pytest.mark.quick
def test_the_command_says_what_it_could_not_do(
    archived: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", archived.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(archived.warehouse))
    away(archived)
    said = command("undo", "events", "--output", "json")
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["hot_again"] == ["public.events_1", "public.events_2", "public.events_3"]
    assert "the lake was left as it is, for the next job: warehouse" in said.stderr
    assert "public.events_1: its rows were counted only" in said.stderr


@pytest.mark.spark
def test_a_lost_warehouse_is_replaced_once_its_rows_are_hot(lake: Lake) -> None:
    make_archived(lake)
    both(lake.catalog, "update public.{t} set status = 'changed' where id in (1, 25, 45)")
    shutil.rmtree(lake.warehouse)
    forget()
    with pytest.raises(UnavailableError, match="is not mounted"):
        claim.claim(lake.catalog, lake.settings.warehouse)
    lake.undo()
    compare(lake)
    assert claim.claim(lake.catalog, lake.settings.warehouse, anew=True)
    goes_on(lake)


@pytest.mark.spark
def test_an_object_store_that_does_not_answer(mortal_lake: Lake, own_seaweed: Seaweed) -> None:
    lake = mortal_lake
    make_archived(lake)
    change(lake)
    own_seaweed.stop()
    result = lake.undo()
    assert "the object store does not answer" in str(result.lake_left)
    compare(lake)
    own_seaweed.start()
    forget()
    compare(lake)
    goes_on(lake)
