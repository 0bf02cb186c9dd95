"""A commit of other files with the same rows to a lake table, for compaction.

It is staged upon one state, and touches no catalog. Whoever was faster makes the pointer's move fail; then the same is
staged again upon what is there.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Operation

from frostline.lake import lake_commit, lake_format, lake_rows, lake_table, paths, store
from frostline.lake.lake_commit import Added, Draft, Staged
from frostline.lake.lake_table import State
from frostline.model.lake_upkeep import KeptFile

_ENTRIES = 20_000
"""That one manifest has: a few megabytes."""


class Worn(NamedTuple):
    """What the delete files of a state say."""

    gone: Mapping[str, int]
    """How many rows of a data file are named, by its path."""
    deletes: Mapping[str, Collection[str]]
    """The delete files that name a data file, by its path."""
    idle: Collection[str]
    """The delete files that name no data file of the state."""


def worn(state: State) -> Worn:
    """Reads the delete files that nobody has read before: they never change, so what they say is remembered."""
    known = {lake_rows.local(path): path for path in state.data}
    gone, deletes, idle = defaultdict[str, int](int), defaultdict[str, list[str]](list), list[str]()
    for location in state.deletes:
        named = {known[path]: rows for path, rows in lake_rows.count_deletes(location).items() if path in known}
        for path, rows in named.items():
            gone[path] += rows
            deletes[path].append(location)
        if not named:
            idle.append(location)
    return Worn(gone, deletes, idle)


def kept_files(state: State, wear: Worn) -> list[KeptFile]:
    """The data files of a state, the oldest first."""
    return [
        KeptFile(
            path,
            file.file_size_in_bytes,
            file.record_count,
            wear.gone.get(path, 0),
            lake_rows.partition_key(file),
        )
        for path, file in reversed(list(state.data.items()))
    ]


def manifest_sizes(state: State) -> list[int]:
    """The sizes of the manifests of a state, in bytes."""
    return [manifest.manifest_length for manifest in state.manifests]


def stage(
    lake_table_id: int, base: State, added: Sequence[DataFile], removed: Collection[str], *, pack: bool
) -> Staged:
    """Write the metadata of the base with these files in the place of others that have the same rows.

    With `pack` all manifests are written anew, else those that name a removed file. Entries that stay keep their
    sequence numbers, so deletes go on applying to what they applied to.
    """
    metadata = lake_format.written(base.metadata)
    parent = metadata.current_snapshot()
    assert parent is not None, "there is something to replace"
    draft = Draft(uuid.uuid4(), metadata.new_snapshot_id(), metadata.last_sequence_number + 1)
    with store.reachable(f"write the lake's metadata in {metadata.location}/metadata"):
        new = Added(list(added))
        made, written = lake_commit.new_manifests(base, new, draft)
        kept, changed = list[ManifestFile](), defaultdict[tuple[ManifestContent, int], list[ManifestEntry]](list)
        for manifest in lake_commit.live_manifests(base):
            entries = lake_table.entries(manifest)
            if pack or any(entry.data_file.file_path in removed for entry in entries):
                changed[manifest.content, manifest.partition_spec_id] += entries
            else:
                kept.append(manifest)
        for location, manifest in _written(base, draft, changed, removed):
            written.append(location)
            made.append(manifest)
        gone = [[file for path, file in files.items() if path in removed] for files in (base.data, base.deletes)]
        summary = lake_commit.told(Operation.REPLACE, parent, new, Added(*gone))
        return lake_commit.committed(lake_table_id, base, draft, [*made, *kept], written, summary, new, removed)


def _written(
    base: State,
    draft: Draft,
    changed: Mapping[tuple[ManifestContent, int], Sequence[ManifestEntry]],
    removed: Collection[str],
) -> Iterator[tuple[str, ManifestFile]]:
    """Manifests with these entries: as they were, or as removed by this commit."""
    io = paths.file_io(base.location)
    groups = (
        (content, spec_id, entries[start : start + _ENTRIES])
        for (content, spec_id), entries in changed.items()
        for start in range(0, len(entries), _ENTRIES)
    )
    for number, (content, spec_id, entries) in enumerate(groups):
        location = f"{base.metadata.location}/metadata/{draft.commit}-kept-{number}.avro"
        with lake_commit.manifest_writer(content, spec_id, base.metadata, io.new_output(location), draft.id) as writer:
            for entry in entries:
                (writer.delete if entry.data_file.file_path in removed else writer.existing)(entry)
        yield location, writer.to_manifest_file()
