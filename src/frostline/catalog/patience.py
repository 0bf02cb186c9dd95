"""Locks on tables that others use: tried for a moment at a time, so that nobody queues behind us for longer."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import psycopg
from psycopg import sql

from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.model.names import Name

LOCK_TIMEOUT_MS = 50
"""Nobody waits longer than this for us."""
PATIENCE_S = 60.0

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True)
class RolledBack(Generic[_T_co]):
    """What a try returns to have its transaction rolled back, and then to be the result of `patiently`."""

    result: _T_co
    try_again: bool = False
    """First try again, as if a lock was not to be had: it is the result only when there is no time left."""


def patiently(
    connection: Connection,
    name: Name,
    act: Callable[[], _T | RolledBack[_T]],
    *,
    dry_run: bool = False,
    complaint: Callable[[], UnavailableError] | None = None,
    patience_s: float | None = None,
) -> _T:
    """Do it in one transaction, tried until it gets all its locks at once; UnavailableError after a minute."""
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        try:
            with connection.transaction(force_rollback=dry_run) as transaction:
                set_lock_timeout(connection)
                done = act()
                transaction.force_rollback = dry_run or isinstance(done, RolledBack)
            if not isinstance(done, RolledBack):
                return done
            undone = cast("RolledBack[_T]", done)
            if not undone.try_again or time.monotonic() > deadline:
                return undone.result
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None  # psycopg was just cancelling the statement because of it
            if time.monotonic() > deadline:
                raise (in_use(name) if complaint is None else complaint()) from None
        time.sleep(LOCK_TIMEOUT_MS / 1000)


def set_lock_timeout(connection: Connection, timeout_ms: int | None = None) -> None:
    """For the rest of the transaction: no lock is waited for longer than that, or than a moment. 0 is for ever."""
    wanted_ms = LOCK_TIMEOUT_MS if timeout_ms is None else timeout_ms
    connection.execute(sql.SQL("set local lock_timeout = {}").format(wanted_ms))


def in_use(name: Name) -> UnavailableError:
    """The lock could not be had; says so."""
    hint = "end the transactions that hold it, then run the command again: it goes on where it stopped"
    return UnavailableError(f"{name} is still in use", hint=hint)
