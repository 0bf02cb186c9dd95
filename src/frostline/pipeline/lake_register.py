"""A table that is in the Iceberg catalog, or in the warehouse, gets a foreign table: docs/design/lake-tables.md."""

import psycopg
from pyiceberg.table.metadata import TableMetadata

from frostline.catalog import lake_tables, namespaces
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import lake_folder, lake_format, lake_table, paths, pg_types, store, warehouse
from frostline.lake.lake_table import State
from frostline.model.names import Name
from frostline.relation import lake_foreign
from frostline.settings import Settings

_OTHERS = {"tiered": "the lake of {}, which is a table here", "copy": "a copy of {}, which is not written"}


def register(
    connection: Connection, settings: Settings, pointer: Pointer, name: Name, metadata_location: str | None
) -> LakePointer:
    """Make the foreign table of a lake table that has none here, and of what is no lake table yet make one.

    One transaction. UsageError with the reason for what the lake server cannot read and write as it is meant.
    """
    with warehouse.guarded(connection, settings.warehouse):
        known = lake_tables.find(connection, pointer)
        place = _elsewhere(connection, pointer, metadata_location) if known is None else _own(connection, known)
        if metadata_location not in (None, place):
            raise UsageError(f"{'.'.join(pointer)} is at {place}", hint="leave --metadata out, or choose another name")
        state = _readable(place)
        _require_served(state, settings)
        try:
            with connection.transaction():
                return _register(connection, pointer, name, state, known)
        except psycopg.ProgrammingError as error:
            raise UsageError(
                f"cannot make {name}: {error.diag.message_primary}", hint="give it another name: --foreign-table"
            ) from error


def _own(connection: Connection, known: LakePointer) -> str:
    there = lake_foreign.foreign_tables(connection, known.id)
    if there:
        raise UsageError(f"{known.name} is {there[0]} here", hint=f"frostline lake show {known.name}")
    return known.metadata_location


def _elsewhere(connection: Connection, pointer: Pointer, metadata_location: str | None) -> str:
    """Where a table is that somebody else has put into the catalog, or that is not in it."""
    entry, name = namespaces.table(connection, pointer, connection.info.user), ".".join(pointer)
    kept = namespaces.owner_of_name(connection, pointer)
    if entry is None and (kept is not None or namespaces.is_of_a_snapshot(connection, pointer.namespace)):
        raise UsageError(f"{name} is kept for {kept or 'a named snapshot'}", hint="choose another name")
    if entry is None and metadata_location is not None:
        return metadata_location
    if entry is None:
        raise UsageError(f"the Iceberg catalog has no table {name}", hint="name a file of the warehouse: --metadata")
    if entry.kind in _OTHERS:
        raise UsageError(
            f"{'.'.join(pointer)} is {_OTHERS[entry.kind].format(entry.belongs_to)}", hint="choose another"
        )
    return entry.metadata_location


def _readable(location: str) -> State:
    """Its files, all of which the lake server can read."""
    try:
        with store.reachable(f"read {location}"):
            return lake_table.state(location)
    except UnavailableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UsageError(f"there is no file {location}", hint="name a metadata file of the warehouse") from None
        if error.__cause__ is not None:
            raise
        raise UsageError(error.message, hint=error.hint) from None
    except FrostlineError:
        raise
    except Exception as error:
        raise UsageError(f"{location} is no metadata of an Iceberg table", hint="see --metadata") from error


def _require_served(state: State, settings: Settings) -> None:
    metadata, location = state.metadata, state.location
    folder, _, file = location.rpartition("/metadata/")
    root = paths.lake_tables_root(settings.warehouse)
    if not paths.is_inside(folder, root) or "/" in file or metadata.location.rstrip("/") != folder:
        raise UsageError(
            f"{location} is not the metadata of a table in {root}", hint="write its rows into a lake table instead"
        )
    lake_format.written(metadata)


def _register(
    connection: Connection, pointer: Pointer, name: Name, state: State, known: LakePointer | None
) -> LakePointer:
    metadata = state.metadata
    try:
        columns = pg_types.columns(metadata)
    except UnavailableError as error:
        raise UsageError(error.message, hint=error.hint) from None
    made = lake_foreign.create(connection, name, [(column.name, lake_foreign.declared(column)) for column in columns])
    for column, here in zip(columns, made.columns, strict=True):
        if column.pg_type != here.pg_type or not column.collation.holds_of(here.collation):
            raise UsageError(
                f"column {column.name} was {column.pg_type.formatted} where the table was made, and is not that here",
                hint="a type or a collation of that name is another one here",
            )
    lake_foreign.let_every_role_in(connection)
    # Last, when nothing of Postgres is waited for any more: commits of lake tables may wait for it.
    made_known = known or _made_known(connection, pointer, state.location, metadata)
    lake_foreign.point_to(connection, name, made_known.id, metadata.current_schema_id)
    return made_known


def _made_known(connection: Connection, pointer: Pointer, location: str, metadata: TableMetadata) -> LakePointer:
    folder, uuid = metadata.location.rstrip("/"), str(metadata.table_uuid)
    server = lake_folder.take(connection, pointer, folder, uuid, connection.info.user)
    return lake_tables.adopt(connection, pointer, uuid, folder, location, server)
