"""Which files a lake consists of: what its snapshots reach, and what nobody needs once some of them go."""

import logging
from collections.abc import Collection, Iterable, Iterator

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frostline import logs
from frostline.errors import UnavailableError
from frostline.lake import paths, snapshots
from frostline.model.upkeep import Expiry, LakeState

_log = logging.getLogger(__name__)

Sizes = dict[str, int]
"""Files by their location, with their size in bytes; 0 where the lake does not say."""


def all_files(metadata: TableMetadata) -> Sizes:
    """The files of all snapshots; UnavailableError when one cannot be read, for then nobody knows what it needs."""
    return _of(metadata.snapshots, paths.file_io(metadata.location))


def current(metadata: TableMetadata) -> Sizes:
    """The files of the current snapshot."""
    snapshot = metadata.current_snapshot()
    return _of([snapshot], paths.file_io(metadata.location)) if snapshot else {}


def unknown_states(metadata: TableMetadata, states: Collection[LakeState]) -> Iterator[tuple[str, int | None]]:
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


def doomed(base: str, what: Expiry) -> Sizes:
    """The files that only these states and snapshots need. Reads every manifest of the lake once."""
    files = _only(snapshots.read_metadata(base), what.snapshots)
    return files | dict.fromkeys((location for location in what.locations if location.endswith(".metadata.json")), 0)


def _only(metadata: TableMetadata, gone: Collection[int]) -> Sizes:
    """The files that these snapshots reach and no other snapshot of the metadata does.

    A snapshot that goes and cannot be read (a restored database may name files that are long gone) adds nothing: what
    is left of it is for the sweep.
    """
    io = paths.file_io(metadata.location)
    kept = _of((snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in gone), io)
    sizes: Sizes = {}
    known = set(kept)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in gone:
            continue
        try:
            own = _of([snapshot], io, known)
            sizes |= own
            known |= own.keys()
        except UnavailableError as error:
            _log.warning("%s", logs.fields(stage="expire", snapshot=snapshot.snapshot_id, warning=error.message))
    return {location: size for location, size in sizes.items() if location not in kept}


def _of(chosen: Iterable[Snapshot], io: FileIO, known: Collection[str] = frozenset()) -> Sizes:
    """Manifest lists, manifests and data files. A manifest that is known is not read: its files are known too."""
    sizes: Sizes = {}

    def is_new(manifest: ManifestFile) -> bool:
        if manifest.manifest_path in known or manifest.manifest_path in sizes:
            return False
        sizes[manifest.manifest_path] = manifest.manifest_length
        return True

    for snapshot in chosen:
        for file in snapshots.data_files(snapshot, io, is_new):
            sizes[file.file_path] = file.file_size_in_bytes
        sizes[snapshot.manifest_list] = 0
    return sizes
