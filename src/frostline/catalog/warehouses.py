"""Which warehouse this database's files are in, and the identity that shows it to be ours."""

from dataclasses import dataclass

from frostline.catalog import queries
from frostline.catalog.connect import Connection


@dataclass(frozen=True)
class Warehouse:
    """The warehouse that was claimed."""

    identity: str
    """Random; a restored copy of the database has the same."""
    location: str
    """In its one form, as `lake.paths` writes it."""


def find(connection: Connection) -> Warehouse | None:
    """The warehouse; None when none was claimed yet."""
    row = connection.execute(queries.get("warehouse", "find")).fetchone()
    return None if row is None else Warehouse(*row)


def lock(connection: Connection) -> None:
    """Until the transaction ends nobody else claims one: the lock of installers."""
    connection.execute(queries.get("migration", "lock_out_other_installers"))


def claim(connection: Connection, location: str) -> Warehouse:
    """Write down where the warehouse is; its identity is made the first time."""
    row = connection.execute(queries.get("warehouse", "claim"), {"location": location}).fetchone()
    assert row is not None
    return Warehouse(row[0], location)


def forget(connection: Connection) -> None:
    """The next one that is claimed gets an identity of its own."""
    connection.execute(queries.get("warehouse", "forget"))


def needed(connection: Connection) -> list[str]:
    """The metadata files of all that this database has in the lake."""
    return [location for (location,) in connection.execute(queries.get("warehouse", "needed")).fetchall()]


def snapshots(connection: Connection) -> list[str]:
    """The names of the snapshots of many tables that are in the warehouse."""
    return [name for (name,) in connection.execute(queries.get("warehouse", "snapshots")).fetchall()]
