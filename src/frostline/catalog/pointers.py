"""The pointers of the built-in Iceberg catalog: the only statements on `frostline.iceberg_tables`.

A pointer names a table's metadata file; to swing it is the Iceberg commit. It is always a compare-and-set inside the
caller's transaction, which is where a lake with a frost line moves its seam as well (`seams.move`) and one without, a
copy of a snapshot, does not. Other engines write the same table: docs/design/foreign-commits.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, first_value, only_value
from frostline.errors import ConflictError
from frostline.model.names import Name
from frostline.model.tables import Standing, Table

_statement = sqlfiles.statements(__name__, "queries/pointer")


class Pointer(NamedTuple):
    """What the Iceberg catalog calls a table."""

    namespace: str
    """Its levels, with dots between them."""
    table: str

    @classmethod
    def of(cls, table: Table) -> "Pointer":
        """Of the lake half of a managed table."""
        return cls(table.lake_name.schema, table.internal)


@dataclass(frozen=True)
class Move:
    """A commit: where a pointer must be, and where it is to go."""

    pointer: Pointer
    previous: str | None
    """None: it must not be there."""
    location: str


@dataclass(frozen=True)
class LakePointer:
    """A table that lives in the lake alone, and where it is (`catalog/lake_tables.py`)."""

    id: int
    """`lake_table_id`: stays when the table is renamed."""
    namespace: str
    table: str
    uuid: str
    owner: str
    location: str
    """Its folder in the warehouse."""
    metadata_location: str
    previous_location: str | None

    @property
    def pointer(self) -> Pointer:
        """What the Iceberg catalog calls it."""
        return Pointer(self.namespace, self.table)

    @property
    def name(self) -> Name:
        """What people call it."""
        return Name(self.namespace, self.table)


@dataclass(frozen=True)
class LakeMove:
    """A commit to a lake table: where its pointer must be, and where it is to go."""

    id: int
    """`lake_table_id`."""
    previous: str
    location: str
    snapshot_id: int | None = None
    """The snapshot by which it is known later, when nobody names its metadata any more."""


def standing(connection: Connection, table: Table) -> Standing:
    """Where the seam is and where the Iceberg catalog points to, as of one moment."""
    values = {"table_id": table.id, **_named(Pointer.of(table))}
    row = connection.execute(_statement("standing"), values).fetchone()
    return Standing(*row) if row else Standing(None, None, None)


def find(connection: Connection, pointer: Pointer) -> str | None:
    """Where it points to. For a managed table that is the seam's location, unless somebody else has moved it."""
    return first_value(connection.execute(_statement("find"), _named(pointer)))


def other_names(connection: Connection, table: Table, folder: str) -> list[Name]:
    """Other tables of the Iceberg catalog whose metadata is in this folder of the table."""
    values = {"folder": folder, **_named(Pointer.of(table))}
    return [Name(*row) for row in connection.execute(_statement("other_names"), values).fetchall()]


def swap(connection: Connection, table: Table, previous: str | None, location: str) -> None:
    """The commit of a managed table, from the seam's location if nobody else has moved it; else ConflictError."""
    if _swapped(connection, [Move(Pointer.of(table), previous, location)]) is not None:
        raise ConflictError(
            f"the lake of {table.name} was committed to by somebody else meanwhile; nothing was changed",
            hint=f"frostline repair {table.name}",
        )


def swap_copies(connection: Connection, snapshot: str, moves: Sequence[Move]) -> None:
    """The commit of all copies of a snapshot; ConflictError when somebody else has committed to one of them."""
    _add_namespaces(connection, [snapshot])
    lost = _swapped(connection, moves)
    if lost is not None:
        raise ConflictError(
            f"{'.'.join(lost)} was committed to by somebody else since the last version of snapshot {snapshot!r}",
            hint=f"frostline snapshot drop {snapshot}, then create it anew",
        )


def lake_tables(connection: Connection) -> list[LakePointer]:
    """All live lake tables, as of one moment."""
    return fetch(connection, LakePointer, _statement("lake_tables"))


def add_lake(connection: Connection, pointer: Pointer, location: str) -> bool:
    """The first pointer of a lake table; False when the catalog has one of that name."""
    return _swapped(connection, [Move(pointer, None, location)]) is None


def swap_lake(connection: Connection, moves: Sequence[LakeMove]) -> int | None:
    """Move all of them, or none: then this is the first that is elsewhere."""
    values = {
        "ids": [move.id for move in moves],
        "previous": [move.previous for move in moves],
        "locations": [move.location for move in moves],
    }
    return only_value(connection.execute(_statement("swap_lake"), values))


def lock_lake(connection: Connection, lake_table_ids: Iterable[int]) -> None:
    """In a transaction: nobody else moves or drops these lake tables until it ends. In the order of `swap_lake`."""
    connection.execute(_statement("lock_lake"), {"ids": list(lake_table_ids)})


def rename_lake(connection: Connection, old: Pointer, new: Pointer) -> None:
    """In the transaction that renames the lake table."""
    _add_namespaces(connection, [new.namespace])
    values = {**_named(old), "new_namespace": new.namespace, "new_table": new.table}
    connection.execute(_statement("rename_lake"), values)


def locked(connection: Connection, pointer: Pointer) -> str | None:
    """Where it points to; nobody else moves it before the transaction ends. Waits for whoever moves it just now."""
    return first_value(connection.execute(_statement("lock"), _named(pointer)))


def _swapped(connection: Connection, moves: Sequence[Move]) -> Pointer | None:
    """Move all pointers. Gives one that somebody else has moved: then the transaction must not be committed."""
    _add_namespaces(connection, (move.pointer.namespace for move in moves))
    made = [move for move in moves if move.previous is None]
    swung = [move for move in moves if move.previous is not None]
    with connection.cursor() as cursor:
        for statement, chosen in (("insert", made), ("swap", swung)):
            values = [
                {**_named(move.pointer), "metadata_location": move.location, "previous_location": move.previous}
                for move in chosen
            ]
            cursor.executemany(_statement(statement), values)
            if chosen and cursor.rowcount != len(chosen):
                return _lost(connection, chosen)
    return None


def _lost(connection: Connection, moves: Sequence[Move]) -> Pointer:
    """The first that does not point to what we have just set."""
    namespaces = sorted({move.pointer.namespace for move in moves})
    rows = connection.execute(_statement("within"), {"namespaces": namespaces}).fetchall()
    now = {Pointer(namespace, table): location for namespace, table, location in rows}
    return next((move.pointer for move in moves if now.get(move.pointer) != move.location), moves[0].pointer)


def put(
    connection: Connection, table: Table, previous: str | None, location: str | None, others: Sequence[Name] = ()
) -> None:
    """Inside a transaction: let the Iceberg catalog point to the location, or to nothing; the other names go.

    ConflictError when it does not point any more to where it was found.
    """
    pointer = Pointer.of(table)
    if locked(connection, pointer) != previous:
        raise ConflictError(
            f"the lake of {table.name} was committed to by somebody else just now",
            hint=f"frostline repair {table.name}",
        )
    if location is None:
        drop(connection, pointer)
    else:
        _add_namespaces(connection, [pointer.namespace])
        connection.execute(_statement("put"), {**_named(pointer), "metadata_location": location})
    for name in others:
        drop(connection, Pointer(name.schema, name.table))


def drop(connection: Connection, pointer: Pointer) -> None:
    """Take a table out of the Iceberg catalog; its files stay."""
    connection.execute(_statement("drop"), _named(pointer))


def drop_copies(connection: Connection, pointers: Iterable[Pointer]) -> None:
    """Take copies, or a lake without rows, out of the Iceberg catalog, and namespaces that are empty then."""
    gone = list(pointers)
    if not gone:
        return
    with connection.cursor() as cursor:
        cursor.executemany(_statement("drop"), [_named(pointer) for pointer in gone])
    namespaces = {pointer.namespace for pointer in gone}
    for level in (namespaces, {namespace.partition(".")[0] for namespace in namespaces}):
        connection.execute(_statement("drop_empty_namespaces"), {"namespaces": sorted(level)})


def lead_into(connection: Connection, folder: str) -> bool:
    """Whether a table of the Iceberg catalog has its metadata in this folder, whoever has committed it."""
    return only_value(connection.execute(_statement("lead_into"), {"folder": folder}))


def _add_namespaces(connection: Connection, namespaces: Iterable[str]) -> None:
    """In one order, so that two commits do not wait for each other."""
    with connection.cursor() as cursor:
        values = [{"namespace": namespace} for namespace in sorted(set(namespaces))]
        cursor.executemany(_statement("add_namespace"), values)


def _named(pointer: Pointer) -> dict[str, Any]:
    return {"namespace": pointer.namespace, "table": pointer.table}
