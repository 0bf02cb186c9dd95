"""An Iceberg commit as a value: every file of it is written, and nothing points to it yet.

`stage` writes manifests, the manifest list and the new table metadata; `stage_expiry` only metadata, without some
snapshots. The commit itself, moving the catalog's pointer from `previous_location` to `metadata_location`, is the
caller's, inside its own Postgres transaction. If that never happens, the staged files are garbage for the orphan sweep.

`stage_copy` does the same for a table's copy in a named snapshot: each version overwrites all its files, and its schema
follows the table. What becomes of the requirements and updates of that commit is the staging's: the built-in
one writes them as a metadata file, another may send them to a catalog.
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableRequirement, TableUpdate, update_table_metadata

from frostline.errors import CorruptionError
from frostline.lake import checksums, datafiles, expected, paths, pyiceberg_compat, schema, snapshots, store, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.lake.manifests import Packing
from frostline.lake.pyiceberg_compat import CachingTransaction, ReplaceFiles, SnapshotProducer
from frostline.model import tables
from frostline.model.range import Range
from frostline.model.tables import Checksum
from frostline.model.upkeep import Expiry

JOB_ID = "frostline.job-id"
"""In a snapshot's summary: the job that made it."""
SNAPSHOT = "frostline.snapshot"
"""In the summary of an Iceberg snapshot: the named snapshot that it belongs to."""
VERSION = "frostline.snapshot-version"
DATABASE = "frostline.database"
"""The lineage of the database that it is a copy of: others may use the same name in the same catalog."""
WAREHOUSE_IDENTITY = "frostline.warehouse-identity"
"""A table property, as the next three: which database's lake it is, as the marker in the warehouse has it."""
COLUMNS = "frostline.columns"
"""The Postgres types of the columns, by field id, in JSON: a lake that is adopted without a catalog needs them."""
KEY = "frostline.primary-key"
"""The field ids of the primary key, in JSON."""
MISSING = "frostline.missing-values"
"""What files that lack a field have in it, by field id, in JSON."""
_VERSION = re.compile(r".*/(\d+)-[0-9a-f-]{36}\.metadata\.json")


class Rows(Enum):
    """What a new snapshot has of the one before it."""

    OTHERS = auto()
    """Rows have come or gone."""
    SAME = auto()
    """The same rows in other files."""
    SAME_PACKED = auto()
    """The same rows, and as few manifests as possible."""


@dataclass(frozen=True)
class StagedCommit:
    """A state of a lake table that is ready to become the current one."""

    namespace: str
    table_name: str
    previous_location: str | None
    """The metadata this was built on, which the catalog must still point to; None for a new table."""
    metadata_location: str
    snapshot_id: int | None
    """None for a table that has never had a row."""
    manifests: int = 0
    """How many the snapshot has."""
    checksums: Mapping[str, Checksum] = field(default_factory=dict[str, Checksum], hash=False)
    """Of the metadata files that were written for it, by location."""

    @property
    def changes(self) -> bool:
        """Whether there is a pointer to move."""
        return self.metadata_location != self.previous_location


def stage(
    table: tables.Table,
    *,
    location: str,
    base: str | None,
    add: Sequence[WrittenFile],
    replace: tuple[int, int] | frozenset[str] | None,
    summary: Mapping[str, str],
    rows: Rows = Rows.OTHERS,
) -> StagedCommit:
    """Write a new state of the lake table: the base's files, without the replaced ones, with the added ones.

    `base` is the current metadata location, or None to create the table. `replace` is a range [lower, upper) of the
    tier axis, or a set of file paths. `summary` goes into the snapshot. Touches no catalog; can be repeated at will.
    """
    warehouse.check()
    staging = Staging(paths.commit_uuid(int(summary.get(JOB_ID, "0"))))
    current = _opened(table, base, staging) if base else _created(table, location, staging)
    removed = (
        _inside(table, current, replace) if isinstance(replace, tuple) else _named(current, replace or frozenset())
    )
    with store.reachable(f"write the lake's metadata of {table.name}"):
        if rows is not Rows.OTHERS:
            _write_same_rows(table, current, add, removed, summary, packed=rows is Rows.SAME_PACKED)
        elif add or removed:
            _write_snapshot(table, current, add, removed, summary)
        elif not base:
            staging.write(current, current.metadata)
    return _staged(table, current, base)


def stage_copy(
    table: tables.StoredTable,
    identifier: tuple[str, ...],
    base: tuple[str, TableMetadata] | str,
    add: Sequence[WrittenFile],
    summary: Mapping[str, str],
    staging: "Staging",
) -> Table:
    """Write a new version of the copy: these files and no others. Gives back the table as it is then.

    `base` is the metadata it goes on from with its location, or for a new table the folder to be in. Touches no
    catalog; can be repeated at will.
    """
    warehouse.check()
    if isinstance(base, str):
        paths.make_parent(f"{base}/metadata/")
        current = Table(identifier, new_metadata(table, base, {}), "", paths.file_io(base), staging)
    else:
        location, metadata = base
        current = Table(identifier, metadata, location, paths.file_io(location), staging)
    with store.reachable(f"write the lake's metadata of {table.name}"):
        removed = list(snapshots.data_files(current.current_snapshot(), current.io))
        transaction = current.transaction()
        schema.follow(transaction, schema.iceberg_schema(table))
        update = transaction.update_snapshot(snapshot_properties=dict(summary))
        with update.overwrite() if removed else update.fast_append() as producer:
            _exchange(table, current, producer, add, removed)
        transaction.commit_transaction()
    return current


def stage_expiry(table: tables.Table, base: str, what: Expiry, job_id: int) -> StagedCommit:
    """Write the lake's metadata without these snapshots, and without the names of metadata files that go.

    Touches no catalog and no other file; can be repeated at will.
    """
    warehouse.check()
    staging = Staging(paths.commit_uuid(job_id))
    current = _opened(table, base, staging)
    kept = [entry for entry in current.metadata.metadata_log if entry.metadata_file not in what.locations]
    pruned = current.metadata.model_copy(update={"metadata_log": kept})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(what.snapshots)})
    metadata = _with_honest_log(update_table_metadata(pruned, (removal,), metadata_location=base), pruned, what)
    with store.reachable(f"write the lake's metadata of {table.name}"):
        staging.write(current, metadata)
    return _staged(table, current, base)


def _with_honest_log(metadata: TableMetadata, before: TableMetadata, what: Expiry) -> TableMetadata:
    """The log of snapshots from after the last that went: through a gap in it, a moment would find the wrong one."""
    gone = [entry.timestamp_ms for entry in before.snapshot_log if entry.snapshot_id in what.snapshots]
    kept = [entry for entry in metadata.snapshot_log if entry.timestamp_ms > max(gone, default=-1)]
    return metadata.model_copy(update={"snapshot_log": kept})


def stage_takeover(table: tables.Table, base: str) -> StagedCommit:
    """Write the lake's metadata as that of a table of this database, whose catalog does not know it yet.

    Touches no catalog and no other file; can be repeated at will.
    """
    warehouse.check()
    current = _opened(table, base, Staging(paths.commit_uuid(0)))
    with store.reachable(f"write the lake's metadata of {table.name}"):
        transaction = current.transaction()
        transaction.set_properties(_own_properties(table))
        transaction.commit_transaction()
    return replace(_staged(table, current, base), previous_location=None)


def _own_properties(table: tables.Table) -> dict[str, str]:
    """What the catalog knows of the lake, and must not be lost with it. No key or password: others read it."""
    marker = warehouse.in_use()
    return {
        "frostline.table-id": str(table.id),
        COLUMNS: json.dumps({str(column.field_id): column.pg_type.formatted for column in table.columns}),
        KEY: json.dumps([table.column(name).field_id for name in table.key]),
        MISSING: json.dumps(
            {str(column.field_id): column.missing for column in table.columns if column.missing is not None}
        ),
        **({WAREHOUSE_IDENTITY: marker.identity} if marker else {}),
    }


def _describe(transaction: Transaction, table: tables.Table) -> None:
    """Let the properties say what they must, where they do not yet."""
    wanted = _own_properties(table)
    if not wanted.items() <= transaction.table_metadata.properties.items():
        transaction.set_properties(wanted)


def _staged(table: tables.Table, current: Table, base: str | None) -> StagedCommit:
    """The commit that would make what was written last the current state."""
    snapshot = current.current_snapshot()
    manifests = snapshots.manifests(snapshot, current.io) if snapshot else []
    lists = [snapshot.manifest_list] if snapshot else []
    written = [current.metadata_location, *lists, *(manifest.manifest_path for manifest in manifests)]
    return StagedCommit(
        namespace=table.lake_name.schema,
        table_name=table.internal,
        previous_location=base,
        metadata_location=current.metadata_location,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        manifests=len(manifests),
        checksums=_own_checksums(current, written) if current.metadata_location != base else {},
    )


def _own_checksums(current: Table, locations: Sequence[str]) -> dict[str, Checksum]:
    """Of those files that this very commit has written, as their names tell. They are compared from now on."""
    assert isinstance(current.catalog, Staging)
    name = str(current.catalog.commit)
    own = checksums.of_metadata([location for location in locations if name in location.rpartition("/")[2]])
    expected.add({location: checksum.sha256 for location, checksum in own.items()})
    return own


class Staging(NoopCatalog):
    """A catalog whose commit only writes the new metadata file. All its files have the commit's name in theirs."""

    def __init__(self, commit: uuid.UUID) -> None:
        super().__init__("frostline")
        self.commit = commit

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the metadata that the updates lead to."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location or None)
        self.write(table, metadata)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=table.metadata_location)

    def write(self, table: Table, metadata: TableMetadata) -> None:
        """Write a new metadata file, whose number follows the one of the table's last."""
        location = self.next_location(metadata, self.commit, table.metadata_location)
        ToOutputFile.table_metadata(metadata, table.io.new_output(location))
        table.metadata_location = location

    @staticmethod
    def next_location(metadata: TableMetadata, commit: uuid.UUID, previous: str) -> str:
        """Where the metadata file of this commit goes: its number follows the previous one's."""
        numbered = _VERSION.fullmatch(previous)
        provider = load_location_provider(metadata.location, metadata.properties)
        version = int(numbered[1]) + 1 if numbered else 0
        return provider.new_metadata_location(f"{version:05}-{commit}.metadata.json")


def _identifier(table: tables.Table) -> tuple[str, str]:
    return table.name.schema, table.name.table


def _opened(table: tables.Table, base: str, staging: Staging) -> Table:
    """The table as the base has it, with our own partition spec in its equal's place: it can name every day."""
    metadata = snapshots.read_metadata(base)
    ours = schema.partition_spec(table)
    specs = [ours if spec == ours else spec for spec in metadata.partition_specs]
    metadata = metadata.model_copy(update={"partition_specs": specs})
    return Table(_identifier(table), metadata, base, paths.file_io(base), staging)


def _created(table: tables.Table, location: str, staging: Staging) -> Table:
    metadata = new_metadata(table, location, _own_properties(table))
    return Table(_identifier(table), metadata, "", paths.file_io(location), staging)


def new_metadata(table: tables.StoredTable, location: str, properties: Mapping[str, str]) -> TableMetadata:
    """A table without snapshots, whose rows change by new files alone."""
    lake_schema, spec, order = schema.iceberg_schema(table), schema.partition_spec(table), schema.sort_order(table)
    return schema.empty_metadata(lake_schema, spec, order, location, "copy-on-write", properties)


def _inside(table: tables.Table, current: Table, replace: tuple[int, int]) -> list[DataFile]:
    """The current data files whose rows lie in the range; none may lie on its edge."""
    lower, upper = replace
    wanted = Range(lower, upper)
    removed: list[DataFile] = []
    manifests = partial(snapshots.may_hold, table, wanted)
    for data_file in snapshots.data_files(current.current_snapshot(), current.io, manifests):
        smallest, largest = snapshots.tier_range(data_file, table.column(table.tier_key).field_id)
        values = Range.closed(smallest, largest)
        if not wanted.overlaps(values):
            continue
        if not wanted.covers(values):
            raise CorruptionError(
                f"lake file {data_file.file_path} has tier values {smallest} to {largest}, "
                f"on both sides of the range [{lower}, {upper}) that is to be replaced"
            )
        removed.append(data_file)
    return removed


def _named(current: Table, replace: frozenset[str]) -> list[DataFile]:
    """The current data files of these paths; all of them must be there."""
    files = [file for file in snapshots.data_files(current.current_snapshot(), current.io) if file.file_path in replace]
    if len(files) != len(replace):
        missing = sorted(replace - {file.file_path for file in files})
        raise CorruptionError(f"{missing[0]} is not in the lake snapshot that it is to be replaced in")
    return files


def _write_snapshot(
    table: tables.Table,
    current: Table,
    add: Sequence[WrittenFile],
    removed: Sequence[DataFile],
    summary: Mapping[str, str],
) -> None:
    transaction = CachingTransaction(current)
    schema.follow(transaction, schema.iceberg_schema(table))
    _describe(transaction, table)
    update = transaction.update_snapshot(snapshot_properties=dict(summary))
    with update.overwrite() if removed else update.fast_append() as producer:
        _exchange(table, current, producer, add, removed)
    transaction.commit_transaction()


def _exchange(
    table: tables.StoredTable,
    current: Table,
    producer: SnapshotProducer,
    add: Sequence[WrittenFile],
    removed: Sequence[DataFile],
) -> None:
    """Put the files into a snapshot that is being made, and take the removed ones out of it."""
    assert isinstance(current.catalog, Staging)
    producer.commit_uuid = current.catalog.commit
    pyiceberg_compat.judge_each_manifest_by_itself(producer)
    for data_file in removed:
        producer.delete_data_file(data_file)
    for written in add:
        producer.append_data_file(datafiles.to_data_file(written, table))


def _write_same_rows(
    table: tables.Table,
    current: Table,
    add: Sequence[WrittenFile],
    removed: Sequence[DataFile],
    summary: Mapping[str, str],
    *,
    packed: bool,
) -> None:
    """A snapshot of the same rows; CorruptionError if it has other files than it must, or another number of rows."""
    meant = {file.file_path for file in snapshots.data_files(current.current_snapshot(), current.io)}
    meant = meant - {file.file_path for file in removed} | {file.path for file in add}
    transaction = CachingTransaction(current)
    schema.follow(transaction, schema.iceberg_schema(table))
    _describe(transaction, table)
    snapshot = Packing if packed else ReplaceFiles
    with snapshot(transaction, dict(summary), current.io) as producer:
        _exchange(table, current, producer, add, removed)
    transaction.commit_transaction()
    held = [file.file_path for file in snapshots.data_files(current.current_snapshot(), current.io)]
    if sum(file.record_count for file in removed) != sum(file.rows for file in add) or sorted(held) != sorted(meant):
        raise CorruptionError(f"the new lake snapshot of {table.name} does not have the rows of the one before it")
