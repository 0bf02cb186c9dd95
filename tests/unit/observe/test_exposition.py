"""Metrics as text."""

import math

import pytest
from tests.fixtures.scraped import parse

from frostline.observe.metrics.exposition import Distribution, Family, Kind, Sample, counter, gauge, histogram, text

JOBS = counter("jobs_total", "Jobs that ended.", Sample(3, {"kind": "archive"}), Sample(0, {"kind": "fold"}))
LAG = gauge("lag_seconds", "How far behind.", Sample(1.5))
TIMES = histogram("job_seconds", "How long.", Distribution((0.5, 1.0), (2, 0, 1), 12.25, {"kind": "fold"}))


def test_the_text_is_the_one_of_the_format() -> None:
    assert text([JOBS, LAG, TIMES]) == (
        "# HELP jobs_total Jobs that ended.\n"
        "# TYPE jobs_total counter\n"
        'jobs_total{kind="archive"} 3\n'
        'jobs_total{kind="fold"} 0\n'
        "# HELP lag_seconds How far behind.\n"
        "# TYPE lag_seconds gauge\n"
        "lag_seconds 1.5\n"
        "# HELP job_seconds How long.\n"
        "# TYPE job_seconds histogram\n"
        'job_seconds_bucket{kind="fold",le="0.5"} 2\n'
        'job_seconds_bucket{kind="fold",le="1"} 2\n'
        'job_seconds_bucket{kind="fold",le="+Inf"} 3\n'
        'job_seconds_sum{kind="fold"} 12.25\n'
        'job_seconds_count{kind="fold"} 3\n'
    )


def test_what_is_written_can_be_read_again() -> None:
    page = parse(text([JOBS, LAG, TIMES]))
    assert page.kinds == {"jobs_total": "counter", "lag_seconds": "gauge", "job_seconds": "histogram"}
    assert page.value("jobs_total", kind="archive") == 3
    assert page.value("job_seconds_bucket", kind="fold", le="+Inf") == page.value("job_seconds_count", kind="fold") == 3


@pytest.mark.parametrize("value", ['a "b"', "back\\slash", "two\nlines", 'all \\" of\\\n it', "äöü 冬", "", "},{"])
def test_a_label_may_have_any_value(value: str) -> None:
    page = parse(text([gauge("g", "help", Sample(1, {"table": value, "other": "x"}))]))
    assert page.value("g", table=value, other="x") == 1


def test_help_stays_on_one_line() -> None:
    assert text([gauge("g", "a\nb \\ c")]).startswith("# HELP g a\\nb \\\\ c\n# TYPE")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (0.0, "0"), (-2.0, "-2"), (2**63, "9223372036854775808"),
        (1e-9, "1e-09"), (0.1, "0.1"),
    ],
)  # fmt: skip
def test_numbers_are_written_without_a_loss(value: float, written: str) -> None:
    assert text([gauge("g", "h", Sample(value))]).splitlines()[-1] == f"g {written}"


@pytest.mark.parametrize("family", [
    Family("1st", Kind.GAUGE, "h", (Sample(1),)), Family("a b", Kind.GAUGE, "h", ()), Family("", Kind.GAUGE, "h", ()),
    gauge("g", "h", Sample(1, {"__name__": "x"})), gauge("g", "h", Sample(1, {"a-b": "x"})),
])  # fmt: skip
def test_a_name_that_prometheus_refuses_is_refused(family: Family) -> None:
    with pytest.raises(ValueError, match="not a "):
        text([family])


def test_a_distribution_has_one_count_more_than_bounds() -> None:
    with pytest.raises(ValueError, match="zip"):
        text([histogram("h", "h", Distribution((1.0,), (1,), 1.0))])
