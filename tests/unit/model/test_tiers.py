"""Tier values: one integer axis for each kind, and its texts are those that Postgres itself prints and reads."""

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.fixtures.statements import rows, value

from frostline.catalog.connect import connect
from frostline.model.tiers import MICROS_PER_DAY, TierKind, civil, days_of, from_text, to_text
from frostline.runtime.postgres import Postgres

FIRST_DAY, FIRST_YEAR = days_of(-4713, 11, 24), -4713
"""4714-11-24 BC: Postgres knows nothing earlier."""
RANGES = {
    # Postgres counts from 2000 and so reaches 30 years further than 64 bits from 1970 do; export refuses those.
    TierKind.TIMESTAMPTZ: (FIRST_DAY * MICROS_PER_DAY, 2**63 - 2),
    TierKind.TIMESTAMP: (FIRST_DAY * MICROS_PER_DAY, 2**63 - 2),
    TierKind.DATE: (FIRST_DAY, days_of(5_874_897, 12, 31)),
    TierKind.SMALLINT: (-(2**15), 2**15 - 1),
    TierKind.INTEGER: (-(2**31), 2**31 - 1),
    TierKind.BIGINT: (-(2**63), 2**63 - 1),
}
TIMES = [kind for kind in TierKind if kind.is_time]


def values_of(kind: TierKind) -> st.SearchStrategy[int]:
    """Any value, with the edges, the infinities and the days around the year 1 more often."""
    low, high = RANGES[kind]
    unit = MICROS_PER_DAY if kind in (TierKind.TIMESTAMP, TierKind.TIMESTAMPTZ) else 1
    edges = [low, high, 0, -1, 1, kind.lowest, kind.highest]
    if kind.is_time:
        edges += [days_of(1, 1, 1) * unit, days_of(1, 1, 1) * unit - 1, days_of(294_246, 12, 31) * unit]
    return st.one_of(st.integers(low, high), st.sampled_from(edges))


ANY = st.sampled_from(list(TierKind)).flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind)))


@pytest.fixture(scope="module")
def postgres(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    with connect(postgres_server.dsn(), purpose="tests") as connection:
        yield connection


@given(ANY)
@example((TierKind.TIMESTAMPTZ, days_of(294_247, 1, 1) * MICROS_PER_DAY - 1))
@example((TierKind.DATE, days_of(-43, 3, 15)))
@example((TierKind.TIMESTAMP, 123_450))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_postgres_prints_what_we_print_and_we_read_what_it_prints(
    postgres: psycopg.Connection, value_of_kind: tuple[TierKind, int]
) -> None:
    kind, number = value_of_kind
    text = to_text(kind, number)
    printed = value(postgres, f"select (%s::text::{kind.value})::text", [text])
    assert printed == text
    assert from_text(kind, printed) == number


@given(st.sampled_from(TIMES).flatmap(lambda kind: st.tuples(st.just(kind), st.integers(*RANGES[kind]))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_axis_is_the_one_that_postgres_counts(
    postgres: psycopg.Connection, value_of_kind: tuple[TierKind, int]
) -> None:
    kind, number = value_of_kind
    unit = 1 if kind is TierKind.DATE else 1_000_000
    epoch = value(postgres, f"select extract(epoch from %s::text::{kind.value})", [to_text(kind, number)])
    assert epoch * unit == number * (86_400 if kind is TierKind.DATE else 1)


@given(st.sampled_from(list(TierKind)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind)))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_ints_sort_as_postgres_sorts_the_values(
    postgres: psycopg.Connection, values: tuple[TierKind, list[int]]
) -> None:
    kind, numbers = values
    texts = [to_text(kind, number) for number in numbers]
    ordered = rows(postgres, f"select t from unnest(%s::text[]) as t order by t::{kind.value}", [texts])
    assert [from_text(kind, text) for (text,) in ordered] == sorted(numbers)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York", "Africa/Monrovia"])
@pytest.mark.parametrize("day", ["1850-06-01", "1969-12-31", "2024-02-29", "0044-03-15 BC"])
def test_a_timestamptz_is_read_with_any_offset_that_postgres_prints(
    postgres: psycopg.Connection, zone: str, day: str
) -> None:
    """Old local times have offsets with minutes and seconds."""
    with postgres.transaction(force_rollback=True):
        query = "select (%s::text::timestamptz)::text from set_config('TimeZone', %s, true)"
        local = value(postgres, query, [day, zone])
        utc = value(postgres, "select (%s::text::timestamptz)::text from set_config('TimeZone', 'UTC', true)", [local])
    assert from_text(TierKind.TIMESTAMPTZ, local) == from_text(TierKind.TIMESTAMPTZ, utc)


@given(st.integers(FIRST_DAY, days_of(5_874_897, 12, 31)))
def test_a_day_and_its_calendar_date_are_each_others_inverse(day: int) -> None:
    year, month, of_month = civil(day)
    assert year >= FIRST_YEAR
    assert 1 <= month <= 12
    assert 1 <= of_month <= 31
    assert days_of(year, month, of_month) == day


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TierKind.TIMESTAMPTZ, "2024-01-01 00:00:00"),
        (TierKind.TIMESTAMPTZ, "now"),
        (TierKind.TIMESTAMP, "01/02/2024"),
        (TierKind.DATE, ""),
        (TierKind.DATE, "2024-1-1"),
        (TierKind.INTEGER, "1.5"),
        (TierKind.BIGINT, ""),
    ],
)
def test_other_texts_are_refused(kind: TierKind, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_text(kind, text)


@pytest.mark.parametrize("kind", list(TierKind))
def test_nothing_lies_outside_lowest_and_highest(kind: TierKind) -> None:
    low, high = RANGES[kind]
    assert kind.lowest <= low < high <= kind.highest
