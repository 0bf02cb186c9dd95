"""New rows of a lake table, on their way from texts into files.

Few rows stay texts until the end of the transaction: whoever leads the commit writes them together with those of
others. Many go into files piece by piece, in another thread, while Postgres sends the next ones.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile

from frostline.lake import lake_rows
from frostline.lake.lake_table import State

Row = Sequence[str | None]

FEW = 500
"""So many rows of a transaction are nothing that a file of its own is needed for."""
_PIECE_BYTES = 16 << 20
"""Of texts that become one file, or one for each partition: they are held once more while they are written."""
_PIECE_ROWS = 1 << 20
_BATCH_ROWS = 10_000
"""Single rows are lists, which take ten times the memory of columns."""
_arrow: Any = pa


class NewRows:
    """The new rows of one unit. For one thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.few: list[Row] = []
        """The latest, not yet put with the others."""
        self._batches: list[pa.Table] = []
        self._pieces: list[_Piece] = []
        self._together = self._waiting_rows = self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self.few) + self._together

    def add(self, rows: Collection[Row]) -> None:
        """Rows with a text for each column."""
        self.few.extend(rows)
        if len(self.few) >= _BATCH_ROWS:
            self._put_together()

    def add_batch(self, columns: Sequence[Any]) -> None:
        """The same by columns, as arrays of texts."""
        self._add(as_table(columns))

    def _add(self, batch: pa.Table) -> None:
        self._batches.append(batch)
        self._together += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes

    @property
    def is_few(self) -> bool:
        """Whether they can all wait for the commit: they are texts, and not many."""
        return not self._together and len(self.few) <= FEW

    @property
    def is_piece(self) -> bool:
        """Whether there are enough of them for a file."""
        return self._waiting_bytes >= _PIECE_BYTES or self._waiting_rows >= _PIECE_ROWS

    def begin(self) -> None:
        """Let them be written. One piece at a time: who sends faster than we write waits here."""
        self._put_together()
        if self._batches:
            if self._pieces:
                self._pieces[-1].written()
            self._pieces.append(_Piece(self._state, self._batches))
            self._batches, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _put_together(self) -> None:
        if self.few:
            self._add(_of_rows(self.few))
            self.few = []

    def files(self) -> list[DataFile]:
        """Write them all; gives the files. What has failed is tried again by the next call."""
        self.begin()
        return [file for piece in self._pieces for file in piece.written()]

    def abandoned(self) -> Iterator[DataFile]:
        """The files that came to nothing; nobody writes any more."""
        for piece in self._pieces:
            yield from piece.abandoned()


def as_table(columns: Sequence[Any]) -> pa.Table:
    """Columns of texts as a table, in which their place is their name."""
    return _arrow.table({str(place): column for place, column in enumerate(columns)})


def _of_rows(rows: Collection[Row]) -> pa.Table:
    return as_table([_arrow.array(values, pa.string()) for values in zip(*rows, strict=True)])


def typed(state: State, rows: Collection[Row]) -> pa.Table:
    """Rows in the lake's types. ValueRefused when the lake's type of a column has no such value."""
    return lake_rows.typed(state.columns, _of_rows(rows).columns)


def written(state: State, rows: Collection[Row]) -> list[DataFile]:
    """Write rows into files, one for each partition. ValueRefused as above."""
    return lake_rows.write(state.metadata, state.columns, typed(state, rows)) if rows else []


class _Piece:
    """Rows that another thread writes."""

    def __init__(self, state: State, batches: Sequence[pa.Table]) -> None:
        self._state = state
        self._texts: Any = _arrow.concat_tables(batches)
        self._result = _writers().submit(self._write)

    def _write(self) -> list[DataFile]:
        state = self._state
        made = lake_rows.write(state.metadata, state.columns, lake_rows.typed(state.columns, self._texts.columns))
        self._texts = None
        return made

    def written(self) -> list[DataFile]:
        """Its files. Waits for them; what has failed is tried again by the next call."""
        try:
            return self._result.result()
        except BaseException:
            self._result = _writers().submit(self._write)
            raise

    def abandoned(self) -> list[DataFile]:
        """Its files, if it has come so far. Nobody writes any more."""
        if self._result.cancel() or self._result.exception() is not None:
            return []
        return self._result.result()


@cache
def _writers() -> ThreadPoolExecutor:
    """Two for the whole server: conversion and compression leave Python alone, and have a core each to themselves."""
    return ThreadPoolExecutor(2, thread_name_prefix="frostline-lake-rows")
