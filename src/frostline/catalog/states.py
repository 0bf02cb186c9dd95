"""The states that the lake of a table has had, and who may still read them: docs/design/upkeep.md."""

from collections.abc import Collection, Iterable

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.expiry import LakeState
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/state")


def list_all(connection: Connection, table: Table) -> list[LakeState]:
    """All states, the oldest first and the current one last, and which of them a live Postgres snapshot may see.

    Whoever expires one reads the pins after this, never before.
    """
    rows = connection.execute(_statement("every"), {"table_id": table.id}).fetchall()
    return [LakeState(*row) for row in rows]


def manifests(connection: Connection, table: Table) -> int:
    """How many manifests the current state has; 0 when that is not known."""
    row = connection.execute(_statement("manifests"), {"table_id": table.id}).fetchone()
    return 0 if row is None else row[0] or 0


def adopt(connection: Connection, table: Table, unknown: Iterable[tuple[str, int | None]]) -> None:
    """Write down states that only the lake knows, as (location, snapshot); others get xids of this server."""
    connection.execute(_statement("adopt_xids"), {"table_id": table.id})
    for location, snapshot_id in unknown:
        values = {"table_id": table.id, "metadata_location": location, "snapshot_id": snapshot_id}
        connection.execute(_statement("adopt"), values)


def lock(connection: Connection, table: Table, locations: Collection[str]) -> frozenset[str]:
    """Keep others from pinning these states until the transaction ends; returns those that nobody is just pinning."""
    values = {"table_id": table.id, "locations": list(locations)}
    return frozenset(one for (one,) in connection.execute(_statement("lock"), values).fetchall())


def delete(connection: Connection, table: Table, locations: Collection[str]) -> None:
    """Forget states, in the transaction that has locked them."""
    connection.execute(_statement("delete"), {"table_id": table.id, "locations": list(locations)})
