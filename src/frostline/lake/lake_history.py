"""The metadata of a lake table with one more snapshot, or with fewer, and its text, at the cost of what is new.

PyIceberg copies and prints the whole history for each commit; with a thousand snapshots that is most of a commit's
time. A snapshot never changes, so here the lists go on with the same objects, and what was printed is kept.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.utils.properties import property_as_int


def grown(base: TableMetadataV2, location: str, snapshot: Snapshot) -> TableMetadataV2:
    """The metadata with this snapshot as the main branch's; `location` is where the base is."""
    number, moment = snapshot.snapshot_id, snapshot.timestamp_ms
    now = SnapshotLogEntry.model_validate({"snapshot-id": number, "timestamp-ms": moment})
    known = base.refs.get(MAIN_BRANCH) or SnapshotRef.model_validate({"snapshot-id": number, "type": "branch"})
    main = known.model_copy(update={"snapshot_id": number})
    return base.model_copy(
        update={
            "last_updated_ms": moment,
            "last_sequence_number": snapshot.sequence_number,
            "current_snapshot_id": number,
            "snapshots": [*base.snapshots, snapshot],
            "snapshot_log": [*base.snapshot_log, now],
            "refs": {**base.refs, MAIN_BRANCH: main},
            "metadata_log": _former(base, location),
        }
    )


def changed(base: TableMetadata, location: str, changes: Mapping[str, Any]) -> TableMetadata:
    """The metadata with the same snapshots and other fields; `location` is where the base is."""
    moment = max(time.time_ns() // 1_000_000, base.last_updated_ms)
    return base.model_copy(update={"last_updated_ms": moment, "metadata_log": _former(base, location), **changes})


def without(base: TableMetadata, location: str, gone: Collection[int], files: Collection[str]) -> TableMetadata:
    """The metadata without these snapshots, and without naming these former metadata files.

    The log of what was current begins after the last one that is gone: what is before it would have a gap.
    """
    log = base.snapshot_log
    begin = max((place + 1 for place, entry in enumerate(log) if entry.snapshot_id in gone), default=0)
    changes = {
        "snapshots": [snapshot for snapshot in base.snapshots if snapshot.snapshot_id not in gone],
        "snapshot_log": log[begin:],
        "statistics": [file for file in base.statistics if file.snapshot_id not in gone],
        "partition_statistics": [file for file in base.partition_statistics if file.snapshot_id not in gone],
        "metadata_log": [entry for entry in _former(base, location) if entry.metadata_file not in files],
    }
    return changed(base, location, changes)


def _former(base: TableMetadata, location: str) -> list[MetadataLogEntry]:
    entry = MetadataLogEntry.model_validate({"metadata-file": location, "timestamp-ms": base.last_updated_ms})
    return [*base.metadata_log, entry][-_most_former(base) :]


def _most_former(base: TableMetadata) -> int:
    name, usual = TableProperties.METADATA_PREVIOUS_VERSIONS_MAX, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT
    return max(1, property_as_int(base.properties, name, usual) or usual)


def printed(snapshots: Sequence[Snapshot]) -> tuple[str, ...]:
    """Each of them as it is in a metadata file."""
    return tuple(snapshot.model_dump_json() for snapshot in snapshots)


def text(metadata: TableMetadata, history: Sequence[str]) -> str:
    """What is in the metadata file; `history` are its snapshots as they are printed."""
    assert len(history) == len(metadata.snapshots)
    rest = metadata.model_dump_json(exclude={"snapshots"})
    return f'{rest[:-1]},"snapshots":[{",".join(history)}]}}'
