"""DuckDB in this process on the files of a lake snapshot: what a question takes without Postgres and the lake server."""

from collections.abc import Sequence

import duckdb


def connected(paths: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """With as many threads as the lake server and its cache of file footers; the files are the view `events`."""
    connection = duckdb.connect(config={"threads": "2"})
    connection.execute("set timezone = 'UTC'")
    connection.execute("set parquet_metadata_cache = true")
    listed = ", ".join(f"'{path.removeprefix('file://')}'" for path in paths)
    connection.execute(f"create view events as select * from read_parquet([{listed}])")
    return connection
