"""Tables that live in the lake alone: what a foreign table calls one, and what a row of it is called for a while."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from frostline.model.names import RemoteName
from frostline.model.tables import Column, Table
from frostline.model.types import Collation, LakeEncoding, PgType

REMOTE = re.compile(r"\blake_(\d+)\b", re.ASCII)
"""How the foreign table of a lake table names it: by its id, which stays when it is renamed."""
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
_ROWS = 1 << 28
FILES = (1 << 32) * _OFFSETS // _ROWS
"""So many files can be told apart in one transaction: a million, with 268 million rows each."""


@dataclass(frozen=True)
class LakeOnly(Table):
    """A lake table as the lake server's translator sees it: a table without a tier key.

    Its `id` is the negative of `lake_table_id`, so that no managed table has it. Its `key` is all of its columns: the
    bounds of each are good for passing files over.
    """

    deletes: tuple[str, ...] = ()
    """The files that say which rows of the others are gone."""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """What the files are called in the transaction, by their paths."""


def remote(text: str) -> RemoteName | None:
    """The lake table that this name stands for; None for any other name."""
    match = REMOTE.fullmatch(text)
    return None if match is None else RemoteName(-int(match[1]), None, 2**63 - 1)


def remote_name(lake_table_id: int) -> str:
    """What its foreign tables ask for."""
    return f"lake_{lake_table_id}"


@dataclass(frozen=True, order=True)
class RowId:
    """A row by the number that its file has in the transaction, and its place in the file."""

    file: int
    position: int

    def __str__(self) -> str:
        number = self.file * _ROWS + self.position
        return f"({number // _OFFSETS},{number % _OFFSETS + 1})"

    @classmethod
    def parse(cls, text: str) -> "RowId | None":
        """The row of a `tid`; None for one that no row has."""
        match = _TID.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= _OFFSETS:
            return None
        return cls(*divmod(int(match[1]) * _OFFSETS + int(match[2]) - 1, _ROWS))


def tid_sql(file: str, position: str) -> str:
    """The text of a row's `tid`, in DuckDB SQL, of its file's number and its place."""
    number = f"({file}::bigint * {_ROWS} + {position})"
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
