"""Snapshots of the same rows: other files, or fewer manifests, and every reader finds what it found before."""

from itertools import pairwise
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation
from tests.fixtures.lake_tables import events, lake_location, written_events

from frostline.errors import CorruptionError
from frostline.lake import bounds, commit, datafiles, duck, manifests, paths, snapshots
from frostline.lake.commit import Rows, StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.pipeline import copying
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import proved

TABLE = events()
MONTHS = 12


@pytest.fixture
def location(tmp_path: Path) -> str:
    return lake_location(tmp_path, TABLE)


@pytest.fixture
def year(location: str) -> StagedCommit:
    """A file and a commit for each month, in no order, and a manifest that has no file any more."""
    staged: StagedCommit | None = None
    for month in (5 * number % 13 for number in range(1, MONTHS + 1)):
        file = written_events(TABLE, location, f"2024-{month:02}-05", rows=10 * month)
        staged = stage(location, staged, Rows.OTHERS, file)
    assert staged is not None
    gone = written_events(TABLE, location, "2025-01-05")
    return stage(location, stage(location, staged, Rows.OTHERS, gone), Rows.OTHERS, replace=frozenset([gone.path]))


def stage(
    location: str,
    base: StagedCommit | None,
    rows: Rows,
    *add: WrittenFile,
    replace: frozenset[str] | None = None,
) -> StagedCommit:
    previous = base.metadata_location if base else None
    summary = {commit.JOB_ID: "5"}
    return commit.stage(TABLE, location=location, base=previous, add=add, replace=replace, summary=summary, rows=rows)


def entries(staged: StagedCommit) -> dict[str, ManifestEntry]:
    table = StaticTable.from_metadata(staged.metadata_location)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    listed = [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]
    assert len({entry.data_file.file_path for entry in listed}) == len(listed)
    return {entry.data_file.file_path: entry for entry in listed}


def test_packing_keeps_every_file_with_its_numbers(location: str, year: StagedCommit) -> None:
    packed = stage(location, year, Rows.SAME_PACKED)
    assert (year.manifests, packed.manifests) == (MONTHS + 1, 1)
    before, after = entries(year), entries(packed)
    assert after.keys() == before.keys()
    for path, entry in after.items():
        old = before[path]
        assert entry.status == ManifestEntryStatus.EXISTING
        assert (entry.snapshot_id, entry.sequence_number) == (old.snapshot_id, old.sequence_number)
        assert entry.file_sequence_number == old.file_sequence_number
        assert entry.data_file == old.data_file


def test_every_reader_finds_the_same_rows(location: str, year: StagedCommit, tmp_path: Path) -> None:
    packed = stage(location, year, Rows.SAME_PACKED)
    both = [
        StaticTable.from_metadata(staged.metadata_location).scan().to_arrow().sort_by("ts") for staged in (year, packed)
    ]
    assert both[0].equals(both[1])
    assert year.snapshot_id is not None
    assert packed.snapshot_id is not None
    known = [snapshots.files(staged.metadata_location, staged.snapshot_id or 0, 2) for staged in (year, packed)]
    assert known[0] == known[1]
    assert snapshots.totals(packed.metadata_location, packed.snapshot_id) == snapshots.totals(
        year.metadata_location, year.snapshot_id
    )
    with duck.connect(memory_limit="256MB", threads=1, temp_directory=str(tmp_path)) as connection:
        duck.load(connection, "avro")
        duck.load(connection, "iceberg")
        rows = connection.execute("select count(*) from iceberg_scan(?)", [packed.metadata_location]).fetchone()
    assert rows == (both[0].num_rows,)


def test_the_snapshot_says_that_it_has_the_same_rows(location: str, year: StagedCommit) -> None:
    table = StaticTable.from_metadata(stage(location, year, Rows.SAME_PACKED).metadata_location)
    summary = table.metadata.snapshots[-1].summary
    assert summary is not None
    assert summary.operation == Operation.REPLACE
    assert summary[commit.JOB_ID] == "5"


def test_large_manifests_are_cut_by_partition(
    location: str, year: StagedCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = manifests.sizes_bytes(year.metadata_location, year.snapshot_id or 0)
    monkeypatch.setattr(manifests, "MANIFEST_BYTES", 5 * sum(sizes) // len(sizes))
    packed = stage(location, year, Rows.SAME_PACKED)
    assert packed.manifests == 3
    table = StaticTable.from_metadata(packed.metadata_location)
    listed = table.metadata.snapshots[-1].manifests(table.io)
    ranges = sorted(_range(manifest) for manifest in listed)
    assert all(upper < lower for (_, upper), (lower, _) in pairwise(ranges))


def _range(manifest: ManifestFile) -> tuple[int, int]:
    (field,) = manifest.partitions or []
    return bounds.tier_value(field.lower_bound or b""), bounds.tier_value(field.upper_bound or b"")


def test_a_commit_after_it_replaces_and_adds_as_ever(location: str, year: StagedCommit) -> None:
    packed = stage(location, year, Rows.SAME_PACKED)
    march = next(path for path, entry in entries(packed).items() if entry.data_file.record_count == 30)
    new = written_events(TABLE, location, "2024-03-09", rows=7)
    after = stage(location, packed, Rows.OTHERS, new, replace=frozenset([march]))
    assert entries(after).keys() == entries(packed).keys() - {march} | {new.path}


def test_files_are_merged_and_manifests_packed_in_one_snapshot(location: str, year: StagedCommit) -> None:
    first = written_events(TABLE, location, "2024-06-09", rows=7)
    base = stage(location, year, Rows.OTHERS, first)
    june = next(path for path, entry in entries(base).items() if entry.data_file.record_count == 60)
    merged = _merged(location, june, first)
    staged = stage(location, base, Rows.SAME_PACKED, merged, replace=frozenset([june, first.path]))
    assert entries(staged).keys() == entries(base).keys() - {june, first.path} | {merged.path}
    assert entries(staged)[merged.path].status == ManifestEntryStatus.ADDED
    assert staged.manifests == 3  # what came, what went, and all the others


def _merged(location: str, june: str, other: WrittenFile) -> WrittenFile:
    described = datafiles.describe(june, TABLE, fingerprint.sealed(june, TABLE), in_order=True)
    target = paths.data_file(location, 5)
    copying.copy(TABLE, [described.recorded, other.recorded], target, "256MB")
    return proved(TABLE, target, described.fingerprint + other.fingerprint, "test")


def test_a_snapshot_with_other_rows_is_refused(location: str, year: StagedCommit) -> None:
    more = written_events(TABLE, location, "2024-06-09", rows=7)
    with pytest.raises(CorruptionError, match="does not have the rows"):
        stage(location, year, Rows.SAME, more)
