"""A commit to a lake table as a value: data files and position deletes are added to what is there, whatever it is.

`stage` writes manifests, the manifest list and the new metadata upon one state; nothing points to them. When somebody
else has committed meanwhile, the same change is staged again upon the new state: its data and delete files stay.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata

from frostline.catalog.pointers import LakeMove
from frostline.lake import paths, snapshots, store
from frostline.lake.commit import Staging
from frostline.lake.lake_table import State
from frostline.lake.pyiceberg_compat import DeleteManifestWriter

_COMPRESSION = "deflate"
"""Every reader of Avro knows it."""


@dataclass
class Added:
    """What a commit adds to one table."""

    data: list[DataFile] = field(default_factory=list[DataFile])
    deletes: list[DataFile] = field(default_factory=list[DataFile])

    def __bool__(self) -> bool:
        return bool(self.data or self.deletes)


@dataclass(frozen=True)
class Staged:
    """A commit that is ready: where the pointer has to be, where it goes, and the snapshot by which it is known."""

    move: LakeMove
    snapshot_id: int
    written: tuple[str, ...]
    """The files that are of no use if it does not happen."""


def stage(lake_table_id: int, base: State, added: Added) -> Staged:
    """Write the metadata of the base with these files added. Touches no catalog; can be repeated at will."""
    metadata, commit = base.metadata, uuid.uuid4()
    assert isinstance(metadata, TableMetadataV2), "format 2 has position deletes"
    snapshot_id, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
    io, folder = paths.file_io(base.location), f"{metadata.location}/metadata"
    parent = metadata.current_snapshot()
    written = list[str]()
    with store.reachable(f"write the lake's metadata in {folder}"):
        new = list[ManifestFile]()
        for kind, files in (("data", added.data), ("deletes", added.deletes)):
            for spec_id in sorted({file.spec_id for file in files}):
                location = f"{folder}/{commit}-{kind}-{spec_id}.avro"
                spec, output = metadata.specs()[spec_id], io.new_output(location)
                of_spec = [file for file in files if file.spec_id == spec_id]
                new.append(_manifest(kind, spec, metadata, output, snapshot_id, of_spec))
                written.append(location)
        kept = snapshots.manifests(parent, io) if parent else []
        listed = f"{folder}/snap-{snapshot_id}-{commit}.avro"
        above = parent.snapshot_id if parent else None
        with write_manifest_list(2, io.new_output(listed), snapshot_id, above, number, _COMPRESSION) as manifest_list:
            manifest_list.add_manifests([*new, *kept])
        written.append(listed)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": above,
                "sequence-number": number,
                "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
                "manifest-list": listed,
                "summary": _summary(parent, added),
                "schema-id": metadata.current_schema_id,
            }
        )
        location = _write_metadata(base, snapshot, commit)
        written.append(location)
    return Staged(LakeMove(lake_table_id, base.location, location), snapshot_id, tuple(written))


def _manifest(
    kind: str, spec: Any, metadata: TableMetadata, output: Any, snapshot_id: int, files: Sequence[DataFile]
) -> ManifestFile:
    writer: ManifestWriter = (
        write_manifest(2, spec, metadata.schema(), output, snapshot_id, _COMPRESSION)
        if kind == "data"
        else DeleteManifestWriter(spec, metadata.schema(), output, snapshot_id, _COMPRESSION)
    )
    with writer:
        for file in files:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
    return writer.to_manifest_file()


def _summary(parent: Snapshot | None, added: Added) -> Summary:
    size_bytes = sum(file.file_size_in_bytes for file in (*added.data, *added.deletes))
    changes = {
        "data-files": len(added.data),
        "delete-files": len(added.deletes),
        "records": sum(file.record_count for file in added.data),
        "position-deletes": sum(file.record_count for file in added.deletes),
        "files-size": size_bytes,
    }
    told: dict[str, str] = {f"added-{name}": str(count) for name, count in changes.items() if count}
    before: Mapping[str, str] = parent.summary.additional_properties if parent and parent.summary else {}
    for name in (*changes, "equality-deletes"):
        told[f"total-{name}"] = str(int(before.get(f"total-{name}", "0")) + changes.get(name, 0))
    operation = Operation.OVERWRITE if added.data and added.deletes else Operation.APPEND
    return Summary(Operation.DELETE if added.deletes and not added.data else operation, **told)


def _write_metadata(base: State, snapshot: Snapshot, commit: uuid.UUID) -> str:
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
        ),
    )
    metadata = update_table_metadata(base.metadata, updates, metadata_location=base.location)
    return write_metadata(metadata, commit, base.location)


def write_metadata(metadata: TableMetadata, commit: uuid.UUID, previous: str = "") -> str:
    """Write a metadata file, whose number follows the previous one's, and say where it is."""
    location = Staging.next_location(metadata, commit, previous)
    paths.make_parent(location)
    ToOutputFile.table_metadata(metadata, paths.file_io(location).new_output(location))
    return location


def discard(written: Sequence[str]) -> None:
    """Delete files that came to nothing. What is left by a crash before, or by an error here, the sweep finds."""
    try:
        for _ in paths.delete_each(written):
            pass
    except OSError:
        return
