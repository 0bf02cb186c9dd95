"""A table's copy in a snapshot of many tables: each version overwrites all its files, and its schema follows the table.

As in `lake.commit`, every file is written and nothing points to it yet. What becomes of the requirements and updates of
the commit is the staging's: the built-in one writes them as a metadata file, another may send them to a catalog.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frostline.lake import commit, paths, schema, snapshots, store, warehouse
from frostline.lake.commit import Staging
from frostline.lake.datafiles import WrittenFile
from frostline.model import tables

SNAPSHOT = "frostline.snapshot"
"""In the summary of an Iceberg snapshot: the name of the snapshot of many tables that it belongs to."""
VERSION = "frostline.snapshot-version"
DATABASE = "frostline.database"
"""The history of the database that it is a copy of: others may use the same name in the same catalog."""


def stage(
    table: tables.LakeTable,
    identifier: tuple[str, ...],
    base: tuple[str, TableMetadata] | str,
    add: Sequence[WrittenFile],
    summary: Mapping[str, str],
    staging: Staging,
) -> Table:
    """Write a new version of the copy: these files and no others. Gives back the table as it is then.

    `base` is the metadata it goes on from with its location, or for a new table the folder to be in. Touches no
    catalog; can be repeated at will.
    """
    warehouse.check()
    current = _new(table, identifier, base, staging) if isinstance(base, str) else _old(identifier, base, staging)
    with store.reachable(f"write the lake's metadata of {table.name}"):
        removed = list(snapshots.data_files(current.current_snapshot(), current.io))
        transaction = current.transaction()
        schema.follow(transaction, schema.iceberg_schema(table))
        update = transaction.update_snapshot(snapshot_properties=dict(summary))
        with update.overwrite() if removed else update.fast_append() as producer:
            commit.exchange(table, current, producer, add, removed)
        transaction.commit_transaction()
    return current


def _new(table: tables.LakeTable, identifier: tuple[str, ...], location: str, staging: Staging) -> Table:
    paths.make_parent(f"{location}/metadata/")
    return Table(identifier, commit.new_metadata(table, location, {}), "", paths.file_io(location), staging)


def _old(identifier: tuple[str, ...], base: tuple[str, TableMetadata], staging: Staging) -> Table:
    return Table(identifier, base[1], base[0], paths.file_io(base[0]), staging)
