"""Installs the catalog by numbered migrations: idempotent, and refuses a catalog newer than this program."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import LiteralString, cast

import psycopg

from frostline import sqlfiles
from frostline.catalog.connect import Connection, first_value, only_value
from frostline.catalog.patience import patiently
from frostline.errors import UnavailableError, UsageError
from frostline.model.names import OWN_SCHEMAS, Name, quoted

_statement = sqlfiles.statements(__name__, "queries/migration")

_OLDEST_SERVER = 150_000
_FILE = re.compile(r"(\d{3})_(\w+)\.sql")


@dataclass(frozen=True)
class Migration:
    """One step of the catalog's history. Never edited once released."""

    number: int
    name: str
    text: LiteralString


@cache
def known() -> tuple[Migration, ...]:
    """All migrations that this program has, in order."""
    folder = resources.files(__package__ or "").joinpath("sql/migrations")
    steps: list[Migration] = []
    for entry in folder.iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            text = cast(LiteralString, entry.read_text(encoding="utf-8"))
            steps.append(Migration(int(match[1]), match[2], text))
    return tuple(sorted(steps, key=lambda migration: migration.number))


def apply(connection: Connection) -> list[str]:
    """Bring the catalog up to date and say which migrations ran; none when it already was.

    One transaction under an advisory lock, so two installers at once are safe and a crash leaves nothing. It may need
    tables that every query of a relation reads, so it tries for a moment at a time: nobody queues behind it for long.
    """
    try:
        return patiently(connection, Name("frostline", "seam"), lambda: _apply(connection), complaint=_in_use)
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(
            f"the connected role may not install the catalog: {error.diag.message_primary}",
            hint=f"grant create on database {connection.info.dbname} to {connection.info.user}",
        ) from None


def _in_use() -> UnavailableError:
    return UnavailableError(
        "the catalog is still in use by transactions that stay open",
        hint="end them: select * from pg_stat_activity where xact_start < now() - interval '1 minute'",
    )


def _apply(connection: Connection) -> list[str]:
    refuse_unfit(connection)
    connection.execute(_statement("lock_out_other_installers"))
    _refuse_strange_schemas(connection)
    connection.execute(_statement("make_room"))
    done = {number for (number,) in connection.execute(_statement("applied"))}
    _refuse_newer(done)
    missing = [step for step in known() if step.number not in done]
    for step in missing:
        connection.execute(step.text)
        connection.execute(_statement("record"), {"number": step.number, "name": step.name})
    if missing:
        connection.execute(_statement("take_back_defaults"))
    return [f"{step.number:03}_{step.name}" for step in missing]


def _refuse_newer(done: set[int]) -> None:
    newest = known()[-1].number
    if done and max(done) > newest:
        raise UsageError(
            f"the catalog is at migration {max(done)}, this program knows only {newest}",
            hint="install a frostline at least as new as the one that migrated this database",
        )


def _refuse_strange_schemas(connection: Connection) -> None:
    for schema, owner in connection.execute(_statement("strange_schemas"), {"own_schemas": list(OWN_SCHEMAS)}):
        raise UsageError(
            f"schema {schema} belongs to role {quoted(owner)}",
            hint=f"run it as {quoted(owner)} if that role installed Frostline; else drop the schema",
        )


def refuse_unfit(connection: Connection) -> None:
    """UsageError for a server that is too old, or a database that is not in UTF8."""
    refuse_old_server(connection.info.server_version)
    _refuse_wrong_encoding(connection)


def refuse_old_server(version: int) -> None:
    """UsageError for a PostgreSQL that is too old; `version` as libpq counts it, 150004 for 15.4."""
    if version < _OLDEST_SERVER:
        server, needed = version // 10_000, _OLDEST_SERVER // 10_000
        raise UsageError(f"this is PostgreSQL {server}, which is too old", hint=f"use PostgreSQL {needed} or newer")


def _refuse_wrong_encoding(connection: Connection) -> None:
    row = connection.execute(_statement("encoding")).fetchone()
    if row and row[0] != "UTF8":
        raise UsageError(
            f"the database's encoding is {row[0]}, not UTF8",
            hint="create the database with: createdb --encoding UTF8 --template template0 NAME",
        )


def version(connection: Connection) -> int | None:
    """The newest migration in the database, or None when Frostline is not installed there."""
    if not only_value(connection.execute(_statement("is_installed"))):
        return None
    return first_value(connection.execute(_statement("newest")))


def require(connection: Connection) -> None:
    """Refuse a database without the catalog, or with one that is not of this program's version."""
    installed = version(connection)
    if installed is None:
        hint = "frostline init --dsn DSN --warehouse URI"
        raise UsageError("Frostline is not installed in this database", hint=hint)
    if installed < known()[-1].number:
        reason = f"the catalog is at migration {installed}, this program needs {known()[-1].number}"
        raise UsageError(reason, hint="frostline init")
    _refuse_newer({installed})
