"""What a transaction has changed of a table so far, and the names of rows in it: files, and units of changes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile

from frostline.errors import UsageError
from frostline.lake.lake_commit import Added
from frostline.model.lake_tables import FILE_ROWS, FILES, RowId
from frostline.server.writes.rows import NewRows


class FileTooLarge(UsageError):
    """A file with more rows than can be told apart."""

    sqlstate = "54000"


@dataclass
class Unit:
    """Changes that stay or go together."""

    rows: NewRows
    """New ones."""
    updates: dict[RowId, Mapping[int, str | None]] = field(default_factory=dict[RowId, Mapping[int, str | None]])
    """Rows whose new version is the old one with other values at these places of the columns."""
    gone: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Rows that are deleted or replaced, by the path of their file."""
    added: Added = field(default_factory=Added)
    is_written: bool = False

    def __len__(self) -> int:
        """How many rows come or go."""
        return len(self.rows) + sum(map(len, self.gone.values()))

    def files(self) -> Iterator[DataFile]:
        """All files that were written for it. Nobody writes any more."""
        known = self.added.data if self.is_written else self.rows.abandoned()
        yield from known
        yield from self.added.deletes


class Files:
    """The files of a table in a transaction, with the numbers by which its rows are told apart."""

    def __init__(self, listed: Iterable[DataFile]) -> None:
        self.by_path = dict[str, DataFile]()
        self.paths = list[str]()
        self.numbers = dict[str, int]()
        self._too_large: DataFile | None = None
        for file in listed:
            self.add(file)

    def add(self, file: DataFile) -> None:
        """One more."""
        if len(self.paths) >= FILES:
            raise UsageError("the transaction has too many files", hint="commit more often")
        self.numbers[file.file_path] = len(self.paths)
        self.paths.append(file.file_path)
        self.by_path[file.file_path] = file
        if file.record_count > FILE_ROWS:
            self._too_large = file

    def require_rows(self) -> None:
        """Refuse to change single rows where two of them would be called the same."""
        if self._too_large is not None:
            raise FileTooLarge(
                f"{self._too_large.file_path} has {self._too_large.record_count} rows, "
                f"and rows can be changed where no file has more than {FILE_ROWS}",
                hint="rewrite the table's files with the engine that wrote them, into smaller ones",
            )
