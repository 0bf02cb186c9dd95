"""The lease of a table: who may run a job on it now. docs/design/leases.md has the interleavings.

A lease belongs to one Postgres session, has an epoch, and runs out unless it is renewed. Every publish checks it in
its own transaction, so a worker that was paused for too long changes nothing any more.
"""

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, connect, dsn_of, first_value, only_value, this_process
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import ConflictError, UnavailableError
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/lease")

SECONDS = 60
"""How long a lease lasts after it was taken or renewed."""
_TAKE_TIMEOUT_MS = 2000
"""A holder that is just publishing has the lease locked; that takes moments."""


@contextmanager
def held(connection: Connection, table: Table, seconds: float = SECONDS) -> Generator[int]:
    """Hold the table's lease, and renew it meanwhile; ConflictError when somebody else has it. Yields the epoch."""
    epoch = _take(connection, "take", {"table_id": table.id, "seconds": seconds})
    if epoch is None:
        holder = _holder(connection, "holder", {"table_id": table.id})
        raise ConflictError(f"another job is running on {table.name}: {holder}", hint="frostline status")
    values = {"table_id": table.id, "epoch": epoch, "seconds": seconds}
    with _kept(connection, "renew", "release", values):
        yield epoch


@contextmanager
def leading(connection: Connection, seconds: float = SECONDS) -> Generator[dict[str, Any]]:
    """Be the one worker that acts, and stay so meanwhile; ConflictError when another is. For `still_leads`."""
    epoch = _take(connection, "take_lead", {"seconds": seconds})
    if epoch is None:
        raise ConflictError(f"another worker leads: {leader(connection)}", hint="frostline status")
    values = {"epoch": epoch, "seconds": seconds}
    with _kept(connection, "renew_lead", "release_lead", values):
        yield values


def still_leads(connection: Connection, leadership: dict[str, Any]) -> bool:
    """Whether nobody else has taken over; renews the lease."""
    return connection.execute(_statement("renew_lead"), leadership).rowcount == 1


def leader(connection: Connection) -> str | None:
    """The worker that leads now."""
    return _holder(connection, "leader", {})


def current_holder(connection: Connection, table: Table) -> str | None:
    """Who runs a job on the table now."""
    return _holder(connection, "current_holder", {"table_id": table.id})


def _holder(connection: Connection, query: str, values: dict[str, Any]) -> str | None:
    return first_value(connection.execute(_statement(query), values))


@contextmanager
def _kept(connection: Connection, renew: str, release: str, values: dict[str, Any]) -> Generator[None]:
    """Renew a lease that was taken until the block ends, then give it back."""
    try:
        with beating(dsn_of(connection), "lease", _statement(renew), values):
            yield
    finally:
        with suppress(psycopg.OperationalError):  # whose session is gone has lost the lease with it
            connection.execute(_statement(release), values)


@contextmanager
def beating(dsn: str, purpose: str, statement: sql.SQL, values: Mapping[str, Any]) -> Generator[None]:
    """Run the statement three times in each of its `seconds`, in a thread with a session of its own.

    One statement may renew several things. What cannot be renewed expires, and its holder notices at
    its next check.
    """
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(done, dsn, purpose, statement, values), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()


def _beat(done: threading.Event, dsn: str, purpose: str, statement: sql.SQL, values: Mapping[str, Any]) -> None:
    pause_s = values["seconds"] / 3
    while not done.wait(pause_s):
        with suppress(psycopg.Error, UnavailableError), connect(dsn, purpose=purpose) as connection:
            while connection.execute(statement, values).rowcount:
                if done.wait(pause_s):
                    return


def _take(connection: Connection, query: str, values: dict[str, Any]) -> int | None:
    """The epoch; None when somebody else has it."""
    values = values | {
        "holder": this_process(),
        "backend_start": _backend_start(connection),
    }
    try:
        with connection.transaction():
            set_lock_timeout(connection, _TAKE_TIMEOUT_MS)
            return first_value(connection.execute(_statement(query), values))
    except psycopg.errors.LockNotAvailable:
        return None


def _backend_start(connection: Connection) -> datetime:
    return only_value(connection.execute(_statement("me")))


def require(connection: Connection, table: Table) -> None:
    """Inside the transaction that changes what readers see: ConflictError unless this session still has the lease.

    From here to the end of the transaction nobody else can take it.
    """
    values = {"table_id": table.id, "backend_start": _backend_start(connection)}
    if connection.execute(_statement("check"), values).fetchone() is None:
        raise ConflictError(
            f"this job lost its lease of {table.name}: it was paused for too long, and another may have taken over",
            hint="frostline status shows what was done; then run the command again",
        )
