"""The lake without some of its snapshots, and the files that nobody needs then."""

from collections.abc import Collection, Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, update_table_metadata

from frostline.errors import UnavailableError
from frostline.lake import commit, paths, reachable, snapshots, store, warehouse
from frostline.lake.commit import StagedCommit, Staging
from frostline.lake.reachable import Sizes
from frostline.model import tables
from frostline.model.expiry import Expiry, LakeState


def unknown(metadata: TableMetadata, states: Collection[LakeState]) -> Iterator[tuple[str, int | None]]:
    """States that the metadata speaks of and the catalog does not know, as (location, snapshot).

    They are from before the catalog kept states. A snapshot whose metadata file is not known any more is named by its
    manifest list, which no other state has.
    """
    locations = {state.metadata_location for state in states}
    known = {state.snapshot_id for state in states}
    for entry in metadata.metadata_log:
        if entry.metadata_file not in locations:
            snapshot_id = _snapshot_of(entry.metadata_file)
            known.add(snapshot_id)
            yield entry.metadata_file, snapshot_id
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in known:
            yield snapshot.manifest_list, snapshot.snapshot_id


def _snapshot_of(metadata_location: str) -> int | None:
    """The current snapshot of a metadata file; None when it has none, or when the file is gone."""
    try:
        return snapshots.read_metadata(metadata_location).current_snapshot_id
    except UnavailableError:
        return None


def stage(table: tables.Table, base: str, what: Expiry, job_id: int) -> StagedCommit:
    """Write the lake's metadata without these snapshots, and without the names of metadata files that go.

    Touches no catalog and no other file; can be repeated at will.
    """
    warehouse.check()
    staging = Staging(paths.commit_uuid(job_id))
    current = commit.opened(table, base, staging)
    kept = [one for one in current.metadata.metadata_log if one.metadata_file not in what.locations]
    pruned = current.metadata.model_copy(update={"metadata_log": kept})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(what.snapshots)})
    metadata = _with_honest_log(update_table_metadata(pruned, (removal,), metadata_location=base), pruned, what)
    with store.reachable(f"write the lake's metadata of {table.name}"):
        staging.write(current, metadata)
    return commit.staged(table, current, base)


def _with_honest_log(metadata: TableMetadata, before: TableMetadata, what: Expiry) -> TableMetadata:
    """The log of snapshots from after the last that went: through a gap in it, a moment would find the wrong one."""
    gone = [entry.timestamp_ms for entry in before.snapshot_log if entry.snapshot_id in what.snapshots]
    kept = [entry for entry in metadata.snapshot_log if entry.timestamp_ms > max(gone, default=-1)]
    return metadata.model_copy(update={"snapshot_log": kept})


def doomed(base: str, what: Expiry) -> Sizes:
    """The files that only these states and snapshots need. Reads every manifest of the lake once."""
    metadata = snapshots.read_metadata(base)
    files = reachable.only(metadata, what.snapshots)
    return files | dict.fromkeys((location for location in what.locations if location.endswith(".metadata.json")), 0)
