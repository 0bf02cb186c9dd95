"""Transactions on lake tables that commit together: who of them can, upon what the tables are now.

Each of them is told by itself. Somebody else may have changed the rows of one, another one may have a value that the
lake cannot hold, and a third a table that another engine has made unreadable since: all others go on.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from frostline.catalog.connect import first_line
from frostline.catalog.lake_tables import NewTable, NoSuchLakeTable
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, FrostlineError, UnavailableError
from frostline.lake import lake_commit, lake_rows, lake_table, lake_upkeep
from frostline.lake.lake_commit import Added, Staged
from frostline.lake.lake_rows import ValueRefused
from frostline.lake.lake_table import State
from frostline.model.lake_tables import RemoteLakeTable, Rows, is_conflict
from frostline.server.writes.shared_files import SharedFiles, Wanted

_log = logging.getLogger(__name__)
Cut = Callable[[], Mapping[int, LakePointer]]
"""Asks where the tables are now."""


@dataclass
class Ticket:
    """A transaction that waits for its commit."""

    wanted: Mapping[int, Wanted]
    """By `lake_table_id`."""
    made: Sequence[NewTable] = ()
    dropped: Sequence[int] = ()
    """By `lake_table_id`, too."""
    done: threading.Event = field(default_factory=threading.Event)
    error: FrostlineError | None = None

    @property
    def defines(self) -> bool:
        """Whether it makes or drops tables. Then it is committed by itself: a refusal concerns nobody else."""
        return bool(self.made or self.dropped)

    def end(self, error: FrostlineError | None = None) -> None:
        """Let it go on: it is committed, or this is why not."""
        self.error = error
        self.done.set()


def staged(left: list[Ticket], common: SharedFiles, cut: Cut, *, has_metadata: bool = True) -> list[Staged]:
    """Metadata of what is wanted of each table, upon what it is now. Who cannot be committed is told, and leaves.

    `has_metadata` is as for `lake_commit.stage`.
    """
    states = _states(left, cut)
    _settle_conflicts(left, states)
    _settle_values(left, common)
    while True:
        made = list[Staged]()
        tables = _by_table(left)
        common.discard(but=tables)
        for number, wanted in tables.items():
            try:
                added = common.added(number, wanted)
                for each in wanted:
                    _refuse_swept(each, states[number], added)
                made.append(lake_commit.stage(number, states[number], added, has_metadata=has_metadata))
            except Exception as error:  # noqa: BLE001  (nothing was sent, so it is known not to have happened)
                lake_commit.discard([path for move in made for path in move.written])
                _refuse(left, number, error)
                break
        else:
            return made


def _refuse_swept(wanted: Wanted, now: State, added: Added) -> None:
    """Nobody commits files that a sweep may have deleted since they were written."""
    files = (*added.data, *added.deletes)
    lake_upkeep.refuse_swept(wanted.base, now, [file.file_path for file in files])


def _refuse(left: list[Ticket], number: int, error: Exception) -> None:
    """Tell those who want that table, and go on without them."""
    told = error if isinstance(error, FrostlineError) else None
    if told is None:
        _log.exception("commit failed table=%d", number, exc_info=error)
        told = UnavailableError(
            f"cannot commit to lake table {RemoteLakeTable(number).digits}: {first_line(error)}",
            hint="frostline lake list",
        )
    for ticket in [ticket for ticket in left if number in ticket.wanted]:
        left.remove(ticket)
        ticket.end(told)


def _states(left: list[Ticket], cut: Cut) -> dict[int, State]:
    """What the tables are now, by their ids; those that are gone are left out."""
    now, states = cut(), dict[int, State]()
    new = {made.id: made.metadata_location for ticket in left for made in ticket.made}
    for number in sorted({number for ticket in left for number in ticket.wanted}):
        try:
            state = lake_table.state(new[number]) if number in new else _state(number, now, cut)
        except Exception as error:  # noqa: BLE001  (whatever another engine has committed, it is not the others' fault)
            _refuse(left, number, error)
            continue
        if state is not None:
            states[number] = state
    return states


def _state(number: int, now: Mapping[int, LakePointer], cut: Cut) -> State | None:
    """What a table is now; None when it is gone. Its files may go between the look at its pointer and that at them."""
    known = now.get(number)
    while known is not None:
        try:
            return lake_table.state(known.metadata_location)
        except FrostlineError:
            then, known = known, cut().get(number)
            if known is not None and known.metadata_location == then.metadata_location:
                raise
    return None


def _settle_conflicts(left: list[Ticket], states: Mapping[int, State]) -> None:
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
    ticket: Ticket, number: int, states: Mapping[int, State], taken: Mapping[int, Rows]
) -> FrostlineError | None:
    try:
        _require_unharmed(ticket.wanted[number], number, states.get(number), taken)
    except FrostlineError as error:
        return error
    return None


def _require_unharmed(wanted: Wanted, number: int, now: State | None, taken: Mapping[int, Rows]) -> None:
    """Raise what keeps these changes from being committed upon the state of now."""
    if now is None:
        raise NoSuchLakeTable(
            f"lake table {RemoteLakeTable(number).digits} was dropped meanwhile", hint="frostline lake list"
        )
    if _has_other_rules(wanted.base, now):
        raise ConflictError(
            "could not serialize access due to concurrent change of the lake table's columns or partitions",
            hint="run the transaction again",
        )
    _refuse_swept(wanted, now, wanted.added)
    if not wanted.changed:
        return
    gone = dict[str, AbstractSet[int]](taken.get(number, {}))
    for path in now.deletes.keys() - wanted.base.deletes.keys():
        for file, places in _by_path(lake_rows.read_deletes(path), wanted.changed).items():
            gone[file] = gone.get(file, frozenset[int]()) | places
    if is_conflict(wanted.changed, now.data.keys(), gone):
        raise ConflictError(
            "could not serialize access due to concurrent update of lake rows", hint="run the transaction again"
        )


def _has_other_rules(base: State, now: State) -> bool:
    """Whether the table has a NOT NULL since that new rows were not asked about, or their partition spec is gone."""
    if now.metadata.current_schema_id == base.metadata.current_schema_id:
        return base.metadata.default_spec_id not in now.metadata.specs()
    known = {field.field_id for field in base.metadata.schema().fields if field.required}
    wants = {field.field_id for field in now.metadata.schema().fields if field.required}
    return not wants <= known or base.metadata.default_spec_id not in now.metadata.specs()


def _by_path(gone: Mapping[str, set[int]], changed: Rows) -> dict[str, set[int]]:
    """The same places, of files that the transaction has changed by its names of them: engines spell a path in ways."""
    own = {lake_rows.local(path): path for path in changed}
    named = dict[str, set[int]]()
    for path, places in gone.items():
        named.setdefault(own.get(lake_rows.local(path), path), set()).update(places)
    return named


def _settle_values(left: list[Ticket], common: SharedFiles) -> None:
    """Write what is to be in common files, and take those out that have a value which the lake cannot hold."""
    while True:
        for number, wanted in _by_table(left).items():
            try:
                common.added(number, wanted)
            except ValueRefused as error:
                if not _refuse_values(left, error):
                    _refuse(left, number, error)
                break
            except Exception as error:  # noqa: BLE001  (as above)
                _refuse(left, number, error)
                break
        else:
            return


def _refuse_values(left: list[Ticket], error: ValueRefused) -> bool:
    """Whether there were any to be told."""
    refused = [ticket for ticket in left if any(wanted.is_refused() for wanted in ticket.wanted.values())]
    for ticket in refused:
        left.remove(ticket)
        ticket.end(error)
    return bool(refused)


def _by_table(left: Sequence[Ticket]) -> dict[int, list[Wanted]]:
    """What is wanted of each table, in the order in which the transactions came."""
    tables = dict[int, list[Wanted]]()
    for ticket in left:
        for number, wanted in ticket.wanted.items():
            tables.setdefault(number, []).append(wanted)
    return tables
