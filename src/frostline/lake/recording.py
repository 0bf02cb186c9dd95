"""A lake commit as requirements and updates, for a catalog that writes the metadata itself.

`Recording` takes the place of `commit.Staging`: manifests are written, the metadata file is not. What would have led to
it is kept as a `TableChange`, which `transaction.commit_all` sends.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.table import (
    CommitTableRequest,
    CommitTableResponse,
    Table,
    TableIdentifier,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.lake import pyiceberg_compat
from frostline.lake.commit import Staging
from frostline.model.outcomes import Trace

COMMIT_ID = "frostline.commit-id"
"""A table property that tells a new table, and a commit without a snapshot, from those of others."""
_LAST_SCHEMA = SetCurrentSchemaUpdate.model_validate({"schema-id": -1})
"""Makes the one current that was added before."""


@dataclass(frozen=True)
class TableChange:
    """What one table gets in a commit, and what must still be true of it then."""

    identifier: tuple[str, ...]
    base: TableMetadata | None
    """What it was built on; None for a new table."""
    metadata: TableMetadata
    """What it leads to."""
    creation: tuple[TableUpdate, ...]
    """What makes a new table, empty."""
    updates: tuple[TableUpdate, ...]
    """What comes after that."""
    rules: tuple[TableRequirement, ...] = ()
    """What else must still be true of it."""

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return ".".join(f'"{part}"' if "." in part else part for part in self.identifier)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that is current afterwards."""
        return self.metadata.current_snapshot_id

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """A new table must not be there yet. Another one must be the same, and so must its current snapshot."""
        if self.base is None:
            return (AssertCreate(),)
        same_rows = {"ref": MAIN_BRANCH, "snapshot-id": main(self.base)}
        same_table = AssertTableUUID(uuid=self.base.table_uuid)
        return same_table, AssertRefSnapshotId.model_validate(same_rows), *self.rules

    def request(self) -> str:
        """The change as the REST protocol has it, in JSON."""
        return _request(self.identifier, self.requirements, (*self.creation, *self.updates))

    def creating(self) -> str:
        """Only what makes the new table, empty."""
        return _request(self.identifier, self.requirements, self.creation)

    def is_in(self, table: Table | None) -> bool:
        """Whether the table has what this change gives it, whatever has come after."""
        if table is None:
            return False
        if not _adds(self.updates):
            return self.marks(table)
        return shows(table.metadata, self.snapshot_id)

    def marks(self, table: Table) -> bool:
        """Whether the table has the mark of this change: catalogs may give a new table a uuid of their own."""
        return table.properties.get(COMMIT_ID) == self.metadata.properties[COMMIT_ID]

    @property
    def fits_creation(self) -> bool:
        """Whether every catalog would make the new table with these numbers.

        Some number the fields of a new table from 1, whatever they are told. In a table that is there they leave them.
        """
        fields = [field.field_id for field in self.metadata.schema().fields]
        return fields == list(range(1, len(fields) + 1)) and self.metadata.spec().is_unpartitioned()

    def numbering(self, created: TableMetadata) -> str:
        """What gives the new table, which is empty, the fields as they are numbered in its files."""
        to_empty = replace(self, base=created)
        next_id = 1 + max(schema.schema_id for schema in created.schemas)
        schema = self.metadata.schema().model_copy(update={"schema_id": next_id})
        updates = (AddSchemaUpdate.model_validate({"schema": schema}), _LAST_SCHEMA)
        return _request(self.identifier, to_empty.requirements, updates)


class Recording(Staging):
    """A catalog whose commit only remembers what it was asked for. For one table; its commits add up to one change."""

    began: TableMetadata | None = None
    updates: tuple[TableUpdate, ...] = ()

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Remember the updates, and say what they lead to."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        self.began = self.began or table.metadata
        self.updates += updates
        metadata = update_table_metadata(table.metadata, updates)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=table.metadata_location)

    def write(self, table: Table, metadata: TableMetadata) -> None:
        """A new table without rows has no file of metadata either: the catalog writes it."""

    def change(self, table: Table, base: TableMetadata | None) -> TableChange | None:
        """All that was remembered of the table; None if that is nothing. Without a base the table is a new one."""
        if base is not None and not self.updates:
            return None
        mark = {COMMIT_ID: str(self.commit)} if base is None or not _adds(self.updates) else {}
        metadata = _with_properties(table.metadata, mark)
        if base is None:
            began = _with_properties(self.began or table.metadata, mark)
            creation = pyiceberg_compat.creation(table.name(), began, table.io, table.catalog)
            return follows(TableChange(table.name(), base, metadata, creation, self.updates))
        return follows(TableChange(table.name(), base, metadata, (), _setting(self.updates, mark)))


def _adds(updates: Iterable[TableUpdate]) -> bool:
    """Whether there is a new snapshot, which tells a commit from all others."""
    return any(isinstance(update, AddSnapshotUpdate) for update in updates)


def _with_properties(metadata: TableMetadata, properties: dict[str, str]) -> TableMetadata:
    return metadata.model_copy(update={"properties": metadata.properties | properties})


def _setting(updates: tuple[TableUpdate, ...], properties: dict[str, str]) -> tuple[TableUpdate, ...]:
    """The updates with these properties too, all in one of them: there are catalogs that take no two."""
    if not properties:
        return updates
    others = tuple(update for update in updates if not isinstance(update, SetPropertiesUpdate))
    for update in updates:
        properties = update.updates | properties if isinstance(update, SetPropertiesUpdate) else properties
    return (*others, SetPropertiesUpdate(updates=properties))


def main(metadata: TableMetadata) -> int | None:
    """The snapshot that the main branch points to."""
    branch = metadata.refs.get(MAIN_BRANCH)
    return branch.snapshot_id if branch else None


def follows(change: TableChange) -> TableChange:
    """The change, if its new current snapshot descends from the base's.

    A catalog does not look: `set-snapshot-ref` takes any snapshot, and the rows of the one before would be gone.
    """
    parents = {
        update.snapshot.snapshot_id: update.snapshot.parent_snapshot_id
        for update in change.updates
        if isinstance(update, AddSnapshotUpdate)
    }
    current = main(change.base) if change.base else None
    for update in change.updates:
        if not isinstance(update, SetSnapshotRefUpdate) or update.ref_name != MAIN_BRANCH:
            continue
        if update.snapshot_id not in parents or parents[update.snapshot_id] != current:
            raise ConflictError(
                f"snapshot {update.snapshot_id} of {change.name} does not follow {current}, the current one",
                hint="run the command again",
            )
        current = update.snapshot_id
    return change


def shows(metadata: TableMetadata, snapshot_id: int | None) -> bool:
    """Whether a table has had the snapshot. A catalog may show the newest only, so a child is a sign of it too."""
    shown = {
        number for snapshot in metadata.snapshots for number in (snapshot.snapshot_id, snapshot.parent_snapshot_id)
    }
    return snapshot_id is not None and snapshot_id in shown


def trace(change: TableChange, table: Table | None) -> Trace:
    """What the table shows of a change whose requirements are that it is the same, and its branch where it was."""
    if table is None or change.base is None or table.metadata.table_uuid != change.base.table_uuid:
        return Trace.UNCLEAR
    if shows(table.metadata, change.snapshot_id):
        return Trace.HAS
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.metadata.snapshots}
    before, now = main(change.base), main(table.metadata)
    if now == before:
        return Trace.STANDS
    while now in parents and now != before:
        now = parents.pop(now)
    return Trace.PASSED if now == before else Trace.UNCLEAR


def rebased(change: TableChange, created: TableMetadata) -> TableChange:
    """The rest of a change whose new table has been made, empty. The catalog may have numbered the schema anew."""
    if not numbered_alike(change.metadata, created):
        raise UsageError(
            f"the catalog numbers the columns or partitions of {change.name} in its own way",
            hint="use a catalog that creates tables as they are given, or one that creates them inside a transaction",
        )
    updates = tuple(_with_schema(update, created.current_schema_id) for update in change.updates)
    return replace(change, base=created, creation=(), updates=updates)


def kept(change: TableChange, table: Table) -> Table:
    """The table, if the catalog kept the numbers of a new one; its files could not be read by others."""
    snapshot = table.metadata.snapshot_by_id(change.snapshot_id) if change.creation and change.snapshot_id else None
    if snapshot is None or snapshot.schema_id is None:
        return table
    schema = table.metadata.schema_by_id(snapshot.schema_id)
    if schema and schema.as_struct() == change.metadata.schema().as_struct() and table.spec() == change.metadata.spec():
        return table
    raise CorruptionError(
        f"the catalog has made {change.name} with other numbers of columns or partitions than it was given",
        hint="drop the table from the catalog, and tell its maker",
    )


def numbered_alike(metadata: TableMetadata, other: TableMetadata) -> bool:
    """Whether files of the one can be read as files of the other."""
    return metadata.schema().as_struct() == other.schema().as_struct() and metadata.spec() == other.spec()


def _with_schema(update: TableUpdate, schema_id: int) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate):
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"schema_id": schema_id}))


def _request(
    identifier: tuple[str, ...], requirements: Iterable[TableRequirement], updates: Iterable[TableUpdate]
) -> str:
    table = TableIdentifier.model_validate({"namespace": list(identifier[:-1]), "name": identifier[-1]})
    request = CommitTableRequest(identifier=table, requirements=tuple(requirements), updates=tuple(updates))
    parts = json.loads(request.model_dump_json())
    for update in parts["updates"]:
        if update["action"] == "add-schema":  # optional by now, and older servers cannot do without
            update["last-column-id"] = max((field["id"] for field in update["schema"]["fields"]), default=0)
    return json.dumps(parts)
