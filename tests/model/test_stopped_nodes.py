"""Nodes that are stopped and go on, in every state that a small model of them can get into."""

import pytest

from tests.model.checker import walk
from tests.model.stopped_nodes import Mistake, Protocol, State

FOUND = {
    Mistake.MANY_MESSAGES: "somebody waits for a node that is stopped",
    Mistake.OTHER_ORDER: "two wait for each other",
    Mistake.KNOWN_CUT: "a transaction does not see what was acknowledged before",
    Mistake.TICKETS: "somebody waits for a node that is stopped",
    Mistake.STALE_TICKETS: "a commit is written over",
}


@pytest.mark.parametrize(("nodes", "rounds"), [(3, 1), (2, 2)])
def test_nobody_waits_for_a_stopped_node_and_what_was_acknowledged_is_seen(nodes: int, rounds: int) -> None:
    protocol = Protocol(nodes=nodes, rounds=rounds)
    walked = walk(protocol.start(), protocol.steps, protocol.wrong)
    assert (walked.problem, walked.way) == (None, ())
    assert walked.states > 1000


def test_all_others_commit_while_a_node_is_stopped() -> None:
    """The model is no good if nothing ever happens in it."""
    protocol = Protocol()

    def ended(state: State) -> str | None:
        stopped = [node for node in state.nodes if node.is_stopped]
        others = [node for node in state.nodes if not node.is_stopped]
        return "ended" if stopped and all(node.done for node in others) and not stopped[0].done else None

    assert walk(protocol.start(), protocol.steps, ended).problem == "ended"


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.name.lower())
def test_each_mistake_is_found(mistake: Mistake) -> None:
    protocol = Protocol(mistake, stops=0 if mistake is Mistake.OTHER_ORDER else 2)
    walked = walk(protocol.start(), protocol.steps, protocol.wrong)
    assert walked.problem == FOUND[mistake], walked.way
    assert walked.way
