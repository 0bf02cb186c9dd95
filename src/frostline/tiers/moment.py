"""A moment: a snapshot of Postgres that one connection holds, and many others join."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import locks
from frostline.catalog.connect import Connection, Dsn, connect, first_line, only_row, only_value
from frostline.catalog.locks import Lock
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.model.names import Name

_statement = sqlfiles.statements(__name__, "moment")

_LOCK_TIMEOUT_MS = 500
"""Shorter than deadlock_timeout: we give up before Postgres would cancel the other session."""
_WATCH_S = 1.0
WAITED_S = 30.0
"""How long another session may wait for a lock because of the holder. All that come after it for the same table wait
too, and a query must not wait for a copy."""


@dataclass(frozen=True)
class Moment:
    """What another session needs in order to see Postgres as the snapshot shows it."""

    dsn: Dsn = field(repr=False)
    snapshot: str
    """What `pg_export_snapshot()` gave; it can be joined while its holder lives."""
    horizon: str
    """What `pg_current_snapshot()` says under it: the name of a snapshot may come again, this does not."""


@contextmanager
def exported(dsn: str) -> Generator[Moment]:
    """Export a snapshot and hold it open on a connection of its own.

    When that connection is lost, the tasks that join the snapshot fail; none of them reads another one.
    """
    with _holding(dsn) as connection:
        connection.execute(_statement("begin"))
        yield _exported(connection, dsn)
        connection.execute(_statement("end"))


def _exported(connection: Connection, dsn: str) -> Moment:
    return Moment(Dsn(dsn), *only_row(connection.execute(_statement("export"))))


@contextmanager
def joined(moment: Moment, *, purpose: str) -> Generator[Connection]:
    """A session that sees the moment. Its locks, which are those of a reader, end with the block."""
    with connect(moment.dsn, purpose=purpose) as connection:
        try:
            connection.execute(_statement("join").format(snapshot=sql.Literal(moment.snapshot)))
            horizon = only_value(connection.execute(_statement("horizon")))
        except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue):
            horizon = None
        if horizon != moment.horizon:
            raise ConflictError("the connection that held the exported snapshot was lost", hint="try again")
        yield connection


@contextmanager
def _holding(dsn: str) -> Generator[Connection]:
    with connect(dsn, purpose="snapshot") as connection:
        # The holder is idle in its transaction by design, so no time limit may end it.
        connection.execute(_statement("no_time_limits"))
        yield connection


def let_idle(connection: Connection) -> None:
    """No time limit ends this session because it does nothing for a while."""
    connection.execute(_statement("no_idle_limits"))


class Holder:
    """A connection that holds one snapshot, and locks on the tables that are read under it.

    The publisher is idle meanwhile. It is watched too: with its session goes the right to publish.
    """

    def __init__(self, dsn: str, connection: Connection, publisher: Connection) -> None:
        self.dsn = dsn
        self.connection = connection
        self.publisher = publisher
        self._looked_at = time.monotonic()

    def begin(self, relations: Sequence[Name]) -> str | None:
        """Lock the relations in ACCESS SHARE MODE, then take the snapshot. Gives the reason when one is in use or gone.

        `lock table` takes no snapshot, so what is seen afterwards is what the locks keep as it is.
        """
        self.connection.execute(_statement("end"))
        self.connection.execute(_statement("begin"))
        set_lock_timeout(self.connection, _LOCK_TIMEOUT_MS)
        try:
            if relations:  # of lake tables alone there are none
                locks.take_only(self.connection, Lock.ACCESS_SHARE, *relations)
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.DeadlockDetected,
            psycopg.errors.UndefinedTable,
            psycopg.errors.InvalidSchemaName,
            psycopg.errors.WrongObjectType,
        ) as error:
            return first_line(error)
        except psycopg.errors.InsufficientPrivilege as error:
            hint = "grant select on it to Frostline's role, or leave it out with --exclude"
            raise UsageError(first_line(error), hint=hint) from None
        set_lock_timeout(self.connection, 0)
        return None

    def export(self) -> Moment:
        """Let other sessions join."""
        return _exported(self.connection, self.dsn)

    def position(self) -> tuple[str, datetime]:
        """A position in the WAL that all that the snapshot has was written before, and what time it is."""
        return only_row(self.connection.execute(_statement("position")))

    def watch(self) -> None:
        """Look now and then whether the run can go on; call it as often as you like."""
        if time.monotonic() - self._looked_at >= _WATCH_S:
            self.check()

    def check(self) -> None:
        """UnavailableError when one of the connections is gone, or somebody has waited for long because of us."""
        self._looked_at = time.monotonic()
        with _lost("holds the snapshot"):
            waiting = self.connection.execute(_statement("waiting"), {"longer_s": WAITED_S}).fetchone()
        with _lost("is to publish the snapshot"):
            self.publisher.execute("select 1")
        if waiting:
            raise UnavailableError(
                f"process {waiting[0]} of Postgres has waited for {waiting[2]} s to lock {waiting[1]}, which is being "
                "copied, and who reads that table waits behind it",
                hint="nothing was published; run the command again when that process is done",
            )


@contextmanager
def _lost(does: str) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise UnavailableError(
            f"the connection that {does} was lost: {first_line(error)}",
            hint="nothing was published; run the command again",
        ) from error


@contextmanager
def held(dsn: str, publisher: Connection) -> Generator[Holder]:
    """A connection for a snapshot that is held and watched. It ends with the block."""
    with _holding(dsn) as connection:
        connection.execute(_statement("begin"))
        yield Holder(dsn, connection, publisher)
        connection.execute(_statement("end"))
