"""What a lake's current snapshot consists of, whoever made it, and how two of them differ."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frostline.lake import paths, schema, snapshots, store
from frostline.model.tables import Table


@dataclass(frozen=True)
class Held:
    """A data file as a manifest describes it."""

    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Content:
    """The files of a snapshot."""

    snapshot_id: int | None
    files: Mapping[str, Held]
    delete_files: tuple[str, ...] = ()
    """Rows of the files that do not count. Frostline writes none."""

    @property
    def rows(self) -> int:
        """In all data files, whatever the delete files say."""
        return sum(file.rows for file in self.files.values())


NOTHING = Content(None, {})


def content(metadata: TableMetadata) -> Content:
    """The files of the current snapshot. Reads every manifest; UnavailableError when one cannot be had."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return NOTHING
    io = paths.file_io(metadata.location)
    files: dict[str, Held] = {}
    deletes: list[str] = []
    for manifest in snapshots.manifests(snapshot, io):
        try:
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        except OSError as error:
            raise store.unreadable(f"manifest {manifest.manifest_path}", error) from error
        for file in (entry.data_file for entry in entries):
            if file.content == DataFileContent.DATA:
                files[file.file_path] = Held(file.record_count, file.file_size_in_bytes)
            else:
                deletes.append(file.file_path)
    return Content(snapshot.snapshot_id, files, tuple(deletes))


@dataclass(frozen=True)
class Difference:
    """What another snapshot has more, and what it has not."""

    ours: Content
    theirs: Content

    @property
    def added(self) -> dict[str, Held]:
        """Files that only the other has."""
        return {path: file for path, file in self.theirs.files.items() if path not in self.ours.files}

    @property
    def removed(self) -> dict[str, Held]:
        """Files that the other has not, or describes in another way."""
        return {path: file for path, file in self.ours.files.items() if self.theirs.files.get(path) != file}


def operations(metadata: TableMetadata, since: int | None) -> list[str]:
    """What the snapshots after that one did, the oldest first; all that are known if that one is not among them."""
    names: list[str] = []
    snapshot: Snapshot | None = metadata.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id != since:
        names.append(snapshot.summary.operation.value if snapshot.summary else "unknown")
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    return names[::-1]


def why_not_rows(table: Table, ours: TableMetadata, theirs: TableMetadata, difference: Difference) -> str | None:
    """Why the other snapshot is not ours and some rows more, if so."""
    wanted = {(field.field_id, field.field_type) for field in schema.iceberg_schema(table).fields}
    if theirs.table_uuid != ours.table_uuid:
        return "it is another Iceberg table"
    if {(field.field_id, field.field_type) for field in theirs.schema().fields} != wanted:
        return "its columns are others"
    if difference.removed:
        return f"{len(difference.removed)} of our files are not in it: rows were deleted or changed"
    if difference.theirs.delete_files:
        return f"it has {len(difference.theirs.delete_files)} delete files: rows were deleted or changed"
    return None if difference.added else "it has no row that the lake does not have"
