"""The seam of each table: the frost line T, the lake snapshot S and its metadata location, in one row."""

from typing import Any, LiteralString

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, first_value
from frostline.errors import ConflictError, CorruptionError
from frostline.model.tables import Seam, Table
from frostline.model.tiers import TierKind, from_text, to_text

_statement = sqlfiles.statements(__name__, "queries/seam")

LINE_COLUMNS: dict[TierKind, LiteralString] = {
    TierKind.TIMESTAMPTZ: "line_timestamptz",
    TierKind.TIMESTAMP: "line_timestamp",
    TierKind.DATE: "line_date",
    TierKind.SMALLINT: "line_integer",
    TierKind.INTEGER: "line_integer",
    TierKind.BIGINT: "line_integer",
}
"""T is kept in the tier key's own type, so that the view compares like with like."""
RETAINED_COLUMNS: dict[TierKind, LiteralString] = {
    TierKind.TIMESTAMPTZ: "retained_timestamptz",
    TierKind.TIMESTAMP: "retained_timestamp",
    TierKind.DATE: "retained_date",
    TierKind.SMALLINT: "retained_integer",
    TierKind.INTEGER: "retained_integer",
    TierKind.BIGINT: "retained_integer",
}
"""And so is R."""


def insert(connection: Connection, table: Table) -> None:
    """The seam of a table with nothing in the lake: every row is hot."""
    values = {"table_id": table.id, **_line(table, table.tier_kind.lowest)}
    connection.execute(_statement("insert"), values)


def _line(table: Table, value: int) -> dict[str, str | None]:
    """The frost line in the column of its own type, and nothing in the others."""
    columns: dict[str, str | None] = dict.fromkeys(LINE_COLUMNS.values())
    return columns | {LINE_COLUMNS[table.tier_kind]: to_text(table.tier_kind, value)}


def get(connection: Connection, table: Table) -> Seam:
    """T, S and the metadata location as of the connection's snapshot."""

    def seam(*, line: str, **others: Any) -> Seam:
        return Seam(frost_line=from_text(table.tier_kind, line), **others)

    for only in fetch(connection, seam, _statement("get"), {"table_id": table.id}):
        return only
    raise CorruptionError(f"{table.name} has no seam", hint="restore frostline.seam from a backup")


def move(connection: Connection, table: Table, old: Seam, new: Seam, manifests: int | None = None) -> None:
    """Set T, S and the location together if all three still are what they were; else ConflictError.

    The state that the lake had before is kept in `frostline.lake_state`, for those who still read it.
    """
    values = {
        "table_id": table.id,
        **_line(table, new.frost_line),
        "snapshot_id": new.snapshot_id,
        "metadata_location": new.metadata_location,
        "old_line": to_text(table.tier_kind, old.frost_line),
        "old_snapshot_id": old.snapshot_id,
        "old_metadata_location": old.metadata_location,
    }
    if connection.execute(_statement("move"), values).rowcount != 1:
        raise ConflictError(f"the seam of {table.name} moved meanwhile", hint=f"frostline archive {table.name}")
    if new.metadata_location != old.metadata_location:
        state = {"table_id": table.id, "metadata_location": new.metadata_location, "snapshot_id": new.snapshot_id}
        connection.execute(_statement("replace_state"), state)
        connection.execute(_statement("insert_state"), {**state, "manifests": manifests})


def retained(connection: Connection, table: Table) -> int | None:
    """R: rows below it were removed for good. None while none were."""
    line = first_value(connection.execute(_statement("retained"), {"table_id": table.id}))
    return None if line is None else from_text(table.tier_kind, line)


def retain(connection: Connection, table: Table, line: int) -> None:
    """Set R, in the transaction that removes the rows below it."""
    connection.execute(_statement("retain"), {"table_id": table.id, **_line(table, line)})
