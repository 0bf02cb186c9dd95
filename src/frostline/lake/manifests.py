"""The manifests of a snapshot: how large they are, and a snapshot that describes the same files in fewer of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pyiceberg.manifest import ManifestEntry, ManifestFile

from frostline.lake import paths, snapshots
from frostline.lake.pyiceberg_compat import ReplaceFiles
from frostline.model.upkeep import MANIFEST_BYTES


def sizes_bytes(metadata_location: str, snapshot_id: int) -> list[int]:
    """The sizes of a snapshot's manifests."""
    snapshot = snapshots.find(metadata_location, snapshot_id)
    manifests = snapshots.manifests(snapshot, paths.file_io(metadata_location))
    return [manifest.manifest_length for manifest in manifests]


class Packing(ReplaceFiles):
    """A snapshot of the same rows whose manifests are as few as possible.

    The entries of all older manifests are written anew, by partition, into as few manifests as they fill. An entry
    keeps the snapshot and the sequence numbers that it had.
    """

    def kept_manifests(self) -> list[ManifestFile]:
        """The new manifests."""
        old = snapshots.manifests(self.parent, self.io) if self.parent else []
        made: list[ManifestFile] = []
        for spec_id, entries in self._live(old).items():
            entries.sort(key=lambda entry: (entry.data_file.partition[0], entry.data_file.file_path))
            made += [self._written(spec_id, group) for group in _groups(entries, old)]
        return made

    def _live(self, old: Sequence[ManifestFile]) -> dict[int, list[ManifestEntry]]:
        """The entries that stay, by partition spec."""
        live: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
        for manifest in old:
            for entry in snapshots.entries(manifest, self.io):
                if not self.removes(entry.data_file):
                    live[manifest.partition_spec_id].append(entry)
        return live

    def _written(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for entry in entries:
                writer.existing(entry)
        return writer.to_manifest_file()


def _groups(entries: list[ManifestEntry], old: Sequence[ManifestFile]) -> Iterator[list[ManifestEntry]]:
    """Cut the entries into manifests of about the wanted size, judged by how much an entry took until now."""
    described = sum(_entries_of(manifest) for manifest in old)
    each = max(1, MANIFEST_BYTES * described // max(1, sum(manifest.manifest_length for manifest in old)))
    for start in range(0, len(entries), each):
        yield entries[start : start + each]


def _entries_of(manifest: ManifestFile) -> int:
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    return sum(count or 0 for count in counts)
