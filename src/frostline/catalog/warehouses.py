"""Which warehouse this database's files are in, and the identity that shows it to be ours."""

from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog.connect import Connection, only_value

_statement = sqlfiles.statements(__name__, "queries/warehouse")
_migration_statement = sqlfiles.statements(__name__, "queries/migration")


@dataclass(frozen=True)
class Warehouse:
    """The warehouse that was claimed."""

    identity: str
    """Random; a restored copy of the database has the same."""
    location: str
    """In its one form, as `lake.paths` writes it."""


def find(connection: Connection) -> Warehouse | None:
    """The warehouse; None when none was claimed yet."""
    row = connection.execute(_statement("find")).fetchone()
    return None if row is None else Warehouse(*row)


def lock(connection: Connection) -> None:
    """Until the transaction ends nobody else claims one: the lock of installers."""
    connection.execute(_migration_statement("lock_out_other_installers"))


def claim(connection: Connection, location: str) -> Warehouse:
    """Write down where the warehouse is; its identity is made the first time."""
    return Warehouse(only_value(connection.execute(_statement("claim"), {"location": location})), location)


def forget(connection: Connection) -> None:
    """The next one that is claimed gets an identity of its own."""
    connection.execute(_statement("forget"))


def needed(connection: Connection) -> list[str]:
    """The metadata files of all that this database has in the lake."""
    return [location for (location,) in connection.execute(_statement("needed")).fetchall()]


def snapshots(connection: Connection) -> list[str]:
    """The named snapshots that are in the warehouse."""
    return [name for (name,) in connection.execute(_statement("snapshots")).fetchall()]
