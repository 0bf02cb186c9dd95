"""One transaction on lake tables: the cut that it reads, what it has changed, and the savepoints in between.

Changes are kept in units. A unit is written into files when somebody reads, or at the end, and takes no more changes
from then on; a savepoint begins a new one. So going back to a savepoint is to throw the units after it away, with their
files, and nothing that was read before has to be undone. Not for several threads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyiceberg.manifest import DataFile

from frostline.catalog.pointers import LakePointer
from frostline.errors import FrostlineError, OutcomeUnknown, UsageError
from frostline.lake import lake_columns, lake_commit, lake_format, lake_rows, lake_table, rest_rules
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import State
from frostline.model.lake_tables import (
    ROW_COLUMN,
    LakeTable,
    Remote,
    RemoteLakeTable,
    RowId,
    ServedTable,
    remote_schema,
)
from frostline.model.names import Name
from frostline.model.tables import LakeFile
from frostline.server.served_tables import ServedTables
from frostline.server.translate import wants
from frostline.server.translate.scope import UnknownName, require_columns
from frostline.server.writes import checks, expired
from frostline.server.writes.definitions import Definitions, Mark
from frostline.server.writes.requests import Create, Drop
from frostline.server.writes.rows import FEW, NewRows, Row
from frostline.server.writes.shared import Lake
from frostline.server.writes.shared_files import Wanted
from frostline.server.writes.units import Files, Unit

Reader = Callable[["TableChanges", Collection[RowId]], Mapping[RowId, Row]]
"""Reads rows of files by their places, as texts."""


class NullRefused(UsageError):
    """NULL in a column that has none."""

    sqlstate = "23502"


class TableChanges:
    """What a transaction sees of one table: a state of it that never changes, and its own changes above it."""

    def __init__(self, lake_table_id: int, name: Name, state: State, lake: Lake) -> None:
        self.id, self.state, self.columns = lake_table_id, state, state.columns
        self._name, self._catalog, self._checker = name, lake.catalog, lake.checker
        self._checks = lake_table.checks(state.metadata)
        self.units: list[Unit] = []

    @cached_property
    def _table(self) -> LakeTable:
        differences = lake_columns.differences(self.state.metadata)
        return LakeTable(self.id, self._name, self.columns, differences=differences)

    @cached_property
    def _files(self) -> Files:
        """Numbered when somebody reads, which those who only insert never do."""
        return Files([*sorted(self.state.data.values(), key=lambda file: file.file_path), *self._own()])

    def _own(self) -> list[DataFile]:
        return [file for unit in self.units for file in unit.added.data]

    def table(self) -> LakeTable:
        """The table for a query: what it reads does not change while it is read, whatever is written meanwhile."""
        deletes = (*self.state.deletes, *(file.file_path for unit in self.units for file in unit.added.deletes))
        numbers = dict(self._files.numbers)
        return replace(self._table, columns=(*self.columns, ROW_COLUMN), deletes=deletes, numbers=numbers)

    def require_columns(self, schema: str) -> None:
        """Refuse a foreign table that was made for other columns; it names that schema."""
        if schema != remote_schema(self.state.metadata.current_schema_id):
            require_columns(self._table, schema)

    def require_format(self) -> None:
        """Refuse to write a table of a format in which rows cannot be deleted, or with CHECKs that are not ours."""
        lake_format.written(self.state.metadata)
        if not self._catalog.is_ours:
            rest_rules.require_no_checks(self.state.metadata)

    def require_rows(self) -> None:
        """Refuse to change rows of a table that has a file with more of them than can be told apart."""
        self._files.require_rows()

    def lake_files(self) -> list[LakeFile]:
        """The files that a query reads: those of the cut, and the transaction's own."""
        keys = tuple((key.field_id, key.is_number) for key in wants.key_fields(self._table))
        return [lake_table.lake_file(file, keys) for file in (*self.state.data.values(), *self._own())]

    def unit(self) -> Unit:
        """The one that takes changes."""
        if not self.units or self.units[-1].is_written:
            self.units.append(Unit(NewRows(self.state)))
        return self.units[-1]

    def insert(self, rows: Sequence[Row]) -> None:
        """New rows, with a text for each column."""
        self._refuse_rows(rows)
        self.unit().rows.add(rows)
        self._write_piece()

    def insert_batch(self, columns: Sequence[Any]) -> None:
        """The same by columns, as arrays of texts."""
        self._refuse_nulls(lambda place: columns[place].null_count > 0)
        self._refuse_broken(lambda place: columns[place].to_pylist())
        self.unit().rows.add_batch(columns)
        self._write_piece()

    def _write_piece(self) -> None:
        if self.unit().rows.is_piece:
            self._catalog.require_warehouse([self.id])
            self.unit().rows.begin()

    def _refuse_rows(self, rows: Sequence[Row]) -> None:
        self._refuse_nulls(lambda place: any(row[place] is None for row in rows))
        self._refuse_broken(lambda place: [row[place] for row in rows])

    def _refuse_broken(self, texts: Callable[[int], Sequence[str | None]]) -> None:
        if self._checks:
            held = checks.compiled(self.columns, self._checks)
            self._checker.refuse_broken(self._name.table, held, [texts(place) for place in held.places])

    def _refuse_nulls(self, has_null: Callable[[int], bool]) -> None:
        for place, column in enumerate(self.columns):
            if column.not_null and has_null(place):
                raise NullRefused(
                    f'null value in column "{column.name}" of relation "{self._name.table}" violates '
                    "not-null constraint"
                )

    def remove(self, row: RowId) -> bool:
        """The row is gone; False when it is gone already, or there is no such row."""
        if row.file >= len(self._files.paths):
            return False
        path = self._files.paths[row.file]
        if row.position >= self._files.by_path[path].record_count or self._is_gone(path, row.position):
            return False
        self.unit().gone.setdefault(path, set()).add(row.position)
        return True

    def _is_gone(self, path: str, position: int) -> bool:
        return any(position in unit.gone.get(path, ()) for unit in self.units)

    def write(self, read: Reader, *, all_of_it: bool = True) -> None:
        """Write what is not written yet. Nothing points to the files. The commit writes few rows for many transactions.

        What fails leaves all that was not written where it was: the next one to write, after ROLLBACK TO a later
        savepoint or at COMMIT, has to try the same again, or rows would be gone without their new versions.
        """
        waiting = [unit for unit in self.units if not unit.is_written]
        for unit in waiting:
            self._change(unit, read)
        if all_of_it or not (all(unit.rows.is_few for unit in waiting) and sum(map(len, waiting)) <= FEW):
            if any(waiting):
                self._catalog.require_warehouse([self.id])
            for unit in waiting:
                self._write_unit(unit)

    def _change(self, unit: Unit, read: Reader) -> None:
        """Give updated rows their new versions."""
        old: Mapping[RowId, Row] = read(self, unit.updates.keys()) if unit.updates else {}
        rows = [
            [changed.get(place, value) for place, value in enumerate(old[row_id])]
            for row_id, changed in unit.updates.items()
        ]
        self._refuse_rows(rows)
        unit.rows.add(rows)
        unit.updates = {}

    def _write_unit(self, unit: Unit) -> None:
        files, made = self._files, unit.rows.files()
        gone = lake_rows.write_deletes(self.state.metadata, files.by_path, unit.gone) if unit.gone else []
        unit.added, unit.is_written = Added(made, gone), True
        for file in made:
            files.add(file)

    def back_to(self, count: int) -> None:
        """Throw all units but the first so many away, and their files."""
        lake_commit.discard([file.file_path for unit in self.units[count:] for file in unit.files()])
        del self.units[count:]
        if self.units and not self.units[-1].is_written:
            self.units.append(
                Unit(NewRows(self.state))
            )  # the savepoint is still there, and what comes now may be undone as well

    def wanted(self) -> Wanted:
        """What is to be committed: what is written, and the little that is not."""
        added, changed = Added(), dict[str, AbstractSet[int]]()
        rows, gone = list[Row](), dict[str, AbstractSet[int]]()
        for unit in self.units:
            added.data += unit.added.data
            added.deletes += unit.added.deletes
            for path, places in unit.gone.items():
                if path in self.state.data:
                    changed[path] = changed.get(path, frozenset[int]()) | places
                if not unit.is_written:
                    gone[path] = gone.get(path, frozenset[int]()) | places
            if not unit.is_written:
                rows += unit.rows.few
        return Wanted(self.state, added, changed, rows, gone, self._files.by_path if gone else {})

    def path(self, file: int) -> str:
        """The path of the file with that number."""
        return self._files.paths[file]

    def number(self, path: str) -> int:
        """The number of the file, as DuckDB names it."""
        numbers = self._files.numbers
        return next(numbers[spelled] for spelled in lake_rows.spellings(path) if spelled in numbers)


class LakeTransaction:
    """A session's transaction on lake tables. The next one begins when this one has ended."""

    def __init__(self, lake: Lake, read: Reader) -> None:
        self._lake, self._read = lake, read
        self._cut: Mapping[int, LakePointer] | None = None
        self._tables: dict[int, TableChanges] = {}
        self._asked = set[int]()
        """The tables of the cut that it has wanted to read or change."""
        self._definitions = Definitions()

    def explained(self, error: FrostlineError) -> FrostlineError:
        """The error of a statement, or that the cut has expired, if that is the reason."""
        cut = self._cut or {}
        touched = self._asked & cut.keys()
        return expired.explained(error, cut, touched, lambda: self._lake.catalog.places(touched))

    def changes(self, lake_table_id: int) -> TableChanges:
        """The table as the transaction sees it. The first call decides what all tables are for it."""
        if lake_table_id not in self._tables:
            self._lake.require_rights()
            table = self._seen().get(lake_table_id) or self._definitions.made.get(lake_table_id)
            if table is None:
                raise UnknownName(
                    f"there is no lake table {RemoteLakeTable(lake_table_id).digits}", hint="frostline lake list"
                )
            self._asked.add(lake_table_id)
            state = lake_table.state(table.metadata_location)
            if not self._lake.catalog.is_ours:
                rest_rules.require_served(state.metadata, table.uuid)
            self._tables[lake_table_id] = TableChanges(lake_table_id, Name(*table.pointer), state, self._lake)
        return self._tables[lake_table_id]

    def _seen(self) -> Mapping[int, LakePointer]:
        if self._cut is None:
            self._cut = self._lake.catalog.cut()
        return self._cut

    def define(self, lake_table_id: int, request: Create | Drop) -> None:
        """Make or drop a table, with the transaction's commit; what it is asked of it from now on is as if it had."""
        self._lake.require_rights()
        if not self._lake.catalog.is_ours:
            self._lake.catalog.connection()  # says why not
        self._lake.catalog.require_warehouse()
        if isinstance(request, Create):
            self._definitions = self._definitions.making(self._lake, self._seen(), lake_table_id, request)
        else:
            self._definitions = self._definitions.dropping(self._lake, self._seen(), lake_table_id, request)

    def tables(self) -> Collection[TableChanges]:
        """Those that it has read or changed."""
        return self._tables.values()

    def to_read(self, lake_table_id: int) -> TableChanges:
        """The same, with all its changes in files."""
        changes = self.changes(lake_table_id)
        changes.write(self._read)
        return changes

    def mark(self) -> Mark:
        """A savepoint: from now on changes go into new units."""
        for table in self._tables.values():
            if table.units and not table.units[-1].is_written:
                table.units.append(Unit(NewRows(table.state)))
        units = {number: len(table.units) - _is_open(table) for number, table in self._tables.items()}
        return Mark(units, self._definitions)

    def back_to(self, mark: Mark) -> None:
        """Undo what was changed since; what is read stays the same."""
        for number, table in self._tables.items():
            table.back_to(mark.units.get(number, 0))
        self._definitions.undo(mark.definitions)
        for number in self._definitions.made.keys() - mark.definitions.made.keys():
            self._tables.pop(number, None)
        self._definitions = mark.definitions

    def commit(self) -> None:
        """One atomic commit of all that was changed; then the transaction is over, whatever comes of it."""
        try:
            defined = self._definitions
            kept = {number: table for number, table in self._tables.items() if number not in defined.dropped}
            for table in kept.values():
                table.write(self._read, all_of_it=False)
            wanted = {number: table.wanted() for number, table in kept.items()}
            wanted = {number: change for number, change in wanted.items() if change}
            if wanted or defined.to_make or defined.to_drop:
                self._lake.committer.commit(wanted, defined.to_make, defined.to_drop)
        except OutcomeUnknown:
            self._forget()
            raise
        except BaseException as error:
            told = self.explained(error) if isinstance(error, FrostlineError) else error
            self.rollback()
            if told is error:
                raise
            raise told from error
        for number in defined.dropped & self._tables.keys():
            self._tables[number].back_to(0)
        defined.finish(self._lake)
        self._forget()

    def rollback(self) -> None:
        """Nothing of it is left, files included."""
        self.back_to(Mark())
        self._forget()

    def _forget(self) -> None:
        self._cut, self._tables, self._asked, self._definitions = None, {}, set[int](), Definitions()


def _is_open(table: TableChanges) -> bool:
    return bool(table.units) and not table.units[-1].is_written


@dataclass(frozen=True)
class SeenInTransaction:
    """Implements `ServedTables` for one query: lake tables as a transaction sees them, all other tables as they are."""

    others: ServedTables
    transaction: LakeTransaction
    _seen: dict[int, tuple[LakeTable, Sequence[LakeFile]]] = field(
        default_factory=dict[int, tuple[LakeTable, Sequence[LakeFile]]]
    )
    """What a query reads is decided once: a cursor that is read again must not see rows that were written since."""

    def resolve(self, remote: Remote) -> ServedTable:
        """The table that is asked for."""
        return self._once(remote)[0] if isinstance(remote, RemoteLakeTable) else self.others.resolve(remote)

    def _once(self, remote: RemoteLakeTable) -> tuple[LakeTable, Sequence[LakeFile]]:
        number = remote.lake_table_id
        if number not in self._seen:
            changes = self.transaction.to_read(number)
            self._seen[number] = changes.table(), changes.lake_files()
        return self._seen[number]

    def forget(self) -> None:
        """Ask for the other tables' columns again."""
        self.others.forget()

    def current_snapshot(self, remote: Remote) -> int | None:
        """Of a lake table that of the cut; its own changes are not in it."""
        if isinstance(remote, RemoteLakeTable):
            return self.transaction.changes(remote.lake_table_id).state.snapshot_id or 0
        return self.others.current_snapshot(remote)

    def files(self, remote: Remote, snapshot_id: int) -> Sequence[LakeFile]:
        """The files to read."""
        return self._once(remote)[1] if isinstance(remote, RemoteLakeTable) else self.others.files(remote, snapshot_id)

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """Of files of managed tables. Nobody has recorded any of lake tables, which other engines write too."""
        own = {file.path for table in self.transaction.tables() for file in table.lake_files()}
        return self.others.checksums([path for path in paths if path not in own])
