"""The lake server's login as the connected role's user mapping holds it."""

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection


def stored_password(connection: Connection) -> str | None:
    """The password that Postgres sends to the lake server; None when there is no mapping or the role may not see it."""
    statement = sql.SQL(sqlfiles.load(__package__ or "", "foreign_server")["mapping_options"])
    row = connection.execute(statement.format()).fetchone()
    return row[0].get("password") if row and row[0] else None
