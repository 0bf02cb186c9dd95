"""DuckDB: one instance for the process, one connection for every open result."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from frostline.errors import FrostlineError, UnavailableError
from frostline.lake import damage, duck, objectstore, paths, store
from frostline.lake.damage import UnreadableFile
from frostline.server import result_memory
from frostline.server.ahead import Ahead
from frostline.server.extracts import Extracts, Shortcut
from frostline.server.protocol.rows import Printed
from frostline.server.result_memory import ResultMemory
from frostline.server.translate.duck import local

BATCH_ROWS = 10_240
"""Rows of a batch: enough to be fast, few enough to have many sessions, each of which holds one to three."""

_AHEAD_BYTES, _AHEAD = 4 << 20, 2
"""As many as the first as have room in this, and so many at most: postgres_fdw fetches up to twice a batch's rows."""
_MOST_NAMED = 3

_INTERRUPTED = "INTERRUPT Error: Interrupted!"
"""How pyarrow hands it on. The word alone may be in the name of a file."""
_PATH = re.compile(r"[\"']?((?:/|[a-z0-9]+://)[^\"'\n]+?\.parquet)")

_TRUSTING = (
    "set global validate_external_file_cache = 'NO_VALIDATION'",
    "set global enable_http_metadata_cache = true",
)
"""A file in an object store never changes, so DuckDB need not ask for its size and date before it uses what it has kept
of it. `FileCheck` does, once a minute, and `Engine.forget` follows when somebody has put another file in its place."""

Prepared = TypeVar("Prepared")
Check: TypeAlias = Callable[[Callable[[], None]], None]
"""Looks at files before they are read, for as long as the function that it is given does not raise."""


class Cancelled(FrostlineError):
    """The client asked to stop."""

    sqlstate = "57014"


class EngineFailure(FrostlineError):
    """DuckDB could not answer; not the client's fault."""

    sqlstate = "XX000"


class OutOfMemory(UnavailableError):
    """The query needs more than the server may use."""

    sqlstate = "53200"


class DiskFull(UnavailableError):
    """Sorts and waiting results go to disk, and there is no room left."""

    sqlstate = "53100"


class _Way(Enum):
    """How the rest of a result is produced."""

    ON_DEMAND = auto()
    """Each batch when the client asks for it."""
    AHEAD = auto()
    """The next batches while the client is busy with the last, printed if it wants them so."""
    BY_DISK = auto()
    """All of it at once, into a file, where it waits for the client."""


class Rows:
    """A result that is produced while it is read. Not for several threads, except `interrupt`.

    The query starts with the first read: a sort is done before the first row, and `interrupt` must reach it. Its first
    batches decide once and for all how the rest is produced:

        memory                      the first batches              the rest
        free                        full, and small enough         AHEAD
        free                        others                         ON_DEMAND
        half held by other results  one: there is no rest          ON_DEMAND
        half held by other results  two: it may be large           BY_DISK, from the beginning
        too little to produce them                                 BY_DISK, from the beginning
    """

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        sql: str,
        batch_rows: int,
        result_memory: ResultMemory,
        first: Check,
        files: Sequence[str],
        shortcut: Shortcut,
    ) -> None:
        self._connect, self._sql, self._batch_rows, self._result_memory = connect, sql, batch_rows, result_memory
        self._first, self._files, self._shortcut = first, files, shortcut
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._stopped = False
        self._file: Path | None = None
        self._ahead: Ahead[Any] | None = None

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        assert self._opened is not None, "not started"
        return self._opened

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches(lambda batch: batch)

    def printed(self) -> Iterator[pa.RecordBatch | Printed]:
        """The same rows. What is produced before it is asked for is printed by then, too."""
        return self._batches(lambda batch: Printed([batch]))

    def _batches(self, prepare: Callable[[pa.RecordBatch], Prepared]) -> Iterator[pa.RecordBatch | Prepared]:
        self._first(self._give_up)  # before there is a connection: what it finds may end the instance
        self._opened = self._connect()
        self._result_memory.opened()
        self._give_up()
        batches, began = self._produced(), time.monotonic()
        way, head = self._begin(batches)
        self._shortcut.took(time.monotonic() - began)
        most = max(1, min(_AHEAD, _AHEAD_BYTES // max(1, sum(batch.nbytes for batch in head))))
        yield from head
        head.clear()  # a client may take its time with the rest
        match way:
            case _Way.ON_DEMAND:
                yield from batches
            case _Way.AHEAD:
                yield from self._ahead_of(batches, prepare, most)
            case _Way.BY_DISK:
                batches.close()
                yield from self._by_way_of_disk()

    def _begin(self, batches: Iterator[pa.RecordBatch]) -> tuple[_Way, list[pa.RecordBatch]]:
        """Produce the first batches, and decide by them. By way of disk they come again, and none is held meanwhile."""
        with _translated_errors():
            under_pressure = self._result_memory.under_pressure(self._connection)
        try:
            head = list(islice(batches, 2 if under_pressure else 1))
        except OutOfMemory:
            self._shortcut.give_up()
            return _Way.BY_DISK, []
        if under_pressure:
            return (_Way.BY_DISK, []) if len(head) > 1 else (_Way.ON_DEMAND, head)
        return _Way.AHEAD if _is_worth_another(head, self._batch_rows) else _Way.ON_DEMAND, head

    def _ahead_of(
        self, batches: Iterator[pa.RecordBatch], prepare: Callable[[pa.RecordBatch], Prepared], most: int
    ) -> Iterator[pa.RecordBatch | Prepared]:
        def produce() -> pa.RecordBatch | Prepared | None:
            batch = next(batches, None)
            # A large one stays as it is: for a moment it would be there twice.
            return batch if batch is None or batch.nbytes > _AHEAD_BYTES else prepare(batch)

        self._ahead = ahead = Ahead(produce, most)
        yield from ahead

    def _produced(self) -> Generator[pa.RecordBatch]:
        yield from _translated(self._reader(), self._files)

    def _reader(self) -> pa.RecordBatchReader:
        with _translated_errors(self._files):
            return self._shortcut.execute(self._connection, self._sql, self._give_up).to_arrow_reader(self._batch_rows)

    def _by_way_of_disk(self) -> Iterator[pa.RecordBatch]:
        with _translated_errors():
            self._connection.execute("select 1")  # ends what began
        with self._result_memory.spill_slot(self._give_up) as path, _translated_errors(self._files):
            self._file = path
            reader = self._reader()
            result_memory.write(path, reader.schema, reader)
        yield from _translated(result_memory.read(path))

    def _give_up(self) -> None:
        if self._stopped:
            raise Cancelled("the query was cancelled")

    def interrupt(self) -> None:
        """Make the running read fail; may be called from another thread."""
        self._stopped = True
        opened = self._opened
        if opened is not None:
            with contextlib.suppress(duckdb.Error):
                opened.interrupt()

    def close(self) -> None:
        """Stop producing and give the memory back."""
        self.interrupt()
        if self._ahead is not None:
            self._ahead.close()  # a connection is not to be closed while another thread reads from it
        if self._opened is not None:
            self._opened.close()
            self._opened = None
            self._result_memory.closed()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _is_worth_another(head: Sequence[pa.RecordBatch], batch_rows: int) -> bool:
    """Whether more will come, and is small enough to be held beside what the client is busy with."""
    return sum(batch.num_rows for batch in head) >= batch_rows and all(batch.nbytes <= _AHEAD_BYTES for batch in head)


def _translated(batches: Iterable[pa.RecordBatch], files: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """The same batches; errors are ours."""
    iterator = iter(batches)
    while True:
        with _translated_errors(files):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


class Engine:
    """The DuckDB instance, closed to everything but reading Parquet files by queries that we wrote."""

    def __init__(
        self,
        *,
        memory_limit: str,
        threads: int,
        temp_directory: Path,
        warehouse: str | None = None,
        trusting: bool = False,
    ) -> None:
        """`trusting`: somebody looks at the files of an object store, and calls `forget` when one has changed."""
        self._memory_limit, self._threads, self._temp_directory = memory_limit, threads, temp_directory
        self._warehouse, self._trusting = warehouse, trusting
        self._lock = threading.Lock()
        self._root = self._opened()
        self.result_memory = ResultMemory(self._root, temp_directory)
        self.extracts = Extracts(self._cursor, self.result_memory)

    def _opened(self) -> duckdb.DuckDBPyConnection:
        root = duckdb.connect(
            config={
                "memory_limit": self._memory_limit,
                "threads": str(self._threads),
                "temp_directory": str(self._temp_directory),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "preserve_insertion_order": "false",
            }
        )
        root.execute("set timezone = 'UTC'")
        root.execute("set global parquet_metadata_cache = true")  # without the word it is this connection's only
        if self._warehouse is not None:
            self._shut_in(root, self._warehouse)
        root.execute("set lock_configuration = true")
        return root

    def _shut_in(self, root: duckdb.DuckDBPyConnection, warehouse: str) -> None:
        """Let it reach the warehouse, and nothing else."""
        place = warehouse
        if objectstore.names(warehouse):
            place = paths.warehouse_location(warehouse)
            duck.load(root, "httpfs")
            duck.reach_the_store(root)
            for setting in _TRUSTING if self._trusting else ():
                root.execute(setting)
        root.execute("set allowed_directories = $1", [[local(place), str(self._temp_directory)]])
        root.execute("set enable_external_access = false")

    def forget(self) -> None:
        """Keep nothing of what was read so far: a file has changed, which no file of the lake does by itself.

        What was kept goes with the old instance, when the last of its open results is closed.
        """
        new = self._opened()
        with self._lock:
            old, self._root = self._root, new
        self.extracts.clear()
        old.close()

    def run(
        self,
        sql: str,
        batch_rows: int = BATCH_ROWS,
        first: Check = lambda _: None,
        files: Sequence[str] = (),
        shortcut: Shortcut | None = None,
    ) -> Rows:
        """A query, which runs as its rows are read. `first` is called before it, and its error is the query's.

        `files` are those that it reads, to be named when it fails. `shortcut` may know of an extract of them.
        """
        way = shortcut or Shortcut(self.extracts)
        return Rows(self._cursor, sql, batch_rows, self.result_memory, first, files, way)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            return self._root.cursor()

    def memory_bytes(self) -> int:
        """What DuckDB holds in memory now, its caches included."""
        with self._cursor() as connection:
            row = connection.execute("select sum(memory_usage_bytes)::bigint from duckdb_memory()").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Give everything back. Open results end with an error."""
        self.extracts.close()
        self._root.close()


class _translated_errors:  # noqa: N801
    """Turns DuckDB's errors into ours, so that a client learns what to do. `files` are those that are read."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        self._files = files

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (duckdb.Error, pa.ArrowException, OSError)):
            raise explained(error, self._files) from error


def explained(error: BaseException, files: Sequence[str] = ()) -> FrostlineError:
    """What went wrong in DuckDB, in our words. Never repeats DuckDB's text where it could hold a row's value."""
    text = str(error)
    if isinstance(error, duckdb.InterruptException) or _INTERRUPTED in text:
        return Cancelled("the query was cancelled")
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in text:
        return OutOfMemory("the query needs more memory than the lake server may use", hint="raise its memory limit")
    if "No space left on device" in text:
        return DiskFull("the lake server has no disk space left for results", hint="make room in its TMPDIR")
    path = _PATH.search(text)
    if path is not None or isinstance(error, (duckdb.IOException, OSError)):
        name = path[1] if path else _named(files)
        trouble = store.trouble(error)
        if trouble:
            return UnreadableFile(f"cannot read {name}: {trouble.reason}", hint=trouble.hint)
        return UnreadableFile(f"cannot read {name}", hint=damage.hint())
    # A damaged file that no checksum is known of may make DuckDB fail in any way.
    reason = f"{type(error).__name__} while it read {_named(files)}" if files else type(error).__name__
    return EngineFailure(f"the lake server could not answer: {reason}", hint=damage.hint() if files else None)


def _named(files: Sequence[str]) -> str:
    """The first few of them."""
    rest = len(files) - _MOST_NAMED
    return ", ".join(files[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "") or "a data file"
