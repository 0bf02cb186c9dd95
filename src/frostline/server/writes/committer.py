"""The commit of transactions on lake tables: those that come at the same moment share one. docs/design/lake-tables.md.

Data and delete files are there already. The leader checks each transaction against what the tables are now, stages one
snapshot a table upon that, and moves all pointers in one transaction of Postgres. If somebody else was faster, it does
so again upon what they left. When the connection breaks in the commit, the very same move is sent again: it goes from
the same place to the same place, so it happens once, and a pointer that has moved elsewhere tells which way it went.
"""

import logging
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from frostline.catalog import lake_tables
from frostline.catalog.connect import Connection, connect, first_line
from frostline.catalog.lake_tables import CommitLost, NoSuchLakeTable
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError
from frostline.lake import lake_commit, lake_rows, lake_table
from frostline.lake.lake_commit import Added, Staged
from frostline.lake.lake_table import State
from frostline.model.lake_tables import Rows, is_conflict

_log = logging.getLogger(__name__)
_PATIENCE_S = 30.0
"""How long Postgres may be away in the middle of a commit before its outcome is given up on."""
_PAUSE_S = 0.2
_LOOK = "look whether the rows are there before you write them again"
_TRIES = 5
"""Connections to the catalog that may be lost one after the other, where nothing was changed yet."""
_ATTEMPTS = 100
"""So many times somebody else may be faster."""


@dataclass(frozen=True)
class Wanted:
    """What a transaction wants to do to one table."""

    base: State
    """What it has read."""
    added: Added
    changed: Rows
    """The rows of the base that it has deleted or replaced."""


@dataclass
class _Ticket:
    """A transaction that waits for its commit."""

    wanted: Mapping[int, Wanted]
    """By `lake_table_id`."""
    done: threading.Event = field(default_factory=threading.Event)
    error: FrostlineError | None = None

    def end(self, error: FrostlineError | None = None) -> None:
        self.error = error
        self.done.set()


class Catalog:
    """One connection to the catalog for many threads, made anew when it was lost."""

    def __init__(self, dsn: str, purpose: str) -> None:
        self._dsn, self._purpose = dsn, purpose
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """For this thread alone. What breaks in it is not used again."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._dsn, purpose=self._purpose)
            try:
                yield self._connection
            except psycopg.Error:
                self._connection.close()
                raise

    def cut(self) -> dict[int, LakePointer]:
        """Where all lake tables are, as of one moment, by their ids."""
        for left in reversed(range(_TRIES)):
            try:
                with self.connection() as connection:
                    return {table.id: table for table in lake_tables.listed(connection)}
            except psycopg.Error as error:  # it may have been lost while nobody used it
                if not left:
                    raise UnavailableError(
                        f"the lake server cannot reach its catalog: {first_line(error)}", hint="frostline status"
                    ) from error
                time.sleep(_PAUSE_S / _TRIES)
        raise AssertionError

    def close(self) -> None:
        """Give it back."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


class Committer:
    """Commits transactions, as many at once as are waiting. For many threads."""

    def __init__(self, dsn: str) -> None:
        self._catalog = Catalog(dsn, "lake commits")
        self._waiting: list[_Ticket] = []
        self._lock, self._leading = threading.Lock(), threading.Lock()

    def commit(self, wanted: Mapping[int, Wanted]) -> None:
        """Make it so, or raise: ConflictError when somebody else has changed the same rows since they were read.

        After OutcomeUnknown nobody knows, and no file may be deleted.
        """
        ticket = _Ticket(wanted)
        with self._lock:
            self._waiting.append(ticket)
        with self._leading:
            if not ticket.done.is_set():
                with self._lock:
                    group, self._waiting = self._waiting, []
                self._lead(group)
        if ticket.error is not None:
            raise ticket.error

    def _lead(self, group: Sequence[_Ticket]) -> None:
        left = list(group)
        try:
            for _ in range(_ATTEMPTS):
                if not left or self._attempt(left):
                    return
            self._fail(left, ConflictError("others commit all the time", hint="run the transaction again"))
        except FrostlineError as error:
            self._fail(left, error)
        except Exception:  # noqa: BLE001  (whoever waits has to be told, and may not take it for a failure)
            _log.exception("commit failed transactions=%d", len(left))
            self._fail(left, OutcomeUnknown("the lake server failed in a commit; its log says why", hint=_LOOK))

    @staticmethod
    def _fail(left: Sequence[_Ticket], error: FrostlineError) -> None:
        for ticket in left:
            ticket.end(error)

    def _attempt(self, left: list[_Ticket]) -> bool:
        """Commit those that can be; False when somebody else was faster. Those in conflict are told, and leave."""
        cut = self._catalog.cut()
        states = {
            number: lake_table.state(cut[number].metadata_location)
            for number in sorted({number for ticket in left for number in ticket.wanted})
            if number in cut
        }
        _settle_conflicts(left, states)
        staged = _staged(left, states)
        if not staged:
            return True
        if not self._publish(staged):
            lake_commit.discard([path for move in staged for path in move.written])
            return False
        for ticket in left:
            ticket.end()
        return True

    def _publish(self, staged: Sequence[Staged]) -> bool:
        """Move the pointers. False: they are elsewhere, and none was moved."""
        moves, is_again, gives_up = [move.move for move in staged], False, time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self._catalog.connection() as connection:
                    lake_tables.commit(connection, moves)
                    return True
            except CommitLost:
                return is_again and self._has_happened(staged)
            except (psycopg.Error, UnavailableError) as error:
                if not is_again and _is_refusal(error):
                    raise UnavailableError(f"the catalog refused a commit: {first_line(error)}") from error
                if time.monotonic() > gives_up:
                    raise OutcomeUnknown(f"lost Postgres in a commit: {first_line(error)}", hint=_LOOK) from error
                is_again = True
                time.sleep(_PAUSE_S)

    def _has_happened(self, staged: Sequence[Staged]) -> bool:
        """Whether a commit whose answer was lost has moved the pointers: then they lead to its metadata."""
        try:
            cut = self._catalog.cut()
            known = [(cut[move.move.id].metadata_location, move) for move in staged if move.move.id in cut]
            moved = any(_leads_to(lake_table.state(location), move) for location, move in known)
        except FrostlineError as error:
            raise OutcomeUnknown(f"cannot see what became of a commit: {error.message}", hint=_LOOK) from error
        if not moved and len(known) < len(staged):  # the last metadata of a dropped table may name the files
            raise OutcomeUnknown("a lake table was dropped while the answer to its commit was lost", hint=_LOOK)
        return moved

    def close(self) -> None:
        """Give the connection back."""
        self._catalog.close()


def _leads_to(now: State, move: Staged) -> bool:
    """Whether the table was at the move's metadata: that is known longer than its snapshot, which may be expired."""
    former = (entry.metadata_file for entry in now.metadata.metadata_log)
    return move.move.location in (now.location, *former) or now.metadata.snapshot_by_id(move.snapshot_id) is not None


def _is_refusal(error: Exception) -> bool:
    """Whether Postgres has said that it has rolled the commit back, and goes on running."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and not state.startswith(("08", "57"))


def _settle_conflicts(left: list[_Ticket], states: Mapping[int, State]) -> None:
    """Take those out that somebody else was faster than, in the order in which they came."""
    taken = dict[int, dict[str, set[int]]]()
    for ticket in list(left):
        problem = next((error for number in ticket.wanted if (error := _problem(ticket, number, states, taken))), None)
        if problem is not None:
            left.remove(ticket)
            ticket.end(problem)
            continue
        for number, wanted in ticket.wanted.items():
            for path, places in wanted.changed.items():
                taken.setdefault(number, {}).setdefault(path, set()).update(places)


def _problem(
    ticket: _Ticket, number: int, states: Mapping[int, State], taken: Mapping[int, Rows]
) -> FrostlineError | None:
    wanted, now = ticket.wanted[number], states.get(number)
    if now is None:
        return NoSuchLakeTable(f"lake table {number} was dropped meanwhile", hint="frostline lake list")
    if not wanted.changed:
        return None
    gone = dict[str, AbstractSet[int]](taken.get(number, {}))
    for path in now.deletes.keys() - wanted.base.deletes.keys():
        for file, places in lake_rows.read_deletes(path).items():
            gone[file] = gone.get(file, frozenset[int]()) | places
    if is_conflict(wanted.changed, now.data.keys(), gone):
        return ConflictError(
            "could not serialize access due to concurrent update of lake rows", hint="run the transaction again"
        )
    return None


def _staged(left: Sequence[_Ticket], states: Mapping[int, State]) -> list[Staged]:
    together = dict[int, Added]()
    for ticket in left:
        for number, wanted in ticket.wanted.items():
            added = together.setdefault(number, Added())
            added.data += wanted.added.data
            added.deletes += wanted.added.deletes
    return [lake_commit.stage(number, states[number], added) for number, added in together.items() if added]
