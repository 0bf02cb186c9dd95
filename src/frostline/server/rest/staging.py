"""A commit of a client as a value: its requirements hold, its updates are applied, and nothing points to its metadata.

PyIceberg checks and applies. What it would let pass and we do not: another folder or uuid for a table that has one,
files outside the table's folder, and a format that our own readers do not know.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from frostline.catalog.connect import first_line
from frostline.catalog.namespaces import Entry
from frostline.catalog.pointers import Pointer
from frostline.lake import paths, store, warehouse
from frostline.server.rest import answers
from frostline.server.rest.answers import Call, Refused

MOST_FORMAT = 2
"""The newest format that the lake server, the jobs and the tested engines all read."""
_VERSION = re.compile(r".*/(\d{1,9})-[^/]*\.metadata\.json")
_OLD_SEQUENCE = "older than last sequence number"
_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


class Identifier(BaseModel):
    """A table as the protocol names it."""

    namespace: list[str]
    name: str

    @property
    def pointer(self) -> Pointer:
        """As the catalog does."""
        return answers.pointer_of(self.namespace, self.name)


class Change(BaseModel):
    """What a client wants of one table."""

    identifier: Identifier | None = None
    requirements: list[TableRequirement] = []
    updates: list[TableUpdate] = []


class Changes(BaseModel):
    """What a client wants of many tables at once."""

    table_changes: list[Change] = Field(alias="table-changes", min_length=1)


@dataclass(frozen=True)
class Staged:
    """A state of a table that is ready to become the current one."""

    pointer: Pointer
    table: TableMetadata
    content: bytes
    """Its metadata, as in the file."""
    location: str
    """Of the metadata file."""
    entry: Entry | None
    """What the catalog has now; None for a table that is to be made."""

    @property
    def changes(self) -> bool:
        """Whether there is anything new; if not, there is no new file either."""
        return self.entry is None or self.location != self.entry.metadata_location

    def discard(self) -> None:
        """Delete the file: it is sure that nothing points to it, and never will."""
        if self.changes:
            paths.delete(self.location)


def stage(call: Call, pointer: Pointer, change: Change) -> Staged:
    """Check and apply, and write the metadata. Refused when a requirement fails or an update makes no sense."""
    current = call.service.current(call.connection, call.caller, pointer)
    if current is None and not any(isinstance(each, AssertCreate) for each in change.requirements):
        raise answers.no_table(pointer)
    entry, content = current or (None, b"")
    if entry is not None:
        require_writable(call, pointer, entry)
    base = parsed(content) if entry is not None else None
    for requirement in change.requirements:
        try:
            requirement.validate(base)
        except CommitFailedException as error:
            raise Refused(409, "CommitFailedException", f"{'.'.join(pointer)}: {first_line(error)}") from None
    if entry is not None and not change.updates:
        assert base is not None
        return Staged(pointer, base, content, entry.metadata_location, entry)
    new = _applied(call, pointer, base, change.updates, entry)
    return write(pointer, new, entry)


def require_writable(call: Call, pointer: Pointer, entry: Entry) -> None:
    """Refuse a table that is not for others to change, and say whose it is."""
    name = ".".join(pointer)
    if entry.kind == "tiered":
        raise answers.forbidden(
            f"only Frostline commits to {name}: it is the lake of {entry.belongs_to}; write to that table, in Postgres"
        )
    if entry.kind == "copy":
        raise answers.forbidden(f"only Frostline commits to {name}: it belongs to {entry.belongs_to}")
    if entry.kind == "other":
        raise answers.forbidden(f"{name} is not a lake table: somebody has put it into the catalog by another way")
    if not entry.is_writable:
        raise answers.forbidden(
            f"role {call.caller.role_name} may not insert, update and delete in {entry.belongs_to}, as a commit may"
        )


def parsed(content: bytes) -> TableMetadata:
    """Metadata as PyIceberg understands it."""
    try:
        return TableMetadataUtil.parse_raw(content.decode())
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise answers.bad_request(f"the table's metadata cannot be understood: {first_line(error)}") from None


def _applied(
    call: Call, pointer: Pointer, base: TableMetadata | None, updates: Sequence[TableUpdate], entry: Entry | None
) -> TableMetadata:
    wanted = list(updates)
    if base is None and not any(isinstance(update, SetLocationUpdate) for update in wanted):
        place = paths.new_lake_table(call.service.settings.warehouse, *pointer)
        wanted.append(SetLocationUpdate(location=place))
    begin = base or TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())  # as PyIceberg begins one
    before = entry.metadata_location if entry else None
    try:
        kept = tuple(_sensible(begin, wanted))
        new = update_table_metadata(begin, kept, enforce_validation=base is None, metadata_location=before)
    except (ValidationError, ValueError, KeyError, TypeError, NotImplementedError, AttributeError) as error:
        if _OLD_SEQUENCE in str(error):  # somebody else has added a snapshot meanwhile, to another branch
            raise Refused(409, "CommitFailedException", first_line(error)) from None
        raise answers.bad_request(f"{'.'.join(pointer)} cannot be changed so: {first_line(error)}") from None
    check(call, pointer, new, base)
    return new


def _sensible(base: TableMetadata, updates: Sequence[TableUpdate]) -> list[TableUpdate]:
    """PyIceberg fails when a property is to go that is not there; the protocol does not."""
    known, kept = set(getattr(base, "properties", {})), list[TableUpdate]()
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            known |= set(update.updates)
        if isinstance(update, RemovePropertiesUpdate):
            kept.append(RemovePropertiesUpdate(removals=[key for key in update.removals if key in known]))
        elif not (isinstance(update, AssignUUIDUpdate) and update.uuid == getattr(base, "table_uuid", None)):
            kept.append(update)
        if isinstance(update, AddSnapshotUpdate) and not update.snapshot.manifest_list:
            raise ValueError("a snapshot needs a manifest list")
    return kept


def check(call: Call, pointer: Pointer, new: TableMetadata, base: TableMetadata | None) -> None:
    """Refuse metadata that would let a table out of its folder, or be of a format that we do not read."""
    if new.format_version > MOST_FORMAT:
        raise answers.bad_request(f"format {new.format_version} is not supported: {MOST_FORMAT} is the newest one here")
    if base is None:
        check_folder(call, pointer, new.location)
    elif (new.location, new.table_uuid) != (base.location, base.table_uuid):
        raise answers.bad_request(f"{'.'.join(pointer)} keeps its location {base.location} and its uuid")
    old = {snapshot.snapshot_id for snapshot in base.snapshots} if base else set[int]()
    places = [new.properties.get(key) for key in _PLACES]
    places += [snapshot.manifest_list for snapshot in new.snapshots if snapshot.snapshot_id not in old]
    for place in filter(None, places):
        if not paths.is_inside(place, new.location):
            raise answers.bad_request(f"{place} is not in the table's folder {new.location}")


def check_folder(call: Call, pointer: Pointer, folder: str) -> None:
    """Refuse a folder that is not one for lake tables: our server writes into it."""
    root = paths.lake_tables_root(call.service.settings.warehouse)
    if not paths.is_inside(folder, root):
        raise answers.bad_request(
            f"{'.'.join(pointer)} cannot be at {folder}: lake tables are in {root}; leave the location out"
        )


def write(pointer: Pointer, table: TableMetadata, entry: Entry | None) -> Staged:
    """Write new metadata into the table's folder, under a name that nobody has used. Inside `warehouse.guarded`."""
    version = _VERSION.fullmatch(entry.metadata_location) if entry else None
    number = int(version[1]) + 1 if version else 0
    location = f"{table.location}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
    content = table.model_dump_json().encode()
    with store.reachable(f"write {location}"):
        warehouse.prepare(location)
        with paths.file_io(location).new_output(location).create() as file:
            file.write(content)
    return Staged(pointer, table, content, location, entry)
