"""Look-ups that come again and again: what they read is kept in memory, sorted by what they look for.

A correlated sub-query and a nested loop ask for the same columns of the same files once for each row of another table,
and each time DuckDB unpacks all of them anew. Once that has taken as long as sorting them would, a thread of its own
makes an *extract*: a table in DuckDB's memory with those columns of all rows of those files. The query that it is asked
is the same, word for word, but for the relation that it reads, so the answer is the same too.

An extract is of files as they were at one time. Others in their place have other stamps, for which there is none yet.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import duckdb

from frostline.model import laketypes
from frostline.model.tables import Column
from frostline.server.keeping import Clock, Connect, Keeper, Order, Stamps, TooLarge
from frostline.server.printed import Ledgers
from frostline.server.result_memory import ResultMemory
from frostline.server.translate import duck

_SHARE, _SHARE_OF_ONE = 8, 4
"""All extracts together take one part in so many of the memory, and one of them while it is made, before it is
compressed."""
_VALUE_S = 1e-7
"""What it takes to read and sort one value."""
_WIDTHS = {"boolean": 5, "int": 7, "float": 7, "date": 7, "long": 11, "double": 11, "timestamp": 11, "timestamptz": 11}
"""Bytes that a value takes in memory, with what DuckDB's blocks leave unused *(measured)*."""
_WIDE, _DECIMALS = 20, ((4, 5), (9, 7), (18, 11))
"""The same for others, which may have a length in addition, and for decimals of so many digits at most."""
_BLOCK_BYTES = 1 << 18
"""A column of few values takes so much."""
_TABLE = "kept"
"""The one table of its database."""
_LENGTHS = {"string": "strlen", "binary": "octet_length"}
_NUMBERS = itertools.count(1)
"""No name is used twice in a process: one that is gone never stands for something else."""

Key: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...], Stamps]
"""Relation, columns, those that are looked up, and the files as they were."""


@dataclass(frozen=True)
class Lookup:
    """A query for the rows of some files that have certain values in some columns."""

    relation: str
    """All rows of the files, in DuckDB SQL."""
    rows: int
    file_bytes: int
    """The size of the files."""
    needed: tuple[Column, ...]
    """The columns that the query speaks of."""
    by: tuple[str, ...]
    """The names of those that it wants certain values of."""
    on: Callable[[str], str]
    """The query, with another relation in the place of the files."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names in DuckDB."""
        return tuple(map(duck.column, self.needed))

    @property
    def least_bytes(self) -> int:
        """What its extract takes in memory, if all that has a length is empty."""
        row_bytes = sum(_width(column.encoding.lake_type) for column in self.needed)
        return self.rows * row_bytes + len(self.needed) * _BLOCK_BYTES

    @property
    def likely_bytes(self) -> int:
        """The same, if what has a length is all that the files hold: to know its length, it would have to be read."""
        has_length = any(_lake_type(column) in _LENGTHS for column in self.needed)
        return self.least_bytes + (self.file_bytes if has_length else 0)

    @property
    def build_s(self) -> float:
        """How long it takes to make its extract, roughly."""
        return self.rows * len(self.needed) * _VALUE_S


def _width(lake_type: str) -> int:
    """Bytes that a value takes in memory, without what has a length."""
    digits = laketypes.digits(lake_type)
    if digits is not None:
        return next((width for most, width in _DECIMALS if digits <= most), _WIDE)
    return _WIDTHS.get(lake_type, _WIDE)


class Extracts:
    """The extracts of an engine, and what is printed of them. For many threads at once. Nothing here fails a query."""

    def __init__(self, connect: Connect, memory: ResultMemory, clock: Clock = time.monotonic) -> None:
        self._memory, self._most_bytes = memory, memory.limit_bytes // _SHARE_OF_ONE
        self._kept: Keeper[Key, str] = Keeper("extract", connect, memory.limit_bytes // _SHARE, clock, _drop)
        self.ledgers = Ledgers(connect, memory, clock)

    def could_hold(self, lookup: Lookup) -> bool:
        """Whether there is any use in asking for its extract."""
        return lookup.likely_bytes <= self._most_bytes

    @property
    def size_bytes(self) -> int:
        """What they take in memory, roughly."""
        return self._kept.size_bytes

    def find(self, key: Key) -> str | None:
        """The extract for a look-up, if there is one: a table's name."""
        return self._kept.find(key)

    def spent(self, key: Key, lookup: Lookup, seconds: float, stamps: Callable[[], Stamps | None]) -> None:
        """A look-up without an extract took so long. Begins to make one if that has become worth it.

        `stamps` are those of the files now.
        """
        make = partial(self._make, lookup)
        self._kept.spent(key, seconds, Order(lookup.build_s, make, lambda: stamps() == key[-1]))

    def _make(self, lookup: Lookup, connection: duckdb.DuckDBPyConnection) -> tuple[str, int]:
        size_bytes, database = _size(connection, lookup), f"extract_{next(_NUMBERS)}"
        if size_bytes > self._most_bytes:
            raise TooLarge
        is_large = size_bytes > self._kept.share_bytes
        needed = 0 if is_large else size_bytes
        self._kept.make_room(connection, needed, lambda freed: self._memory.has_room(connection, size_bytes - freed))
        table = f"{database}.{_TABLE}"
        try:
            # A database of its own: what is dropped in one takes memory as long as anybody reads from that database.
            connection.execute(f"attach ':memory:' as {database} (compress)")
            before = _tables_bytes(connection)
            connection.execute(_create(table, lookup))
            if is_large:
                size_bytes = self._compressed(connection, database, before)
        except BaseException:
            _drop(connection, [table])
            raise
        return table, size_bytes

    def _compressed(self, connection: duckdb.DuckDBPyConnection, database: str, before_bytes: int) -> int:
        """Let DuckDB compress what is new in its memory, and make room for what that takes then."""
        connection.execute(f"checkpoint {database}")
        size_bytes = max(_tables_bytes(connection) - before_bytes, _BLOCK_BYTES)
        if size_bytes > self._kept.share_bytes:
            raise TooLarge
        self._kept.make_room(connection, size_bytes)
        return size_bytes

    def drop_idle(self) -> None:
        """Give back what nobody has asked for in a while."""
        self._kept.drop_idle()
        self.ledgers.drop_idle()

    def clear(self) -> None:
        """Give everything back, because the files are others or the memory is needed."""
        self._kept.clear()
        self.ledgers.clear()

    def close(self) -> None:
        """Stop making one. The engine ends, and all extracts with it."""
        self._kept.close()
        self.ledgers.close()


def _drop(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> None:
    """A query that reads from one reads on; its memory is free when that query is done."""
    for table in tables:
        with suppress(duckdb.Error):
            connection.execute(f"detach database if exists {table.removesuffix(f'.{_TABLE}')}")


def _tables_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """What all tables in DuckDB's memory take."""
    row = connection.execute("select memory_usage_bytes from duckdb_memory() where tag = 'IN_MEMORY_TABLE'").fetchone()
    return int(row[0]) if row else 0


def _size(connection: duckdb.DuckDBPyConnection, lookup: Lookup) -> int:
    """What the extract will take in memory. Contents that have a length are read for it."""
    known = ((duck.column(column), _LENGTHS.get(_lake_type(column))) for column in lookup.needed)
    total = " + ".join(f"coalesce(sum({length}({name})), 0)" for name, length in known if length is not None)
    if not total:
        return lookup.least_bytes
    row = connection.execute(duck.select(duck.cast(total, "bigint"), lookup.relation)).fetchone()
    return lookup.least_bytes + (int(row[0]) if row else 0)


def _create(table: str, lookup: Lookup) -> str:
    order = f" order by {duck.listed(lookup.by)}"
    return f"create table {table} as {duck.select(duck.listed(lookup.columns), lookup.relation, order)}"


def is_sortable(column: Column) -> bool:
    """Whether an extract may be sorted by the column: of floats DuckDB's sort makes other bits, zero of minus zero."""
    return _lake_type(column) not in ("float", "double")


def _lake_type(column: Column) -> str:
    return laketypes.of(column.encoding.lake_type).name


class Shortcut:
    """The way of one query: by an extract where there is one, else by the files, and then the time is noted."""

    def __init__(
        self,
        extracts: Extracts,
        lookup: Lookup | None = None,
        stamps: Callable[[], Stamps | None] = lambda: None,
        told: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`stamps` are those of the files, once they were compared. `told` learns whether the files are left alone."""
        self._extracts, self._lookup, self._stamps, self._told = extracts, lookup, stamps, told
        self._key: Key | None = None
        """Of a look-up that had no extract."""

    def execute(
        self, connection: duckdb.DuckDBPyConnection, sql: str, give_up: Callable[[], None] = lambda: None
    ) -> duckdb.DuckDBPyConnection:
        """Run the query: `sql` where there is no extract for it. `give_up` raises if nobody wants it any more."""
        short = self._short()
        give_up()
        if short is not None:
            try:
                result = connection.execute(short)
            except duckdb.InterruptException:
                raise
            except duckdb.Error:  # it was dropped a moment ago, or there is something wrong with it
                give_up()
            else:
                self._told(True)  # noqa: FBT003
                return result
        self._told(False)  # noqa: FBT003
        return connection.execute(sql)

    def _short(self) -> str | None:
        lookup = self._lookup
        if lookup is None or not self._extracts.could_hold(lookup):
            return None
        stamps = self._stamps()
        if stamps is None:
            return None
        key = lookup.relation, lookup.columns, lookup.by, stamps
        table = self._extracts.find(key)
        self._key = key if table is None else None
        return None if table is None else lookup.on(table)

    def took(self, seconds: float) -> None:
        """The first rows came after so long."""
        if self._lookup is not None and self._key is not None:
            self._extracts.spent(self._key, self._lookup, seconds, self._stamps)

    def give_up(self) -> None:
        """There is too little memory: nothing of it is for extracts now, and this query does without."""
        self._lookup = None
        self._extracts.clear()
