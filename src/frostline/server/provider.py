"""The lake's tables as the catalog describes them: what the lake server serves in production."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from frostline.catalog import seams, tables
from frostline.catalog.connect import Connection, connect
from frostline.errors import UnavailableError
from frostline.lake import snapshots, warehouse
from frostline.model.tables import LakeFile, Table

TABLE_CACHED_S = 30.0
"""How long a table's description may be old. Its columns are matched by field id, so a late rename does no harm."""
LOCATIONS_CACHED = 10_000

Answer = TypeVar("Answer")


class CatalogTables:
    """Implements `LakeTables`. Safe for many threads: what is cached is true for good, or for a while."""

    def __init__(self, dsn: str, place: str | None = None) -> None:
        self._dsn = dsn
        self._unseen = place
        """The warehouse, until it was seen to be the database's: so long no file of it is opened."""
        self._tables: dict[int, tuple[float, Table]] = {}
        self._locations: dict[tuple[int, int], str] = {}

    def resolve(self, table_id: int) -> Table:
        """The table with that id; raises UsageError when there is none."""
        known = self._tables.get(table_id)
        if known is not None and time.monotonic() - known[0] < TABLE_CACHED_S:
            return known[1]
        try:
            table = self._ask(lambda connection: tables.by_id(connection, table_id))
        except UnavailableError:
            if known is None:
                raise
            table = known[1]  # a standby is asked while its primary, which we ask, is down
        self._tables[table_id] = (time.monotonic(), table)
        return table

    def current_snapshot(self, table_id: int) -> int | None:
        """The lake snapshot that the seam names now; None while nothing is archived."""
        table = self.resolve(table_id)
        return self._ask(lambda connection: seams.get(connection, table)).snapshot_id

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        """The files of one snapshot. Asks Postgres only the first time: a snapshot never changes."""
        self._see_the_warehouse()
        table = self.resolve(table_id)
        location = self._locations.get((table_id, snapshot_id)) or self._location(table)
        try:
            found = snapshots.files(location, snapshot_id, table.column(table.tier_key).field_id)
        except UnavailableError:
            # Expiry deletes metadata files of states that are over; a snapshot that lives on is in the current one.
            location = self._location(table)
            found = snapshots.files(location, snapshot_id, table.column(table.tier_key).field_id)
        if len(self._locations) >= LOCATIONS_CACHED:
            self._locations.clear()
        self._locations[table_id, snapshot_id] = location
        return found

    def _see_the_warehouse(self) -> None:
        place = self._unseen
        if place is not None:
            self._ask(lambda connection: warehouse.require(connection, place))
            self._unseen = None

    def _location(self, table: Table) -> str:
        location = self._ask(lambda connection: seams.pointer(connection, table))
        if location is None:
            raise UnavailableError(f"{table.name} has nothing in the lake", hint="frostline status")
        return location

    def _ask(self, question: Callable[[Connection], Answer]) -> Answer:
        """Ask the catalog. Rare enough for a connection of its own, which then cannot be a stale one."""
        with connect(self._dsn, purpose="lake server") as connection:
            return question(connection)
