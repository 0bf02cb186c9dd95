"""Rows on their way into a lake table, as Postgres makes them of a batch: the texts that an INSERT would send."""

import secrets
from collections.abc import Sequence

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import batches
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.relation import names, staging

_statement = sqlfiles.statements(__name__, "lake_staging")


def begin(connection: Connection, foreign_table: Name) -> None:
    """Have a table like the foreign one, until the session ends."""
    connection.execute(_statement("create").format(table=names.identifier(foreign_table)))


def through(connection: Connection, given: Sequence[str], taken: Sequence[str], lines: memoryview) -> bytes:
    """Give lines of CSV with these columns, and take those columns of the same rows, as CSV again."""
    with connection.transaction(), connection.cursor() as cursor:
        with cursor.copy(_statement("give").format(columns=_listed(given))) as copy:
            copy.write(lines)
        with cursor.copy(_statement("take").format(columns=_listed(taken))) as copy:
            made = b"".join(copy)
        cursor.execute(_statement("empty").format())
    return made


def _listed(columns: Sequence[str]) -> sql.Composed:
    return names.columns(None, columns)


def everything(relation: Name, columns: Sequence[str]) -> sql.Composed:
    """The query of all rows of a relation with these columns."""
    return _statement("everything").format(columns=_listed(columns), relation=names.identifier(relation))


def filled(connection: Connection, query: str) -> str:
    """Keep what a query gives in a staging table, and say its name. It is held while the session lives."""
    stage = f"batch_{secrets.token_hex(12)}"
    with connection.transaction():
        connection.execute(
            _statement("fill").format(stage=staging.identifier(stage), query=names.trusted(query.rstrip("; \n\t")))
        )
        batches.hold(connection, stage)
    return stage
