"""A few small cases for continuous integration: they fail only when something became twice as bad as it was.

The ratios of small cases are not those of the page, so they are stored on their own: `make bench-smoke STORE=--store`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.question import Answer
from benchmarks.records import Record

CASES = ("cold_points", "disk", "export", "hot_reads", "marks")
SCALE = 0.02
ROUNDS = 3
"""How often a case with a bad answer is asked."""

Ask = Callable[[Sequence[str], float], Sequence[Record]]


def compare(ask: Ask, path: Path, *, store: bool) -> int:
    """Ask, and ask again where an answer is bad: machines are noisy. Returns the exit code.

    Of several answers the best counts: what became twice as bad is so each time.
    """
    records = ask(CASES, SCALE)
    answers = _answers(records)
    if store:
        path.write_text(json.dumps({text: round(answer.value, 3) for text, answer in answers.items()}, indent=1) + "\n")
        return 0
    stored: dict[str, float] = json.loads(path.read_text())
    for _ in range(ROUNDS - 1):
        bad = set(_worse(answers, stored))
        cases = [record.case for record in records if bad.intersection(_answers([record]))]
        if not cases:
            break
        for text, again in _answers(ask(cases, SCALE)).items():
            answers[text] = answers[text] if answers[text].is_better_than(again) else again
    for text in _worse(answers, stored):
        print(f"error: {text}: {answers[text].value:.3g}x, not even half as good as the stored {stored[text]:.3g}x")
    return 1 if _worse(answers, stored) else 0


def _answers(records: Sequence[Record]) -> dict[str, Answer]:
    """Those that compare two things: a figure without comparison is the machine's."""
    answers = (answer for record in records for answer in record.answers)
    return {answer.question.text: answer for answer in answers if answer.question.measure.is_ratio}


def _worse(answers: dict[str, Answer], stored: dict[str, float]) -> list[str]:
    return [text for text, answer in answers.items() if text in stored and answer.is_half_of(stored[text])]
