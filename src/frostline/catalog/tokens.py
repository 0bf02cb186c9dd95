"""Tokens of the catalog server: each belongs to a role of Postgres, and may read, or read and write.

Whoever has a token sees it once, when it is made; the catalog has only its SHA-256.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.errors import UsageError
from frostline.model.names import quoted

_statement = sqlfiles.statements(__name__, "queries/token")
_PREFIX = "frostline_"
_BYTES = 32


@dataclass(frozen=True)
class Token:
    """A token as people see it."""

    token_id: int
    role: str
    may_write: bool
    created_at: datetime
    expires_at: datetime | None
    is_valid: bool = True
    """It is not too old, and its role is there."""


@dataclass(frozen=True)
class Caller:
    """Who a token belongs to."""

    role_name: str
    may_write: bool


def create(connection: Connection, role: str, *, may_write: bool, days: int | None) -> tuple[Token, str]:
    """A new token for the role, and its text, which is kept nowhere. UsageError when there is no such role."""
    text = _PREFIX + secrets.token_urlsafe(_BYTES)
    values = {"token_hash": _hash(text), "role": role, "may_write": may_write, "days": days}
    made = fetch(connection, Token, _statement("create"), values)
    if not made:
        raise UsageError(f"role {quoted(role)} does not exist", hint=f"create role {quoted(role)} login")
    return made[0], text


def list_all(connection: Connection) -> list[Token]:
    """All tokens, in the order in which they were made."""
    return fetch(connection, Token, _statement("list"))


def drop(connection: Connection, token_id: int) -> bool:
    """Take a token away, from the next request on; says whether it was there."""
    return connection.execute(_statement("drop"), {"token_id": token_id}).rowcount == 1


def find(connection: Connection, text: str) -> Caller | None:
    """Whose token it is; None when it is none of ours, too old, or its role is gone."""
    if not text.startswith(_PREFIX):
        return None
    callers = fetch(connection, Caller, _statement("find"), {"token_hash": _hash(text)})
    return callers[0] if callers else None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
