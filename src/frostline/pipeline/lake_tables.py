"""Lake tables are made, shown and dropped here. Rows are written by the lake server: docs/design/lake-tables.md."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog import lake_tables
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import UsageError
from frostline.lake import lake_columns, lake_folder, lake_table, paths, pg_types, warehouse
from frostline.lake.lake_table import Layout
from frostline.model import lake_upkeep
from frostline.model.lake_upkeep import Keeping
from frostline.model.names import Name, quoted
from frostline.model.tables import Column
from frostline.relation import foreign_columns, lake_foreign
from frostline.relation.lake_foreign import NOTHING, TakenOver
from frostline.settings import Settings

_DEFINITION = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_][\w$]*))\s+(\S.*)', re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """A lake table, for people."""

    pointer: LakePointer
    foreign_tables: list[Name]
    out_of_line: list[Name]
    """Those of the foreign tables whose columns are not the lake table's: `sync`."""
    columns: tuple[Column, ...]
    partition: list[str]
    sort: list[str]
    key: list[str]
    checks: list[str]
    files: int
    delete_files: int
    size_bytes: int
    rows: int
    """Without those that are gone."""
    snapshot_id: int | None
    snapshots: int
    keeping: Keeping
    target_file_size: int


def create(
    connection: Connection,
    settings: Settings,
    name: Name,
    definitions: Sequence[str],
    layout: Layout,
    like: TakenOver = NOTHING,
    *,
    folder: str | None = None,
) -> LakePointer:
    """Make an empty lake table and its foreign table: in one transaction, with the metadata written before its end.

    Its columns are those of the table that it is like, and then those that are defined. It is in a folder of its own,
    or in this one, which no other table has.
    """
    split = [*like.definitions, *(_split(definition) for definition in definitions)]
    if not split:
        raise UsageError("a lake table has at least one column", hint="--column 'id bigint', or --like TABLE")
    with warehouse.guarded(connection, settings.warehouse):
        try:
            with connection.transaction():
                return _create(connection, settings, name, split, layout, like, folder)
        except (psycopg.errors.SyntaxError, psycopg.errors.UndefinedObject, psycopg.ProgrammingError) as error:
            raise UsageError(f"cannot make {name}: {error.diag.message_primary}", hint="see --column") from error


def _create(
    connection: Connection,
    settings: Settings,
    name: Name,
    split: Sequence[tuple[str, str]],
    layout: Layout,
    like: TakenOver,
    folder: str | None,
) -> LakePointer:
    made_here = lake_foreign.create(connection, name, split, layout.key, like)
    lake_foreign.let_every_role_in(connection)
    folder = folder or paths.new_lake_table(settings.warehouse, name.schema, name.table)
    owner = connection.info.user
    metadata, location = lake_folder.first_metadata(made_here.columns, layout, folder, owner, made_here.checks)
    pointer = Pointer(name.schema, name.table)
    # Last, when nothing of Postgres is waited for any more: commits of lake tables may wait for it.
    made = lake_tables.create(connection, pointer, str(metadata.table_uuid), folder, location)
    lake_foreign.point_to(connection, name, made.id, metadata.current_schema_id)
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
    others = dict.fromkeys(name for name, _ in sync(connection, pointer, dry_run=True))
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return Shown(
        pointer=pointer,
        foreign_tables=lake_foreign.foreign_tables(connection, pointer.id),
        out_of_line=list(others),
        columns=pg_types.columns(metadata),
        partition=[f"{cast(Any, field).transform}({fields[field.source_id]})" for field in metadata.spec().fields],
        sort=[f"{fields[field.source_id]} {field.direction}" for field in (order.fields if order else ())],
        key=[fields[field_id] for field_id in metadata.schema().identifier_field_ids],
        checks=[f"{quoted(check.name)} ({check.expression})" for check in lake_table.checks(metadata)],
        files=len(state.data),
        delete_files=len(state.deletes),
        size_bytes=sum(file.file_size_in_bytes for files in (state.data, state.deletes) for file in files.values()),
        rows=_total(snapshot, "total-records") - _total(snapshot, "total-position-deletes"),
        snapshot_id=state.snapshot_id,
        snapshots=len(metadata.snapshots),
        keeping=lake_upkeep.keeping(metadata.properties),
        target_file_size=lake_upkeep.target_file_size(metadata.properties),
    )


def sync(connection: Connection, pointer: LakePointer, *, dry_run: bool) -> list[tuple[Name, str]]:
    """Bring the foreign tables of this database in line with a lake table whose columns another engine has changed.

    Gives the statements, by the foreign table that each is for; with `dry_run` they are not run.
    """
    metadata = lake_table.state(pointer.metadata_location).metadata
    wanted, known = pg_types.columns(metadata), lake_columns.names(metadata)
    done = list[tuple[Name, str]]()
    try:
        with connection.transaction():
            for name in lake_foreign.foreign_tables(connection, pointer.id):
                for statement in foreign_columns.changes(connection, name, known, wanted, metadata.current_schema_id):
                    done.append((name, _without_comments(statement.as_string(connection))))
                    if not dry_run:
                        connection.execute(statement)
    except (psycopg.errors.DependentObjectsStillExist, psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
        raise UsageError(
            f"cannot bring the foreign tables of {pointer.name} in line: {error.diag.message_primary}",
            hint="drop or change what stands in the way, then frostline lake sync " + str(pointer.name),
        ) from error
    return done


def _without_comments(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--"))


def _total(snapshot: Snapshot | None, name: str) -> int:
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get(name, "0"))


def drop(connection: Connection, settings: Settings, name: Name, *, purge: bool) -> int:
    """Take the table out of the catalog, and its foreign tables out of this database; with `purge` its files too.

    Says how many files were deleted. Without `purge` they stay, and `dropped` remembers them. So they do when somebody
    has registered the table again after it was dropped here: UsageError.
    """
    with warehouse.guarded(connection, settings.warehouse):
        with connection.transaction():
            # First the locks of Postgres: whoever holds one may commit to the lake next, and would wait for a pointer.
            lake_foreign.drop(connection, lake_tables.load(connection, Pointer(name.schema, name.table)).id)
            gone = lake_tables.drop(connection, Pointer(name.schema, name.table))
            if purge:
                lake_folder.refuse_purge(connection, settings.warehouse, gone.id, gone.location, gone.pointer)
        return lake_folder.purge(connection, settings.warehouse, gone.id, gone.location) if purge else 0
