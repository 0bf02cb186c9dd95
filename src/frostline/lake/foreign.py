"""The lake as the Iceberg catalog has it is the lake as the seam has it, or nothing is built upon it.

docs/design/foreign-commits.md has the reasons and the interleavings.
"""

from frostline.catalog import lake_files, pointers
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, FrostlineError
from frostline.lake import snapshots
from frostline.lake.snapshots import Totals
from frostline.model.tables import Standing, Table


def refuse(connection: Connection, table: Table) -> Standing:
    """Where the lake is; ConflictError when somebody else has committed to it, or dropped or renamed it.

    Asks Postgres only. In the transaction that publishes, the compare-and-set of the pointer is what decides.
    """
    standing = pointers.standing(connection, table)
    if standing.is_foreign:
        raise ConflictError(
            f"{table.name}: {standing.described}{_named(standing)}; nothing was changed",
            hint=f"frostline repair {table.name} shows the difference, and how to get back",
        )
    return standing


def _named(standing: Standing) -> str:
    """The snapshots, if the other's metadata can be read."""
    if standing.pointer is None or standing.location is None:
        return ""
    try:
        theirs = snapshots.metadata_now(standing.pointer).current_snapshot_id
    except (FrostlineError, ValueError):
        return ""
    return f", with snapshot {theirs} in place of {standing.snapshot_id}"


def base(connection: Connection, table: Table) -> str | None:
    """The metadata to build the next commit upon, which is the seam's and the catalog's; None while the lake has none.

    ConflictError when they are not the same. That is exact: metadata files never change, and only a publish moves both.
    """
    return sound(connection, table, refuse(connection, table))


def sound(connection: Connection, table: Table, standing: Standing) -> str | None:
    """The seam's metadata; ConflictError unless its current snapshot is the seam's, and holds as much as is recorded.

    The sums catch a lake whose records are another's, whatever led to it. `verify` compares file by file.
    """
    if standing.location is None:
        return None
    current = snapshots.read_metadata(standing.location).current_snapshot_id
    if current != standing.snapshot_id:
        raise _unlike(
            table, f"the current snapshot of {standing.location} is {current} instead of {standing.snapshot_id}"
        )
    held = Totals(0, 0, 0) if current is None else snapshots.totals(standing.location, current)
    recorded = Totals(*lake_files.totals(connection, table))
    if held != recorded:
        raise _unlike(
            table,
            f"snapshot {current} holds {held.rows} rows in {held.files} files of {held.size_bytes} bytes, but "
            f"{recorded.rows} rows in {recorded.files} files of {recorded.size_bytes} bytes are recorded",
        )
    return standing.location


def _unlike(table: Table, what: str) -> ConflictError:
    return ConflictError(
        f"the lake of {table.name} is not what was recorded: {what}; nothing was changed",
        hint=f"frostline verify {table.name}",
    )
