"""An open result, whoever computes it: a stream of text batches that can be read in pieces and started again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Protocol

import pyarrow as pa

from frostline.server.meter import Outcome, Query
from frostline.server.protocol.backend import ResultColumn
from frostline.server.protocol.rows import Printed

Batch = pa.RecordBatch | Printed


class Interruptible(Protocol):
    """Something that runs, and can be told to stop."""

    def interrupt(self) -> None:
        """Make what runs fail soon; may be called from another thread."""
        ...


class Batches(Interruptible, Protocol):
    """What a portal reads from."""

    def __iter__(self) -> Iterator[Batch]: ...

    def close(self) -> None:
        """Stop, and give everything back."""
        ...


class Portal:
    """A cursor: reads forward, and from the start again after `rewind`. Nothing runs before the first read."""

    def __init__(
        self, columns: Sequence[ResultColumn], start: Callable[[], Batches], opened: Batches | None = None
    ) -> None:
        """`opened` is a result that had to be opened to learn its columns: the first read takes it."""
        self.columns = tuple(columns)
        self._opened = opened
        self._start = start
        self._batches: Batches | None = None
        self._iterator: Iterator[Batch] | None = None
        self._rest: Batch | None = None
        self._position = 0
        self.query: Query | None = None
        """Is told how long the result takes, and how it ends."""

    def read(self, rows: int | None) -> Iterator[Batch]:
        """At most so many rows (None: all that are left), in one or more batches."""
        wanted = rows
        while wanted is None or wanted > 0:
            batch = self._next()
            if batch is None:
                return
            piece = batch if wanted is None else batch.slice(0, wanted)
            self._rest = batch.slice(piece.num_rows) if piece.num_rows < batch.num_rows else None
            self._position += piece.num_rows
            if wanted is not None:
                wanted -= piece.num_rows
            yield self._without_filler(piece)

    def _next(self) -> Batch | None:
        if self._rest is not None:
            return self._rest
        with self.query.working() if self.query else nullcontext():
            return self._produced()

    def _produced(self) -> Batch | None:
        if self._iterator is None:
            self._batches, self._opened = self._opened or self._start(), None
            self._iterator = iter(self._batches)
        return next(self._iterator, None)

    def _without_filler(self, batch: Batch) -> Batch:
        """A result without columns travels as one column of nothing."""
        return batch if self.columns or isinstance(batch, Printed) else batch.select([])

    def rewind(self) -> None:
        """To before the first row."""
        if self._position or self._iterator is not None:
            self.close()

    def interrupt(self) -> None:
        """Make the running read fail; may be called from another thread."""
        batches = self._batches
        if batches is not None:
            batches.interrupt()

    def close(self) -> None:
        """Stop, and give everything back. A later read starts again."""
        if self.query and self._iterator is not None:  # a result that nobody read was only described
            self.query.end(Outcome.OK)
        for held in (self._opened, self._batches):
            if held is not None:
                held.close()
        self._opened = self._batches = self._iterator = self._rest = None
        self._position = 0
