"""The folder of a lake table: no other table has files in it, from the first metadata to the purge.

A client of the catalog server chooses the folders of its tables, and a dropped table comes back when its last metadata
is registered. So whoever makes a table in a folder that is there already looks for others under the lock of the
namespaces, and a purge says under the same lock that nobody can take the table up any more, before it deletes a file.
"""

import uuid
from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata

from frostline.catalog import lake_tables, lake_upkeep, namespaces, snapshot_versions
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import Pointer
from frostline.errors import ConflictError, UsageError
from frostline.lake import lake_commit, lake_table, paths, store
from frostline.lake.lake_table import Layout
from frostline.model.lake_tables import Check
from frostline.model.tables import Column

_NOBODY = Pointer("", "")
"""What no table is called."""


class NotItsOwner(UsageError):
    """A table that was dropped comes back for its owner only: the rights that others had were in Postgres."""

    sqlstate = "42501"


def first_metadata(
    columns: Sequence[Column], layout: Layout, folder: str, owner: str, checks: Sequence[Check]
) -> tuple[TableMetadata, str]:
    """Write the metadata of an empty table, and say where it is. Nothing points to it."""
    metadata = lake_table.new_metadata(columns, layout, folder, owner, checks)
    with store.reachable(f"write the lake's metadata in {folder}"):
        return metadata, lake_commit.write_metadata(metadata, uuid.uuid4())


def take(connection: Connection, pointer: Pointer, folder: str, table_uuid: str, role: str) -> str | None:
    """In the transaction that puts a table into the catalog: its folder is for it alone until that ends.

    What was dropped there is forgotten, but for the lineage of its files, which is the table's from now on: None for
    this database's own. UsageError when another table has files there, or they are being deleted;
    NotItsOwner when the role cannot become the owner of what was dropped. Takes the lock of the namespaces.
    """
    namespaces.lock(connection)
    other, own, server = namespaces.overlapping(connection, pointer, folder), folder.rstrip("/"), None
    if other is not None:
        raise UsageError(f"{folder} has files of {'.'.join(other)}", hint="a lake table has a folder of its own")
    for dropped in lake_tables.dropped(connection):
        former = dropped.location.rstrip("/")
        if dropped.is_purged and (own == former or paths.is_inside(own, former) or paths.is_inside(former, own)):
            raise UsageError(f"the files in {former} are being deleted", hint="a lake table has a folder of its own")
        if own == former or dropped.uuid == table_uuid:
            if not lake_tables.acts_for(connection, role, dropped.owner):
                raise NotItsOwner(f"{folder} has a dropped table of role {dropped.owner}", hint="become that role")
            if not lake_upkeep.is_own(connection, dropped.id):
                server = dropped.server
            lake_tables.forget(connection, dropped.id)
    return server


def refuse_purge(
    connection: Connection, warehouse: str, lake_table_id: int, folder: str, pointer: Pointer = _NOBODY
) -> None:
    """Refuse to delete the files of a table whose folder is not in the warehouse, or has files of another table.

    So have the files of a table that came with a restored database: where that came from, it may still be there. And
    while a named snapshot is made, which may have seen the table, its files are read.
    """
    for name in snapshot_versions.began(connection):
        raise ConflictError(
            f"snapshot {name!r} is being made, and may read the files in {folder}",
            hint="wait for it, then try again; if the table is dropped by now, frostline doctor says how its files go",
        )
    if not folder.startswith(f"{paths.warehouse_location(warehouse)}/"):
        raise UsageError(f"the files in {folder} are not in the warehouse", hint="delete them by hand")
    other = namespaces.overlapping(connection, pointer, folder)
    if other is not None:
        raise UsageError(f"the folder {folder} has files of {'.'.join(other)} too", hint="drop it without purge")
    if not lake_upkeep.is_own(connection, lake_table_id):
        raise UsageError(
            f"the database that this one was restored or promoted from may need the files in {folder}",
            hint="drop it without purge; or, when that one is gone for good, first run frostline sweep --take-over",
        )


def purge(connection: Connection, warehouse: str, lake_table_id: int, folder: str) -> int:
    """Delete the files of a table that is dropped, and say how many there were. Harmless to repeat.

    UsageError when somebody has put a table there since: then nothing is deleted. Not inside a transaction: nobody may
    wait until all files are gone. What is left when it is killed is deleted by the next purge of that table.
    """
    with connection.transaction():
        namespaces.lock(connection)
        refuse_purge(connection, warehouse, lake_table_id, folder)
        if not lake_tables.begin_purge(connection, lake_table_id):
            raise UsageError(f"somebody has taken up the table in {folder}", hint="frostline lake list")
    with store.reachable(f"delete the files in {folder}"):
        count = sum(1 for _ in paths.delete_each([file.location for file in paths.below(folder)]))
    lake_tables.forget(connection, lake_table_id)
    return count
