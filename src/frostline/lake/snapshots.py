"""Lake snapshots: which files they have. A snapshot never changes, nor does a manifest, so both are cached."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frostline.errors import CorruptionError, UnavailableError, UsageError
from frostline.lake import bounds, damage, paths, schema
from frostline.model.range import Range, overlapping
from frostline.model.tables import KeyBounds, KeyField, LakeFile, Table

_SNAPSHOTS_CACHED = 512
_MANIFESTS_CACHED = 4096


@dataclass(frozen=True)
class Totals:
    """How much a snapshot holds."""

    files: int
    rows: int
    size_bytes: int


@lru_cache(maxsize=_SNAPSHOTS_CACHED)
def files(
    metadata_location: str, snapshot_id: int, tier_key_field_id: int, keys: tuple[KeyField, ...] = ()
) -> tuple[LakeFile, ...]:
    """The files of a snapshot, by their smallest tier value. Reads only manifests that no earlier call has read.

    `keys` are the further columns whose bounds are wanted.
    """
    snapshot = find(metadata_location, snapshot_id)
    io = paths.file_io(metadata_location)
    listed = [
        file for manifest in manifests(snapshot, io) for file in _manifest_files(manifest, tier_key_field_id, keys)
    ]
    return tuple(sorted(listed, key=lambda file: (file.lower, file.upper, file.path)))


def files_within(metadata_location: str, snapshot_id: int, table: Table, wanted: Range) -> list[LakeFile]:
    """The files of a snapshot that may hold a row of the range. Opens only manifests that may name one of them."""
    io, tier = paths.file_io(metadata_location), table.column(table.tier_key).field_id
    relevant = [
        manifest
        for manifest in manifests(find(metadata_location, snapshot_id), io)
        if may_hold(table, wanted, manifest)
    ]
    return overlapping((file for manifest in relevant for file in _manifest_files(manifest, tier)), wanted)


def may_hold(table: Table, wanted: Range, manifest: ManifestFile) -> bool:
    """Whether a file of the manifest may hold a row of the range, so that a long history need not be read.

    A manifest has the smallest and the largest partition of its files, and no transform falls where the tier key rises.
    """
    partition = manifest.partitions[0] if manifest.partitions else None
    if partition is None or partition.lower_bound is None or partition.upper_bound is None:
        return True
    lower = table.tier_kind.lowest if wanted.lower is None else wanted.lower
    upper = table.tier_kind.highest if wanted.upper is None else wanted.upper - 1
    try:
        first, last = schema.partition_value(table, lower), schema.partition_value(table, upper)
    except UsageError:
        return True  # beyond what a partition can be
    return bounds.tier_value(partition.lower_bound) <= last and first <= bounds.tier_value(partition.upper_bound)


def totals(metadata_location: str, snapshot_id: int) -> Totals:
    """How much a snapshot holds, as its summary says."""
    summary = find(metadata_location, snapshot_id).summary
    assert summary is not None
    names = ("total-data-files", "total-records", "total-files-size")
    return Totals(*(int(summary[name] or 0) for name in names))


def find(metadata_location: str, snapshot_id: int) -> Snapshot:
    """The snapshot of that id; raises UnavailableError when the metadata does not have it."""
    snapshot = read_metadata(metadata_location).snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise UnavailableError(
            f"lake snapshot {snapshot_id} is not in {metadata_location}",
            hint="it has expired: begin a new transaction, then repeat the query",
        )
    return snapshot


@lru_cache(maxsize=64)
def read_metadata(metadata_location: str) -> TableMetadata:
    """Read a metadata file, or remember it; raises UnavailableError when it cannot be had."""
    return metadata_now(metadata_location)


def metadata_now(metadata_location: str) -> TableMetadata:
    """Read a metadata file that need not be our own: a catalog may give its name to another, for a table made anew."""
    with damage.parsing(f"metadata {metadata_location}"):
        return FromInputFile.table_metadata(paths.file_io(metadata_location).new_input(metadata_location))


def manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot."""
    with damage.parsing(f"manifest list {snapshot.manifest_list}"):
        return snapshot.manifests(io)


@lru_cache(maxsize=_MANIFESTS_CACHED)
def _manifest_files(
    manifest: ManifestFile, tier_key_field_id: int, keys: tuple[KeyField, ...] = ()
) -> tuple[LakeFile, ...]:
    """The live files of a manifest. Manifests are equal when their paths are, which is what the cache goes by."""
    entries = _entries(manifest, paths.file_io(manifest.manifest_path))
    return tuple(_lake_file(entry, tier_key_field_id, keys) for entry in entries)


def data_files(
    snapshot: Snapshot | None, io: FileIO, wanted: Callable[[ManifestFile], bool] = lambda _: True
) -> Iterator[DataFile]:
    """The data files of a snapshot as Iceberg describes them, in the wanted manifests; nothing for no snapshot."""
    for manifest in filter(wanted, manifests(snapshot, io)) if snapshot else ():
        yield from _entries(manifest, io)


def _entries(manifest: ManifestFile, io: FileIO) -> list[DataFile]:
    listed = [entry.data_file for entry in entries(manifest, io)]
    for data_file in listed:
        if data_file.content != DataFileContent.DATA:
            raise CorruptionError(f"{data_file.file_path} is a delete file; lake tables are copy-on-write")
    return listed


def entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """The live entries of a manifest."""
    with damage.parsing(f"manifest {manifest.manifest_path}"):
        return manifest.fetch_manifest_entry(io, discard_deleted=True)


def _lake_file(data_file: DataFile, tier_key_field_id: int, keys: tuple[KeyField, ...]) -> LakeFile:
    lower, upper = tier_range(data_file, tier_key_field_id)
    known = tuple(bound for key in keys if (bound := _key_bounds(data_file, key)) is not None)
    return LakeFile(data_file.file_path, data_file.record_count, data_file.file_size_in_bytes, lower, upper, known)


def _key_bounds(data_file: DataFile, key: KeyField) -> KeyBounds | None:
    """Bounds of text may be shortened: the lower one downwards, the upper one upwards."""
    lower, upper = ((held or {}).get(key.field_id) for held in (data_file.lower_bounds, data_file.upper_bounds))
    if lower is None or upper is None:
        return None
    if key.is_number:
        return KeyBounds(key.field_id, bounds.tier_value(lower), bounds.tier_value(upper))
    return KeyBounds(key.field_id, lower, upper)


def tier_range(data_file: DataFile, tier_key_field_id: int) -> tuple[int, int]:
    """The smallest and the largest tier value of a data file, on the axis."""
    try:
        lower, upper = data_file.lower_bounds[tier_key_field_id], data_file.upper_bounds[tier_key_field_id]
    except (KeyError, TypeError) as error:
        raise CorruptionError(f"lake file {data_file.file_path} has no bounds of its tier key") from error
    return bounds.tier_value(lower), bounds.tier_value(upper)
