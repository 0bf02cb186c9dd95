"""What the upkeep of lake tables does to their metadata, and which files their past consists of.

docs/design/lake-tables.md, "Upkeep". A commit is staged upon one state and touches no catalog, as all others.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog.lake_upkeep import Look
from frostline.catalog.pointers import LakeMove
from frostline.errors import ConflictError, UnavailableError
from frostline.lake import lake_history, lake_table, paths, snapshots, store
from frostline.lake.commit import Staging
from frostline.lake.lake_commit import Staged
from frostline.lake.lake_table import State
from frostline.model.lake_upkeep import Known, Past, Ref, Since

SWEPT_BEFORE = "frostline.swept-before"
"""The table property with the fence: older files that no state had are deleted. Milliseconds since 1970."""

Sizes = dict[str, int]
"""Files of a table's folder by their location, with their size in bytes; 0 where nobody says."""


def look(state: State) -> Look:
    """What the table consists of."""
    parent = state.metadata.current_snapshot()
    summary: Mapping[str, str] = parent.summary.additional_properties if parent and parent.summary else {}
    gone = int(summary.get("total-position-deletes", "0"))
    return Look(
        metadata_location=state.location,
        rows=max(sum(file.record_count for file in state.data.values()) - gone, 0),
        files=len(state.data),
        delete_files=len(state.deletes),
        size_bytes=sum(file.file_size_in_bytes for files in (state.data, state.deletes) for file in files.values()),
        snapshots=len(state.metadata.snapshots),
    )


def past(metadata: TableMetadataV2) -> Past:
    """The past of a table, for the decision what of it may go."""
    return Past(
        [
            Known(known.snapshot_id, known.parent_snapshot_id, known.sequence_number or 0, known.timestamp_ms)
            for known in metadata.snapshots
        ],
        [
            Ref(
                name,
                ref.snapshot_id,
                ref.snapshot_ref_type == SnapshotRefType.BRANCH,
                ref.max_snapshot_age_ms,
                ref.min_snapshots_to_keep,
            )
            for name, ref in metadata.refs.items()
        ],
        [(entry.snapshot_id, entry.timestamp_ms) for entry in metadata.snapshot_log],
        metadata.last_updated_ms,
    )


def since(metadata: TableMetadata) -> Since:
    """Of the oldest state that somebody may read."""
    number = metadata.last_sequence_number if isinstance(metadata, TableMetadataV2) else 0
    log = [(entry.snapshot_id, entry.timestamp_ms) for entry in metadata.snapshot_log]
    return Since(metadata.current_snapshot_id, number, log[-1] if log else None)


def stage_expiry(lake_table_id: int, base: State, gone: Collection[int], files: Collection[str]) -> Staged:
    """Write the metadata of the base without these snapshots, and without naming these former metadata files."""
    new = lake_history.without(base.metadata, base.location, gone, files)
    kept = [snapshot.snapshot_id not in gone for snapshot in base.metadata.snapshots]
    history = tuple(text for text, stays in zip(base.history, kept, strict=True) if stays)
    return _staged(lake_table_id, base, new, history)


def stage_properties(lake_table_id: int, base: State, changes: Mapping[str, str | None]) -> Staged:
    """Write the metadata of the base with other properties; None takes one away."""
    known = {**base.metadata.properties, **changes}
    properties = {name: value for name, value in known.items() if value is not None}
    new = lake_history.changed(base.metadata, base.location, {"properties": properties})
    return _staged(lake_table_id, base, new, tuple(base.history))


def _staged(lake_table_id: int, base: State, new: TableMetadata, history: tuple[str, ...]) -> Staged:
    location = Staging.next_location(new, uuid.uuid4(), base.location)
    with store.reachable(f"write {location}"), paths.file_io(location).new_output(location).create() as file:
        file.write(lake_history.text(new, history).encode())
    state = State(location, new, base.data, base.deletes, base.manifests, history)
    return Staged(LakeMove(lake_table_id, base.location, location), (location,), state)


def files_of(folder: str, chosen: Iterable[Snapshot]) -> Sizes:
    """Manifest lists, manifests, data and delete files of snapshots, as far as they are in the folder.

    Each manifest is read once. UnavailableError when one cannot be read.
    """
    sizes = Sizes()

    def add(location: str, size_bytes: int) -> None:
        plain = paths.inside(location, folder)
        if plain is not None:
            sizes[plain] = size_bytes

    seen = set[str]()
    for snapshot in chosen:
        add(snapshot.manifest_list, 0)
        for manifest in snapshots.manifests(snapshot, paths.file_io(folder)):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            add(manifest.manifest_path, manifest.manifest_length)
            for entry in lake_table.entries(manifest):
                add(entry.data_file.file_path, entry.data_file.file_size_in_bytes)
    return sizes


def statistics_of(folder: str, metadata: TableMetadata, wanted: Callable[[int], bool]) -> Sizes:
    """The files with statistics of some snapshots, as far as they are in the folder."""
    named = (file for file in (*metadata.statistics, *metadata.partition_statistics) if wanted(file.snapshot_id))
    located = ((paths.inside(file.statistics_path, folder), file.file_size_in_bytes) for file in named)
    return {location: size_bytes for location, size_bytes in located if location is not None}


def read_by_others(metadata: TableMetadataV2, former: Iterable[str]) -> list[Snapshot]:
    """The snapshots of former states, the oldest first, that the metadata has not: another engine has removed them.

    Usually none, which the oldest state and the numbers of the snapshots since tell: each new one has the next.
    """
    there, states = {known.snapshot_id for known in metadata.snapshots}, iter(former)
    missing = list[Snapshot]()
    for place, location in enumerate(states):
        state = read(location)
        if state is None:
            continue
        current = state.current_snapshot()
        if current is not None and current.snapshot_id not in there:
            missing.append(current)
        if not place and not missing and _is_complete(metadata, since(state).sequence):
            return []
    return missing


def _is_complete(metadata: TableMetadataV2, sequence: int) -> bool:
    later = {known.sequence_number for known in metadata.snapshots if (known.sequence_number or 0) > sequence}
    return len(later) == metadata.last_sequence_number - sequence


def read(location: str) -> TableMetadata | None:
    """The metadata of a former state; None when the file is not there: then nobody reads that state either."""
    try:
        return snapshots.metadata_now(location)
    except UnavailableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def fence(state: State) -> str:
    """Before what the table was swept last; empty if it never was."""
    return state.metadata.properties.get(SWEPT_BEFORE, "")


def refuse_swept(base: State, now: State, files: Iterable[str]) -> None:
    """Refuse to commit files that a sweep may have taken for garbage since the base was read: ConflictError.

    Whoever has written files before its commit asks this of the state that it commits upon.
    """
    known = fence(now)
    if known == fence(base) or not known.isdigit():
        return
    before_s = int(known) / 1000
    for location in files:
        try:
            is_swept = paths.changed_at(location) < before_s
        except FileNotFoundError:
            is_swept = True
        if is_swept:
            raise ConflictError(
                f"{location} was written so long before its commit that it was swept", hint="run the transaction again"
            )
