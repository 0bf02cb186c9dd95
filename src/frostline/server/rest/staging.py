"""A commit of a client as a value: its requirements hold, its updates are applied, and nothing points to its metadata.

PyIceberg checks and applies. What it would let pass and we do not: another folder or uuid for a table that has one,
files outside the table's folder, and a format that our own readers do not know.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, Field
from pyiceberg import exceptions
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema, promote
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from frostline.catalog.connect import first_line
from frostline.catalog.namespaces import Entry
from frostline.catalog.pointers import Pointer
from frostline.errors import UnavailableError
from frostline.lake import lake_format, lake_table, lake_upkeep, paths, pg_types, store, warehouse
from frostline.server.rest import answers
from frostline.server.rest.answers import Call, Refused

_VERSION = re.compile(r".*/(\d{1,9})-[^/]*\.metadata\.json")
_OLD_SEQUENCE = "older than last sequence number"
_OF_ROWS = {
    *("snapshots", "current_snapshot_id", "refs", "last_sequence_number", "statistics", "partition_statistics"),
    *("last_updated_ms", "snapshot_log", "metadata_log"),
}
"""The fields of metadata that change with a table's rows."""
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


def stage(call: Call, pointer: Pointer, change: Change) -> Staged:
    """Check and apply, and write the metadata. Refused when a requirement fails or an update makes no sense."""
    current = call.service.current(call.connection, call.caller, pointer)
    if current is None and not any(isinstance(each, AssertCreate) for each in change.requirements):
        raise answers.no_table(pointer)
    entry, content = current or (None, b"")
    if entry is not None:
        require_lake_table(pointer, entry)
        _require_writable(call, entry)
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
    if entry is not None and base is not None and _defines(base, new):
        what = "change its columns, partitions, order or properties, or forget snapshots of it"
        require_owner(call, pointer, entry, what)
    return write(pointer, new, entry)


def require_lake_table(pointer: Pointer, entry: Entry) -> None:
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


def _require_writable(call: Call, entry: Entry) -> None:
    if not (entry.is_writable or entry.is_owned):
        raise answers.forbidden(
            f"role {call.caller.role_name} may not insert, update and delete in {entry.belongs_to}, as a commit may"
        )


def require_owner(call: Call, pointer: Pointer, entry: Entry, what: str) -> None:
    """Refuse what in Postgres is for the owner of a table, whatever rights on its rows a role has."""
    if not entry.is_owned:
        raise answers.forbidden(
            f"role {call.caller.role_name} is not the owner of {'.'.join(pointer)}, and may not {what}"
        )


def _defines(base: TableMetadata, new: TableMetadata) -> bool:
    """Whether anything is changed but rows: all that is not named here is for the owner."""
    fields = type(new).model_fields.keys() - _OF_ROWS
    kept = {snapshot.snapshot_id for snapshot in new.snapshots}
    is_forgotten = any(snapshot.snapshot_id not in kept for snapshot in base.snapshots)
    return is_forgotten or type(base) is not type(new) or any(getattr(base, f) != getattr(new, f) for f in fields)


def parsed(content: bytes) -> TableMetadata:
    """Metadata as PyIceberg understands it."""
    try:
        return TableMetadataUtil.parse_raw(content.decode())
    except answers.SENSELESS as error:
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
    except answers.SENSELESS as error:
        if _OLD_SEQUENCE in str(error):  # somebody else has added a snapshot meanwhile, to another branch
            raise Refused(409, "CommitFailedException", first_line(error)) from None
        raise answers.bad_request(f"{'.'.join(pointer)} cannot be changed so: {first_line(error)}") from None
    check(call, pointer, new, base)
    return new


def _sensible(base: TableMetadata, updates: Sequence[TableUpdate]) -> list[TableUpdate]:
    """PyIceberg fails when a property is to go that is not there; the protocol does not."""
    known, kept = set(getattr(base, "properties", {})), list[TableUpdate]()
    for update in _numbered(base, updates):
        if isinstance(update, SetPropertiesUpdate):
            known |= set(update.updates)
        if isinstance(update, RemovePropertiesUpdate):
            kept.append(RemovePropertiesUpdate(removals=[key for key in update.removals if key in known]))
        elif not (isinstance(update, AssignUUIDUpdate) and update.uuid == getattr(base, "table_uuid", None)):
            kept.append(update)
        if isinstance(update, AddSnapshotUpdate) and not update.snapshot.manifest_list:
            raise ValueError("a snapshot needs a manifest list")
    return kept


def _numbered(base: TableMetadata, updates: Sequence[TableUpdate]) -> Iterator[TableUpdate]:
    """New schemas under numbers of their own: PyIceberg would keep two of one number."""
    taken = {schema.schema_id for schema in getattr(base, "schemas", ())}
    chosen = {update.schema_id for update in updates if isinstance(update, SetCurrentSchemaUpdate)}
    for update in updates:
        if not isinstance(update, AddSchemaUpdate):
            yield update
            continue
        added = update.schema_
        if added.schema_id in taken:
            if added.schema_id in chosen:
                raise ValueError(f"there is a schema {added.schema_id} already; say -1 for the one that is added")
            added = added.model_copy(update={"schema_id": max(taken) + 1})
        taken.add(added.schema_id)
        yield AddSchemaUpdate(schema=added)


def check(call: Call, pointer: Pointer, new: TableMetadata, base: TableMetadata | None) -> None:
    """Refuse metadata that would let a table out of its folder, or be of a format that we do not read."""
    lake_format.require_read(new)
    if base is None:
        check_folder(call, pointer, new.location)
    elif (new.location, new.table_uuid) != (base.location, base.table_uuid):
        raise answers.bad_request(f"{'.'.join(pointer)} keeps its location {base.location} and its uuid")
    check_types(pointer, new, base)
    _require_fence(pointer, new, base)
    _require_sources(pointer, new)
    if base is not None:
        _require_promotions(pointer, new.schema(), base.schema())
    old = {snapshot.snapshot_id for snapshot in base.snapshots} if base else set[int]()
    places = [new.properties.get(key) for key in _PLACES]
    places += [snapshot.manifest_list for snapshot in new.snapshots if snapshot.snapshot_id not in old]
    for place in filter(None, places):
        if not paths.is_inside(place, new.location):
            raise answers.bad_request(f"{place} is not in the table's folder {new.location}")


def check_types(pointer: Pointer, new: TableMetadata, base: TableMetadata | None) -> None:
    """Refuse Postgres types that a client has chosen: ours and every node's sessions have columns of them.

    A domain of the client's would run its code with their rights. A new table may have Postgres' own types.
    """
    if new.properties.get(lake_table.PG_CHECKS) != (base.properties.get(lake_table.PG_CHECKS) if base else None):
        raise answers.bad_request(f"{'.'.join(pointer)}: {lake_table.PG_CHECKS} is for Postgres to write")
    wanted = new.properties.get(pg_types.PG_COLUMNS)
    if wanted == (base.properties.get(pg_types.PG_COLUMNS) if base else None):
        return
    if base is not None or not _has_own_types_only(new.properties):
        raise answers.bad_request(f"{'.'.join(pointer)}: {pg_types.PG_COLUMNS} is for Postgres to write")


def _require_fence(pointer: Pointer, new: TableMetadata, base: TableMetadata | None) -> None:
    """Refuse another fence than that of the last sweep: files that were swept could be committed."""
    known = base.properties if base else dict[str, str]()
    if new.properties.get(lake_upkeep.SWEPT_BEFORE) != known.get(lake_upkeep.SWEPT_BEFORE):
        raise answers.bad_request(f"{'.'.join(pointer)}: {lake_upkeep.SWEPT_BEFORE} is for sweeps to write")


def _has_own_types_only(properties: Mapping[str, str]) -> bool:
    try:
        return all(column.pg_type.builtin for column in pg_types.pg_columns(properties).values())
    except UnavailableError:
        return False


def _require_sources(pointer: Pointer, new: TableMetadata) -> None:
    """Refuse a partition spec or a sort order of columns that the table has not."""
    columns, order = new.schema(), new.sort_order_by_id(new.default_sort_order_id)
    for field in (*new.spec().fields, *(order.fields if order else ())):
        transform: Any = cast(Any, field).transform
        if field.source_id not in columns.field_ids or not transform.can_transform(
            columns.find_field(field.source_id).field_type
        ):
            raise answers.bad_request(f"{'.'.join(pointer)} has no column {field.source_id} for {transform}")


def _require_promotions(pointer: Pointer, new: Schema, base: Schema) -> None:
    """Refuse another type for a column that its values in the files cannot be read as."""
    then = {field.field_id: field for field in base.fields}
    for field in new.fields:
        known = then.get(field.field_id)
        if known is None or known.field_type == field.field_type or not known.field_type.is_primitive:
            continue
        try:
            promote(known.field_type, field.field_type)
        except exceptions.ResolveError:
            raise answers.bad_request(
                f"{'.'.join(pointer)}: column {field.name} is {known.field_type}, and cannot become {field.field_type}"
            ) from None


def check_folder(call: Call, pointer: Pointer, folder: str) -> None:
    """Refuse a folder that is not one for lake tables: our server writes into it.

    It has one spelling only, so that no table can have the folder of another one by spelling it in another way.
    """
    root = paths.lake_tables_root(call.service.settings.warehouse)
    if not folder.startswith(f"{root}/") or not paths.is_inside(folder, root) or paths.is_pattern(folder):
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
