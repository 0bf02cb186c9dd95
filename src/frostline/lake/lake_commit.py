"""A commit to a lake table as a value: data files and position deletes are added to what is there, whatever it is.

`stage` writes manifests, the manifest list and the new metadata upon one state; nothing points to them. When somebody
else has committed meanwhile, the same change is staged again upon the new state: its data and delete files stay.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from frostline.catalog.pointers import LakeMove
from frostline.lake import lake_format, lake_history, lake_table, paths, store
from frostline.lake.commit import Staging
from frostline.lake.lake_table import State
from frostline.lake.pyiceberg_compat import DeleteManifestWriter

_COMPRESSION = "deflate"
"""Every reader of Avro knows it."""
_FAN = 8
"""So many manifests of about one size become one."""
_LEVELS = 3
"""So often: what has more entries is left to compaction."""

Kind = tuple[ManifestContent, int]
"""What one manifest may hold: data or deletes, and the partition spec."""


@dataclass
class Added:
    """What a commit adds to one table."""

    data: list[DataFile] = field(default_factory=list[DataFile])
    deletes: list[DataFile] = field(default_factory=list[DataFile])

    def __bool__(self) -> bool:
        return bool(self.data or self.deletes)


_NO_FILES = Added()
_GONE = {"data-files": "deleted-data-files", "records": "deleted-records"}
"""What Iceberg calls those that are removed, where it is not the same word."""


@dataclass(frozen=True)
class Staged:
    """A commit that is ready: where the pointer has to be, and where it goes."""

    move: LakeMove
    written: tuple[str, ...]
    """The files that are of no use if it does not happen."""
    state: State
    """What the table is then."""


@dataclass(frozen=True)
class Draft:
    """A snapshot on its way."""

    commit: uuid.UUID
    id: int
    number: int
    has_metadata: bool = True
    """Whether the metadata file is written here, and not by the catalog."""


def stage(lake_table_id: int, base: State, added: Added, *, has_metadata: bool = True) -> Staged:
    """Write the metadata of the base with these files added. Touches no catalog; can be repeated at will.

    Without `has_metadata` that file is for the catalog to write, and the location that it has here is no file's.
    """
    metadata = lake_format.written(base.metadata)
    draft = Draft(uuid.uuid4(), metadata.new_snapshot_id(), metadata.last_sequence_number + 1, has_metadata)
    with store.reachable(f"write the lake's metadata in {metadata.location}/metadata"):
        kept, entries = _merged(live_manifests(base), added)
        new, written = new_manifests(base, added, draft, entries)
        operation = Operation.OVERWRITE if added.data and added.deletes else Operation.APPEND
        if added.deletes and not added.data:
            operation = Operation.DELETE
        summary = told(operation, metadata.current_snapshot(), added)
        return committed(lake_table_id, base, draft, [*new, *kept], written, summary, added)


def _merged(
    manifests: Sequence[ManifestFile], added: Added
) -> tuple[list[ManifestFile], Mapping[Kind, Sequence[ManifestEntry]]]:
    """The manifests that stay as they are, and the entries of those that are written anew with the added files.

    With eight of a size made one of the next size, a thousand commits leave some twenty, and each entry is written
    four times at most. With one more for each commit, every commit would be slower than the one before it.
    """
    kinds = {(ManifestContent.DATA, file.spec_id) for file in added.data}
    kinds |= {(ManifestContent.DELETES, file.spec_id) for file in added.deletes}
    taken, entries = set[str](), dict[Kind, list[ManifestEntry]]()
    for kind in kinds:
        known = [manifest for manifest in manifests if (manifest.content, manifest.partition_spec_id) == kind]
        for level in range(_LEVELS):
            same = [manifest for manifest in known if _level(manifest) == level]
            if len(same) < _FAN - 1:
                break
            taken |= {manifest.manifest_path for manifest in same}
            entries.setdefault(kind, []).extend(entry for manifest in same for entry in lake_table.entries(manifest))
    return [manifest for manifest in manifests if manifest.manifest_path not in taken], entries


def _level(manifest: ManifestFile) -> int:
    """How often the number of its entries can be divided by eight; one that does not say is as large as can be."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    if added is None or existing is None:
        return _LEVELS
    return next((level for level in range(_LEVELS) if added + existing < _FAN ** (level + 1)), _LEVELS)


def new_manifests(
    base: State, added: Added, draft: Draft, kept: Mapping[Kind, Sequence[ManifestEntry]] = MappingProxyType({})
) -> tuple[list[ManifestFile], list[str]]:
    """Write the manifests of files that are added, and of others as they were; gives them, and where they are."""
    metadata, io = base.metadata, paths.file_io(base.location)
    entries = defaultdict[Kind, list[ManifestEntry]](list)
    for content, files in ((ManifestContent.DATA, added.data), (ManifestContent.DELETES, added.deletes)):
        for file in files:
            entries[content, file.spec_id].append(_new_entry(file, draft))
    new, written = list[ManifestFile](), list[str]()
    for content, spec_id in sorted(entries.keys() | kept.keys()):
        location = f"{metadata.location}/metadata/{draft.commit}-{content.name.lower()}-{spec_id}.avro"
        fresh, old = entries[content, spec_id], kept.get((content, spec_id), ())
        with manifest_writer(content, spec_id, metadata, io.new_output(location), draft.id) as writer:
            for entry in fresh:
                writer.add(_unnumbered(entry))
            for entry in old:
                writer.existing(entry)
        new.append(writer.to_manifest_file())
        lake_table.remember_entries(new[-1], [*fresh, *old])
        written.append(location)
    return new, written


def _new_entry(file: DataFile, draft: Draft) -> ManifestEntry:
    """As it will be read: its sequence numbers are those of the snapshot."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=draft.id,
        sequence_number=draft.number,
        file_sequence_number=draft.number,
        data_file=file,
    )


def _unnumbered(entry: ManifestEntry) -> ManifestEntry:
    """As it is written: readers take the numbers from the manifest list."""
    return ManifestEntry.from_args(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=entry.data_file,
    )


def committed(
    lake_table_id: int,
    base: State,
    draft: Draft,
    manifests: list[ManifestFile],
    written: list[str],
    summary: Summary,
    added: Added,
    removed: Collection[str] = (),
) -> Staged:
    """Write the manifest list and the metadata of a snapshot with these manifests.

    What they say is what the base has, without the removed files and with the added ones.
    """
    metadata, io = lake_format.written(base.metadata), paths.file_io(base.location)
    listed = f"{metadata.location}/metadata/snap-{draft.id}-{draft.commit}.avro"
    above = metadata.current_snapshot_id
    output = io.new_output(listed)
    with write_manifest_list(2, output, draft.id, above, draft.number, _COMPRESSION) as manifest_list:
        numbered = [manifest_list.prepare_manifest(manifest) for manifest in manifests]
        manifest_list.add_manifests(numbered)
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": draft.id,
            "parent-snapshot-id": above,
            "sequence-number": draft.number,
            "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
            "manifest-list": listed,
            "summary": summary,
            "schema-id": metadata.current_schema_id,
        }
    )
    new = lake_history.grown(metadata, base.location, snapshot)
    history = (*base.history, *lake_history.printed([snapshot]))
    location, files = Staging.next_location(new, draft.commit, base.location), [*written, listed]
    if draft.has_metadata:
        with io.new_output(location).create() as file:
            file.write(lake_history.text(new, history).encode())
        files.append(location)
    data, deletes = _after(base.data, added.data, removed), _after(base.deletes, added.deletes, removed)
    state = State(location, new, data, deletes, numbered, history)
    return Staged(LakeMove(lake_table_id, base.location, location, draft.id), tuple(files), state)


def _after(
    before: Mapping[str, DataFile], added: Sequence[DataFile], removed: Collection[str]
) -> Mapping[str, DataFile]:
    """The files as they will be read: the newest first."""
    stays = {path: file for path, file in before.items() if path not in removed} if removed else before
    return {**{file.file_path: file for file in added}, **stays}


def manifest_writer(
    content: ManifestContent, spec_id: int, metadata: TableMetadata, output: OutputFile, snapshot_id: int
) -> ManifestWriter:
    """For a manifest of data files, or of delete files, all of one partition spec."""
    spec, table_schema = metadata.specs()[spec_id], metadata.schema()
    if content == ManifestContent.DELETES:
        return DeleteManifestWriter(spec, table_schema, output, snapshot_id, _COMPRESSION)
    return write_manifest(2, spec, table_schema, output, snapshot_id, _COMPRESSION)


def live_manifests(base: State) -> list[ManifestFile]:
    """The manifests of a state without those that only say what was removed before it."""
    return [manifest for manifest in base.manifests if manifest.has_added_files() or manifest.has_existing_files()]


def told(operation: Operation, parent: Snapshot | None, added: Added, removed: Added = _NO_FILES) -> Summary:
    """The summary of a snapshot with these files more than its parent, and those less."""
    came, went = _counted(added), _counted(removed)
    said = {f"added-{name}": str(count) for name, count in came.items() if count}
    said |= {_GONE.get(name, f"removed-{name}"): str(count) for name, count in went.items() if count}
    before: Mapping[str, str] = parent.summary.additional_properties if parent and parent.summary else {}
    for name in (*came, "equality-deletes"):
        total = int(before.get(f"total-{name}", "0")) + came.get(name, 0) - went.get(name, 0)
        said[f"total-{name}"] = str(total)
    return Summary(operation, **said)


def _counted(files: Added) -> Mapping[str, int]:
    return {
        "data-files": len(files.data),
        "delete-files": len(files.deletes),
        "records": sum(file.record_count for file in files.data),
        "position-deletes": sum(file.record_count for file in files.deletes),
        "files-size": sum(file.file_size_in_bytes for file in (*files.data, *files.deletes)),
    }


def write_metadata(metadata: TableMetadata, commit: uuid.UUID, previous: str = "") -> str:
    """Write a metadata file, whose number follows the previous one's, and say where it is."""
    location = Staging.next_location(metadata, commit, previous)
    paths.make_parent(location)
    ToOutputFile.table_metadata(metadata, paths.file_io(location).new_output(location))
    return location


def leads_to(location: str, now: TableMetadata, move: LakeMove) -> bool:
    """Whether a table that is there now was at the move's metadata. Its snapshot may be expired, or is known longer."""
    former = (entry.metadata_file for entry in now.metadata_log)
    if move.location in (location, *former):
        return True
    return move.snapshot_id is not None and now.snapshot_by_id(move.snapshot_id) is not None


def discard(written: Sequence[str]) -> None:
    """Delete files that came to nothing. What is left by a crash before, or by an error here, the sweep finds."""
    try:
        for _ in paths.delete_each(written):
            pass
    except OSError:
        return
