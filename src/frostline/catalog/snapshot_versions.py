"""Versions of named snapshots: the rows that say what each consists of."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.catalog.pointers import Pointer
from frostline.errors import ConflictError
from frostline.model.fields import Field
from frostline.model.names import Name
from frostline.model.tables import Fingerprint

_statement = sqlfiles.statements(__name__, "queries/snapshot_version")


@dataclass(frozen=True)
class Run:
    """A version that is being made."""

    id: int
    version: int
    token: str
    """In the names of the folders it makes."""
    server: str
    """The lineage of the database that makes it."""


@dataclass(frozen=True)
class Taken:
    """When the copies of a version were taken."""

    lsn: str
    """All that they have was written before this."""
    at: datetime


@dataclass(frozen=True)
class Place:
    """A catalog that copies are in; without a uri it is the one in Postgres."""

    uri: str | None = None
    warehouse: str | None = None


@dataclass(frozen=True)
class Copied:
    """A table of a version."""

    name: Name
    namespace: str
    lake_table: str
    metadata_location: str
    lake_snapshot_id: int | None
    size_bytes: int
    fingerprint: Fingerprint
    source_oid: int
    columns: tuple[Field, ...]
    last_field_id: int
    reused: bool = False
    location: str | None = None
    """The folder, where a catalog outside chose it."""
    read_from: str | None = None
    """The metadata file that a lake table was read from."""

    @property
    def pointer(self) -> Pointer:
        """What the Iceberg catalog calls it."""
        return Pointer(self.namespace, self.lake_table)


@dataclass(frozen=True)
class Known:
    """The newest published copy of a table."""

    copied: Copied
    is_ours: bool
    """It was made in this lineage of the database."""
    is_current: bool
    """It is in the newest version, so the catalog points to it."""


@dataclass(frozen=True)
class Version:
    """A version as people see it."""

    id: int
    name: str
    version: int
    state: str
    taken_at: datetime | None
    lsn: str | None
    atomic: bool
    catalog_uri: str | None
    catalog_warehouse: str | None
    server: str
    """The lineage of the database that made it."""
    error: str | None
    tables: int
    rows: int
    size_bytes: int

    @property
    def place(self) -> Place:
        """Where its copies are."""
        return Place(self.catalog_uri, self.catalog_warehouse)


@dataclass(frozen=True)
class Shown:
    """A table of a version as people see it."""

    name: Name
    namespace: str
    lake_table: str
    metadata_location: str
    lake_snapshot_id: int | None
    rows: int
    size_bytes: int
    hash_sum: int
    reused: bool

    @property
    def pointer(self) -> Pointer:
        """What the Iceberg catalog calls it."""
        return Pointer(self.namespace, self.lake_table)


@contextmanager
def exclusive(connection: Connection, name: str) -> Generator[None]:
    """Be the only one who works on the snapshot of this name; ConflictError when somebody else does."""
    if not only_value(connection.execute(_statement("lock"), {"name": name})):
        raise ConflictError(f"another run on snapshot {name!r} is going on", hint="wait for it, then try again")
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # a lost session has lost the lock too
            connection.execute(_statement("unlock"), {"name": name})


def start(connection: Connection, name: str, warehouse: str, place: Place) -> Run:
    """Write down that a version is being made. The caller holds the name's lock."""
    values = {"name": name, "warehouse": warehouse, "catalog_uri": place.uri, "catalog_warehouse": place.warehouse}
    return fetch(connection, Run, _statement("start"), values)[0]


def fail(connection: Connection, snapshot_id: int, error: str) -> None:
    """Write down why a run ended. If a catalog outside was told, it stays unknown what came of it."""
    connection.execute(_statement("fail"), {"snapshot_id": snapshot_id, "error": error})


def newest(connection: Connection, name: str, place: Place) -> dict[Name, Known]:
    """The newest published copy, in this catalog, of every table that any version of the snapshot has."""
    values = {"name": name, "catalog_uri": place.uri, "catalog_warehouse": place.warehouse}
    return {known.copied.name: known for known in fetch(connection, _known, _statement("newest"), values)}


def _known(*, is_ours: bool, is_current: bool, **others: Any) -> Known:
    return Known(_copied(**others), is_ours, is_current)


def _copied(
    *, schema: str, table: str, rows: int, hash_sum: Decimal, columns: list[dict[str, Any]], **others: Any
) -> Copied:
    return Copied(
        name=Name(schema, table),
        fingerprint=Fingerprint(rows, int(hash_sum)),
        columns=tuple(Field(**column) for column in columns),
        **others,
    )


def publish(connection: Connection, run: Run, taken: Taken, tables: Sequence[Copied], *, atomic: bool = True) -> None:
    """Inside the publishing transaction: the version is there, with these tables."""
    values = {"snapshot_id": run.id, "lsn": taken.lsn, "taken_at": taken.at, "atomic": atomic}
    if connection.execute(_statement("publish"), values).rowcount != 1:
        raise ConflictError(f"version {run.version} is not being made any more", hint="run the command again")
    with connection.cursor() as cursor:
        cursor.executemany(_statement("insert_table"), [_row(run, copied) for copied in tables])


def prepare(connection: Connection, run: Run, taken: Taken, tables: Sequence[Copied]) -> None:
    """Write down what is about to be committed to a catalog outside: until somebody knows, its outcome is unknown."""
    locations = sorted({copied.location for copied in tables if copied.location is not None})
    values = {"snapshot_id": run.id, "lsn": taken.lsn, "taken_at": taken.at, "locations": locations}
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(_statement("prepare"), values)
        cursor.executemany(_statement("insert_table"), [_row(run, copied) for copied in tables])


def refused(connection: Connection, snapshot_id: int) -> None:
    """A catalog outside has said that it took nothing of a version: it failed."""
    connection.execute(_statement("refused"), {"snapshot_id": snapshot_id})


def settle(connection: Connection, snapshot_id: int, locations: Mapping[Name, str], *, atomic: bool) -> None:
    """A catalog outside has all tables of a version: it is published. Their metadata is where the catalog says."""
    moved = [
        {"snapshot_id": snapshot_id, "schema": name.schema, "table": name.table, "location": location}
        for name, location in locations.items()
    ]
    with connection.transaction(), connection.cursor() as cursor:
        if moved:
            cursor.executemany(_statement("settle_table"), moved)
        values = {"snapshot_id": snapshot_id, "atomic": atomic}
        cursor.execute(_statement("settle"), values)


def give_up(connection: Connection, snapshot_id: int) -> None:
    """A catalog outside has no table of a version: it failed, unless the request may still be on its way."""
    connection.execute(_statement("give_up"), {"snapshot_id": snapshot_id})


def set_locations(connection: Connection, run: Run, locations: Iterable[str]) -> None:
    """Write down, before anything is written there, which folders of others the run writes into."""
    values = {"snapshot_id": run.id, "locations": sorted(set(locations))}
    connection.execute(_statement("set_locations"), values)


def locations(connection: Connection, snapshot_ids: Sequence[int]) -> list[str]:
    """The folders of others that these runs wrote into, each once."""
    values = {"snapshot_ids": list(snapshot_ids)}
    return [row[0] for row in connection.execute(_statement("locations"), values).fetchall()]


def _row(run: Run, copied: Copied) -> dict[str, Any]:
    return {
        "snapshot_id": run.id,
        "schema": copied.name.schema,
        "table": copied.name.table,
        "namespace": copied.namespace,
        "lake_table": copied.lake_table,
        "metadata_location": copied.metadata_location,
        "lake_snapshot_id": copied.lake_snapshot_id,
        "rows": copied.fingerprint.rows,
        "size_bytes": copied.size_bytes,
        "hash_sum": copied.fingerprint.hash_sum,
        "reused": copied.reused,
        "source_oid": copied.source_oid,
        "columns": Jsonb([column.to_record() for column in copied.columns]),
        "last_field_id": copied.last_field_id,
        "read_from": copied.read_from,
    }


def began(connection: Connection) -> dict[str, datetime]:
    """The names of which a version is being made just now, and since when. A run that died is none."""
    return dict(connection.execute(_statement("began")).fetchall())


def versions(connection: Connection, name: str | None = None, *, include_unpublished: bool = False) -> list[Version]:
    """The published versions, of one name or of all; with `include_unpublished` also those that are not to be seen."""
    values = {"name": name, "include_unpublished": include_unpublished}
    return fetch(connection, Version, _statement("versions"), values)


def tables(connection: Connection, version: Version) -> list[Shown]:
    """The tables of a version, by name."""
    return fetch(connection, _shown, _statement("tables"), {"snapshot_id": version.id})


def _shown(*, schema: str, table: str, hash_sum: Decimal, **others: Any) -> Shown:
    return Shown(name=Name(schema, table), hash_sum=int(hash_sum), **others)


def drop(connection: Connection, snapshot_ids: Sequence[int]) -> None:
    """Inside a transaction: these versions are gone. Their files are untidied."""
    for statement in ("drop", "drop_tables"):
        connection.execute(_statement(statement), {"snapshot_ids": list(snapshot_ids)})


def dead(connection: Connection, name: str) -> dict[int, bool]:
    """Runs of the name that died or were dropped, and whether they were tidied. The caller holds the name's lock."""
    return dict(connection.execute(_statement("dead"), {"name": name}).fetchall())


def owners(connection: Connection) -> frozenset[str]:
    """The lineages whose copies are this database's own."""
    rows = connection.execute(_statement("owners")).fetchall()
    return frozenset(row[0] for row in rows)


def folders(connection: Connection, name: str) -> list[tuple[str, str]]:
    """The tokens in the names of the folders that are ours, each with its warehouse."""
    return connection.execute(_statement("folders"), {"name": name}).fetchall()


def needed(connection: Connection, name: str, folders: Iterable[str] | None = None) -> list[str]:
    """The metadata files of all copies that may still be read, or of those that may have files in these folders."""
    values = {"name": name, "folders": None if folders is None else sorted(folders)}
    return [row[0] for row in connection.execute(_statement("needed"), values).fetchall()]


def set_tidied(connection: Connection, snapshot_ids: Sequence[int]) -> None:
    """Write down that nothing is left of these runs; one that was killed counts as failed from now on."""
    connection.execute(_statement("set_tidied"), {"snapshot_ids": list(snapshot_ids)})


def untidied_names(connection: Connection) -> list[str]:
    """The names of snapshots of which a run left something behind."""
    return [row[0] for row in connection.execute(_statement("names")).fetchall()]
