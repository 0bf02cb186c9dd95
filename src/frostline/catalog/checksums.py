"""The recorded checksums of lake files, data and metadata alike."""

from collections.abc import Collection, Mapping

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.tables import Checksum, Table

_statement = sqlfiles.statements(__name__, "queries/checksum")


def record(connection: Connection, table: Table, found: Mapping[str, Checksum]) -> None:
    """Write down, in the publishing transaction, what these files must be. Harmless to repeat."""
    if not found:
        return
    values = {
        "table_id": table.id,
        "paths": list(found),
        "sizes": [one.size_bytes for one in found.values()],
        "sums": [one.sha256 for one in found.values()],
    }
    connection.execute(_statement("record"), values)


def of_paths(connection: Connection, paths: Collection[str]) -> dict[str, bytes]:
    """The checksums of those of these files that have one."""
    return dict(connection.execute(_statement("of_paths"), {"paths": list(paths)}).fetchall())


def of_metadata(connection: Connection, table: Table) -> dict[str, bytes]:
    """The checksums of the table's metadata files, manifest lists and manifests."""
    return dict(connection.execute(_statement("of_metadata"), {"table_id": table.id}).fetchall())


def forget(connection: Connection, paths: Collection[str]) -> None:
    """The files are deleted, so nobody asks for them any more."""
    if paths:
        connection.execute(_statement("forget"), {"paths": list(paths)})
