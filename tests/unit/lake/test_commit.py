"""Staged commits: what readers of the new metadata see."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.update import update_table_metadata
from tests.fixtures.lake_tables import column, events, lake_location, written_events

from frostline.errors import CorruptionError, UnavailableError
from frostline.lake import commit, duck, pyiceberg_compat, snapshots
from frostline.lake.commit import StagedCommit
from frostline.lake.datafiles import Seal, WrittenFile
from frostline.model.tables import Table
from frostline.model.tiers import TierKind

TABLE = events()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return lake_location(tmp_path / "wäre house", TABLE)


def stage(location: str, base: StagedCommit | None, *add: WrittenFile, replace: tuple[int, int] | None = None):
    previous = base.metadata_location if base else None
    summary = {"frostline.job-id": "5"}
    return commit.stage(TABLE, location=location, base=previous, add=add, replace=replace, summary=summary)


def paths_of(staged: StagedCommit) -> set[str]:
    assert staged.snapshot_id is not None
    return {file.path for file in snapshots.files(staged.metadata_location, staged.snapshot_id, 2)}


def test_a_first_commit_creates_the_table(location: str):
    march = written_events(TABLE, location, "2024-03-05")
    staged = stage(location, None, march)
    assert (staged.namespace, staged.table_name, staged.previous_location) == ("public", "events_7", None)
    table = StaticTable.from_metadata(staged.metadata_location)
    assert table.format_version == 2
    assert table.location() == location
    assert table.scan().to_arrow().num_rows == 100
    summary = table.metadata.snapshots[0].summary
    assert summary
    assert summary["frostline.job-id"] == "5"


def test_a_second_commit_adds_and_the_first_state_stays_readable(location: str):
    first = stage(location, None, written_events(TABLE, location, "2024-03-05"))
    second = stage(location, first, written_events(TABLE, location, "2024-04-05"))
    assert second.previous_location == first.metadata_location
    table = StaticTable.from_metadata(second.metadata_location)
    assert table.scan().to_arrow().num_rows == 200
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 100
    assert [entry.metadata_file for entry in table.metadata.metadata_log] == [first.metadata_location]
    assert "/00001-" in second.metadata_location


def test_the_metadata_is_worked_out_a_few_times_and_not_at_every_question(
    location: str, monkeypatch: pytest.MonkeyPatch
):
    first = stage(location, None, written_events(TABLE, location, "2024-03-05"))
    asked: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(1)
        return update_table_metadata(*arguments, **options)

    monkeypatch.setattr("pyiceberg.table.update_table_metadata", counted)
    stage(location, first, written_events(TABLE, location, "2024-04-05"))
    assert len(asked) <= 3


def test_replacing_a_range_removes_its_files_in_the_same_snapshot(location: str):
    march, april = (written_events(TABLE, location, day) for day in ("2024-03-05", "2024-04-05"))
    first = stage(location, None, march, april)
    again = written_events(TABLE, location, "2024-04-06", rows=50)
    second = stage(location, first, again, replace=(april.lower, again.upper + 1))
    assert paths_of(second) == {march.path, again.path}
    assert paths_of(first) == {march.path, april.path}
    table = StaticTable.from_metadata(second.metadata_location)
    assert table.scan().to_arrow().num_rows == 150
    assert second.snapshot_id is not None
    assert snapshots.totals(second.metadata_location, second.snapshot_id).rows == 150
    assert len(table.metadata.snapshots) == 2


def test_replacing_with_nothing_removes(location: str):
    march, april = (written_events(TABLE, location, day) for day in ("2024-03-05", "2024-04-05"))
    second = stage(location, stage(location, None, march, april), replace=(april.lower, april.upper + 1))
    assert paths_of(second) == {march.path}


def test_manifests_that_end_before_the_range_or_begin_after_it_are_not_read(location: str):
    march, april, may = (written_events(TABLE, location, day) for day in ("2024-03-05", "2024-04-05", "2024-05-05"))
    first = stage(location, None, march)
    (manifest,) = Path(location.removeprefix("file://"), "metadata").glob("*-m0.avro")
    second = stage(location, stage(location, first, april), may)
    manifest.unlink()
    again = written_events(TABLE, location, "2024-04-06")
    third = stage(location, second, again, replace=(april.upper + 1, again.upper + 1))
    assert third.changes
    for near in ((march.lower, march.upper + 1), (march.upper + 1, april.lower), (0, april.lower)):
        with pytest.raises(UnavailableError, match="manifest"):
            stage(location, second, replace=near)


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
@pytest.mark.parametrize("day", ["0044-03-15 (BC)", "1969-12-31", "1970-01-01", "9999-12-31"])
def test_a_file_is_found_by_its_range_whatever_its_partition(tmp_path: Path, transform: str, day: str):
    table = events(lake_partition=transform)
    location = lake_location(tmp_path, table)
    file = written_events(table, location, day, rows=1)
    first = commit.stage(table, location=location, base=None, add=[file], replace=None, summary={})
    whole = (table.tier_kind.lowest, table.tier_kind.highest)
    for replace in ((file.lower, file.upper + 1), (whole[0], file.upper + 1), (file.lower, whole[1])):
        base = first.metadata_location
        second = commit.stage(table, location=location, base=base, add=[], replace=replace, summary={})
        assert second.changes
        assert paths_of(second) == set()


def test_a_file_on_the_edge_of_the_range_stops_the_commit(location: str):
    march = written_events(TABLE, location, "2024-03-05")
    first = stage(location, None, march)
    for edge in ((march.lower + 1, march.upper + 1), (march.lower, march.upper)):
        with pytest.raises(CorruptionError, match="on both sides"):
            stage(location, first, replace=edge)


def test_nothing_to_do_gives_the_base_unchanged(location: str):
    first = stage(location, None, written_events(TABLE, location, "2024-03-05"))
    assert first.changes
    second = stage(location, first, replace=(0, 1))
    assert not second.changes
    assert (second.metadata_location, second.snapshot_id) == (first.metadata_location, first.snapshot_id)


def test_a_table_can_be_created_without_rows(location: str):
    empty = stage(location, None)
    assert empty.changes
    assert empty.snapshot_id is None
    full = stage(location, empty, written_events(TABLE, location, "2024-03-05"))
    assert StaticTable.from_metadata(full.metadata_location).scan().to_arrow().num_rows == 100


def test_a_lost_base_is_unavailable(location: str):
    lost = StagedCommit("public", "events", None, f"{location}/metadata/00000-lost.metadata.json", None)
    with pytest.raises(UnavailableError, match="is not there"):
        stage(location, lost)


def test_staging_twice_from_one_base_gives_two_states_that_do_not_meet(location: str):
    march = written_events(TABLE, location, "2024-03-05")
    first, other = stage(location, None, march), stage(location, None, march)
    assert first.metadata_location != other.metadata_location
    assert first.snapshot_id != other.snapshot_id


def test_duckdb_reads_the_staged_table(location: str, tmp_path: Path):
    first = stage(location, None, *(written_events(TABLE, location, day) for day in ("2024-03-05", "2024-04-05")))
    april = snapshots.files(first.metadata_location, first.snapshot_id or 0, 2)[1]
    second = stage(location, first, replace=(april.lower, april.upper + 1))
    with duck.connect(memory_limit="256MB", threads=1, temp_directory=str(tmp_path)) as connection:
        duck.load(connection, "avro")
        duck.load(connection, "iceberg")
        counts = [count(connection, staged) for staged in (first, second)]
    assert counts == [200, 100]


def count(connection: duckdb.DuckDBPyConnection, staged: StagedCommit) -> int:
    row = connection.execute("select count(*) from iceberg_scan(?)", [staged.metadata_location]).fetchone()
    assert row is not None
    return row[0]


def test_a_catalog_row_that_points_at_the_staged_metadata_opens_the_table(location: str, tmp_path: Path):
    from pyiceberg.catalog.sql import SqlCatalog

    staged = stage(location, None, written_events(TABLE, location, "2024-03-05"))
    file = tmp_path / "catalog.db"
    catalog = SqlCatalog("frostline", uri=f"sqlite:///{file}", warehouse=str(tmp_path))
    try:
        with closing(sqlite3.connect(file)) as connection:
            row = ("frostline", staged.namespace, staged.table_name, staged.metadata_location)
            connection.execute(
                "insert into iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
                "values (?, ?, ?, ?)",
                row,
            )
            connection.commit()
        assert catalog.load_table((staged.namespace, staged.table_name)).scan().to_arrow().num_rows == 100
    finally:
        catalog.engine.dispose()


@pytest.mark.parametrize(
    ("table", "day"),
    [
        (events(lake_partition="day"), "2024-03-05"),
        (events(lake_partition="year"), "1969-12-05"),
        (events(lake_partition="hour"), "0044-03-15 (BC) 00:00:00"),
    ],
)
def test_every_time_partition_is_written_and_found_again(tmp_path: Path, table: Table, day: str):
    location = lake_location(tmp_path, table)
    written = written_events(table, location, day, rows=50)
    staged = commit.stage(table, location=location, base=None, add=[written], replace=None, summary={})
    again = written_events(table, location, day, rows=40)
    replace = (written.lower, written.upper + 1)
    base = staged.metadata_location
    staged = commit.stage(table, location=location, base=base, add=[again], replace=replace, summary={})
    files = snapshots.files(staged.metadata_location, staged.snapshot_id or 0, 2)
    assert [(file.path, file.lower, file.upper) for file in files] == [(again.path, again.lower, again.upper)]
    assert f'"transform":"{table.lake_partition}"' in Path(staged.metadata_location.removeprefix("file://")).read_text()


def test_an_integer_tier_key_is_partitioned_by_its_value(tmp_path: Path):
    columns = (column(11, "Größe ☃", "bigint", "int8"), *events().columns[1:])
    grid = {"tier_kind": TierKind.BIGINT, "lake_partition": "truncate[1000]"}
    table = events(columns=columns, key=("Größe ☃",), tier_key="Größe ☃", **grid)
    location = lake_location(tmp_path, table)
    renamed = events(columns=(column(11, "id", "bigint", "int8"), *events().columns[1:]))
    written = written_events(events(columns=renamed.columns), location, "2024-03-05")
    integer = commit.datafiles.describe(written.path, table, Seal(written.sha256, written.fingerprint), in_order=True)
    staged = commit.stage(table, location=location, base=None, add=[integer], replace=None, summary={})
    read = StaticTable.from_metadata(staged.metadata_location)
    assert read.scan(row_filter="ts is not null").to_arrow().column("Größe ☃").to_pylist() == list(range(100))
    assert (integer.partition, integer.lower, integer.upper) == (0, 0, 99)


def test_each_manifest_is_judged_by_an_evaluator_of_its_own() -> None:
    made: list[object] = []

    class Producer:
        def _build_manifest_evaluator(self, spec_id: int) -> Callable[[object], bool]:
            made.append(spec_id)
            return lambda _: True

    producer: Any = Producer()
    pyiceberg_compat.judge_each_manifest_by_itself(producer)
    judge = producer._build_manifest_evaluator(0)
    assert judge("one")
    assert judge("another")
    assert made == [0, 0]
