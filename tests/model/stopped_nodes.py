"""What nodes add to the commit of lake tables, as a model: docs/design/many-nodes.md.

Each of three nodes has one transaction after the other on two tables, and any of them may be stopped and continued at any
step. A stopped process says nothing and hears nothing; what it has sent goes on, and what it holds it keeps. So the locks
of the catalog's Postgres are in the model, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

TABLES = (0, 1)
Pointers = tuple[int, ...]
"""How many commits each table has had."""


class Mistake(Enum):
    """Something that nodes do not do, and what happens if they did."""

    MANY_MESSAGES = auto()
    """A commit is a message for each pointer, and one for COMMIT; a pointer that is moved is locked until then."""
    OTHER_ORDER = auto()
    """As that, and a node locks the pointers in an order of its own."""
    KNOWN_CUT = auto()
    """A transaction begins with the cut that its node has seen last."""
    TICKETS = auto()
    """Who commits has claimed a ticket before, and waits until those with earlier ones are done."""
    STALE_TICKETS = auto()
    """As that, and a ticket of somebody who seems dead is passed over; nobody compares."""


class Phase(Enum):
    """How far a node's transaction is."""

    IDLE = auto()
    OPEN = auto()
    COMMITTING = auto()
    """It has staged upon what it saw, and sends."""
    SENT = auto()
    """It waits for the answer."""


class Node(NamedTuple):
    """A node. `held` are the pointers that its session in the catalog's Postgres has moved and not committed."""

    phase: Phase = Phase.IDLE
    cut: Pointers = (0, 0)
    base: Pointers = (0, 0)
    """What it has staged upon."""
    held: tuple[int, ...] = ()
    wants: int | None = None
    """The pointer that its session is to lock next; it waits for it when another one holds it."""
    ticket: int = 0
    is_stopped: bool = False
    done: int = 0


class State(NamedTuple):
    """Everything."""

    pointers: Pointers
    nodes: tuple[Node, ...]
    acknowledged: int = 0
    """Commits whose clients know of them."""
    known: tuple[int, ...] = (0, 0, 0)
    """How many had been acknowledged when each node's transaction began."""
    tickets: int = 0
    stops: int = 0
    lost: bool = False
    """Somebody has written over what he had not seen."""


@dataclass(frozen=True)
class Protocol:
    """The protocol, or one with a mistake in it."""

    mistake: Mistake | None = None
    nodes: int = 3
    rounds: int = 1
    stops: int = 2

    def start(self) -> State:
        """Nothing has happened."""
        return State((0, 0), (Node(),) * self.nodes, known=(0,) * self.nodes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Everything that can happen next."""
        for number, node in enumerate(state.nodes):
            if node.is_stopped:
                yield f"{number} goes on", _with(state, number, node._replace(is_stopped=False))
            else:
                yield from self._node(state, number)
                if state.stops < self.stops:
                    stopped = _with(state, number, node._replace(is_stopped=True))
                    yield f"{number} is stopped", stopped._replace(stops=state.stops + 1)
            yield from self._session(state, number)

    def _node(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        node = state.nodes[number]
        if node.phase is Phase.IDLE and node.done < self.rounds:
            cut = node.cut if self.mistake is Mistake.KNOWN_CUT else state.pointers
            known = _at(state.known, number, state.acknowledged)
            yield (
                f"{number} begins",
                _with(state, number, node._replace(phase=Phase.OPEN, cut=cut))._replace(known=known),
            )
        elif node.phase is Phase.OPEN:
            yield f"{number} stages", self._staged(state, number)
        elif node.phase is Phase.COMMITTING and not self._before(state, number):
            wants = self._order(number)[0] if self._in_steps else None
            base = state.pointers if self._has_tickets else node.base
            sent = node._replace(phase=Phase.SENT, wants=wants, base=base)
            yield f"{number} sends", _with(state, number, sent)

    @property
    def _in_steps(self) -> bool:
        return self.mistake in (Mistake.MANY_MESSAGES, Mistake.OTHER_ORDER)

    @property
    def _has_tickets(self) -> bool:
        return self.mistake in (Mistake.TICKETS, Mistake.STALE_TICKETS)

    def _order(self, number: int) -> tuple[int, ...]:
        return TABLES[::-1] if self.mistake is Mistake.OTHER_ORDER and number % 2 else TABLES

    def _staged(self, state: State, number: int) -> State:
        """Upon what is there now: rows are only added. With tickets it is done again when it is one's turn."""
        node = state.nodes[number]._replace(phase=Phase.COMMITTING, base=state.pointers)
        if not self._has_tickets:
            return _with(state, number, node)
        ticket = state.tickets + 1
        return _with(state, number, node._replace(ticket=ticket))._replace(tickets=ticket)

    def _before(self, state: State, number: int) -> list[Node]:
        """With tickets: those whose turn it is earlier. Who is stopped seems dead to others."""
        own = state.nodes[number].ticket
        before = [node for node in state.nodes if 0 < node.ticket < own]
        return [node for node in before if not (self.mistake is Mistake.STALE_TICKETS and node.is_stopped)]

    def _session(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """What the catalog's Postgres does for a node, stopped or not. What it answers is heard later."""
        node = state.nodes[number]
        if node.phase is not Phase.SENT:
            return
        if not self._in_steps:
            yield f"Postgres does what {number} has sent", self._moved(state, number)
        elif node.wants is not None:
            yield from self._step(state, number, node.wants)
        elif not node.is_stopped:  # it has heard of the last one, and says what comes next
            left = [table for table in self._order(number) if table not in node.held]
            if left:
                yield f"{number} says {left[0]}", _with(state, number, node._replace(wants=left[0]))
            else:
                yield f"{number} says COMMIT", self._moved(state, number)

    def _step(self, state: State, number: int, table: int) -> Iterator[tuple[str, State]]:
        node = state.nodes[number]
        if any(table in other.held for other in state.nodes):
            return  # it waits
        if state.pointers[table] != node.base[table]:
            yield f"{number} was slower", _with(state, number, _again(node))
        else:
            held = node._replace(held=(*node.held, table), wants=None)
            yield f"Postgres locks {table} for {number}", _with(state, number, held)

    def _moved(self, state: State, number: int) -> State:
        node = state.nodes[number]
        if node.base != state.pointers:
            if not self._has_tickets:
                return _with(state, number, _again(node))
            state = state._replace(lost=self.mistake is Mistake.STALE_TICKETS)
        pointers = tuple(place + 1 for place in node.base)
        over = Node(cut=pointers, done=node.done + 1, is_stopped=node.is_stopped)
        return _with(state, number, over)._replace(pointers=pointers, acknowledged=state.acknowledged + 1)

    def wrong(self, state: State) -> str | None:
        """What must not be."""
        if state.lost:
            return "a commit is written over"
        for number, node in enumerate(state.nodes):
            if node.phase is Phase.OPEN and node.cut[0] < state.known[number]:
                return "a transaction does not see what was acknowledged before"
            if not node.is_stopped and self._waits_for_stopped(state, number):
                return "somebody waits for a node that is stopped"
        return self._circle(state)

    def _waits_for_stopped(self, state: State, number: int) -> bool:
        node = state.nodes[number]
        if node.phase is Phase.SENT and node.wants is not None:
            return any(node.wants in other.held for other in state.nodes if other.is_stopped)
        return node.phase is Phase.COMMITTING and any(other.is_stopped for other in self._before(state, number))

    @staticmethod
    def _circle(state: State) -> str | None:
        waiting = [
            (number, other)
            for number, node in enumerate(state.nodes)
            for other, holder in enumerate(state.nodes)
            if node.wants is not None and number != other and node.wants in holder.held
        ]
        return "two wait for each other" if any((other, number) in waiting for number, other in waiting) else None


def _again(node: Node) -> Node:
    """Somebody was faster: stage upon what is there now. Rows that are only added conflict with nothing."""
    return node._replace(phase=Phase.OPEN, held=(), wants=None)


def _with(state: State, number: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:number], node, *state.nodes[number + 1 :]))


def _at(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
