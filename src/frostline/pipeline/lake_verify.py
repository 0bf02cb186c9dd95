"""Verify a lake table: every file of its states is there, and has what the metadata says of it.

Nobody has recorded what a lake table's values were: any engine may commit to it. So this is what Iceberg's metadata
says of each file, and what readers rely on: sizes, rows, NULLs, field ids, partitions, and places of deleted rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog import lake_tables, lake_upkeep
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer
from frostline.errors import CorruptionError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import damage, lake_rows, parquet, paths, pg_types, snapshots, store
from frostline.model.tables import Column
from frostline.pipeline.verify import MISSING
from frostline.pipeline.verify_metadata import Fault

_LOOKS = 5
"""So many times the table may go on while it is read, so that what was missing had only expired."""
_arrow: Any = pa
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Report:
    """What was read, and what was wrong."""

    table: LakePointer
    files: int
    """Data and delete files."""
    rows: int
    """Of the data files, deleted ones among them."""
    faults: tuple[Fault, ...]


def run(connection: Connection, table: LakePointer, *, history: bool = False) -> Report:
    """Read every file of the table's current state; with `history` also of each earlier one that it keeps.

    Writers, readers and upkeep go on meanwhile.
    """
    former = frozenset(lake_upkeep.former(connection, table.id))
    for left in reversed(range(_LOOKS)):
        report = _Reading(table, former).report(history=history)
        reached(Failpoint.VERIFY_AFTER_FILES)
        now, known = lake_tables.by_id(connection, table.id), frozenset(lake_upkeep.former(connection, table.id))
        if not left or not report.faults or (now.metadata_location, known) == (table.metadata_location, former):
            return report
        table, former = now, known
    raise AssertionError


class _Reading:
    """Reads each file of a table once."""

    def __init__(self, table: LakePointer, former: AbstractSet[str]) -> None:
        self.table, self.former = table, former
        self.faults: list[Fault] = []
        self.data: dict[str, DataFile] = {}
        """By what DuckDB calls them, as for `deletes`."""
        self.deletes: dict[str, DataFile] = {}
        self.manifests: set[str] = set()

    def report(self, *, history: bool) -> Report:
        """Read them, in the order in which they lead to each other."""
        location = self.table.metadata_location
        metadata = self._read(location, None, lambda: snapshots.metadata_now(location))
        if metadata is not None:
            for where in self._earlier(metadata) if history else ():
                self._read(where, None, lambda where=where: snapshots.metadata_now(where))
            for snapshot in _chosen(metadata, history=history):
                self._follow(metadata, snapshot)
            sources = _Sources.of(metadata)
            for file in self.data.values():
                self._look_at_data(file, sources)
            for file in self.deletes.values():
                self._look_at_deletes(file)
        files = len(self.data) + len(self.deletes)
        rows = sum(file.record_count for file in self.data.values())
        return Report(self.table, files, rows, tuple(self.faults))

    def _earlier(self, metadata: TableMetadata) -> Iterable[str]:
        """The metadata files that it names, but for those that an expiry has deleted without a commit."""
        return [entry.metadata_file for entry in metadata.metadata_log if entry.metadata_file in self.former]

    def _fault(self, where: str, what: str) -> None:
        self.faults.append(Fault(where, what))

    def _read(self, path: str, size_bytes: int | None, read: Callable[[], _Read]) -> _Read | None:
        """What `read` makes of a file of this size; None, and a fault, if it cannot."""
        with store.reachable(f"read {path}"):
            actual = paths.size_bytes(path)
        if actual is None:
            self._fault(path, MISSING)
        elif size_bytes is not None and actual != size_bytes:
            self._fault(path, f"has {actual} bytes instead of {size_bytes}")
        else:
            try:
                with damage.parsing(f"file {path}"):
                    return read()
            except CorruptionError as error:
                self._fault(path, f"cannot be read: {error.message.partition(' is damaged: ')[2] or error.message}")
        return None

    def _follow(self, metadata: TableMetadata, snapshot: Snapshot) -> None:
        """Find the files of a snapshot that are not known yet."""
        io = paths.file_io(self.table.metadata_location)
        listed = self._read(snapshot.manifest_list, None, lambda: snapshots.manifests(snapshot, io))
        for manifest in listed or ():
            path = manifest.manifest_path
            if path in self.manifests:
                continue
            self.manifests.add(path)
            entries = self._read(path, manifest.manifest_length, lambda of=manifest: snapshots.entries(of, io))
            for entry in entries or ():
                self._take(metadata, manifest, entry.data_file)

    def _take(self, metadata: TableMetadata, manifest: ManifestFile, file: DataFile) -> None:
        file.spec_id = manifest.partition_spec_id
        kinds = {DataFileContent.DATA: self.data, DataFileContent.POSITION_DELETES: self.deletes}
        if file.content not in kinds or file.file_format != "PARQUET":
            self._fault(file.file_path, f"is a file of {file.content.name} in {file.file_format}, which is not served")
        elif not paths.is_inside(file.file_path, metadata.location.rstrip("/")):
            self._fault(file.file_path, f"is not in the table's folder {metadata.location}, so it is not served")
        else:
            kinds[file.content][lake_rows.local(file.file_path)] = file

    def _look_at_data(self, file: DataFile, sources: "_Sources") -> None:
        path = file.file_path
        content = self._read(path, file.file_size_in_bytes, lambda: _Content.of(path, sources.of_file(file)))
        if content is None:
            return
        if content.rows != file.record_count:
            self._fault(path, f"has {content.rows} rows instead of {file.record_count}")
        for field_id, nulls in content.nulls.items():
            told: int = (file.null_value_counts or {}).get(field_id, nulls)
            if told != nulls:
                self._fault(path, f"has {nulls} NULLs in the column with field id {field_id} instead of {told}")
        for place, values in content.partition.items():
            if values - {lake_rows.value_key(file.partition[place])}:
                self._fault(path, f"has rows of other partitions than {file.partition[place]!r}")

    def _look_at_deletes(self, file: DataFile) -> None:
        path = file.file_path
        read = self._read(
            path, file.file_size_in_bytes, lambda: (parquet.rows(path), list(lake_rows.read_deletes(path).items()))
        )
        if read is None:
            return
        rows, named = read
        if rows != file.record_count:
            self._fault(path, f"has {rows} rows instead of {file.record_count}")
        for name, places in named:
            data = self.data.get(lake_rows.local(name))
            if data is None:
                continue  # it was written anew
            if not 0 <= min(places) <= max(places) < data.record_count:
                self._fault(path, f"names row {max(places)} of {name}, which has {data.record_count}")
            if lake_rows.partition_key(data) != lake_rows.partition_key(file):
                self._fault(path, f"is in another partition than {name}, whose rows it names: engines may show them")


def _chosen(metadata: TableMetadata, *, history: bool) -> Iterable[Snapshot]:
    current = metadata.current_snapshot()
    if history:
        return metadata.snapshots
    return () if current is None else (current,)


@dataclass(frozen=True)
class _Source:
    """What a value of a file's partition is made of."""

    column: Column
    transform: Any

    def values(self, read: Any) -> set[tuple[str, Any]] | None:
        """The partition values of these rows; None for a type of file whose values are not to be judged here."""
        try:
            kind: Any = lake_rows.arrow_schema([self.column], ["c"])
            values = _arrow.chunked_array([read.cast(kind.field(0).type)])
            made = lake_rows.partition_values(self.transform, self.column, values)
            return {lake_rows.value_key(value) for value in made.unique().to_pylist()}
        except (pa.ArrowException, ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True)
class _Sources:
    """What the partitions of a table's files are made of."""

    metadata: TableMetadata
    columns: Mapping[int, Column]
    """By field id."""

    @classmethod
    def of(cls, metadata: TableMetadata) -> "_Sources":
        """Nothing, where a column has a type that Postgres has not."""
        try:
            columns = pg_types.columns(metadata)
        except FrostlineError:
            columns = ()
        return cls(metadata, {column.field_id: column for column in columns})

    def of_file(self, file: DataFile) -> dict[int, _Source]:
        """By the place in the file's partition."""
        fields = enumerate(self.metadata.specs()[file.spec_id].fields)
        return {
            place: _Source(self.columns[field.source_id], cast(Any, field).transform)
            for place, field in fields
            if field.source_id in self.columns
        }


@dataclass(frozen=True)
class _Content:
    """What a data file has."""

    rows: int
    nulls: Mapping[int, int]
    """By field id."""
    partition: Mapping[int, AbstractSet[tuple[str, Any]]]
    """The values that its rows have, by the place in the partition."""

    @classmethod
    def of(cls, path: str, sources: Mapping[int, _Source]) -> "_Content":
        """Reads and decodes all of it. CorruptionError for a file whose columns have no field ids."""
        if not parquet.has_field_ids(path):
            raise damage.damaged(f"file {path}", "its columns have no field ids")
        rows, nulls, partition = 0, dict[int, int](), dict[int, set[tuple[str, Any]]]()
        for batch in parquet.batches(path):
            rows += len(next(iter(batch.values())))
            for field_id, values in batch.items():
                nulls[field_id] = nulls.get(field_id, 0) + values.null_count
            for place, values in _partition(batch, sources):
                partition.setdefault(place, set()).update(values)
        return cls(rows, nulls, partition)


def _partition(batch: Mapping[int, Any], sources: Mapping[int, _Source]) -> Iterator[tuple[int, set[tuple[str, Any]]]]:
    for place, source in sources.items():
        read = batch.get(source.column.field_id)
        values = None if read is None else source.values(read)
        if values is not None:
            yield place, values
