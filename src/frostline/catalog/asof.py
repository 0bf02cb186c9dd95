"""What the lake was earlier: by a snapshot of it, by a time, or by the name of a snapshot of many tables."""

from datetime import datetime
from typing import NamedTuple

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/as_of")


class State(NamedTuple):
    """A metadata file and the snapshot in it; no snapshot means no rows."""

    metadata_location: str
    snapshot_id: int | None


def of_snapshot(connection: Connection, table: Table, snapshot_id: int) -> State:
    """The state with that lake snapshot; UsageError when the lake never had it, or has it no more."""
    values = {"table_id": table.id, "snapshot_id": snapshot_id}
    row = connection.execute(_statement("state_of_snapshot"), values).fetchone()
    if row is None:
        raise _gone(table, f"lake snapshot {snapshot_id}")
    return State(*row)


def at(connection: Connection, table: Table, time: datetime) -> State:
    """The state that was current at that time; UsageError when there was none, or it has expired."""
    if time.tzinfo is None:
        raise UsageError(f"as_of {time} has no time zone", hint="say which: datetime(..., tzinfo=UTC)")
    row = connection.execute(_statement("state_at"), {"table_id": table.id, "at": time}).fetchone()
    if row is None:
        raise _gone(table, f"state of {time.isoformat()}")
    return State(*row)


def of_name(connection: Connection, text: str, table: Name) -> State:
    """The table as `name` or `name@version` has it; UsageError when there is no such snapshot with that table."""
    name, _, version = text.partition("@")
    if version and not version.isdecimal():
        raise UsageError(f"as_of {text!r} is not NAME or NAME@VERSION", hint="frostline snapshot list")
    values = {"name": name, "version": version or None, "schema": table.schema, "table": table.table}
    row = connection.execute(_statement("snapshot_table"), values).fetchone()
    if row is None:
        raise UsageError(f"snapshot {text!r} has no table {table}", hint="frostline snapshot list")
    return State(*row)


def _gone(table: Table, what: str) -> UsageError:
    return UsageError(
        f"the lake of {table.name} does not have the {what}",
        hint=f"states go {table.policy.snapshot_retention} after they were replaced: policy snapshot_retention",
    )
