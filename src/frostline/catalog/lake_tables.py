"""Tables that live in the lake alone: which there are, where they are, and the one commit that moves many of them.

`commit` compares and sets the pointers of all tables of a transaction, in one transaction of Postgres. Whoever writes a
lake table has `lake/lake_publish.py` call it. docs/design/lake-tables.md has the protocol.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg
from psycopg.pq import TransactionStatus

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
    server: str
    """The lineage in which it was made."""
    metadata_location: str
    is_purged: bool
    """Its files are being deleted: it has no last place any more."""


def adopt(
    connection: Connection,
    pointer: Pointer,
    uuid: str,
    location: str,
    metadata_location: str,
    server: str | None = None,
) -> LakePointer:
    """In a transaction: make one of what the catalog has under that name at that place, or has nothing of.

    `server` is as for `create`. ConflictError when the catalog has another place for it by now.
    """
    there = pointers.locked(connection, pointer)
    if there is None:
        return create(connection, pointer, uuid, location, metadata_location, server=server)
    if there != metadata_location:
        raise ConflictError(f"somebody else commits to {'.'.join(pointer)}", hint="run it again")
    values = {**pointer._asdict(), "uuid": uuid, "location": location, "owner": None, "server": server}
    return by_id(connection, only_value(connection.execute(_statement("insert"), values)))


@dataclass(frozen=True)
class NewTable:
    """A lake table that is to be made with its transaction's commit, and has a number already."""

    id: int
    pointer: Pointer
    uuid: str
    owner: str
    location: str
    """Its folder."""
    metadata_location: str
    """Its first metadata."""


def create(
    connection: Connection,
    pointer: Pointer,
    uuid: str,
    location: str,
    metadata_location: str,
    owner: str | None = None,
    server: str | None = None,
) -> LakePointer:
    """Make it known, with its first metadata: one transaction. LakeTableExists when the name is taken.

    `location` is its folder, which no other table has. The owner is a role, by default that of the session; the server
    is the lineage that its files are of, by default this one.
    """
    values = {**pointer._asdict(), "uuid": uuid, "location": location, "owner": owner, "server": server}
    with connection.transaction():
        made = first_value(connection.execute(_statement("insert"), values))
        if made is None or not pointers.add_lake(connection, pointer, metadata_location):
            raise LakeTableExists(
                f"the Iceberg catalog has a table {'.'.join(pointer)} already", hint="frostline lake list"
            )
        return by_id(connection, made)


def define(connection: Connection, made: Sequence[NewTable], dropped: Sequence[int], moves: Sequence[LakeMove]) -> None:
    """Drop and make tables, and move the pointers of these and others: one transaction, all or nothing.

    NoSuchLakeTable, LakeTableExists or CommitLost: nothing was changed. All tables that are there are locked first, in
    the order of `commit`: dropped ones before moved ones could wait in a circle with a commit of both.
    """
    with connection.transaction():
        connection.execute(_statement("wait_no_longer"))
        pointers.lock_lake(connection, [*dropped, *(move.id for move in moves)])
        for number in sorted(dropped):
            drop(connection, by_id(connection, number).pointer)
        for new in made:
            values = {**new.pointer._asdict(), **asdict(new)}
            is_new = first_value(connection.execute(_statement("insert_numbered"), values)) is not None
            if not is_new or not pointers.add_lake(connection, new.pointer, new.metadata_location):
                raise LakeTableExists(
                    f"the Iceberg catalog has a table {'.'.join(new.pointer)} already", hint="frostline lake list"
                )
        commit(connection, moves)


def listed(connection: Connection) -> list[LakePointer]:
    """All live ones, as of one moment."""
    return pointers.lake_tables(connection)


def find(connection: Connection, pointer: Pointer) -> LakePointer | None:
    """The one of that name; None when there is none."""
    return next((table for table in listed(connection) if table.pointer == pointer), None)


def load(connection: Connection, pointer: Pointer) -> LakePointer:
    """The one of that name; NoSuchLakeTable when there is none."""
    lake_table = find(connection, pointer)
    if lake_table is None:
        raise NoSuchLakeTable(f"there is no lake table {'.'.join(pointer)}", hint="frostline lake list")
    return lake_table


def by_id(connection: Connection, lake_table_id: int) -> LakePointer:
    """The one with that id, whatever it is called; NoSuchLakeTable when there is none."""
    for table in listed(connection):
        if table.id == lake_table_id:
            return table
    raise NoSuchLakeTable(f"there is no lake table {lake_table_id}", hint="frostline lake list")


def locked(connection: Connection, lake_table_id: int) -> LakePointer:
    """In a transaction: the one with that id, which nobody else moves or drops before that ends, as for `by_id`."""
    connection.execute(_statement("wait_no_longer"))
    pointers.lock_lake(connection, [lake_table_id])
    return by_id(connection, lake_table_id)


def of_foreign_table(connection: Connection, lake_table_id: int) -> LakePointer:
    """The same for a foreign table in this database; UsageError when the catalog is in another Postgres."""
    try:
        return by_id(connection, lake_table_id)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise UsageError(
            "this Postgres is a node, and the catalog of the lake tables is in another",
            hint="give the connection string of the Postgres that the node is attached to: dsn=",
        ) from None


def commit(connection: Connection, moves: Sequence[LakeMove]) -> None:
    """Move all pointers, or none: CommitLost when one of them is not where it was expected, or its table is gone.

    Outside of a transaction it is one statement: a process that is stopped in the middle of it holds no lock. Inside of
    the caller's, Postgres ends the session of one that is stopped for long, so that nobody waits for ever. Pointers are
    locked in the order of their ids, so that two commits of the same tables do not wait for each other.
    """
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        connection.execute(_statement("wait_no_longer"))
    lost = pointers.swap_lake(connection, moves)
    if lost is not None:
        raise CommitLost(f"lake table {lost} was committed to by somebody else meanwhile", hint="run it again")


def rename(connection: Connection, old: Pointer, new: Pointer) -> LakePointer:
    """Give it another name. Foreign tables know it by its id, and go on. LakeTableExists when the name is taken."""
    with connection.transaction():
        pointers.locked(connection, old)  # before the table's row, as `drop` does
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


def begin_purge(connection: Connection, lake_table_id: int) -> bool:
    """Nobody takes it up again from now on; False when somebody has done so already."""
    return first_value(connection.execute(_statement("begin_purge"), {"id": lake_table_id})) is not None


def acts_for(connection: Connection, role: str, owner: str) -> bool:
    """Whether the role has what the owner of a lake table has."""
    return only_value(connection.execute(_statement("acts_for"), {"role": role, "owner": owner}))


def forget(connection: Connection, lake_table_id: int) -> None:
    """Its files are gone, so there is nothing to remember of a dropped one."""
    connection.execute(_statement("forget"), {"id": lake_table_id})
