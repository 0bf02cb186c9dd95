"""Look-ups that go on coming: all that they could be answered with, printed once and sorted by what they look for.

An extract (`extracts`) still leaves DuckDB a query to bind, plan and run. Where look-ups differ in nothing but the
numbers that some columns must equal, DuckDB is asked once for all rows that the rest of the query leaves, and what it
says is kept as it goes over the wire: a *ledger*. A look-up then is a search in sorted arrays of numbers.
Conditions and printing are DuckDB's as before; that two numbers are equal is all that is decided here.

Like an extract, it is of files as they were at one time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frostline.server.keeping import Clock, Connect, Keeper, NoRoom, Order, Stamps, TooLarge
from frostline.server.protocol.rows import Printed
from frostline.server.result_memory import ResultMemory

_SHARE = 8
"""All of them together take one part in so many of the memory, in addition to what DuckDB may use."""
_VALUE_S = 1.5e-7
"""What it takes to read, sort and print one value."""
_ROW_BYTES, _VALUE_BYTES, _NUMBER_BYTES = 11, 4, 8
"""Of a row: its head and where it ends; the length of each value; each number that is looked for."""
_BATCH_ROWS = 10_240

Key: TypeAlias = tuple[str, Stamps]
"""What DuckDB is asked, and the files as they were."""
Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ledger:
    """All rows that look-ups of one kind could want."""

    sql: str
    """The query for them: the numbers that are looked for, then what is answered, sorted by the numbers."""
    numbers: int
    """How many columns are looked for."""
    outputs: int
    rows: int
    """Of the files; the query may leave some out."""

    @property
    def least_bytes(self) -> int:
        """What it takes in memory, if all rows are wanted and all values are empty."""
        return self.rows * (_ROW_BYTES + self.outputs * _VALUE_BYTES + self.numbers * _NUMBER_BYTES)

    @property
    def build_s(self) -> float:
        """How long it takes to make, roughly."""
        return self.rows * (self.numbers + self.outputs) * _VALUE_S


class Sorted:
    """Printed rows, sorted by one number or more."""

    def __init__(self, numbers: Sequence[Numbers], rows: Printed) -> None:
        self._numbers, self._rows = numbers, rows
        self.size_bytes = rows.size_bytes + sum(column.nbytes for column in numbers)

    def find(self, wanted: Sequence[int]) -> Printed:
        """The rows that have these numbers."""
        first, last = 0, self._rows.num_rows
        for column, number in zip(self._numbers, wanted, strict=True):
            left = column[first:last]
            sought = np.int64(number)
            last = first + int(left.searchsorted(sought, "right"))
            first += int(left.searchsorted(sought, "left"))
        return self._rows.slice(first, last - first)


class Ledgers:
    """The printed rows of an engine. For many threads at once. Nothing here fails a query."""

    def __init__(self, connect: Connect, memory: ResultMemory, clock: Clock = time.monotonic) -> None:
        self._memory = memory
        self._kept: Keeper[Key, Sorted] = Keeper("ledger", connect, memory.limit_bytes // _SHARE, clock)

    @property
    def size_bytes(self) -> int:
        """What they take in memory."""
        return self._kept.size_bytes

    def find(self, key: Key) -> Sorted | None:
        """The rows for look-ups of a kind, if they are there."""
        return self._kept.find(key)

    def spent(self, key: Key, ledger: Ledger, seconds: float, stamps: Callable[[], Stamps | None]) -> None:
        """A look-up without them took so long. Begins to make them if that has become worth it."""
        if ledger.least_bytes <= self._kept.share_bytes:
            make = partial(self._make, ledger)
            self._kept.spent(key, seconds, Order(ledger.build_s, make, lambda: stamps() == key[1]))

    def _make(self, ledger: Ledger, connection: duckdb.DuckDBPyConnection) -> tuple[Sorted, int]:
        if not self._memory.has_room(connection, ledger.least_bytes):
            raise NoRoom
        rows = _read(connection, ledger, self._kept.share_bytes)
        self._kept.make_room(connection, rows.size_bytes)
        return rows, rows.size_bytes

    def drop_idle(self) -> None:
        """Give back what nobody has asked for in a while."""
        self._kept.drop_idle()

    def clear(self) -> None:
        """Give everything back."""
        self._kept.clear()

    def close(self) -> None:
        """Stop making one."""
        self._kept.close()


def _read(connection: duckdb.DuckDBPyConnection, ledger: Ledger, most_bytes: int) -> Sorted:
    numbers: list[list[Numbers]] = [[] for _ in range(ledger.numbers)]
    rows, size_bytes = Printed(), 0
    for batch in connection.execute(ledger.sql).to_arrow_reader(_BATCH_ROWS):
        if size_bytes + batch.nbytes > most_bytes:
            raise TooLarge
        columns = cast("list[Any]", batch.columns)  # pyright: ignore[reportUnknownMemberType]
        for place, column in enumerate(columns[: ledger.numbers]):
            numbers[place].append(_axis(column))
        rows.append(batch.select(list(range(ledger.numbers, len(columns)))))
        size_bytes = rows.size_bytes + rows.num_rows * ledger.numbers * _NUMBER_BYTES
    none = np.empty(0, np.int64)
    kept = Sorted([np.concatenate(parts) if parts else none for parts in numbers], rows)
    if kept.size_bytes > most_bytes:
        raise TooLarge
    return kept


def _axis(column: Any) -> Numbers:
    """Whole numbers, and dates and times as they are stored, infinities included."""
    if pa.types.is_date(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return cast(Numbers, column.to_numpy().astype(np.int64))
