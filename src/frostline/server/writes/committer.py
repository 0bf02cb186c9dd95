"""The commit of transactions on lake tables: those that come at the same moment share one. docs/design/lake-tables.md.

The data and delete files of large transactions are there already. The leader checks each transaction against what the
tables are now, writes what the small ones have into common files, stages one snapshot a table upon that (`group`), and
has the catalog make all of it the present state at once (`catalogs`), again if somebody else was faster.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial

import psycopg

from frostline.catalog.connect import first_line
from frostline.catalog.lake_tables import NewTable
from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError
from frostline.lake import lake_table
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import State
from frostline.server.writes import group
from frostline.server.writes.catalogs import LakeCatalog
from frostline.server.writes.group import Ticket
from frostline.server.writes.shared_files import SharedFiles, Wanted

_log = logging.getLogger(__name__)


class Committer:
    """Commits transactions, as many at once as are waiting. For many threads."""

    def __init__(self, catalog: LakeCatalog) -> None:
        """The connection is for commits alone: nobody who reads waits for one."""
        self._catalog = catalog
        self._waiting: list[Ticket] = []
        self._lock, self._leading = threading.Lock(), threading.Lock()

    def commit(self, wanted: Mapping[int, Wanted], made: Sequence[NewTable] = (), dropped: Sequence[int] = ()) -> None:
        """Make it so, or raise: ConflictError when somebody else has changed the same rows since they were read.

        Tables that are made or dropped are so with it; those that are made may be among the changed ones.

        After OutcomeUnknown nobody knows, and no file may be deleted.
        """
        ticket = Ticket(wanted, made, dropped)
        with self._lock:
            self._waiting.append(ticket)
        with self._leading:
            if not ticket.done.is_set():
                with self._lock:
                    waiting, self._waiting = self._waiting, []
                self._lead([other for other in waiting if not other.defines])
                for other in waiting:
                    if other.defines:
                        self._lead([other])
        if ticket.error is not None:
            raise ticket.error

    def _lead(self, together: Sequence[Ticket]) -> None:
        left, common = list(together), SharedFiles()
        try:
            outcome, states = self._catalog.commit(partial(self._staged, left, common))
        except OutcomeUnknown as error:
            self._fail(left, SharedFiles(), error)
        except (FrostlineError, psycopg.Error) as error:
            self._fail(left, common, _told(error))
        except Exception:  # noqa: BLE001  (whoever waits has to be told, and may not take it for a failure)
            _log.exception("commit failed transactions=%d", len(left))
            unknown = OutcomeUnknown("the lake server failed in a commit; its log says why", hint=Change.look)
            self._fail(left, SharedFiles(), unknown)
        else:
            if outcome is Outcome.LOST:
                self._fail(
                    left,
                    common,
                    ConflictError("others keep committing to the same tables", hint="run the transaction again"),
                )
            else:
                self._end(left, states or ())

    def _end(self, left: Sequence[Ticket], states: Sequence[State]) -> None:
        for state in states if self._catalog.is_ours else ():
            lake_table.remember(state)
        for ticket in left:
            ticket.end()

    @staticmethod
    def _fail(left: Sequence[Ticket], common: SharedFiles, error: FrostlineError) -> None:
        common.discard()
        for ticket in left:
            ticket.end(error)

    def _staged(self, left: list[Ticket], common: SharedFiles) -> tuple[Change, Sequence[State]] | None:
        """What those want who can be committed, and what the tables are then; None when nobody is left.

        Those in conflict are told, and leave.
        """
        wanted = {number for ticket in left for number in ticket.wanted}
        self._catalog.require_warehouse(wanted)  # what was written is of no use if it went away since
        now = partial(self._catalog.places, wanted)
        staged = group.staged(left, common, now, has_metadata=self._catalog.is_ours)
        made = [new for ticket in left for new in ticket.made]
        dropped = [number for ticket in left for number in ticket.dropped]
        if not staged and not made and not dropped:
            return None
        written = [path for each in staged for path in each.written]
        change = Change([each.move for each in staged], written, made, dropped)
        return change, [each.state for each in staged]

    def close(self) -> None:
        """Give the connection back."""
        self._catalog.close()


def _told(error: FrostlineError | psycopg.Error) -> FrostlineError:
    if isinstance(error, FrostlineError):
        return error
    return UnavailableError(f"the catalog refused a commit: {first_line(error)}")
