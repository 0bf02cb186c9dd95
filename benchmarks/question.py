"""What a case asks: two things that are measured in turn, and how they must compare."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.sample import Sample


class Measure(StrEnum):
    """What is compared, and in which direction it is good."""

    SPEED = "speed"
    """Our rows a second over theirs: at least the target."""
    TIME = "time"
    """Our seconds over theirs: at most the target."""
    SIZE = "size"
    """Our bytes over theirs: at most the target."""
    RATE = "rows/s"
    """Our rows a second, compared with nothing: at least the target."""
    LONGEST = "seconds"
    """Our seconds, compared with nothing; the largest sample counts: at most the target."""
    ESTIMATE = "estimate"
    """Seconds as expected over seconds as measured: at most the target, and not less than one part of it."""

    @property
    def more_is_better(self) -> bool:
        """The direction."""
        return self in (Measure.SPEED, Measure.RATE)

    @property
    def is_ratio(self) -> bool:
        """Whether there is something that it is compared with."""
        return self not in (Measure.RATE, Measure.LONGEST)

    def loss(self, value: float) -> float:
        """The less of it, the better."""
        if self is Measure.ESTIMATE:
            return max(value, 1 / value)
        return 1 / value if self.more_is_better else value


@dataclass(frozen=True)
class Question:
    """One line of the page. `ours` and `other` are names of samples."""

    text: str
    ours: str
    measure: Measure
    target: float
    other: str = ""

    @property
    def goal(self) -> str:
        """The target as the page shows it."""
        if self.measure is Measure.ESTIMATE:
            return f"{figure(1 / self.target, self.measure)} to {figure(self.target, self.measure)}"
        return f"{'>=' if self.measure.more_is_better else '<='} {figure(self.target, self.measure)}"


@dataclass(frozen=True)
class Answer:
    """What came out: one value for each pair of samples, in the order of measuring."""

    question: Question
    values: Sequence[float]

    @property
    def value(self) -> float:
        """The median, or the largest where the question is about the largest."""
        return max(self.values) if self.question.measure is Measure.LONGEST else statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        """Whether the target is reached."""
        return self.loss <= self.question.measure.loss(self.question.target)

    @property
    def loss(self) -> float:
        """The less of it, the better."""
        return self.question.measure.loss(self.value)

    def is_better_than(self, other: "Answer") -> bool:
        """Whether it is the better answer to the same question."""
        return self.loss < other.loss

    def is_half_of(self, stored: float) -> bool:
        """Whether it is less than half as good as it was."""
        return self.loss > self.question.measure.loss(stored) * 2


def answer(question: Question, samples: Iterable[Sample]) -> Answer:
    """Compare the first sample of ours with the first of the other, the second with the second, and so on."""
    known = list(samples)
    ours = [sample for sample in known if sample.what == question.ours]
    others = [sample for sample in known if sample.what == question.other]
    assert ours, f"no sample {question.ours!r} among {sorted({sample.what for sample in known})}"
    if not question.measure.is_ratio:
        return Answer(question, [_alone(question.measure, sample) for sample in ours])
    assert others, f"no sample {question.other!r} among {sorted({sample.what for sample in known})}"
    return Answer(question, [_ratio(question.measure, *pair) for pair in zip(ours, others, strict=False)])


def _alone(measure: Measure, ours: Sample) -> float:
    return ours.rows_a_second if measure is Measure.RATE else ours.seconds


def _ratio(measure: Measure, ours: Sample, other: Sample) -> float:
    if measure is Measure.SPEED:
        return ours.rows_a_second / other.rows_a_second
    if measure is Measure.SIZE:
        return ours.size_bytes / other.size_bytes
    return ours.seconds / other.seconds


def figure(value: float, measure: Measure) -> str:
    """The value with three digits and its unit."""
    if measure is Measure.RATE:
        return f"{value:,.0f}/s"
    if measure is Measure.LONGEST:
        return seconds(value)
    return f"{value:.3g}x"


def seconds(value: float) -> str:
    """A time with three digits."""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
