"""Lake tables are made, shown and dropped here. Rows are written by the lake server: docs/design/lake-tables.md."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog import lake_tables, namespaces
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import UsageError
from frostline.lake import lake_commit, lake_table, paths, store, warehouse
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.model.tables import Column
from frostline.relation import lake_foreign
from frostline.settings import Settings

_DEFINITION = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_][\w$]*))\s+(\S.*)', re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """A lake table, for people."""

    pointer: LakePointer
    foreign_tables: list[Name]
    columns: tuple[Column, ...]
    partition: list[str]
    sort: list[str]
    files: int
    delete_files: int
    size_bytes: int
    rows: int
    """Without those that are gone."""
    snapshot_id: int | None
    snapshots: int


def create(
    connection: Connection, settings: Settings, name: Name, definitions: Sequence[str], layout: Layout
) -> LakePointer:
    """Make an empty lake table and its foreign table: in one transaction, with the metadata written before its end."""
    split = [_split(definition) for definition in definitions]
    if not split:
        raise UsageError("a lake table has at least one column", hint="--column 'id bigint'")
    with warehouse.guarded(connection, settings.warehouse):
        try:
            with connection.transaction():
                return _create(connection, settings, name, split, layout)
        except (psycopg.errors.SyntaxError, psycopg.errors.UndefinedObject, psycopg.ProgrammingError) as error:
            raise UsageError(f"cannot make {name}: {error.diag.message_primary}", hint="see --column") from error


def _create(
    connection: Connection, settings: Settings, name: Name, split: Sequence[tuple[str, str]], layout: Layout
) -> LakePointer:
    columns = lake_foreign.create(connection, name, split)
    folder = paths.new_lake_table(settings.warehouse, name.schema, name.table)
    metadata = lake_table.new_metadata(columns, layout, folder, connection.info.user)
    with store.reachable(f"write the lake's metadata of {name}"):
        location = lake_commit.write_metadata(metadata, uuid.uuid4())
    pointer = Pointer(name.schema, name.table)
    made = lake_tables.create(connection, pointer, str(metadata.table_uuid), folder, location)
    lake_foreign.point_to(connection, name, made.id)
    lake_foreign.let_every_role_in(connection)
    return made


def _split(definition: str) -> tuple[str, str]:
    match = _DEFINITION.fullmatch(definition)
    if match is None:
        raise UsageError(f"--column {definition!r} is no column", hint="NAME TYPE [NOT NULL] [DEFAULT ...]")
    quoted, plain, rest = match.groups()
    return (quoted.replace('""', '"') if quoted is not None else plain.lower()), rest


def show(connection: Connection, pointer: LakePointer) -> Shown:
    """What it is now. Reads its metadata."""
    state = lake_table.state(pointer.metadata_location)
    metadata, snapshot = state.metadata, state.metadata.current_snapshot()
    fields = {field.field_id: field.name for field in metadata.schema().fields}
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return Shown(
        pointer=pointer,
        foreign_tables=lake_foreign.foreign_tables(connection, pointer.id),
        columns=lake_table.columns(metadata),
        partition=[f"{cast(Any, field).transform}({fields[field.source_id]})" for field in metadata.spec().fields],
        sort=[f"{fields[field.source_id]} {field.direction}" for field in (order.fields if order else ())],
        files=len(state.data),
        delete_files=len(state.deletes),
        size_bytes=sum(file.file_size_in_bytes for files in (state.data, state.deletes) for file in files.values()),
        rows=_total(snapshot, "total-records") - _total(snapshot, "total-position-deletes"),
        snapshot_id=state.snapshot_id,
        snapshots=len(metadata.snapshots),
    )


def _total(snapshot: Snapshot | None, name: str) -> int:
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get(name, "0"))


def drop(connection: Connection, settings: Settings, name: Name, *, purge: bool) -> int:
    """Take the table out of the catalog, and its foreign tables out of this database; with `purge` its files too.

    Says how many files were deleted. Without `purge` they stay, and `dropped` remembers them.
    """
    with warehouse.guarded(connection, settings.warehouse):
        with connection.transaction():
            gone = lake_tables.drop(connection, Pointer(name.schema, name.table))
            lake_foreign.drop(connection, gone.id)
            if purge:
                _refuse_others_files(connection, gone)
        if not purge:
            return 0
        place = paths.warehouse_location(settings.warehouse)
        if not gone.location.startswith(f"{place}/"):
            raise UsageError(f"the files in {gone.location} are not in the warehouse", hint="delete them by hand")
        with store.reachable(f"delete the files of {name}"):
            count = sum(1 for _ in paths.delete_each([file.location for file in paths.below(gone.location)]))
        lake_tables.forget(connection, gone.id)
        return count


def _refuse_others_files(connection: Connection, gone: LakePointer) -> None:
    """A client of the catalog server chooses its tables' folders, so that of another table may be inside of one."""
    other = namespaces.overlapping(connection, gone.pointer, gone.location)
    if other is not None:
        raise UsageError(
            f"the folder {gone.location} has files of {'.'.join(other)} too; nothing was dropped",
            hint="drop it without --purge",
        )
