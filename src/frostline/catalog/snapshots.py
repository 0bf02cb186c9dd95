"""A Postgres snapshot that many connections read, for as long as one of them holds it."""

from collections.abc import Generator
from contextlib import contextmanager

from frostline.catalog import queries
from frostline.catalog.connect import connect


@contextmanager
def exported(dsn: str) -> Generator[str]:
    """Export a snapshot and hold it open on a connection of its own.

    When that connection is lost, the tasks that join the snapshot fail; none of them reads another one.
    """
    with connect(dsn, purpose="snapshot") as connection:
        # The holder is idle in its transaction by design, so no time limit may end it.
        connection.execute(queries.get("snapshot", "no_time_limits"))
        connection.execute(queries.get("snapshot", "begin"))
        row = connection.execute(queries.get("snapshot", "export")).fetchone()
        assert row is not None
        yield row[0]
        connection.execute(queries.get("snapshot", "end"))
