"""Refuses partitions that somebody makes below the frost line, where their rows would not be seen."""

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "guard")[name])


def ensure(connection: Connection) -> bool:
    """Install the guard where the role may: event triggers need a superuser, or what a managed Postgres has for one.

    Says whether it is there. Without it, archive still finds and adopts such partitions.
    """
    (present,) = connection.execute(_statement("exists")).fetchone() or (False,)
    if present:
        return True
    try:
        with connection.transaction():
            connection.execute(_statement("function"))
            connection.execute(_statement("trigger"))
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
