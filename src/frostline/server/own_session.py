"""What becomes of errors in the lake server's own sessions in Postgres, before a client hears of them.

Some SQLSTATEs speak of the session that they come from. To the client that is another session: its own is alive. A
driver that gets 57P01 throws its connection away, one that gets 40001 or 25P02 thinks of its own transaction, and
57014 says that its own statement was cancelled, or ran into its own time limit. So only what speaks of the query, its
data, or what the machine lacks is passed on; the rest is told as what it is.
"""

import psycopg

from frostline.catalog.connect import first_line
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.server.engine import Cancelled

_OF_THE_QUERY = ("0A", "21", "22", "2F", "38", "39", "42", "44", "53", "54", "58", "XX")
"""Features, cardinality, data, functions, syntax and rights; resources, limits, the system, internal errors."""
_FATAL = ("FATAL", "PANIC")


class PostgresRefused(UsageError):
    """Postgres raised an error for the query itself; its own SQLSTATE is passed on."""

    def __init__(self, message: str, *, hint: str | None = None, sqlstate: str = "XX000") -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate  # pyright: ignore[reportAttributeAccessIssue]


class OwnSessionFailed(UnavailableError):
    """The lake server's session in Postgres was disturbed by something that the client's query did not do."""

    sqlstate = "58000"


def explained(error: psycopg.Error, connection: psycopg.Connection | None, *, was_cancelled: bool) -> FrostlineError:
    """What the client is told. `was_cancelled`: it has asked for the end of its query."""
    state, said = error.sqlstate or "", error.diag.message_primary or first_line(error)
    is_fatal = error.diag.severity_nonlocalized in _FATAL or state[:2] == "08" or state[:3] == "57P"
    is_lost = is_fatal or (connection is not None and connection.closed)
    if was_cancelled and (is_lost or state == "57014"):
        return Cancelled("the query was cancelled")
    if is_lost:
        return UnavailableError(
            f"the lake server lost its own session in Postgres: {said}", hint="run the query again, or frostline status"
        )
    if state[:2] in _OF_THE_QUERY:
        said = error.diag.message_primary or "Postgres could not answer"
        return PostgresRefused(said, hint=error.diag.message_hint, sqlstate=state)
    return OwnSessionFailed(
        f"the lake server's own session in Postgres failed: {said} (SQLSTATE {state or 'unknown'})",
        hint="run the query again; the log of Postgres says more",
    )
