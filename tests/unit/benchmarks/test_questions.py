"""Every case asks something, and samples become answers the way the page says."""

import importlib
from pathlib import Path

import pytest

from benchmarks import smoke
from benchmarks.question import Answer, Measure, Question, answer, figure
from benchmarks.run import CASES
from benchmarks.sample import Sample


def question(measure: Measure, target: float = 1.0) -> Question:
    return Question("which is better", "a", measure, target, "b" if measure.is_ratio else "")


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        (Measure.SPEED, [2.0, 4.0]),
        (Measure.TIME, [0.5, 0.25]),
        (Measure.SIZE, [0.1, 0.2]),
        (Measure.RATE, [100.0, 100.0]),
        (Measure.LONGEST, [1.0, 1.0]),
    ],
)
def test_the_first_is_compared_with_the_first_and_the_second_with_the_second(measure: Measure, values: list[float]):
    samples = [
        Sample("a", 1.0, 100, size_bytes=10),
        Sample("b", 2.0, 100, size_bytes=100),
        Sample("a", 1.0, 100, size_bytes=20),
        Sample("b", 4.0, 100, size_bytes=100),
    ]
    assert answer(question(measure), samples).values == values


def test_a_speed_counts_rows_not_seconds():
    samples = [Sample("a", 1.0, 300), Sample("b", 1.0, 100)]
    assert answer(question(Measure.SPEED), samples).value == 3


def test_a_question_without_samples_is_an_error_and_not_met():
    with pytest.raises(AssertionError, match="no sample 'b' among \\['a'\\]"):
        answer(question(Measure.TIME), [Sample("a", 1.0, 1)])


@pytest.mark.parametrize(
    ("measure", "value", "is_met"),
    [
        (Measure.SPEED, 2.0, True),
        (Measure.SPEED, 1.99, False),
        (Measure.TIME, 2.0, True),
        (Measure.TIME, 2.01, False),
        (Measure.ESTIMATE, 2.0, True),
        (Measure.ESTIMATE, 2.01, False),
        (Measure.ESTIMATE, 0.5, True),
        (Measure.ESTIMATE, 0.49, False),
    ],
)
def test_the_direction_of_a_target_is_the_measures(measure: Measure, value: float, is_met: bool):
    assert Answer(question(measure, 2.0), [value]).is_met is is_met


def test_the_median_counts_and_of_stalls_the_longest():
    assert Answer(question(Measure.SPEED), [1.0, 9.0, 2.0]).value == 2
    assert Answer(question(Measure.LONGEST), [0.01, 0.9, 0.02]).value == 0.9


def test_an_estimate_is_the_better_the_nearer_it_is_on_either_side():
    near, low, high = (Answer(question(Measure.ESTIMATE, 10.0), [value]) for value in (1.5, 0.022, 40.0))
    assert near.is_better_than(low)
    assert near.is_better_than(high)
    assert high.is_better_than(low)
    assert near.question.goal == "0.1x to 10x"


@pytest.mark.parametrize(
    ("measure", "half"),
    [(Measure.SPEED, 0.49), (Measure.TIME, 2.01), (Measure.ESTIMATE, 0.49), (Measure.ESTIMATE, 2.01)],
)
def test_half_as_good_is_the_same_for_both_directions(measure: Measure, half: float):
    assert Answer(question(measure), [half]).is_half_of(1.0)
    assert not Answer(question(measure), [1.0]).is_half_of(1.0)


def test_figures_have_their_units():
    assert figure(0.81234, Measure.SPEED) == "0.812x"
    assert figure(27_700, Measure.RATE) == "27,700/s"
    assert figure(0.0421, Measure.LONGEST) == "42.1 ms"


@pytest.mark.parametrize("name", CASES)
def test_a_case_begins_with_its_question(name: str):
    case = importlib.import_module(f"benchmarks.cases.{name}")
    assert str(case.__doc__).partition("\n")[0].endswith("?")
    assert case.QUESTIONS
    for asked in case.QUESTIONS:
        assert asked.measure.is_ratio == bool(asked.other), asked.text


def test_no_two_questions_have_one_text():
    texts = [asked.text for name in CASES for asked in importlib.import_module(f"benchmarks.cases.{name}").QUESTIONS]
    assert len(texts) == len(set(texts))


def test_every_smoke_case_exists_and_is_stored():
    stored = Path(smoke.__file__).with_name("smoke.json").read_text()
    for name in smoke.CASES:
        assert name in CASES
        for asked in importlib.import_module(f"benchmarks.cases.{name}").QUESTIONS:
            assert (f'"{asked.text}"' in stored) == asked.measure.is_ratio
