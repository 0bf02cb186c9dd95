"""Metrics as text in the Prometheus format 0.0.4. Pure: it is told the numbers, it counts nothing."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Labels = Mapping[str, str]


class Kind(StrEnum):
    """How a family's numbers behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Sample:
    """One number of a counter or a gauge."""

    value: float
    labels: Labels = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Distribution:
    """One histogram: how many observations fell into each bucket, and what all of them add up to."""

    bounds: tuple[float, ...]
    """Upper bounds, inclusive, ascending; what is larger than the last one is counted too, without a bound."""
    counts: tuple[int, ...]
    """Observations of each bucket alone, one more than there are bounds."""
    total: float
    labels: Labels = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Family:
    """All numbers of one name."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample | Distribution, ...]


def counter(name: str, text: str, *samples: Sample) -> Family:
    """Numbers that only grow until the process ends."""
    return Family(name, Kind.COUNTER, text, samples)


def gauge(name: str, text: str, *samples: Sample) -> Family:
    """Numbers that go up and down."""
    return Family(name, Kind.GAUGE, text, samples)


def histogram(name: str, text: str, *samples: Distribution) -> Family:
    """How observations are distributed."""
    return Family(name, Kind.HISTOGRAM, text, samples)


def text(families: Iterable[Family]) -> str:
    """The families as one page. A name or label that Prometheus would refuse raises ValueError."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    if not _NAME.fullmatch(family.name):
        raise ValueError(f"not a metric name: {family.name!r}")
    yield f"# HELP {family.name} {_escaped_help(family.help)}"
    yield f"# TYPE {family.name} {family.kind.value}"
    for sample in family.samples:
        if isinstance(sample, Distribution):
            yield from _distribution(family.name, sample)
        else:
            yield _line(family.name, sample.labels, sample.value)


def _distribution(name: str, sample: Distribution) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*sample.bounds, math.inf), sample.counts, strict=True):
        so_far += count
        yield _line(f"{name}_bucket", {**sample.labels, "le": _number(bound)}, so_far)
    yield _line(f"{name}_sum", sample.labels, sample.total)
    yield _line(f"{name}_count", sample.labels, so_far)


def _line(name: str, labels: Labels, value: float) -> str:
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ValueError(f"not a label of {name}: {label!r}")
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    return _escaped_help(value).replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
