"""Snapshots of a restored database: the files of the history that it came from are not its own."""

from pathlib import Path

import pytest
from tests.fixtures import copies
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run

from frostline.errors import ConflictError
from frostline.lake import snapshots, warehouse
from frostline.model.names import Name
from frostline.pipeline import snapshot

T = Name("public", "t")
_RESTORED = "update frostline.snapshot set server = 'another'"
_STATES = "select version, state, tidied from frostline.snapshot where name = 'nightly' order by 1"


@pytest.fixture
def first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Version 1 of a table."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, "create table public.t as select 1 as a")
    copies.create(lake, "public.*")
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    return lake


def everything(lake: Lake) -> set[Path]:
    """All files of the warehouse but its marker."""
    return {path for path in lake.warehouse.rglob("*") if path.is_file() and path.parent.name != warehouse.FOLDER}


def fail_late(lake: Lake, name: str = "nightly") -> set[Path]:
    """Let a run fail when its files are written; says which."""
    before = everything(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "reached", _fail_when_staged)
        with pytest.raises(ConflictError):
            copies.create(lake, "public.*", name=name)
    return everything(lake) - before


def _fail_when_staged(place: snapshot.Failpoint) -> None:
    if place is snapshot.Failpoint.SNAPSHOT_STAGED:
        raise ConflictError("staged")


def delete(files: set[Path]) -> None:
    for file in files:
        file.unlink()
    snapshots.read_metadata.cache_clear()  # a new process remembers nothing


@pytest.mark.slow
def test_copies_that_another_history_has_deleted_are_in_nobodys_way(first: Lake, command: Command) -> None:
    run(first.catalog, _RESTORED)
    delete(everything(first))
    copies.create(first, "public.*")
    left = fail_late(first)
    assert left
    assert copies.create(first, "public.*").version == 4
    assert not left & everything(first)
    left = fail_late(first)
    assert command("sweep").exit_code == 0
    assert not left & everything(first)
    assert rows(first.catalog, _STATES)[1:] == [
        (2, "published", False),
        (3, "failed", True),
        (4, "published", False),
        (5, "failed", True),
    ]
    for version in (2, 4):
        assert copies.by_pyiceberg(copies.shown(first, version=version)[T])["a"].to_pylist() == [1]


def test_files_that_a_version_has_of_a_dropped_one_stay(first: Lake, command: Command) -> None:
    kept = everything(first)
    copies.create(first, "public.*", incremental=True)
    run(first.catalog, "update frostline.snapshot set state = 'dropped' where version = 1")
    assert command("sweep").exit_code == 0
    assert rows(first.catalog, _STATES) == [(1, "dropped", True), (2, "published", False)]
    assert everything(first) == kept


def test_a_snapshot_that_cannot_be_tidied_stops_no_other_one(first: Lake, command: Command) -> None:
    fail_late(first)
    broken = copies.shown(first)[T].metadata_location
    delete({Path(broken.removeprefix("file://"))})
    left = fail_late(first, "other")
    said = command("sweep")
    assert said.exit_code == 0
    assert f"metadata {broken} is not there" in said.stderr
    assert "nothing is deleted there" in said.stderr
    assert "files of dead runs and dropped versions of snapshots were deleted" in said.stderr
    assert not left & everything(first)


@pytest.mark.slow
def test_what_a_dead_run_of_another_history_left_goes_when_it_is_taken_over(first: Lake, command: Command) -> None:
    kept = everything(first)
    left = fail_late(first)
    run(first.catalog, _RESTORED)
    assert command("sweep").exit_code == 0
    assert everything(first) == kept | left
    assert command("sweep", "--take-over").exit_code == 0
    assert everything(first) == kept
