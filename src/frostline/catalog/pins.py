"""Pins: a reader outside Postgres says which state of a lake it reads, so that upkeep keeps the files of that state.

A pin runs out unless it is renewed, so that a dead reader holds nothing for long. docs/design/upkeep.md has the
interleavings.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from frostline import sqlfiles
from frostline.catalog.connect import Connection, connect, fetch, first_value, only_value, this_process
from frostline.catalog.leases import beating
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.model.names import Name
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/pin")

SECONDS = 60
"""How long a pin lasts after it was made or renewed."""
_MAKE_TIMEOUT_MS = 5000
"""An expiry has its states locked while it commits; that takes moments."""
_READ_AGAIN = "read T, S and the metadata location again, and pin that state"


@dataclass(frozen=True)
class Pin:
    """A pin as the catalog has it."""

    id: int
    table: Name
    snapshot_id: int | None
    metadata_location: str
    holder: str
    made_at: datetime
    expires_at: datetime
    is_alive: bool


@contextmanager
def held(dsn: str, table: Table, state: str, seconds: float = SECONDS) -> Generator[int]:
    """Hold a state of the table's lake, named by its metadata location, and renew the pin meanwhile. Yields its number.

    It is committed, by a connection of its own, before this yields; who read the state in a transaction may end that
    then. ConflictError when the state is gone or going, and at the end when the pin ran out before.
    """
    with held_together(dsn, [(table, state)], seconds) as (pin_id,):
        yield pin_id


@contextmanager
def held_together(
    dsn: str, wanted: Sequence[tuple[Table, str]], seconds: float = SECONDS
) -> Generator[tuple[int, ...]]:
    """Hold one state or more, each of a lake of its own, as `held` does; one connection renews all."""
    made: dict[int, Table] = {}
    lost: list[Table] = []
    try:
        with connect(dsn, purpose="pin") as connection:
            for table, state in wanted:
                made[make(connection, table, state, seconds)] = table
        with beating(dsn, "pin", _statement("renew"), {"pin_ids": list(made), "seconds": seconds}):
            yield tuple(made)
    finally:
        lost = _released(dsn, made)
    if lost:
        raise ConflictError(f"the pin on the lake of {lost[0].name} ran out while it was read", hint=_READ_AGAIN)


def _released(dsn: str, made: Mapping[int, Table]) -> list[Table]:
    """Take the pins away; gives the tables whose pins did not hold until now. Without Postgres nobody can tell."""
    with suppress(psycopg.Error, UnavailableError), connect(dsn, purpose="pin") as connection:
        held = {pin_id: first_value(connection.execute(_statement("release"), {"pin_id": pin_id})) for pin_id in made}
        return [table for pin_id, table in made.items() if not held[pin_id]]
    return []


def make(connection: Connection, table: Table, state: str, seconds: float) -> int:
    """Pin a state for so long; ConflictError when it is gone or going."""
    values = {
        "table_id": table.id,
        "metadata_location": state,
        "holder": this_process(),
        "seconds": seconds,
    }
    try:
        with connection.transaction():
            set_lock_timeout(connection, _MAKE_TIMEOUT_MS)
            return only_value(connection.execute(_statement("insert"), values))
    except psycopg.errors.LockNotAvailable:
        raise ConflictError(
            f"old states of the lake of {table.name} are being expired just now", hint="try again"
        ) from None
    except psycopg.errors.ForeignKeyViolation:
        raise ConflictError(f"the lake of {table.name} has no state {state} any more", hint=_READ_AGAIN) from None


def release(connection: Connection, pin_id: int) -> None:
    """Take a pin away; UsageError when there is none of that number."""
    if not connection.execute(_statement("release"), {"pin_id": pin_id}).rowcount:
        raise UsageError(f"there is no pin {pin_id}", hint="frostline pin list")


def remove_dead(connection: Connection, table: Table) -> None:
    """Delete the pins of the table that have run out."""
    connection.execute(_statement("remove_dead"), {"table_id": table.id})


def on(connection: Connection, table: Table, *, dead: bool = False) -> dict[str, str]:
    """The pinned states of the table, with one of those who hold each; with `dead`, also by a pin that has run out."""
    return dict(connection.execute(_statement("held"), {"table_id": table.id, "dead": dead}).fetchall())


def list_all(connection: Connection) -> list[Pin]:
    """All pins, the oldest first."""
    return fetch(connection, _pin, _statement("list_all"))


def _pin(*, schema: str, table: str, **others: Any) -> Pin:
    return Pin(table=Name(schema, table), **others)
