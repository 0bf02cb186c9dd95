"""The foreign server through which Postgres asks the lake server, and the mapping that lets it in."""

from collections.abc import Mapping
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, first_value, only_value
from frostline.errors import UsageError

_statement = sqlfiles.statements(__name__, "foreign_server")

NAME = "frostline_lake"
DATABASE = "lake"
"""What it asks for, in `foreign_server.sql`; the lake server has no other."""
NOTHING = sql.SQL("")
_PUBLIC, _CURRENT = sql.SQL("public"), sql.SQL("current_user")
TIMEOUTS: dict[LiteralString, str] = {
    "connect_timeout": "5",
    "tcp_user_timeout": "9000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
}
"""A cold query must fail soon when the lake server's machine is gone. Other values that a user has set are kept."""
SAMPLING: dict[LiteralString, str] = {"analyze_sampling": "system"}
"""ANALYZE need not look at every file of a large lake. Before 16 Postgres takes no sample: it fetches all rows."""
_SAMPLING_SINCE = 160_000
COSTS: dict[LiteralString, str] = {"fdw_startup_cost": "2000", "fdw_tuple_cost": "0.02"}
"""What Postgres is to count for a question to the lake server, and for each row of the answer: docs/design/costs.md."""
_FORMER_COSTS = {"fdw_startup_cost": "10"}
"""What an older Frostline has set, so nobody else did."""


def ensure(
    connection: Connection, *, host: str, port: int, user: str, password: str, passfile: str | None = None
) -> bool:
    """Create the foreign server and the connected role's mapping, or bring their options up to date.

    Where there is a mapping for all roles, it is that one.

    Idempotent; says whether anything changed. The password is in the mapping only, where Postgres hides it from
    other roles; with a `passfile`, a file on the machine of Postgres that has it, it is not in Postgres at all.
    """
    try:
        with connection.transaction():
            connection.execute(_statement("extension"))
            changed = _ensure_server(connection, {"host": host, "port": str(port), "passfile": passfile})
            return _ensure_mapping(connection, user, None if passfile else password) or changed
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported) as error:
        role = sql.Identifier(connection.info.user).as_string(connection)
        raise UsageError(
            f"cannot set up the foreign server: {error.diag.message_primary}",
            hint="an administrator has to run in this database: create extension if not exists postgres_fdw; "
            f"grant usage on foreign data wrapper postgres_fdw to {role}",
        ) from None


_Options = dict[LiteralString, str | None]
"""The options that are ours to set; None is for one that must not be there. Others are the administrator's."""


def _ensure_server(connection: Connection, wanted: _Options) -> bool:
    is_new = _server(connection) is None
    if is_new:
        literals = {key: sql.Literal(wanted[key]) for key in ("host", "port")}
        passfile = sql.SQL(", passfile {}").format(sql.Literal(wanted["passfile"])) if wanted["passfile"] else NOTHING
        connection.execute(_statement("create_server").format(passfile=passfile, **literals))
    present = _server(connection) or {}
    can_sample = connection.info.server_version >= _SAMPLING_SINCE
    ours = TIMEOUTS | COSTS | (SAMPLING if can_sample else {})
    chosen = {key: value for key, value in present.items() if value != _FORMER_COSTS.get(key)}
    limits: _Options = {key: chosen.get(key, value) for key, value in ours.items()}
    return _alter(connection, "alter_server", present, {**wanted, **limits}) or is_new


def _server(connection: Connection) -> dict[str, str] | None:
    return first_value(connection.execute(_statement("server_options").format()))


def _ensure_mapping(connection: Connection, user: str, password: str | None) -> bool:
    dropped = is_for_all(connection) and _drop_own_mappings(connection)
    present = _mapping(connection)
    if password is None:
        _refuse_without_password(connection, present or {})
    wanted: _Options = {"user": user, "password": password}
    if password is None and is_for_all(connection):
        wanted["password_required"] = "false"  # noqa: S105
    if present is None:
        _create_mapping(connection, _CURRENT, {key: value for key, value in wanted.items() if value})
        return True
    return _alter(connection, "alter_mapping", present, wanted, role=_whose(connection)) or dropped


def is_for_all(connection: Connection) -> bool:
    """Whether all roles share one mapping."""
    return only_value(connection.execute(_statement("is_for_all").format()))


def _whose(connection: Connection) -> sql.SQL:
    """The role of the mapping that the connected role uses."""
    return _PUBLIC if is_for_all(connection) else _CURRENT


def open_to_all(connection: Connection) -> None:
    """Let all roles share the connected role's mapping; those of single roles go. Idempotent.

    postgres_fdw has one connection for each mapping that a session uses, and commits one after the other. With one for
    all, a local transaction has one remote transaction, whatever roles its views and functions run as.
    """
    if is_for_all(connection):
        return
    given = _mapping(connection) or {}
    if "password" not in given:
        if not first_value(connection.execute(_statement("is_superuser"))):
            return  # nobody else may let roles go without a password; foreign tables are then for this role
        given["password_required"] = "false"  # noqa: S105
    _create_mapping(connection, _PUBLIC, given)
    _drop_own_mappings(connection)


def _create_mapping(connection: Connection, role: sql.SQL, given: Mapping[str, str]) -> None:
    options = [sql.SQL("{} {}").format(sql.Identifier(key), sql.Literal(value)) for key, value in given.items()]
    connection.execute(_statement("create_mapping").format(role=role, changes=sql.SQL(", ").join(options)))


def _drop_own_mappings(connection: Connection) -> bool:
    own = connection.execute(_statement("other_mappings")).fetchall()
    for (role,) in own:
        connection.execute(_statement("drop_mapping").format(role=sql.Identifier(role)))
    return bool(own)


def _alter(
    connection: Connection, statement: str, present: dict[str, str], wanted: _Options, **gaps: sql.Composable
) -> bool:
    changes = [_change(key, value, present) for key, value in wanted.items() if present.get(key) != value]
    if changes:
        connection.execute(_statement(statement).format(changes=sql.SQL(", ").join(changes), **gaps))
    return bool(changes)


def _change(key: LiteralString, value: str | None, present: dict[str, str]) -> sql.Composed:
    if value is None:
        return sql.SQL("drop {}").format(sql.SQL(key))
    # A restored mapping may have lost its options: a role that may not see them dumps it without.
    verb = sql.SQL("set" if key in present else "add")
    return sql.SQL("{} {} {}").format(verb, sql.SQL(key), sql.Literal(value))


def _refuse_without_password(connection: Connection, present: dict[str, str]) -> None:
    is_superuser = first_value(connection.execute(_statement("is_superuser")))
    if is_superuser or present.get("password_required") == "false":
        return
    role = "public" if is_for_all(connection) else sql.Identifier(connection.info.user).as_string(connection)
    raise UsageError(
        f"lake_passfile is set, but the mapping of {role} needs a password",
        hint=f"a superuser has to run: alter user mapping for {role} server {NAME} "
        "options (drop password, add password_required 'false')",
    )


def _mapping(connection: Connection) -> dict[str, str] | None:
    return first_value(connection.execute(_statement("mapping_options").format()))


def require(connection: Connection) -> None:
    """Refuse to go on when the server or the connected role's mapping is missing."""
    if _server(connection) is None:
        raise UsageError(
            "Frostline's foreign server does not exist in this database",
            hint="frostline init --dsn DSN --warehouse URI",
        )
    if _mapping(connection) is None:
        raise UsageError(
            "the connected role has no user mapping for the lake server",
            hint="run frostline init as this role",
        )


def strangers(connection: Connection) -> list[tuple[str, str]]:
    """Who could have the lake server read and write any lake table, and the command that ends it.

    Postgres asks for rights on a foreign table before it sends anything. But its owner may let it ask for another lake
    table, and who may use the server can make one. So neither is for roles that could not be the server's owner anyway.
    """
    return connection.execute(_statement("strangers")).fetchall()


def stored_password(connection: Connection) -> str | None:
    """The password that Postgres sends to the lake server; None when there is no mapping or the role may not see it."""
    return (_mapping(connection) or {}).get("password")


def options(connection: Connection) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """The options of the server, and of the connected role's mapping as far as it may see them; None: not there."""
    return _server(connection), _mapping(connection)
