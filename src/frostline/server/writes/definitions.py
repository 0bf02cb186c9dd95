"""Lake tables that a transaction makes and drops: values, which a savepoint keeps. docs/design/lake-tables.md."""

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import psycopg

from frostline import logs
from frostline.catalog import pointers
from frostline.catalog.connect import connect
from frostline.catalog.lake_tables import LakeTableExists, NewTable
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import FrostlineError
from frostline.lake import lake_commit, lake_folder, paths
from frostline.server.translate.scope import UnknownName
from frostline.server.writes.requests import Create, Drop
from frostline.server.writes.shared import Lake

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Definitions:
    """What a transaction has made and dropped so far."""

    made: Mapping[int, NewTable] = field(default_factory=dict[int, NewTable])
    """Dropped ones among them."""
    dropped: AbstractSet[int] = frozenset()
    purged: Mapping[int, str] = field(default_factory=dict[int, str])
    """The folders of those whose files are to be deleted."""

    @property
    def to_make(self) -> Sequence[NewTable]:
        """What the commit has to make."""
        return [new for number, new in self.made.items() if number not in self.dropped]

    @property
    def to_drop(self) -> Sequence[int]:
        """What the commit has to drop."""
        return sorted(self.dropped - self.made.keys())

    def making(self, lake: Lake, seen: Mapping[int, LakePointer], number: int, request: Create) -> "Definitions":
        """With one more, whose first metadata is written now: nothing points to it."""
        pointer = Pointer(request.namespace, request.table)
        others = [*seen.values(), *self.made.values()]
        with lake.catalog.connection() as connection:
            elsewhere = (
                pointers.find(connection, pointer) if pointer not in [other.pointer for other in others] else None
            )
        if elsewhere is not None or any(other.pointer == pointer and other.id not in self.dropped for other in others):
            raise LakeTableExists(
                f"the Iceberg catalog has a table {'.'.join(pointer)} already", hint="frostline lake list"
            )
        folder = paths.new_lake_table(lake.place, request.namespace, request.table)
        metadata, location = lake_folder.first_metadata(
            request.listed(), request.layout, folder, request.owner, request.held()
        )
        new = NewTable(number, pointer, str(metadata.table_uuid), request.owner, folder, location)
        return replace(self, made={**self.made, number: new})

    def dropping(self, lake: Lake, seen: Mapping[int, LakePointer], number: int, request: Drop) -> "Definitions":
        """With one less."""
        known = self.made.get(number) or seen.get(number)
        if known is None or number in self.dropped:
            raise UnknownName(f"there is no lake table {number}", hint="frostline lake list")
        purged = dict(self.purged)
        if request.purge and number not in self.made:
            with lake.catalog.connection() as connection:
                lake_folder.refuse_purge(connection, lake.place, number, known.location, known.pointer)
            purged[number] = known.location
        return replace(self, dropped=self.dropped | {number}, purged=purged)

    def undo(self, until: "Definitions") -> None:
        """Delete what was written for tables that were made since."""
        lake_commit.discard([new.metadata_location for number, new in self.made.items() if number not in until.made])

    def finish(self, lake: Lake) -> None:
        """After the commit, which is not undone whatever goes wrong here: delete the files that nobody wants."""
        lake_commit.discard([new.metadata_location for number, new in self.made.items() if number in self.dropped])
        for number, folder in self.purged.items():
            try:
                with connect(lake.dsn, purpose="lake purge") as connection:
                    lake_folder.purge(connection, lake.place, number, folder)
            except (FrostlineError, OSError, psycopg.Error) as error:
                _log.warning("%s", logs.fields(stage="purge", folder=folder, error=str(error)))


@dataclass(frozen=True)
class Mark:
    """Where a transaction is at a savepoint."""

    units: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many there are of each table."""
    definitions: Definitions = field(default_factory=Definitions)
