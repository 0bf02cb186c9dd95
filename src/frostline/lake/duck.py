"""DuckDB connections, with extensions from installed packages only."""

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import duckdb

from frostline.errors import UnavailableError
from frostline.lake import ducksql, objectstore
from frostline.lake.objectstore import Access

_ATTACH = "attach {conninfo} as pg (type postgres, read_only)"
_EXTENSIONS = ("postgres_scanner", "httpfs")
_idle: defaultdict[tuple[str, Access | None], list[duckdb.DuckDBPyConnection]] = defaultdict(list)
"""Of this process, by memory limit and object store: nobody uses them, nothing is in them."""


@contextmanager
def borrowed(memory_limit: str) -> Generator[duckdb.DuckDBPyConnection]:
    """An empty DuckDB of one thread; used again by the next borrower unless an error ended this one.

    What it holds afterwards is given up: databases that were attached, and a transaction with everything made in it.

    Checking the signatures of the extensions takes longer than many a task, so it is done once a process.
    """
    idle = _idle[memory_limit, objectstore.in_use()]
    spill = Path(tempfile.gettempdir()) / f"frostline-{uuid.uuid4()}"  # DuckDB makes it when it needs it
    connection = idle.pop() if idle else connect(memory_limit=memory_limit, threads=1, temp_directory=str(spill))
    try:
        yield connection
        _empty(connection)
    except BaseException:
        connection.close()
        raise
    idle.append(connection)


def _empty(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("rollback")
    attached = "select database_name from duckdb_databases() where not internal and database_name <> 'memory'"
    for (name,) in connection.execute(attached).fetchall():
        connection.execute("detach " + ducksql.identifier(name))


def connect(*, memory_limit: str, threads: int, temp_directory: str) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB that downloads nothing and counts time in UTC.

    It may spill into `temp_directory` when a query needs more than `memory_limit`.
    """
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": memory_limit,
            "temp_directory": temp_directory,
            "threads": threads,
        }
    )
    for name in _EXTENSIONS:
        load(connection, name)
    connection.execute("set TimeZone = 'UTC'")
    if objectstore.in_use():
        reach_the_store(connection)
    return connection


def reach_the_store(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection that has httpfs read and write in the object store of this process."""
    try:
        for statement in objectstore.duckdb_statements():
            connection.execute(statement)
    except duckdb.Error as error:  # its text may show the statement, which has the keys
        reason = f"DuckDB refuses the settings of the object store ({type(error).__name__})"
        raise UnavailableError(reason, hint="check the settings s3_*") from None


def begin_in_postgres(connection: duckdb.DuckDBPyConnection, conninfo: str, first: str) -> None:
    """Attach Postgres as `pg` and begin a read-only transaction there, with these statements."""
    connection.execute(_ATTACH.format(conninfo=ducksql.literal(conninfo)))
    connection.execute("begin")
    connection.execute("call postgres_execute('pg', ?)", [first])


def postgres_reason(message: str) -> str:
    """What Postgres said, out of a DuckDB error, which may also show the connection string."""
    if "Unable to connect" in message:
        return "cannot connect to Postgres"
    return message.rpartition("ERROR:")[2].strip().partition("\n")[0]


def load(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Load an extension from the `duckdb_extension_*` package that was installed with Frostline."""
    connection.execute("load " + ducksql.literal(str(extension_path(extension))))


def extension_path(extension: str) -> Path:
    """The extension's file, built for exactly this DuckDB."""
    package = "duckdb_extension_" + extension
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        if path.is_file():
            return path
    raise UnavailableError(
        f"duckdb extension {extension!r} for duckdb {duckdb.__version__} is not installed",
        hint=f"pip install duckdb-extension-{extension.replace('_', '-')}=={duckdb.__version__}",
    )
