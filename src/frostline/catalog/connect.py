"""Connections to Postgres for Frostline's own work."""

import json
import os
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, sql
from psycopg.rows import kwargs_row

from frostline import secretfile
from frostline.errors import UnavailableError, UsageError, message_of

TYPE_SETTINGS = {
    "search_path": "pg_catalog,pg_temp",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
"""Under these every value has one text, and no name means something else than it says."""

_TRANSACTIONS = {"default_transaction_isolation": "read committed", "default_transaction_read_only": "off"}
"""What is looked at under a lock must be newer than the lock, whatever the role's or the database's defaults are."""
_POLICIES = {"row_security": "off"}
"""A job sees all rows or fails. No policy of a table hides one from it, or has its functions run with its rights."""
_GUARD = {"frostline.guard": "off"}
"""What guards a managed table's objects lets our own commands drop and make them: docs/design/guards.md."""
_LIMITS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A Postgres whose machine is gone is noticed within a minute or so, not after hours."""
_SPACE = "\\ "
"""As libpq wants it in its options."""

_SECRET = ("password", "sslpassword", "oauth_client_secret")
"""The options of libpq that are secrets themselves, and not only name them."""

Connection = psycopg.Connection[tuple[Any, ...]]
Row = TypeVar("Row")
Made = TypeVar("Made")


class Dsn(str):  # noqa: SLOT000  (it has to be what libpq's callers take)
    """A connection string as a Spark task has it. What is pickled of it has no password, but names a file that has it.

    Where that file is not to be had, libpq looks for a password as it always does: PGPASSFILE, ~/.pgpass, PGPASSWORD.
    """

    place: str | None = None
    """The file that it was in, if this one was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Take the secrets out."""
        options: dict[str, Any] = conninfo.conninfo_to_dict(self)
        secret = {key: options.pop(key) for key in _SECRET if key in options}
        place = self.place or (secretfile.put(json.dumps(secret)) if secret else None)
        return _restored, (conninfo.make_conninfo(**options), place)


def _restored(text: str, place: str | None) -> Dsn:
    secret = secretfile.get(place) if place else None
    dsn = Dsn(conninfo.make_conninfo(text, **json.loads(secret)) if secret else text)
    dsn.place = place
    return dsn


def connect(dsn: str, *, purpose: str, for_user: bool = False) -> Connection:
    """Open an autocommit connection; `purpose` shows in pg_stat_activity.

    `for_user` is for what a user reads or writes through the relation, under the policies of that user.
    """
    chosen = {**TYPE_SETTINGS, **_TRANSACTIONS, **({} if for_user else _POLICIES | _GUARD)}
    options = " ".join(f"-c {key}={value.replace(' ', _SPACE)}" for key, value in chosen.items())
    try:
        return psycopg.connect(
            dsn, autocommit=True, options=options, application_name=f"frostline {purpose}", **_LIMITS
        )
    except psycopg.ProgrammingError as error:
        raise UsageError(f"not a connection string: {error}", hint="use postgresql://user@host/database") from None
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"cannot connect to Postgres: {first_line(error)}",
            hint="check FROSTLINE_DSN, or start the embedded one: frostline up --home DIR",
        ) from None


def local_settings() -> sql.Composed:
    """The statements that give a transaction of somebody else's connection the settings for types."""
    return sql.SQL("; ").join(
        sql.SQL("set local {} = {}").format(sql.Identifier(key), sql.SQL(", ").join(map(sql.Literal, value.split(","))))
        for key, value in TYPE_SETTINGS.items()
    )


def dsn_of(connection: Connection) -> str:
    """The connection string for another session like this one."""
    info = connection.info
    return conninfo.make_conninfo(info.dsn, **({"password": info.password} if info.password else {}))


def this_process() -> str:
    """Who we are, for those who wait for us."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def operational_errors(doing: str, *, hint: str) -> Generator[None]:
    """Say what was being done when Postgres went away, or had no more of something: UnavailableError."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise UnavailableError(f"Postgres gave up while {doing}: {first_line(error)}", hint=hint) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without a hint: libpq writes several."""
    return (message_of(error).strip().splitlines() or ["no reason given"])[0]


def fetch(
    connection: Connection,
    make: Callable[..., Made],
    statement: sql.SQL | sql.Composed,
    values: Mapping[str, Any] | None = None,
) -> list[Made]:
    """The rows of a statement, each as `make` makes it of its columns by their names."""
    with connection.cursor(row_factory=kwargs_row(make)) as cursor:
        return cursor.execute(statement, values).fetchall()


def only_row(cursor: psycopg.Cursor[Row]) -> Row:
    """The row of a statement that always gives one."""
    row = cursor.fetchone()
    assert row is not None
    return row


def only_value(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Any:
    """What a statement that always gives one row has in its first column."""
    return only_row(cursor)[0]


def first_value(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Any:
    """What the first row of a statement has in its first column; None when it gives no row."""
    row = cursor.fetchone()
    return None if row is None else row[0]
