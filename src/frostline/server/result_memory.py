"""What open results share: memory, which slow clients could hold all of, and a place on disk for when they do.

An open result keeps a row group for every thread in memory for as long as its client reads. Once such results hold
half of the memory, a new large one is computed to its end at once, and waits for its client on disk.
"""

import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

_SPILL_SLOTS = 2
_POLL_S = 0.1
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LIMIT = "select current_setting('memory_limit')"
# The caches give way when somebody needs their memory.
_USED = "select sum(memory_usage_bytes) from duckdb_memory() where tag not in ('EXTERNAL_FILE_CACHE', 'OBJECT_CACHE')"


class ResultMemory:
    """Knows how much memory is taken, and lets a few results at a time go to disk."""

    def __init__(self, root: duckdb.DuckDBPyConnection, directory: Path) -> None:
        self._directory = directory
        self.limit_bytes = _bytes(str(_value(root, _LIMIT)))
        self._lock, self._open = threading.Lock(), 0
        self._spill_slots = threading.BoundedSemaphore(_SPILL_SLOTS)

    def opened(self) -> None:
        """One more result is open."""
        with self._lock:
            self._open += 1

    def closed(self) -> None:
        """One less."""
        with self._lock:
            self._open -= 1

    def under_pressure(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Whether half of the memory is in use, while there are other results than the one that asks.

        To count takes a millisecond, as long as the rest of a look-up.
        """
        if self._open <= 1:
            return False
        return 2 * int(str(_value(connection, _USED))) > self.limit_bytes

    def has_room(self, connection: duckdb.DuckDBPyConnection, size_bytes: int) -> bool:
        """Whether half of the memory is still free with so much more in use."""
        return 2 * (int(str(_value(connection, _USED))) + size_bytes) <= self.limit_bytes

    @contextmanager
    def spill_slot(self, check_cancelled: Callable[[], None]) -> Generator[Path]:
        """Wait until a result may be written, and get a file's name for it. `check_cancelled` raises to end that."""
        while not self._spill_slots.acquire(timeout=_POLL_S):
            check_cancelled()
        try:
            yield self._directory / f"result-{uuid.uuid4()}.arrow"
        finally:
            self._spill_slots.release()


def write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Put all batches into a file, one at a time."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)  # pyright: ignore[reportUnknownMemberType]  (an optional argument has no type)


def read(path: Path) -> Iterator[pa.RecordBatch]:
    """Get them back, one at a time."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _value(connection: duckdb.DuckDBPyConnection, query: str) -> object:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _bytes(text: str) -> int:
    """The number in DuckDB's own words, such as `953.6 MiB`."""
    number, unit = text.split()
    return int(float(number) * _UNITS[unit])
