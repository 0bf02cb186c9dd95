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

Ask = Callable[[Sequence[str], float], Sequence[Record]]


def compare(ask: Ask, path: Path, *, store: bool) -> int:
    """Ask, and ask once more where an answer is bad: machines are noisy. Returns the exit code."""
    found = _answers(ask(CASES, SCALE))
    if store:
        path.write_text(json.dumps({text: round(one.value, 3) for text, one in found.items()}, indent=1) + "\n")
        return 0
    stored: dict[str, float] = json.loads(path.read_text())
    if _worse(found, stored):
        found = _answers(ask(CASES, SCALE))
    for text in _worse(found, stored):
        print(f"error: {text}: {found[text].value:.3g}x, not even half as good as the stored {stored[text]:.3g}x")
    return 1 if _worse(found, stored) else 0


def _answers(records: Sequence[Record]) -> dict[str, Answer]:
    """Those that compare two things: a figure without comparison is the machine's."""
    every = (one for record in records for one in record.answers)
    return {one.question.text: one for one in every if one.question.measure.is_ratio}


def _worse(found: dict[str, Answer], stored: dict[str, float]) -> list[str]:
    return [text for text, one in found.items() if text in stored and one.is_half_of(stored[text])]
