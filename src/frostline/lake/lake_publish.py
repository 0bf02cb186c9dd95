"""The commit to lake tables: nobody else moves their pointers. docs/design/lake-tables.md, COMMIT.

Whoever writes them, the lake server, a REST client, a job or Spark, stages upon what is there now, sends that, and does
it again when somebody else was faster. When the connection breaks in the commit, the very same move is sent again: it
goes from the same place to the same place, so it happens once, and a pointer that has moved elsewhere tells which way
it went. What was staged in vain is deleted, and nothing is while nobody knows.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import psycopg

from frostline.catalog import lake_tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.lake_tables import CommitLost, LakeTableExists, NewTable, NoSuchLakeTable
from frostline.catalog.pointers import LakeMove
from frostline.errors import OutcomeUnknown, UnavailableError
from frostline.lake import lake_commit, snapshots

ATTEMPTS = 100
"""So many times somebody else may be faster."""
_PATIENCE_S = 30.0
"""How long Postgres may be away in the middle of a commit before its outcome is given up on."""
_PAUSE_S = 0.2
_ROLLED_BACK = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Postgres has chosen this commit to give way to another."""


class Outcome(Enum):
    """What has become of a commit."""

    DONE = auto()
    LOST = auto()
    """Somebody else was faster, and nothing was changed: stage upon what is there now."""
    KNOWN = auto()
    """What it claims has been there already, and nothing was changed."""


@dataclass(frozen=True)
class Change:
    """What one transaction of Postgres does to lake tables: all of it or nothing."""

    moves: Sequence[LakeMove] = ()
    written: Sequence[str] = ()
    """The files that are of no use if it does not happen."""
    made: Sequence[NewTable] = ()
    dropped: Sequence[int] = ()
    """By `lake_table_id`."""
    claim: Callable[[Connection], bool] | None = None
    """What else is done in it, before the pointers move. False: it is done already, and nothing of this is to be."""
    what: str = "committing to lake tables"
    look: str = "look whether the rows are there before you write them again"
    """The hint when nobody knows what has become of it."""


Opened = Callable[[], AbstractContextManager[Connection]]
"""Gives the transaction in which a change happens, or a connection outside of one if it claims nothing."""
_Known = TypeVar("_Known")


def commit(
    stage: Callable[[], tuple[Change, _Known] | None], opened: Opened, *, reconnects: bool, attempts: int = ATTEMPTS
) -> tuple[Outcome, _Known | None]:
    """Stage and publish, until nobody else is faster. Gives what the stager knows of the change that was done.

    None: there was nothing to do, or it is LOST, as others were faster each time.
    """
    return repeated(stage, lambda change, _: publish(change, opened, reconnects=reconnects), attempts)


def repeated(
    stage: Callable[[], tuple[Change, _Known] | None],
    send: Callable[[Change, _Known], Outcome],
    attempts: int = ATTEMPTS,
) -> tuple[Outcome, _Known | None]:
    """The same by another way to publish."""
    for _ in range(attempts):
        staged = stage()
        if staged is None:
            return Outcome.DONE, None
        change, known = staged
        outcome = send(change, known)
        if outcome is not Outcome.LOST:
            return outcome, known
    return Outcome.LOST, None


def publish(change: Change, opened: Opened, *, reconnects: bool) -> Outcome:
    """Do it, or delete what was staged for it. After OutcomeUnknown nobody knows, and nothing is deleted.

    With `reconnects`, what opens gives another connection after a loss; else it raises OutcomeUnknown itself.
    Errors of Postgres that say that it has rolled back come as they are.
    """
    try:
        outcome = _until_known(change, opened) if reconnects else _once(change, opened)
    except OutcomeUnknown:
        raise
    except Exception:  # not after an interrupt: that may come when the commit has happened
        lake_commit.discard(change.written)
        raise
    if outcome is not Outcome.DONE:
        lake_commit.discard(change.written)
    return outcome


def within(connection: Connection, change: Change) -> Outcome:
    """The same in the caller's transaction: CommitLost when somebody else was faster.

    Outside of one, what only moves pointers is one statement, so that a process that is stopped in it holds no lock.
    """
    if change.claim is not None and not change.claim(connection):
        return Outcome.KNOWN
    if change.made or change.dropped:
        lake_tables.define(connection, change.made, change.dropped, change.moves)
    elif change.moves:
        lake_tables.commit(connection, change.moves)
    return Outcome.DONE


def _once(change: Change, opened: Opened) -> Outcome:
    try:
        with opened() as connection:
            return within(connection, change)
    except (CommitLost, *_ROLLED_BACK):
        return Outcome.LOST


def _until_known(change: Change, opened: Opened) -> Outcome:
    deadline, is_again = time.monotonic() + _PATIENCE_S, False
    while True:
        try:
            return _sent(change, opened, is_again=is_again)
        except (psycopg.Error, UnavailableError) as error:
            if not is_again and isinstance(error, _ROLLED_BACK):
                return Outcome.LOST
            if not is_again and _is_refusal(error):
                raise
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"lost Postgres while {change.what}: {first_line(error)}", hint=change.look
                ) from error
            is_again = True
            time.sleep(_PAUSE_S)


def _sent(change: Change, opened: Opened, *, is_again: bool) -> Outcome:
    try:
        with opened() as connection:
            outcome = within(connection, change)
    except (CommitLost, LakeTableExists, NoSuchLakeTable) as error:
        if is_again and _has_happened(change, opened):
            return Outcome.DONE
        if isinstance(error, CommitLost):
            return Outcome.LOST
        raise
    if outcome is Outcome.KNOWN and is_again and _has_happened(change, opened):
        return Outcome.DONE
    return outcome


def _is_refusal(error: Exception) -> bool:
    """Whether Postgres has said that it has rolled the commit back, and goes on running."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and not state.startswith(("08", "57P"))


def _has_happened(change: Change, opened: Opened) -> bool:
    """Whether a commit whose answer was lost has moved the pointers: then they lead to its metadata.

    One that moves none has made tables, of whose uuid nobody else makes one, or dropped some, which is as good.
    """
    with opened() as connection:
        now = {table.id: table for table in lake_tables.listed(connection)}
    if not change.moves:
        made = all(new.id in now and now[new.id].uuid == new.uuid for new in change.made)
        return made and not now.keys() & set(change.dropped)
    known = [(now[move.id].metadata_location, move) for move in change.moves if move.id in now]
    try:
        if any(lake_commit.leads_to(location, snapshots.read_metadata(location), move) for location, move in known):
            return True
    except UnavailableError:
        raise
    except Exception as error:
        raise OutcomeUnknown(f"cannot see what became of a commit: {first_line(error)}", hint=change.look) from error
    if len(known) < len(change.moves):  # the last metadata of a dropped table may name the files
        raise OutcomeUnknown("a lake table was dropped while the answer to its commit was lost", hint=change.look)
    return False
