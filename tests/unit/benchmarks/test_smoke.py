"""The short benchmark of continuous integration fails when something became twice as bad, each time that it is asked."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import records, smoke
from benchmarks.question import Answer, Measure, Question
from benchmarks.records import Record

SPEED = Question("reads", "a", Measure.SPEED, 0.8, "b")
STALL = Question("stall", "a", Measure.LONGEST, 0.1)


class Rounds:
    """Answers with one of these speeds after the other."""

    def __init__(self, *speeds: float) -> None:
        self.left: list[float] = list(speeds)
        self.cases: list[list[str]] = []

    def __call__(self, cases: Sequence[str], scale: float) -> Sequence[Record]:
        answers = [Answer(SPEED, [self.left.pop(0)]), Answer(STALL, [99.0])]
        self.cases.append(list(cases))
        return [records.record("hot", "?", scale, 0.1, [], answers)]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "smoke.json"
    assert smoke.compare(Rounds(1.0), path, store=True) == 0
    return path


def test_only_ratios_are_stored(stored: Path):
    assert json.loads(stored.read_text()) == {"reads": 1.0}


def test_a_little_worse_is_no_failure(stored: Path):
    assert smoke.compare(Rounds(0.51), stored, store=False) == 0


def test_one_bad_round_is_asked_again(stored: Path):
    rounds = Rounds(0.3, 0.9)
    assert smoke.compare(rounds, stored, store=False) == 0
    assert rounds.left == []


def test_only_the_bad_case_is_asked_again(stored: Path):
    rounds = Rounds(0.3, 0.9)
    smoke.compare(rounds, stored, store=False)
    assert rounds.cases[1:] == [["hot"]]


def test_less_than_half_each_time_fails_and_says_which(stored: Path, capsys: pytest.CaptureFixture[str]):
    assert smoke.compare(Rounds(0.3, 0.4, 0.2), stored, store=False) == 1
    assert capsys.readouterr().out == "error: reads: 0.4x, not even half as good as the stored 1x\n"
