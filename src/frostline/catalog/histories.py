"""Whose files this database may delete: it may share its warehouse with the one that it was restored from."""

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/history")


def own_jobs(connection: Connection, table: Table, *, every: bool = False) -> frozenset[int]:
    """The jobs of the table that have ended and whose files are ours; with `every`, whoever ran them."""
    values = {"table_id": table.id, "every": every}
    rows = connection.execute(_statement("own_jobs"), values).fetchall()
    return frozenset(job_id for (job_id,) in rows)


def take_over(connection: Connection) -> None:
    """Write down that the databases which this one was restored or promoted from are gone: their files are ours."""
    connection.execute(_statement("take_over"))


def is_copy(connection: Connection) -> bool:
    """Whether some of the lake was written by the database that this one was restored or promoted from."""
    row = connection.execute(_statement("is_copy")).fetchone()
    return row is not None and row[0]
