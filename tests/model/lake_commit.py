"""The commit protocol of lake tables as a model: docs/design/lake-tables.md, COMMIT.

Two tables, two lake servers, three transactions; each server commits all its waiting transactions as a group. A table
is the chain of what was committed to it, so a pointer is equal to another exactly when both have the same history. Any
message to Postgres may be lost before or after it has its effect, or have it late, and any server may die.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

Chain = tuple[tuple[int, int], ...]
"""What was committed to a table, in order: transaction, and the attempt that staged it."""
Chains = tuple[Chain, ...]
Moves = tuple[tuple[int, Chain, Chain], ...]
"""Table, where its pointer must be, and where it goes."""


class Mistake(Enum):
    """Something that the protocol does not do, and what happens if it did."""

    NO_COMPARE = auto()
    """Pointers are set wherever they are."""
    ONE_BY_ONE = auto()
    """Each pointer is moved in a transaction of its own."""
    CUT_TABLE_BY_TABLE = auto()
    """A transaction reads each pointer when it first reads the table."""
    NO_ROW_CHECK = auto()
    """Changed rows are rebased as if they were added."""
    NO_CHECK_IN_GROUP = auto()
    """The transactions of a group are not compared with each other."""
    STAGED_ANEW = auto()
    """After a lost answer the commit is staged again, and not sent again."""
    LOSS_IS_FAILURE = auto()
    """A move that was sent again and finds the pointer elsewhere is taken for one that has not happened."""
    REFUSAL_IS_LOSS = auto()
    """A move that was sent again and that Postgres ends for a deadlock is taken for one that has not happened."""
    DELETES_AFTER_LOSS = auto()
    """Who has lost the answer tells the client that it failed, and deletes the files."""
    SWEEPS_AT_ONCE = auto()
    """A sweep deletes without a fence: files of a dead server, whose last message may still have its effect, among them."""
    PASSES_FENCES = auto()
    """Who stages upon a fence does not look whether files of its own were swept."""
    EXPIRES_AT_ONCE = auto()
    """Snapshots expire while a server may still ask whether its commit has made them."""
    KEEPS_COMMON_FILES = auto()
    """Files with the rows of a whole group are committed after one of the group has failed."""
    ROLLS_BACK_AT_ONCE = auto()
    """ROLLBACK deletes the files that are there, and does not wait for the one that another thread is writing."""


@dataclass(frozen=True)
class Spec:
    """A transaction: where it runs, and for each table that it writes whether it changes the one row that all want."""

    server: int
    changes: Mapping[int, bool]
    is_large: bool = False
    """Whether it writes files before its COMMIT, in another thread. Whoever leads the commit writes those of the others."""


CONFLICTING = (Spec(0, {0: True, 1: False}, is_large=True), Spec(0, {0: True}), Spec(1, {0: True, 1: False}))
APPENDING = (Spec(0, {0: False, 1: False}), Spec(0, {0: False}), Spec(1, {0: False, 1: False}))


class Phase(Enum):
    """How far a transaction is."""

    IDLE = auto()
    OPEN = auto()
    WAITING = auto()
    LED = auto()
    DONE = auto()
    FAILED = auto()
    """Its client was told that nothing has happened."""
    ROLLED_BACK = auto()
    """Its client has said so."""
    DEAD = auto()
    """Its client was told nothing."""


_NOTHING = (Phase.FAILED, Phase.ROLLED_BACK)
"""It has not happened."""
_OVER = (Phase.IDLE, Phase.DONE, *_NOTHING)
"""It has not begun, or its client knows what has become of it."""


class Transaction(NamedTuple):
    """One of them as it is now."""

    phase: Phase = Phase.IDLE
    cut: tuple[Chain | None, ...] = (None, None)
    writes: bool = False
    """A thread is writing its files."""
    is_written: bool = False
    """Its files were written, and are not written again."""


class Server(NamedTuple):
    """A lake server. `moves` is what it has staged, `sent` whether it waits for an answer, `again` whether one was lost."""

    moves: Moves = ()
    sent: bool = False
    again: bool = False
    attempts: int = 0
    is_alive: bool = True
    common: tuple[int, ...] = ()
    """Transactions whose rows are in files that it would commit again: a mistake."""


class State(NamedTuple):
    """Everything."""

    pointers: Chains
    transactions: tuple[Transaction, ...]
    servers: tuple[Server, ...]
    flying: frozenset[tuple[int, Moves, bool]]
    """Messages that may still have their effect: from which server, what, and whether it waits for the answer."""
    files: frozenset[int] = frozenset()
    """Transactions whose files are there."""
    losses: int = 0
    deaths: int = 0
    expired: frozenset[tuple[int, int]] = frozenset()
    """Snapshots that the tables' metadata does not name any more. Their rows stay."""
    swept: frozenset[int] = frozenset()
    """Transactions whose files a sweep has taken for garbage: nothing had them, and they were old enough."""


Step = tuple[str, State]
FENCE = -1
"""In a chain, instead of a transaction: the commit of a sweep."""


@dataclass(frozen=True)
class Protocol:
    """The protocol, or one with a mistake in it."""

    specs: tuple[Spec, ...]
    mistake: Mistake | None = None
    losses: int = 2
    deaths: int = 1
    tables: tuple[int, ...] = field(default=(0, 1))

    def start(self) -> State:
        """Nothing has happened."""
        count = max(spec.server for spec in self.specs) + 1
        return State(((), ()), (Transaction(),) * len(self.specs), (Server(),) * count, frozenset())

    def steps(self, state: State) -> Iterator[Step]:
        """Everything that can happen next."""
        for number in range(len(self.specs)):
            yield from self._transaction(state, number)
        for number in range(len(state.servers)):
            yield from self._server(state, number)
        for message in state.flying:
            yield from self._message(state, message)
        yield from self._sweep(state)
        yield from self._expire(state)

    def _transaction(self, state: State, number: int) -> Iterator[Step]:
        now, spec = state.transactions[number], self.specs[number]
        if not state.servers[spec.server].is_alive:
            return
        unread = [table for table in self.tables if now.cut[table] is None]
        if now.phase in (Phase.IDLE, Phase.OPEN) and unread:
            chosen = unread[:1] if self.mistake is Mistake.CUT_TABLE_BY_TABLE else unread
            cut = tuple(state.pointers[table] if table in chosen else now.cut[table] for table in self.tables)
            yield f"{number} reads {chosen}", _with(state, number, Transaction(Phase.OPEN, cut))
        elif now.phase is Phase.OPEN and spec.is_large and not (now.writes or now.is_written):
            yield f"{number} begins to write", _with(state, number, now._replace(writes=True))
        elif now.phase is Phase.OPEN and not now.writes:
            yield f"{number} commits", _with(state, number, now._replace(phase=Phase.WAITING))
        if now.writes:
            yield f"{number} has written", _written(state, number)
        if now.phase is Phase.OPEN and not (now.writes and self.mistake is not Mistake.ROLLS_BACK_AT_ONCE):
            yield f"{number} rolls back", _ended(state, number, Phase.ROLLED_BACK)

    def _server(self, state: State, number: int) -> Iterator[Step]:
        server = state.servers[number]
        if not server.is_alive:
            return
        members = [place for place, spec in enumerate(self.specs) if spec.server == number]
        waiting = [place for place in members if state.transactions[place].phase is Phase.WAITING]
        if not server.moves and waiting:
            yield f"server {number} leads {waiting}", self._led(state, number, waiting)
        if server.moves and not server.sent:
            flying = state.flying | {(number, server.moves, True)}
            sent = server._replace(sent=True)
            yield f"server {number} sends", _server(state._replace(flying=flying), number, sent)
        if state.deaths < self.deaths and any(state.transactions[place].phase not in _OVER for place in members):
            yield f"server {number} dies", self._died(state, number, members)

    def _led(self, state: State, number: int, group: list[int]) -> State:
        """Check the group against what is there now, and stage those that are left upon it."""
        server = state.servers[number]
        chosen = list[int]()
        for place in group:
            is_swept = place in state.swept and self.mistake is not Mistake.PASSES_FENCES
            if is_swept or self._conflicts(state, place, chosen):
                state = _ended(state, place, Phase.FAILED)
            else:
                chosen.append(place)
                state = state if state.transactions[place].is_written else _written(state, place)
                state = _with(state, place, state.transactions[place]._replace(phase=Phase.LED))
        moves = list[tuple[int, Chain, Chain]]()
        for table in self.tables:
            rows_of = sorted({*chosen, *server.common})
            added = tuple((place, server.attempts) for place in rows_of if table in self.specs[place].changes)
            if added:
                moves.append((table, state.pointers[table], state.pointers[table] + added))
        common = tuple(chosen) if self.mistake is Mistake.KEEPS_COMMON_FILES else ()
        return _server(state, number, Server(tuple(moves), attempts=server.attempts + 1, common=common))

    def _conflicts(self, state: State, place: int, earlier: list[int]) -> bool:
        if self.mistake is Mistake.NO_ROW_CHECK:
            return False
        for table, changes_row in self.specs[place].changes.items():
            if not changes_row:
                continue
            seen = _committed(state.transactions[place].cut[table] or ())
            new = _committed(state.pointers[table]) - seen
            if self.mistake is not Mistake.NO_CHECK_IN_GROUP:
                new |= set(earlier)
            if any(self.specs[known].changes.get(table) for known in new):
                return True
        return False

    def _died(self, state: State, number: int, members: list[int]) -> State:
        for place in members:
            now = state.transactions[place]
            if now.phase not in _OVER:
                state = _with(state, place, now._replace(phase=Phase.DEAD, writes=False))
        orphans = frozenset((who, moves, waits and who != number) for who, moves, waits in state.flying)
        dead = Server(is_alive=False)
        return _server(state._replace(flying=orphans, deaths=state.deaths + 1), number, dead)

    def _message(self, state: State, message: tuple[int, Moves, bool]) -> Iterator[Step]:
        number, moves, waits = message
        without = state._replace(flying=state.flying - {message})
        happened, rest = self._effect(without, moves)
        name = f"Postgres gets {number}'s move"
        if rest:  # the mistake of moving them one by one
            yield f"{name} of one table", happened._replace(flying=happened.flying | {(number, rest, waits)})
            return
        if not waits:
            yield f"{name}, late", happened
            yield f"{number}'s late move is lost", without
            return
        is_done = happened.pointers != without.pointers
        yield f"{name} and answers", self._answered(happened, number, is_done=is_done)
        if state.losses < self.losses:
            yield f"{name}, and ends it for a deadlock", self._refused(without, number)
            yield f"{name}, and the answer is lost", self._lost(happened, number)
            yield f"{number}'s move is lost", self._lost(without, number)
            late = without._replace(flying=without.flying | {(number, moves, False)})
            yield f"{number}'s connection breaks, its move goes on", self._lost(late, number)

    def _effect(self, state: State, moves: Moves) -> tuple[State, Moves]:
        """The state after the move, and what is left of it. In one transaction: all or nothing."""
        if self.mistake is Mistake.ONE_BY_ONE:
            (table, before, after), *rest = moves
            pointers = _moved(state.pointers, ((table, before, after),))
            return (state._replace(pointers=pointers), tuple(rest)) if pointers else (state, ())
        pointers = _moved(state.pointers, moves, compare=self.mistake is not Mistake.NO_COMPARE)
        return state._replace(pointers=pointers or state.pointers), ()

    def _answered(self, state: State, number: int, *, is_done: bool) -> State:
        server = state.servers[number]
        group = self._group(state, number)
        if not is_done and server.again and self.mistake is not Mistake.LOSS_IS_FAILURE:
            table, before, after = server.moves[0]
            own = set(after) - set(before)
            is_done = own <= set(state.pointers[table]) - state.expired
        phase = Phase.DONE if is_done else Phase.WAITING
        for place in group:
            state = _with(state, place, state.transactions[place]._replace(phase=phase))
        common = () if is_done else server.common
        return _server(state, number, Server(attempts=server.attempts, common=common))

    def _refused(self, state: State, number: int) -> State:
        """Nothing has happened by this message. What an earlier one of the same move has done is not known."""
        if not state.servers[number].again or self.mistake is Mistake.REFUSAL_IS_LOSS:
            state = state._replace(losses=state.losses + 1)
            for place in self._group(state, number):
                state = _with(state, place, state.transactions[place]._replace(phase=Phase.WAITING))
            return _server(state, number, Server(attempts=state.servers[number].attempts))
        return self._lost(state, number)

    def _lost(self, state: State, number: int) -> State:
        """The server does not know what became of its message."""
        state = state._replace(losses=state.losses + 1)
        server = state.servers[number]
        group = self._group(state, number)
        if self.mistake is Mistake.STAGED_ANEW:
            for place in group:
                state = _with(state, place, state.transactions[place]._replace(phase=Phase.WAITING))
            return _server(state, number, Server(attempts=server.attempts))
        if self.mistake is Mistake.DELETES_AFTER_LOSS:
            for place in group:
                state = _ended(state, place, Phase.FAILED)
            return _server(state, number, Server(attempts=server.attempts))
        return _server(state, number, server._replace(sent=False, again=True))

    def _group(self, state: State, number: int) -> list[int]:
        return [
            place
            for place, spec in enumerate(self.specs)
            if spec.server == number and state.transactions[place].phase is Phase.LED
        ]

    def _sweep(self, state: State) -> Iterator[Step]:
        """Once: files that nothing has are deleted, whether their transaction is dead or just slow.

        First a fence is committed, so that what was staged before it comes to nothing. What is there then stays.
        """
        if state.swept:
            return
        for place in range(len(self.specs)):
            table = min(self.specs[place].changes)
            if place not in state.files or place in _committed(state.pointers[table]):
                continue
            fenced = list(state.pointers)
            if self.mistake is not Mistake.SWEEPS_AT_ONCE:
                fenced[table] += ((FENCE, place),)
            swept = state._replace(pointers=tuple(fenced), files=state.files - {place}, swept=frozenset({place}))
            yield f"{place} is swept", swept

    def _expire(self, state: State) -> Iterator[Step]:
        """Once: old snapshots go from the metadata, but none that a server may still ask for."""
        known = {entry for chain in state.pointers for entry in chain if entry[0] != FENCE}
        asked = {entry for server in state.servers for _, _, after in server.moves for entry in after}
        gone = frozenset(known if self.mistake is Mistake.EXPIRES_AT_ONCE else known - asked)
        if gone and not state.expired:
            yield "old snapshots expire", state._replace(expired=gone)

    def wrong(self, state: State) -> str | None:
        """What must not be."""
        committed = [_committed(chain) for chain in state.pointers]
        for chain in state.pointers:
            if len({place for place, _ in chain}) != len(chain):
                return "a commit was applied twice"
        problems = (self._wrong_end(state, place, committed) for place in range(len(self.specs)))
        problem = next(filter(None, problems), None)
        return problem or self._lost_update(state) or self._torn_cut(state)

    def _wrong_end(self, state: State, place: int, committed: list[set[int]]) -> str | None:
        phase, has_files = state.transactions[place].phase, place in state.files
        applied = [place in committed[table] for table in self.specs[place].changes]
        problems = {
            "half of a commit can be read": any(applied) and not all(applied),
            "what was rolled back is there": phase in _NOTHING and any(applied),
            "what was committed is not there": phase is Phase.DONE and not all(applied),
            "files of a commit are gone": any(applied) and not has_files,
            "files of what was rolled back are there": phase in _NOTHING and has_files,
        }
        return next((problem for problem, is_there in problems.items() if is_there), None)

    def _lost_update(self, state: State) -> str | None:
        for table, chain in enumerate(state.pointers):
            changers = [place for place, _ in chain if place != FENCE and self.specs[place].changes.get(table)]
            for position, place in enumerate(changers):
                seen = _committed(state.transactions[place].cut[table] or ())
                if not set(changers[:position]) <= seen:
                    return "an update was lost"
        return None

    def _torn_cut(self, state: State) -> str | None:
        for now in state.transactions:
            if None in now.cut:
                continue
            seen = [_committed(chain or ()) for chain in now.cut]
            for place, spec in enumerate(self.specs):
                if len({place in seen[table] for table in spec.changes}) > 1:
                    return "a transaction reads half of another"
        return None


def _committed(chain: Chain) -> set[int]:
    """The transactions in it."""
    return {place for place, _ in chain if place != FENCE}


def _moved(pointers: Chains, moves: Moves, *, compare: bool = True) -> Chains | None:
    """The pointers after a compare-and-set of all of them; None when one of them is elsewhere."""
    if compare and any(pointers[table] != before for table, before, _ in moves):
        return None
    changed = list(pointers)
    for table, _, after in moves:
        changed[table] = after
    return tuple(changed)


def _with(state: State, place: int, now: Transaction) -> State:
    changed = (*state.transactions[:place], now, *state.transactions[place + 1 :])
    return state._replace(transactions=changed)


def _written(state: State, place: int) -> State:
    """Its files are there."""
    now = state.transactions[place]._replace(writes=False, is_written=True)
    return _with(state, place, now)._replace(files=state.files | {place})


def _ended(state: State, place: int, phase: Phase) -> State:
    """Nothing of it has happened, and its files are deleted."""
    now = state.transactions[place]._replace(phase=phase)
    return _with(state, place, now)._replace(files=state.files - {place})


def _server(state: State, number: int, server: Server) -> State:
    return state._replace(servers=(*state.servers[:number], server, *state.servers[number + 1 :]))
