"""Tables that live in the lake alone: what a foreign table calls one, and what a row of it is called for a while."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from frostline.model.names import Name, RemoteName
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column, Table, column_named
from frostline.model.types import Collation, LakeEncoding, PgType

REMOTE = re.compile(r"\blake_(\d{1,19}|[0-9a-f]{32})\b", re.ASCII)
"""The text of a `RemoteLakeTable`."""
_UUID_DIGITS = 32
_LARGEST_NUMBER = (1 << 63) - 1
ROW_COLUMN = Column(
    name="ctid",
    attnum=-1,
    field_id=0,
    pg_type=PgType("tid", "tid", builtin=True),
    encoding=LakeEncoding("string", as_text=True, pushable=False),
    collation=Collation.NONE,
    not_null=True,
)
"""What postgres_fdw asks for where it will change single rows."""

_TID = re.compile(r"\((\d+),(\d+)\)", re.ASCII)
_OFFSETS = 65_535
"""Offset 0 is no place of a row for Postgres, so there is one less than 16 bits have."""
FILE_ROWS = 1 << 28
"""So many rows of a file can be told apart. One more would be taken for the first of the next file."""
FILES = (1 << 32) * _OFFSETS // FILE_ROWS
"""So many files can be told apart in one transaction: a million, with 268 million rows each."""


@dataclass(frozen=True)
class Check:
    """A CHECK that every row of a lake table fulfils, or makes NULL."""

    name: str
    expression: str
    """As Postgres prints it while only its own schema is searched."""


@dataclass(frozen=True)
class LakeTable:
    """A lake table as a query at the lake server sees it: a table in the lake alone, without heap, line or policy."""

    id: int
    """`lake_table_id`."""
    name: Name
    columns: tuple[Column, ...]
    deletes: tuple[str, ...] = ()
    """The files that say which rows of the others are gone."""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """What the files are called in the transaction, by their paths."""
    differences: Mapping[str, str | None] = field(default_factory=dict[str, str | None], compare=False)
    """By the schema that a foreign table names: why its columns are not those of the lake table; None when they are."""

    @property
    def key(self) -> tuple[str, ...]:
        """None: no column tells its rows apart for sure, and any may be NULL."""
        return ()

    @property
    def bounded(self) -> tuple[str, ...]:
        """The columns by whose bounds files are passed over: all that it has."""
        return tuple(column.name for column in self.columns)

    @property
    def tier(self) -> None:
        """None: all of its rows are in the lake."""
        return

    def column(self, name: str) -> Column:
        """The column of that name; KeyError when there is none."""
        return column_named(self.columns, name)


ServedTable = Table | LakeTable
"""What the lake server reads."""


@dataclass(frozen=True)
class RemoteLakeTable:
    """What the foreign table of a lake table asks the lake server for: its id, which stays when it is renamed.

    A table of our own catalog has a number. That of a REST catalog has its uuid, which is a number of 32 digits.
    """

    lake_table_id: int

    @property
    def range(self) -> Range:
        """The tier values that it asks for: it has none, and asks for every row."""
        return EVERYTHING

    @property
    def digits(self) -> str:
        """Its id as it is written."""
        number = self.lake_table_id
        return str(number) if number <= _LARGEST_NUMBER else f"{number:0{_UUID_DIGITS}x}"

    def __str__(self) -> str:
        return f"lake_{self.digits}"

    @classmethod
    def find(cls, text: str) -> "RemoteLakeTable | None":
        """The lake table that this text stands for; None for any other text."""
        match = REMOTE.fullmatch(text)
        return None if match is None else cls(int(match[1], 16 if len(match[1]) == _UUID_DIGITS else 10))


Remote = RemoteName | RemoteLakeTable


def remote(text: str) -> Remote:
    """What a foreign table asks for with this text. BadName for any that no foreign table of ours has."""
    return RemoteLakeTable.find(text) or RemoteName.parse(text)


UNCHECKED = "lake"
"""The schema that a foreign table names which does not say for which columns it was made."""


_SCHEMA = re.compile(r"schema_\d+", re.ASCII)


def is_checked(schema: str) -> bool:
    """Whether a foreign table that names this schema says for which columns it was made."""
    return _SCHEMA.fullmatch(schema) is not None


def remote_schema(schema_id: int) -> str:
    """The schema that a foreign table names: the Iceberg schema whose columns it has."""
    return f"schema_{schema_id}"


@dataclass(frozen=True, order=True)
class RowId:
    """A row by the number that its file has in the transaction, and its place in the file."""

    file: int
    position: int

    def __str__(self) -> str:
        number = self.file * FILE_ROWS + self.position
        return f"({number // _OFFSETS},{number % _OFFSETS + 1})"

    @classmethod
    def parse(cls, text: str) -> "RowId | None":
        """The row of a `tid`; None for one that no row has."""
        match = _TID.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= _OFFSETS:
            return None
        return cls(*divmod(int(match[1]) * _OFFSETS + int(match[2]) - 1, FILE_ROWS))


def tid_sql(file: str, position: str) -> str:
    """The text of a row's `tid`, in DuckDB SQL, of its file's number and its place."""
    number = f"({file}::bigint * {FILE_ROWS} + {position})"
    return f"'(' || {number} // {_OFFSETS} || ',' || ({number} % {_OFFSETS} + 1) || ')'"


Rows = Mapping[str, AbstractSet[int]]
"""Places of rows by their file's path."""


def is_conflict(changed: Rows, present: AbstractSet[str], taken: Rows) -> bool:
    """Whether somebody else has taken a row that a transaction has changed.

    `changed` are the rows of other transactions' files that it has deleted or replaced, `present` the files that the
    table has now, and `taken` the rows that others have deleted since the transaction began. A file that is gone was
    written anew, so nobody knows where its rows are.
    """
    return any(file not in present or places & taken.get(file, frozenset()) for file, places in changed.items())
