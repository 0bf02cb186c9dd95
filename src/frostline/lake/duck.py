"""DuckDB connections, with extensions from installed packages only."""

from importlib.util import find_spec
from pathlib import Path

import duckdb

from frostline.errors import UnavailableError
from frostline.lake import ducksql

_EXTENSIONS = ("postgres_scanner", "httpfs")


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
    return connection


def load(connection: duckdb.DuckDBPyConnection, extension: str) -> None:
    """Load an extension from the `duckdb_extension_*` package that was installed with Frostline."""
    connection.execute("load " + ducksql.literal(str(extension_path(extension))))


def extension_path(extension: str) -> Path:
    """The extension's file, built for exactly this DuckDB."""
    package = "duckdb_extension_" + extension
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        if path.is_file():
            return path
    raise UnavailableError(
        f"duckdb extension {extension!r} for duckdb {duckdb.__version__} is not installed",
        hint=f"pip install duckdb-extension-{extension.replace('_', '-')}=={duckdb.__version__}",
    )
