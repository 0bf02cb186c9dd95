"""The states that the lake of a table has, or had: who may still read each, what it was earlier, and whose it is.

A state is a metadata file and the lake snapshot in it. Its files belong to the lineage that wrote them: a database may
share its warehouse with the one that it was restored from. docs/design/upkeep.md has the reasons.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, first_value, only_value
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.upkeep import LakeState

_statement = sqlfiles.statements(__name__, "queries/lake_state")


def list_all(connection: Connection, table: Table) -> list[LakeState]:
    """All states, the oldest first and the current one last, and which of them a live Postgres snapshot may see.

    Whoever expires one reads the pins after this, never before.
    """
    return fetch(connection, LakeState, _statement("list_all"), {"table_id": table.id})


def manifests(connection: Connection, table: Table) -> int:
    """How many manifests the current state has; 0 when that is not known."""
    return first_value(connection.execute(_statement("manifests"), {"table_id": table.id})) or 0


def adopt(connection: Connection, table: Table, unknown: Iterable[tuple[str, int | None]]) -> None:
    """Write down states that only the lake knows, as (location, snapshot); others get xids of this server."""
    connection.execute(_statement("adopt_xids"), {"table_id": table.id})
    for location, snapshot_id in unknown:
        values = {"table_id": table.id, "metadata_location": location, "snapshot_id": snapshot_id}
        connection.execute(_statement("adopt"), values)


def lock(connection: Connection, table: Table, locations: Collection[str]) -> frozenset[str]:
    """Keep others from pinning these states until the transaction ends; returns those that nobody is just pinning."""
    values = {"table_id": table.id, "locations": list(locations)}
    return frozenset(location for (location,) in connection.execute(_statement("lock"), values).fetchall())


def delete(connection: Connection, table: Table, locations: Collection[str]) -> None:
    """Forget states, in the transaction that has locked them."""
    connection.execute(_statement("delete"), {"table_id": table.id, "locations": list(locations)})


class State(NamedTuple):
    """A metadata file and the snapshot in it; no snapshot means no rows."""

    metadata_location: str
    snapshot_id: int | None


def of_snapshot(connection: Connection, table: Table, snapshot_id: int) -> State:
    """The state with that lake snapshot; UsageError when the lake never had it, or has it no more."""
    values = {"table_id": table.id, "snapshot_id": snapshot_id}
    for state in fetch(connection, State, _statement("state_of_snapshot"), values):
        return state
    raise _gone(table, f"lake snapshot {snapshot_id}")


def at(connection: Connection, table: Table, time: datetime) -> State:
    """The state that was current at that time; UsageError when there was none, or it has expired."""
    if time.tzinfo is None:
        raise UsageError(f"as_of {time} has no time zone", hint="say which: datetime(..., tzinfo=UTC)")
    for state in fetch(connection, State, _statement("state_at"), {"table_id": table.id, "at": time}):
        return state
    raise _gone(table, f"state of {time.isoformat()}")


def of_name(connection: Connection, text: str, table: Name) -> State:
    """The table as `name` or `name@version` has it; UsageError when there is no such snapshot with that table."""
    name, _, version = text.partition("@")
    if version and not version.isdecimal():
        raise UsageError(f"as_of {text!r} is not NAME or NAME@VERSION", hint="frostline snapshot list")
    values = {"name": name, "version": version or None, "schema": table.schema, "table": table.table}
    for state in fetch(connection, State, _statement("snapshot_table"), values):
        return state
    raise UsageError(f"snapshot {text!r} has no table {table}", hint="frostline snapshot list")


def _gone(table: Table, what: str) -> UsageError:
    return UsageError(
        f"the lake of {table.name} does not have the {what}",
        hint=f"states go {table.policy.snapshot_retention} after they were replaced: policy snapshot_retention",
    )


def own_jobs(connection: Connection, table: Table, *, any_lineage: bool = False) -> frozenset[int]:
    """The jobs of the table that have ended and whose files are ours; with `any_lineage`, whoever ran them."""
    values = {"table_id": table.id, "any_lineage": any_lineage}
    rows = connection.execute(_statement("own_jobs"), values).fetchall()
    return frozenset(job_id for (job_id,) in rows)


def take_over(connection: Connection) -> None:
    """Write down that the databases which this one was restored or promoted from are gone: their files are ours."""
    connection.execute(_statement("take_over"))


def is_copy(connection: Connection) -> bool:
    """Whether some of the lake was written by the database that this one was restored or promoted from."""
    return only_value(connection.execute(_statement("is_copy")))
