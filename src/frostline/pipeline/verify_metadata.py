"""Verify: the metadata of a lake's current state, each file read anew, whatever this process remembers."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from frostline.errors import CorruptionError
from frostline.lake import checksums, paths, snapshots
from frostline.model.tables import Checksum, RecordedFile, Seam, Table


@dataclass(frozen=True)
class Fault:
    """Something that is not what it must be."""

    where: str
    """A file of the lake, or a partition of the heap."""
    what: str


@dataclass
class Metadata:
    """What was found while the metadata was read."""

    locations: list[str] = field(default_factory=list[str])
    """Metadata file, manifest list, manifests: as far as they could be read."""
    held: list[str] = field(default_factory=list[str])
    """The data files of the snapshot."""
    fault: Fault | None = None

    @classmethod
    def of(cls, table: Table, seam: Seam) -> "Metadata":
        """Read the state that the seam names. UnavailableError when a file is not there: perhaps nothing is."""
        metadata = cls()
        try:
            metadata._read(table, seam)
        except CorruptionError as error:
            said = str(error.args[0])
            reason = said.partition(" is damaged: ")[2] or said
            metadata.fault = Fault(metadata.locations[-1], f"is damaged: {reason}")
        return metadata

    def _read(self, table: Table, seam: Seam) -> None:
        if seam.metadata_location is None:
            return
        self.locations.append(seam.metadata_location)
        metadata = snapshots.metadata_now(seam.metadata_location)
        if seam.snapshot_id is None:
            return
        snapshot = metadata.snapshot_by_id(seam.snapshot_id)
        if snapshot is None:
            raise CorruptionError(f"it does not have snapshot {seam.snapshot_id}")
        self.locations.append(snapshot.manifest_list)
        io = paths.file_io(seam.metadata_location)
        for manifest in snapshots.manifests(snapshot, io):
            self.locations.append(manifest.manifest_path)
            for entry in snapshots.entries(manifest, io):
                snapshots.tier_range(entry.data_file, table.column(table.tier_key).field_id)
                self.held.append(entry.data_file.file_path)

    def faults(self, recorded: Sequence[RecordedFile]) -> Iterator[Fault]:
        """What is wrong with it, or else with the files that it names."""
        if self.fault is not None:
            yield self.fault
        else:
            yield from strangers(recorded, self.held)

    def checksums(self) -> dict[str, Checksum]:
        """Of its files, to be recorded where they are not yet."""
        return checksums.of_metadata(self.locations)


def strangers(recorded: Sequence[RecordedFile], held: Collection[str]) -> Iterator[Fault]:
    """The lake's snapshot must be made of exactly the recorded files."""
    known = {file.path for file in recorded}
    for path in sorted(set(held) - known):
        yield Fault(path, "is in the lake snapshot but was never recorded")
    for path in sorted(known - set(held)):
        yield Fault(path, "is recorded but not in the lake snapshot")
