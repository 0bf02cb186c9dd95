"""The lake's tables as the catalog describes them: what the lake server serves in production."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import psycopg

from frostline.catalog import lake_files, seams, tables
from frostline.catalog.connect import Connection, connect
from frostline.errors import CorruptionError, UnavailableError, UsageError
from frostline.lake import expected, snapshots, warehouse
from frostline.model.tables import LakeFile, Table
from frostline.server.own_session import OwnSessionFailed, explained
from frostline.server.translate import wants

TABLE_CACHED_S = 30.0
"""How long a table's description may be old. A column is in it by its first name, so a rename does no harm."""
LOCATIONS_CACHED = 10_000
CHECKSUMS_CACHED = 500_000

Answer = TypeVar("Answer")


class NoManagedTables:
    """Implements `ManagedTables` for a node, which has no managed tables: those of the catalog are in its Postgres."""

    def resolve(self, table_id: int) -> Table:
        """There is none."""
        raise UsageError(f"there is no managed table {table_id} on a node", hint="query it where the catalog is")

    def forget(self) -> None:
        """Nothing is remembered."""

    def current_snapshot(self, table_id: int) -> int | None:
        """There is none."""
        return self.resolve(table_id).id

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:  # noqa: ARG002
        """There are none."""
        self.resolve(table_id)
        return ()

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:  # noqa: ARG002
        """Nobody has recorded any of lake tables."""
        return {}


class CatalogTables:
    """Implements `ManagedTables`. Safe for many threads: what is cached is true for good, or for a while."""

    def __init__(self, dsn: str, place: str | None = None) -> None:
        self._dsn = dsn
        self._unseen = place
        """The warehouse, until it was seen to be the database's: so long no file of it is opened."""
        self._tables: dict[int, tuple[float, Table]] = {}
        self._locations: dict[tuple[int, int], str] = {}
        self._checksums: dict[str, bytes] = {}

    def resolve(self, table_id: int) -> Table:
        """The table with that id; raises UsageError when there is none."""
        known = self._tables.get(table_id)
        if known is not None and time.monotonic() - known[0] < TABLE_CACHED_S:
            return known[1]
        try:
            table = self._ask(lambda connection: tables.by_id(connection, table_id).as_remote())
        except OwnSessionFailed:
            raise
        except UnavailableError:
            if known is None:
                raise
            table = known[1]  # a standby is asked while its primary, which we ask, is down
        self._tables[table_id] = (time.monotonic(), table)
        return table

    def forget(self) -> None:
        """Ask for the tables' columns again: a query has named one that was not there."""
        self._tables.clear()

    def current_snapshot(self, table_id: int) -> int | None:
        """The lake snapshot that the seam names now; None while nothing is archived."""
        table = self.resolve(table_id)
        return self._ask(lambda connection: seams.get(connection, table)).snapshot_id

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        """The files of one snapshot. Asks Postgres only the first time: a snapshot never changes."""
        self._see_the_warehouse()
        table, field_id = self.resolve(table_id), self._tier_field(table_id)
        keys = wants.key_fields(table)
        known = self._locations.get((table_id, snapshot_id))
        try:
            location = known or self._location(table)
            files = snapshots.files(location, snapshot_id, field_id, keys)
        except (UnavailableError, CorruptionError):
            if known is None:
                raise
            # Expiry deletes metadata files of states that are over; a snapshot that lives on is in the current one.
            location = self._location(table)
            files = snapshots.files(location, snapshot_id, field_id, keys)
        if known is None:
            self.checksums([file.path for file in files])  # while Postgres answers: a standby may outlive it
        if len(self._locations) >= LOCATIONS_CACHED:
            self._locations.clear()
        self._locations[table_id, snapshot_id] = location
        return files

    def _tier_field(self, table_id: int) -> int:
        table = self.resolve(table_id)
        return table.column(table.tier_key).field_id

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """What is recorded of these files. Asks Postgres for those that it has not asked for: files never change."""
        unknown = [path for path in paths if path not in self._checksums]
        asked = self._ask(lambda connection: lake_files.checksums(connection, unknown)) if unknown else {}
        if len(self._checksums) >= CHECKSUMS_CACHED:
            self._checksums.clear()
        self._checksums.update(asked)
        return {path: self._checksums[path] for path in paths if path in self._checksums} | asked

    def _see_the_warehouse(self) -> None:
        place = self._unseen
        if place is not None:
            self._ask(lambda connection: warehouse.require(connection, place))
            self._unseen = None

    def _location(self, table: Table) -> str:
        """Where the seam's own metadata is; what its files must be is known from now on.

        What the Iceberg catalog points to may be somebody else's.
        """

        def asked(connection: Connection) -> str | None:
            expected.add(lake_files.metadata_checksums(connection, table))
            return seams.get(connection, table).metadata_location

        location = self._ask(asked)
        if location is None:
            raise UnavailableError(f"{table.name} has nothing in the lake", hint="frostline status")
        return location

    def _ask(self, question: Callable[[Connection], Answer]) -> Answer:
        """Ask the catalog. Rare enough for a connection of its own, which then cannot be a stale one."""
        with connect(self._dsn, purpose="lake server") as connection:
            try:
                return question(connection)
            except psycopg.Error as error:
                raise explained(error, connection, was_cancelled=False) from error
