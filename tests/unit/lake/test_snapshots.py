"""Snapshots: their files, their totals, and what is read only once."""

from pathlib import Path

import pytest
from tests.fixtures.lake_tables import events, lake_location, written_events

from frostline.errors import UnavailableError
from frostline.lake import commit, snapshots

TABLE = events()


def staged_months(tmp_path: Path, months: int) -> list[commit.StagedCommit]:
    location = lake_location(tmp_path, TABLE)
    states: list[commit.StagedCommit] = []
    for month in range(1, months + 1):
        base = states[-1].metadata_location if states else None
        file = written_events(TABLE, location, f"2024-{month:02}-05")
        states.append(commit.stage(TABLE, location=location, base=base, add=[file], replace=None, summary={}))
    return states


def test_files_are_listed_by_their_smallest_tier_value(tmp_path: Path):
    last = staged_months(tmp_path, 3)[-1]
    files = snapshots.files(last.metadata_location, last.snapshot_id or 0, 2)
    assert [file.rows for file in files] == [100, 100, 100]
    assert [file.lower for file in files] == sorted(file.lower for file in files)
    totals = snapshots.totals(last.metadata_location, last.snapshot_id or 0)
    assert totals == snapshots.Totals(3, 300, sum(file.size_bytes for file in files))


def test_a_new_snapshot_reads_only_new_manifests(tmp_path: Path):
    before, last = staged_months(tmp_path, 2)
    snapshots.files(before.metadata_location, before.snapshot_id or 0, 2)
    for manifest in snapshots.find(before.metadata_location, before.snapshot_id or 0).manifests(
        snapshots.paths.file_io(before.metadata_location)
    ):
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert len(snapshots.files(last.metadata_location, last.snapshot_id or 0, 2)) == 2


def test_an_unknown_snapshot_is_unavailable_with_a_hint(tmp_path: Path):
    state = staged_months(tmp_path, 1)[0]
    with pytest.raises(UnavailableError, match="lake snapshot 1 is not in") as caught:
        snapshots.files(state.metadata_location, 1, 2)
    assert caught.value.hint


def test_a_missing_manifest_is_unavailable(tmp_path: Path):
    state = staged_months(tmp_path, 1)[0]
    for file in (tmp_path / "public" / "events_7-0a1b2c3d" / "metadata").glob("*-m0.avro"):
        file.unlink()
    with pytest.raises(UnavailableError, match="manifest"):
        snapshots.files(state.metadata_location, state.snapshot_id or 0, 2)
