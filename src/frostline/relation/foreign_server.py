"""The foreign server through which Postgres asks the lake server, and the mapping that lets it in."""

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.errors import UsageError

NAME = "frostline_lake"


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "foreign_server")[name])


def ensure(connection: Connection, *, host: str, port: int, user: str, password: str) -> bool:
    """Create the foreign server and the connected role's mapping, or bring their options up to date.

    Idempotent; says whether anything changed. The password is in the mapping only, where Postgres hides it.
    """
    try:
        with connection.transaction():
            connection.execute(_statement("extension"))
            changed = _ensure_server(connection, host, str(port))
            return _ensure_mapping(connection, user, password) or changed
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
        role = sql.Identifier(connection.info.user).as_string(connection)
        raise UsageError(
            f"cannot set up the foreign server: {error.diag.message_primary}",
            hint="an administrator has to run in this database: create extension if not exists postgres_fdw; "
            f"grant usage on foreign data wrapper postgres_fdw to {role}",
        ) from None


def _ensure_server(connection: Connection, host: str, port: str) -> bool:
    present = connection.execute(_statement("server_options").format()).fetchone()
    if present is not None and (present[0].get("host"), present[0].get("port")) == (host, port):
        return False
    name = "create_server" if present is None else "alter_server"
    connection.execute(_statement(name).format(host=sql.Literal(host), port=sql.Literal(port)))
    return True


def _ensure_mapping(connection: Connection, user: str, password: str) -> bool:
    present = connection.execute(_statement("mapping_options").format()).fetchone()
    if present is not None and present[0] == {"user": user, "password": password}:
        return False
    name = "create_mapping" if present is None else "alter_mapping"
    connection.execute(_statement(name).format(user=sql.Literal(user), password=sql.Literal(password)))
    return True


def require(connection: Connection) -> None:
    """Refuse to go on when the server or the connected role's mapping is missing."""
    if connection.execute(_statement("server_options").format()).fetchone() is None:
        raise UsageError(
            "Frostline's foreign server does not exist in this database",
            hint="frostline init --dsn DSN --warehouse URI",
        )
    if connection.execute(_statement("mapping_options").format()).fetchone() is None:
        raise UsageError(
            "the connected role has no user mapping for the lake server",
            hint="run frostline init as this role",
        )


def stored_password(connection: Connection) -> str | None:
    """The password that Postgres sends to the lake server; None when there is no mapping or the role may not see it."""
    row = connection.execute(_statement("mapping_options").format()).fetchone()
    return row[0].get("password") if row and row[0] else None
