"""Which files a lake consists of: what its snapshots reach, and what is reached only from those that go."""

import logging
from collections.abc import Collection, Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frostline import logs
from frostline.errors import UnavailableError
from frostline.lake import paths, snapshots

_log = logging.getLogger(__name__)

Sizes = dict[str, int]
"""Files by their location, with their size in bytes; 0 where the lake does not say."""


def all_files(metadata: TableMetadata) -> Sizes:
    """The files of all snapshots; UnavailableError when one cannot be read, for then nobody knows what it needs."""
    return _of(metadata.snapshots, paths.file_io(metadata.location))


def current(metadata: TableMetadata) -> Sizes:
    """The files of the current snapshot."""
    found = metadata.current_snapshot()
    return _of([found], paths.file_io(metadata.location)) if found else {}


def only(metadata: TableMetadata, gone: Collection[int]) -> Sizes:
    """The files that these snapshots reach and no other snapshot of the metadata does.

    A snapshot that goes and cannot be read (a restored database may name files that are long gone) adds nothing: what
    is left of it is for the sweep.
    """
    io = paths.file_io(metadata.location)
    kept = _of((one for one in metadata.snapshots if one.snapshot_id not in gone), io)
    found: Sizes = {}
    known = set(kept)
    for snapshot in (one for one in metadata.snapshots if one.snapshot_id in gone):
        try:
            own = _of([snapshot], io, known)
            found |= own
            known |= own.keys()
        except UnavailableError as error:
            _log.warning("%s", logs.fields(stage="expire", snapshot=snapshot.snapshot_id, warning=error.message))
    return {location: size for location, size in found.items() if location not in kept}


def _of(chosen: Iterable[Snapshot], io: FileIO, known: Collection[str] = frozenset()) -> Sizes:
    """Manifest lists, manifests and data files. A manifest that is known is not read: its files are known too."""
    found: Sizes = {}

    def is_new(manifest: ManifestFile) -> bool:
        if manifest.manifest_path in known or manifest.manifest_path in found:
            return False
        found[manifest.manifest_path] = manifest.manifest_length
        return True

    for snapshot in chosen:
        for file in snapshots.data_files(snapshot, io, is_new):
            found[file.file_path] = file.file_size_in_bytes
        found[snapshot.manifest_list] = 0
    return found
