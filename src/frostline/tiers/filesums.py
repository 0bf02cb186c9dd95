"""Lake files are compared before they are read, once a process: docs/design/damaged-files.md."""

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import duckdb
import psycopg

from frostline import logs
from frostline.catalog import lake_files
from frostline.catalog.connect import Connection, connect, first_line
from frostline.errors import UnavailableError
from frostline.lake import damage, expected, filecheck
from frostline.lake.filecheck import Checks, FileCheck
from frostline.model.tables import StoredTable, Table

_log = logging.getLogger(__name__)


class SummedFile(Protocol):
    """A data file with its checksum, if it has one."""

    @property
    def path(self) -> str:
        """Its location."""
        ...

    @property
    def size_bytes(self) -> int:
        """How large it must be."""
        ...

    @property
    def sha256(self) -> bytes | None:
        """What its bytes must be."""
        ...


@dataclass
class Sums:
    """The recorded checksums, as far as they can be asked for."""

    connection: Connection | None

    def expect_metadata(self, table: StoredTable) -> None:
        """What reads the table's metadata in this process compares it from now on."""
        if self.connection is not None and isinstance(table, Table):
            expected.add(lake_files.metadata_checksums(self.connection, table))

    def of(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """Of these files."""
        return lake_files.checksums(self.connection, paths) if self.connection is not None else {}


@contextmanager
def asked(dsn: str) -> Generator[Sums]:
    """Ask Postgres. Where it is away, or the role may not read the checksums, only sizes are compared.

    A plan of cold files alone outlives Postgres.
    """
    connection = _connected(dsn)
    with connection or nullcontext():
        yield Sums(connection)


def _connected(dsn: str) -> Connection | None:
    try:
        connection = connect(dsn, purpose="spark")
    except UnavailableError as error:
        return _unasked(error.message)
    try:
        lake_files.checksums(connection, ())
    except psycopg.Error as error:
        connection.close()
        return _unasked(first_line(error))
    return connection


def _unasked(reason: str) -> None:
    warning = f"the checksums of lake files cannot be compared: {reason}"
    _log.warning("%s", logs.fields(stage="read", warning=warning))


@cache
def of_process(checks: Checks) -> FileCheck:
    """What this process has compared."""
    return FileCheck(checks)


def compare_here(files: Sequence[SummedFile], checks: Checks | None) -> None:
    """In a task: compare the files that it is about to read."""
    if files:
        of_process(checks or filecheck.fitting(files[0].path)).compare(files, lambda wanted: recorded(files, wanted))


@contextmanager
def blamed(files: Sequence[SummedFile]) -> Generator[None]:
    """Where DuckDB stumbles over one of these files, say which, or at least which they are."""
    try:
        yield
    except (duckdb.InvalidInputException, duckdb.SerializationException, duckdb.InternalException) as error:
        if not files or "ERROR:" in str(error):  # of Postgres
            raise
        FileCheck(Checks.FIRST_READ).compare(files, lambda wanted: recorded(files, wanted))
        names = ", ".join(file.path for file in files[:3]) + (", ..." if len(files) > 3 else "")
        raise damage.damaged(f"file among {names}", type(error).__name__) from None


def recorded(files: Sequence[SummedFile], wanted: Collection[str]) -> dict[str, bytes]:
    """The checksums of those that are wanted, as far as they have one."""
    asked = frozenset(wanted)
    return {file.path: file.sha256 for file in files if file.sha256 is not None and file.path in asked}
