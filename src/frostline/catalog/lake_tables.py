"""Tables that live in the lake alone: which there are, where they are, and the one commit that moves many of them.

Whoever writes a lake table, the lake server, a REST client or a job, commits here: `commit` compares and sets the
pointers of all tables of a transaction, in one transaction of Postgres. docs/design/lake-tables.md has the protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog import pointers
from frostline.catalog.connect import Connection, fetch, first_value, only_value
from frostline.catalog.pointers import LakeMove, LakePointer, Pointer
from frostline.errors import ConflictError, UsageError

_statement = sqlfiles.statements(__name__, "queries/lake_table")


class NoSuchLakeTable(UsageError):
    """A lake table that is not there."""

    sqlstate = "42P01"


class LakeTableExists(UsageError):
    """The Iceberg catalog has a table of that name."""

    sqlstate = "42P07"


class CommitLost(ConflictError):
    """Somebody else committed to a lake table first. Nothing was changed: build upon what is there, and try again."""


@dataclass(frozen=True)
class Dropped:
    """A table that is gone from the catalog, with the last place that it had."""

    id: int
    namespace: str
    table: str
    uuid: str
    owner: str
    location: str
    metadata_location: str


def create(
    connection: Connection, pointer: Pointer, uuid: str, location: str, metadata_location: str, owner: str | None = None
) -> LakePointer:
    """Make it known, with its first metadata: one transaction. LakeTableExists when the name is taken.

    `location` is its folder, which no other table has. The owner is a role, by default that of the session.
    """
    values = {**pointer._asdict(), "uuid": uuid, "location": location, "owner": owner}
    with connection.transaction():
        made = first_value(connection.execute(_statement("insert"), values))
        if made is None or not pointers.add_lake(connection, pointer, metadata_location):
            raise LakeTableExists(
                f"the Iceberg catalog has a table {'.'.join(pointer)} already", hint="frostline lake list"
            )
        return by_id(connection, made)


def listed(connection: Connection) -> list[LakePointer]:
    """All live ones, as of one moment."""
    return pointers.lake_tables(connection)


def find(connection: Connection, pointer: Pointer) -> LakePointer | None:
    """The one of that name; None when there is none."""
    return next((table for table in listed(connection) if table.pointer == pointer), None)


def load(connection: Connection, pointer: Pointer) -> LakePointer:
    """The one of that name; NoSuchLakeTable when there is none."""
    found = find(connection, pointer)
    if found is None:
        raise NoSuchLakeTable(f"there is no lake table {'.'.join(pointer)}", hint="frostline lake list")
    return found


def by_id(connection: Connection, lake_table_id: int) -> LakePointer:
    """The one with that id, whatever it is called; NoSuchLakeTable when there is none."""
    for table in listed(connection):
        if table.id == lake_table_id:
            return table
    raise NoSuchLakeTable(f"there is no lake table {lake_table_id}", hint="frostline lake list")


def commit(connection: Connection, moves: Sequence[LakeMove]) -> None:
    """Move all pointers, or none: CommitLost when one of them is not where it was expected, or its table is gone.

    One transaction of its own, or a part of the caller's, which must not be committed after CommitLost. Pointers are
    moved in the order of their ids, so that two commits of the same tables do not wait for each other.
    """
    with connection.transaction():
        lost = pointers.swap_lake(connection, sorted(moves, key=lambda move: move.id))
        if lost is not None:
            raise CommitLost(f"lake table {lost} was committed to by somebody else meanwhile", hint="run it again")


def rename(connection: Connection, old: Pointer, new: Pointer) -> LakePointer:
    """Give it another name. Foreign tables know it by its id, and go on. LakeTableExists when the name is taken."""
    with connection.transaction():
        table = load(connection, old)
        if find(connection, new) is not None or pointers.find(connection, new) is not None:
            raise LakeTableExists(f"the Iceberg catalog has a table {'.'.join(new)} already", hint="choose another")
        values = {"id": table.id, "new_namespace": new.namespace, "new_table": new.table}
        connection.execute(_statement("rename"), values)
        pointers.rename_lake(connection, old, new)
        return by_id(connection, table.id)


def drop(connection: Connection, pointer: Pointer) -> LakePointer:
    """Take it out of the catalog; its files stay. A commit that comes later is lost. Gives back what it was."""
    with connection.transaction():
        table = load(connection, pointer)
        last = pointers.locked(connection, pointer) or table.metadata_location
        connection.execute(_statement("drop"), {"id": table.id, "metadata_location": last})
        pointers.drop(connection, pointer)
        return table


def dropped(connection: Connection) -> list[Dropped]:
    """Those whose files were not purged."""
    return fetch(connection, Dropped, _statement("dropped"))


def acts_for(connection: Connection, role: str, owner: str) -> bool:
    """Whether the role has what the owner of a lake table has."""
    return only_value(connection.execute(_statement("acts_for"), {"role": role, "owner": owner}))


def forget(connection: Connection, lake_table_id: int) -> None:
    """Its files are gone, so there is nothing to remember of a dropped one."""
    connection.execute(_statement("forget"), {"id": lake_table_id})
