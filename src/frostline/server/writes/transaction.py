"""One transaction on lake tables: the cut that it reads, what it has changed, and the savepoints in between.

Changes are kept in units. A unit is written into files when somebody reads, or at the end, and takes no more changes
from then on; a savepoint begins a new one. So going back to a savepoint is to throw the units after it away, with their
files, and nothing that was read before has to be undone. Not for several threads.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile

from frostline.catalog.connect import Connection
from frostline.errors import OutcomeUnknown, UsageError
from frostline.lake import lake_commit, lake_rows, lake_table, warehouse
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import State
from frostline.model.lake_tables import FILES, ROW_COLUMN, LakeOnly, RowId
from frostline.model.names import Name
from frostline.model.tables import Column, LakeFile, Table
from frostline.server.lake_tables import LakeTables
from frostline.server.translate import wants
from frostline.server.translate.scope import UnknownName
from frostline.server.writes.committer import Catalog, Committer, Wanted

_UNIT_ROWS = 100_000
"""A unit with so many rows is written, so that a transaction may be larger than the memory."""

Row = Sequence[str | None]
Reader = Callable[["TableChanges", Collection[RowId]], Mapping[RowId, Row]]
"""Reads rows of files by their places, as texts."""


class NullRefused(UsageError):
    """NULL in a column that has none."""

    sqlstate = "23502"


class Lake:
    """What all sessions share of lake tables."""

    def __init__(self, dsn: str, place: str | None) -> None:
        self.catalog, self.committer = Catalog(dsn, "lake cuts"), Committer(dsn)
        self._place = place

    def require_warehouse(self) -> None:
        """UnavailableError when the warehouse is not there, or is another database's."""
        if self._place is not None:
            with self.catalog.connection() as connection:
                self._required(connection, self._place)

    @staticmethod
    def _required(connection: Connection, place: str) -> None:
        warehouse.require(connection, place)

    def close(self) -> None:
        """Give the connections back."""
        self.catalog.close()
        self.committer.close()


@dataclass
class Unit:
    """Changes that stay or go together."""

    rows: list[Row] = field(default_factory=list[Row])
    """New ones, not written yet."""
    updates: dict[RowId, Mapping[int, str | None]] = field(default_factory=dict[RowId, Mapping[int, str | None]])
    """Rows whose new version is the old one with other values at these places of the columns."""
    gone: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Rows that are deleted or replaced, by the path of their file."""
    added: Added = field(default_factory=Added)
    is_written: bool = False


class TableChanges:
    """What a transaction sees of one table: a state of it that never changes, and its own changes above it."""

    def __init__(self, lake_table_id: int, name: Name, state: State) -> None:
        self.id, self.state = lake_table_id, state
        self._table = lake_table.described(lake_table_id, name, state.metadata)
        self.columns: tuple[Column, ...] = self._table.columns
        self.units: list[Unit] = []
        self._files: dict[str, DataFile] = dict(sorted(state.data.items()))
        self._paths: list[str] = list(self._files)
        self._numbers: dict[str, int] = {path: number for number, path in enumerate(self._paths)}
        self._keys = tuple((key.field_id, key.is_number) for key in wants.key_fields(self._table))

    def table(self) -> LakeOnly:
        """The table for a query: what it reads does not change while it is read, whatever is written meanwhile."""
        deletes = (*self.state.deletes, *(file.file_path for unit in self.units for file in unit.added.deletes))
        return replace(self._table, columns=(*self.columns, ROW_COLUMN), deletes=deletes, numbers=dict(self._numbers))

    def lake_files(self) -> list[LakeFile]:
        """The files that a query reads: those of the cut, and the transaction's own."""
        own = [file for unit in self.units for file in unit.added.data]
        return [lake_table.lake_file(file, self._keys) for file in (*self.state.data.values(), *own)]

    def unit(self) -> Unit:
        """The one that takes changes."""
        if not self.units or self.units[-1].is_written:
            self.units.append(Unit())
        return self.units[-1]

    def insert(self, rows: Sequence[Row]) -> None:
        """New rows, with a text for each column."""
        unit = self.unit()
        self._take(unit, rows)
        if len(unit.rows) >= _UNIT_ROWS:
            self._write_rows(unit)

    def _take(self, unit: Unit, rows: Sequence[Row]) -> None:
        for place, column in enumerate(self.columns):
            if column.not_null and any(row[place] is None for row in rows):
                raise NullRefused(
                    f'null value in column "{column.name}" of relation "{self._table.name.table}" violates '
                    "not-null constraint"
                )
        unit.rows.extend(rows)

    def remove(self, row: RowId) -> bool:
        """The row is gone; False when it is gone already, or there is no such row."""
        if row.file >= len(self._paths):
            return False
        path = self._paths[row.file]
        if row.position >= self._files[path].record_count or self._is_gone(path, row.position):
            return False
        self.unit().gone.setdefault(path, set()).add(row.position)
        return True

    def _is_gone(self, path: str, position: int) -> bool:
        return any(position in unit.gone.get(path, ()) for unit in self.units)

    def write(self, read: Reader) -> None:
        """Write what is not written yet. Nothing points to the files.

        What fails leaves all that was not written where it was: the next one to write, after ROLLBACK TO a later
        savepoint or at COMMIT, has to try the same again, or rows would be gone without their new versions.
        """
        for unit in self.units:
            if not unit.is_written:
                self._write_updates(unit, read)
                self._write_rows(unit)
                unit.added.deletes += lake_rows.write_deletes(self.state.metadata, self._files, unit.gone)
                unit.is_written = True

    def _write_updates(self, unit: Unit, read: Reader) -> None:
        old: Mapping[RowId, Row] = read(self, unit.updates.keys()) if unit.updates else {}
        rows = [
            [changed.get(place, value) for place, value in enumerate(old[row_id])]
            for row_id, changed in unit.updates.items()
        ]
        self._take(unit, rows)
        unit.updates = {}

    def _write_rows(self, unit: Unit) -> None:
        if not unit.rows:
            return
        made = lake_rows.typed(self.columns, list(zip(*unit.rows, strict=True)))
        written = lake_rows.write(self.state.metadata, self.columns, made)
        unit.rows = []
        for file in written:
            unit.added.data.append(file)
            self._numbers[file.file_path] = len(self._paths)
            self._paths.append(file.file_path)
            self._files[file.file_path] = file
        if len(self._paths) > FILES:
            raise UsageError("the transaction has too many files", hint="commit more often")

    def back_to(self, count: int) -> None:
        """Throw all units but the first so many away, and their files."""
        lake_commit.discard([file.file_path for unit in self.units[count:] for file in _files(unit)])
        del self.units[count:]

    def wanted(self) -> Wanted:
        """What is to be committed. All of it is written."""
        added, changed = Added(), dict[str, AbstractSet[int]]()
        for unit in self.units:
            added.data += unit.added.data
            added.deletes += unit.added.deletes
            for path, places in unit.gone.items():
                if path in self.state.data:
                    changed[path] = changed.get(path, frozenset[int]()) | places
        return Wanted(self.state, added, changed)

    def path(self, file: int) -> str:
        """The path of the file with that number."""
        return self._paths[file]

    def number(self, path: str) -> int:
        """The number of the file, as DuckDB names it."""
        return self._numbers[path] if path in self._numbers else self._numbers["file://" + path]


def _files(unit: Unit) -> Iterator[DataFile]:
    yield from unit.added.data
    yield from unit.added.deletes


class LakeTransaction:
    """A session's transaction on lake tables. The next one begins when this one has ended."""

    def __init__(self, lake: Lake, read: Reader) -> None:
        self._lake, self._read = lake, read
        self._cut: Mapping[int, tuple[Name, str]] | None = None
        self._tables: dict[int, TableChanges] = {}

    def changes(self, lake_table_id: int) -> TableChanges:
        """The table as the transaction sees it. The first call decides what all tables are for it."""
        if lake_table_id not in self._tables:
            if self._cut is None:
                self._cut = {
                    number: (Name(known.namespace, known.table), known.metadata_location)
                    for number, known in self._lake.catalog.cut().items()
                }
            found = self._cut.get(lake_table_id)
            if found is None:
                raise UnknownName(f"there is no lake table {lake_table_id}", hint="frostline lake list")
            self._tables[lake_table_id] = TableChanges(lake_table_id, found[0], lake_table.state(found[1]))
        return self._tables[lake_table_id]

    def tables(self) -> Collection[TableChanges]:
        """Those that it has read or changed."""
        return self._tables.values()

    def to_write(self, lake_table_id: int) -> TableChanges:
        """The same, before it is changed."""
        if not any(table.units for table in self._tables.values()):
            self._lake.require_warehouse()
        return self.changes(lake_table_id)

    def to_read(self, lake_table_id: int) -> TableChanges:
        """The same, with all its changes in files."""
        changes = self.changes(lake_table_id)
        changes.write(self._read)
        return changes

    def mark(self) -> Mapping[int, int]:
        """A savepoint: from now on changes go into new units."""
        for table in self._tables.values():
            if table.units and not table.units[-1].is_written:
                table.units.append(Unit())
        return {number: len(table.units) - _is_open(table) for number, table in self._tables.items()}

    def back_to(self, mark: Mapping[int, int]) -> None:
        """Undo what was changed since; what is read stays the same."""
        for number, table in self._tables.items():
            table.back_to(mark.get(number, 0))

    def commit(self) -> None:
        """One atomic commit of all that was changed; then the transaction is over, whatever comes of it."""
        try:
            for table in self._tables.values():
                table.write(self._read)
            wanted = {number: table.wanted() for number, table in self._tables.items()}
            wanted = {number: one for number, one in wanted.items() if one.added}
            if wanted:
                self._lake.require_warehouse()  # what was written is of no use if it went away since the first change
                self._lake.committer.commit(wanted)
        except OutcomeUnknown:
            self._forget()
            raise
        except BaseException:
            self.rollback()
            raise
        self._forget()

    def rollback(self) -> None:
        """Nothing of it is left, files included."""
        for table in self._tables.values():
            table.back_to(0)
        self._forget()

    def _forget(self) -> None:
        self._cut, self._tables = None, {}


def _is_open(table: TableChanges) -> bool:
    return bool(table.units) and not table.units[-1].is_written


@dataclass(frozen=True)
class SeenInTransaction:
    """Implements `LakeTables` for one query: lake tables as a transaction sees them, all other tables as they are."""

    others: LakeTables
    transaction: LakeTransaction
    _seen: dict[int, tuple[LakeOnly, Sequence[LakeFile]]] = field(
        default_factory=dict[int, tuple[LakeOnly, Sequence[LakeFile]]]
    )
    """What a query reads is decided once: a cursor that is read again must not see rows that were written since."""

    def resolve(self, table_id: int) -> Table:
        """The table with that id; a lake table has the negative of its own."""
        return self.others.resolve(table_id) if table_id > 0 else self._once(table_id)[0]

    def _once(self, table_id: int) -> tuple[LakeOnly, Sequence[LakeFile]]:
        if table_id not in self._seen:
            changes = self.transaction.to_read(-table_id)
            self._seen[table_id] = changes.table(), changes.lake_files()
        return self._seen[table_id]

    def forget(self) -> None:
        """Ask for the other tables' columns again."""
        self.others.forget()

    def current_snapshot(self, table_id: int) -> int | None:
        """Of a lake table that of the cut; its own changes are not in it."""
        if table_id > 0:
            return self.others.current_snapshot(table_id)
        return self.transaction.changes(-table_id).state.snapshot_id or 0

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        """The files to read."""
        if table_id > 0:
            return self.others.files(table_id, snapshot_id)
        return self._once(table_id)[1]

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """Of files of managed tables. Nobody has recorded any of lake tables, which other engines write too."""
        own = {file.path for table in self.transaction.tables() for file in table.lake_files()}
        return self.others.checksums([path for path in paths if path not in own])
