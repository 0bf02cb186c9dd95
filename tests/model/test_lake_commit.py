"""The commit protocol of lake tables, checked in every state that a small model of it can get into."""

import pytest

from tests.model.checker import walk
from tests.model.lake_commit import APPENDING, CONFLICTING, Mistake, Phase, Protocol, State

FOUND = {
    Mistake.NO_COMPARE: "files of a commit are gone",
    Mistake.ONE_BY_ONE: "half of a commit can be read",
    Mistake.CUT_TABLE_BY_TABLE: "a transaction reads half of another",
    Mistake.NO_ROW_CHECK: "an update was lost",
    Mistake.NO_CHECK_IN_GROUP: "an update was lost",
    Mistake.STAGED_ANEW: "a commit was applied twice",
    Mistake.LOSS_IS_FAILURE: "a commit was applied twice",
    Mistake.REFUSAL_IS_LOSS: "a commit was applied twice",
    Mistake.DELETES_AFTER_LOSS: "what was rolled back is there",
    Mistake.SWEEPS_AT_ONCE: "files of a commit are gone",
    Mistake.PASSES_FENCES: "files of a commit are gone",
    Mistake.EXPIRES_AT_ONCE: "a commit was applied twice",
    Mistake.KEEPS_COMMON_FILES: "what was rolled back is there",
    Mistake.ROLLS_BACK_AT_ONCE: "files of what was rolled back are there",
}


@pytest.mark.slow
def test_nothing_is_lost_doubled_torn_or_left_over_whatever_happens() -> None:
    protocol = Protocol(CONFLICTING)
    walked = walk(protocol.start(), protocol.steps, protocol.wrong)
    assert (walked.problem, walked.way) == (None, ())
    assert walked.states > 10_000


def test_rows_that_are_only_added_never_conflict_and_the_same_holds() -> None:
    protocol = Protocol(APPENDING, losses=1, deaths=0)

    def wrong(state: State) -> str | None:
        failed = any(
            now.phase is Phase.FAILED and place not in state.swept for place, now in enumerate(state.transactions)
        )
        return "a conflict" if failed else protocol.wrong(state)

    walked = walk(protocol.start(), protocol.steps, wrong)
    assert (walked.problem, walked.way) == (None, ())


def test_of_transactions_in_conflict_one_always_can_commit() -> None:
    """The model is no good if nothing ever happens in it."""
    protocol = Protocol(CONFLICTING)

    def ended(state: State) -> str | None:
        phases = [now.phase for now in state.transactions]
        return "ended" if phases.count(Phase.DONE) == 1 and phases.count(Phase.FAILED) == 2 else None

    assert walk(protocol.start(), protocol.steps, ended).problem == "ended"


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.name.lower())
def test_each_mistake_is_found(mistake: Mistake) -> None:
    specs = (
        APPENDING
        if mistake in (Mistake.STAGED_ANEW, Mistake.LOSS_IS_FAILURE, Mistake.REFUSAL_IS_LOSS, Mistake.EXPIRES_AT_ONCE)
        else CONFLICTING
    )
    protocol = Protocol(specs, mistake)
    walked = walk(protocol.start(), protocol.steps, protocol.wrong)
    assert walked.problem == FOUND[mistake], walked.way
    assert walked.way
