"""The lease of a table: who may run a job on it now. docs/design/leases.md has the interleavings.

A lease belongs to one Postgres session, has an epoch, and runs out unless it is renewed. Every publish checks it in
its own transaction, so a worker that was paused for too long changes nothing any more.
"""

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime

import psycopg
from psycopg import conninfo, sql

from frostline.catalog import queries
from frostline.catalog.connect import Connection, connect
from frostline.errors import ConflictError, UnavailableError
from frostline.model.tables import Table

SECONDS = 60
"""How long a lease lasts after it was taken or renewed."""
_TAKE_TIMEOUT_MS = 2000
"""A holder that is just publishing has the lease locked; that takes moments."""


@contextmanager
def held(connection: Connection, table: Table, seconds: float = SECONDS) -> Generator[int]:
    """Hold the table's lease, and renew it meanwhile; ConflictError when somebody else has it. Yields the epoch."""
    epoch = _take(connection, table, seconds)
    done = threading.Event()
    beat = threading.Thread(target=_renew_until, args=(done, _dsn(connection), table.id, epoch, seconds), daemon=True)
    beat.start()
    try:
        yield epoch
    finally:
        done.set()
        beat.join()
        with suppress(psycopg.OperationalError):  # whose session is gone has lost the lease with it
            connection.execute(queries.get("lease", "release"), {"table_id": table.id, "epoch": epoch})


def _take(connection: Connection, table: Table, seconds: float) -> int:
    values = {
        "table_id": table.id,
        "holder": f"process {os.getpid()} on {socket.gethostname()}",
        "backend_start": _backend_start(connection),
        "seconds": seconds,
    }
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local lock_timeout = {}").format(_TAKE_TIMEOUT_MS))
            row = connection.execute(queries.get("lease", "take"), values).fetchone()
    except psycopg.errors.LockNotAvailable:
        row = None
    if row is None:
        (holder,) = connection.execute(queries.get("lease", "holder"), values).fetchone() or (None,)
        raise ConflictError(f"another job is running on {table.name}: {holder}", hint="frostline status")
    return row[0]


def _backend_start(connection: Connection) -> datetime:
    row = connection.execute(queries.get("lease", "me")).fetchone()
    assert row is not None
    return row[0]


def _dsn(connection: Connection) -> str:
    info = connection.info
    return conninfo.make_conninfo(info.dsn, **({"password": info.password} if info.password else {}))


def _renew_until(done: threading.Event, dsn: str, table_id: int, epoch: int, seconds: float) -> None:
    """In a thread with a session of its own. What cannot be renewed runs out, and the next check says so."""
    values = {"table_id": table_id, "epoch": epoch, "seconds": seconds}
    while not done.wait(seconds / 3):
        with suppress(psycopg.Error, UnavailableError), connect(dsn, purpose="lease") as connection:
            while connection.execute(queries.get("lease", "renew"), values).rowcount == 1:
                if done.wait(seconds / 3):
                    return


def require(connection: Connection, table: Table) -> None:
    """Inside the transaction that changes what readers see: ConflictError unless this session still has the lease.

    From here to the end of the transaction nobody else can take it.
    """
    values = {"table_id": table.id, "backend_start": _backend_start(connection)}
    if connection.execute(queries.get("lease", "check"), values).fetchone() is None:
        raise ConflictError(
            f"this job lost its lease of {table.name}: it was paused for too long, and another may have taken over",
            hint="frostline status shows what was done; then run the command again",
        )
