"""The grid of a heap's own partitions: what it is told from, what comes next, and what a new one is called."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model import heap_grid
from frostline.model.heap_grid import Edges, HeapGrid, Step, Unknown
from frostline.model.names import Name
from frostline.model.partition_names import Cell, next_name
from frostline.model.tiers import MICROS_PER_DAY, TierKind, days_of, from_text, to_text

TIMESTAMPTZ, TIMESTAMP, DATE = TierKind.TIMESTAMPTZ, TierKind.TIMESTAMP, TierKind.DATE
EVENTS = Name("public", "events")
HOUR = MICROS_PER_DAY // 24


def at(text: str, kind: TierKind = TIMESTAMPTZ) -> int:
    return from_text(kind, text)


def ranges(*edges: str, kind: TierKind = TIMESTAMPTZ) -> list[Edges]:
    return list(pairwise(at(edge, kind) for edge in edges))


def texts(found: list[Edges], kind: TierKind = TIMESTAMPTZ) -> list[str]:
    """The edges of a row of cells without gaps."""
    assert all(lower[1] == other[0] for lower, other in pairwise(found))
    return [to_text(kind, value) for value in [*(lower for lower, _ in found), found[-1][1]]] if found else []


def told(partitions: list[Edges], now: int, kind: TierKind = TIMESTAMPTZ, zone: str | None = None) -> HeapGrid:
    grid = heap_grid.find(kind, partitions, now, zone=zone)
    assert isinstance(grid, HeapGrid), grid
    return grid


def wanted(
    partitions: list[Edges], now: str, ahead: int, kind: TierKind = TIMESTAMPTZ, zone: str | None = None
) -> list[str]:
    """The edges of what is to be made."""
    moment = at(now, kind)
    grid = told(partitions, moment, kind, zone)
    return texts(heap_grid.missing(grid, partitions, moment, ahead, floor=kind.lowest), kind)


@pytest.mark.parametrize(
    ("edges", "next_edges"),
    [
        (("2023-11-01", "2023-12-01", "2024-01-01"), ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")),
        (("2023-12-01", "2024-01-01"), ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")),
        (("2023-07-01", "2023-10-01", "2024-01-01"), ("2024-01-01", "2024-04-01", "2024-07-01", "2024-10-01")),
        (("2022-01-01", "2023-01-01", "2024-01-01"), ("2024-01-01", "2025-01-01", "2026-01-01", "2027-01-01")),
        (("2023-11-15", "2023-12-15", "2024-01-15"), ("2024-01-15", "2024-02-15", "2024-03-15", "2024-04-15")),
        (("2023-12-30", "2023-12-31", "2024-01-01"), ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")),
        (("2023-12-18", "2023-12-25", "2024-01-01"), ("2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22")),
        (("2024-02-26", "2024-02-27", "2024-02-28"), ("2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02")),
        (("2023-02-26", "2023-02-27", "2023-02-28"), ("2023-02-28", "2023-03-01", "2023-03-02", "2023-03-03")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [TIMESTAMPTZ, TIMESTAMP, DATE])
def test_the_calendar_goes_on(kind: TierKind, edges: tuple[str, ...], next_edges: tuple[str, ...]) -> None:
    suffix = {TIMESTAMPTZ: " 00:00:00+00", TIMESTAMP: " 00:00:00", DATE: ""}[kind]
    there = ranges(*(edge + suffix for edge in edges), kind=kind)
    assert wanted(there, next_edges[0] + suffix, 2, kind) == [edge + suffix for edge in next_edges]


@pytest.mark.parametrize("width", [1, 2, 6, 24])
def test_hours_are_of_one_width(width: int) -> None:
    there = [(number * width * HOUR, (number + 1) * width * HOUR) for number in range(5)]
    grid = told(there, 0)
    assert heap_grid.missing(grid, there, 4 * width * HOUR, 1, floor=TIMESTAMPTZ.lowest) == [
        (5 * width * HOUR, 6 * width * HOUR)
    ]


BERLIN = ("2023-12-31 23:00:00+00", "2024-01-31 23:00:00+00", "2024-02-29 23:00:00+00")
BERLIN_NEXT = [*BERLIN[2:], "2024-03-31 22:00:00+00", "2024-04-30 22:00:00+00"]


def test_months_may_begin_at_midnight_of_a_time_zone_and_follow_its_summer_time() -> None:
    assert wanted(ranges(*BERLIN), "2024-03-05 00:00:00+00", 1, zone="Europe/Berlin") == BERLIN_NEXT


def test_so_may_days_also_when_all_that_are_there_are_of_the_winter() -> None:
    there = ranges("2024-03-28 23:00:00+00", "2024-03-29 23:00:00+00", "2024-03-30 23:00:00+00")
    assert wanted(there, "2024-03-30 23:00:00+00", 2, zone="Europe/Berlin") == [
        "2024-03-30 23:00:00+00", "2024-03-31 22:00:00+00", "2024-04-01 22:00:00+00", "2024-04-02 22:00:00+00",
    ]  # fmt: skip


def test_utc_comes_before_the_time_zone() -> None:
    there = ranges("2024-01-01 00:00:00+00", "2024-02-01 00:00:00+00", "2024-03-01 00:00:00+00")
    assert told(there, there[0][0], zone="Europe/London").zone is None


def test_months_in_a_zone_nobody_told_us_of_are_no_grid() -> None:
    assert heap_grid.find(TIMESTAMPTZ, ranges(*BERLIN), 0) == Unknown("its newest partitions are not alike")


@pytest.mark.parametrize(
    ("zone", "day", "midnight"),
    [
        ("America/Sao_Paulo", "2018-11-03 03:00:00+00", "2018-11-04 03:00:00+00"),  # there was none: 01:00 local time
        ("America/Havana", "2024-11-02 04:00:00+00", "2024-11-03 05:00:00+00"),  # there were two: the second
    ],
)
def test_a_midnight_that_is_missing_or_comes_twice_is_the_one_that_postgres_takes(
    zone: str, day: str, midnight: str
) -> None:
    assert HeapGrid(TIMESTAMPTZ, at(day), Step(days=1), zone).edge(1) == at(midnight)


@pytest.mark.parametrize("kind", [TierKind.SMALLINT, TierKind.INTEGER, TierKind.BIGINT])
def test_integers_have_a_width(kind: TierKind) -> None:
    there = [(0, 100), (100, 200)]
    assert heap_grid.missing(told(there, 150, kind), there, 150, 2, floor=kind.lowest) == [(200, 300), (300, 400)]


def test_integers_end_with_their_type() -> None:
    there = [(32_000, 32_500)]
    grid = told(there, 32_400, TierKind.SMALLINT)
    assert heap_grid.missing(grid, there, 32_400, 4, floor=TierKind.SMALLINT.lowest) == []


@pytest.mark.parametrize(
    ("kind", "edges"),
    [
        (TIMESTAMPTZ, ("294276-11-01 00:00:00+00", "294276-12-01 00:00:00+00")),
        (DATE, ("5874897-11-01", "5874897-12-01")),
    ],
)
def test_times_end_with_the_calendar(kind: TierKind, edges: tuple[str, ...]) -> None:
    assert wanted(ranges(*edges, kind=kind), edges[0], 4, kind) == []


def test_hours_end_with_it_too() -> None:
    last = HeapGrid(TIMESTAMP, at("294276-12-31 23:00:00", TIMESTAMP), Step(units=HOUR))
    assert (last.edge(0), last.edge(1)) == (last.anchor, None)


def test_a_zone_ends_with_its_own() -> None:
    there = ranges("9989-12-30 23:00:00+00", "9989-12-31 23:00:00+00")
    grid = HeapGrid(TIMESTAMPTZ, there[0][0], Step(days=1), "Europe/Berlin")
    assert heap_grid.missing(grid, there, there[0][0], 4, floor=TIMESTAMPTZ.lowest) == []


@pytest.mark.parametrize(
    "partitions",
    [
        [(0, 10), (10, 30), (30, 45)],
        [(0, 10), (10, 20), (20, 25)],
        [(0, 10), (10, 30)],
    ],
)
def test_partitions_that_are_not_alike_are_no_grid(partitions: list[Edges]) -> None:
    assert heap_grid.find(TierKind.INTEGER, partitions, 0) == Unknown("its newest partitions are not alike")


def test_the_newest_decide() -> None:
    old = [(0, 1000), (1000, 1017)]
    new = [(start, start + 10) for start in range(1017, 1047, 10)]
    assert told([*old, *new], 1040, TierKind.INTEGER).step == Step(units=10)


def test_no_partition_is_no_grid() -> None:
    assert isinstance(heap_grid.find(TIMESTAMPTZ, [], 0), Unknown)


@pytest.mark.parametrize(
    ("kind", "interval", "step"),
    [
        (TIMESTAMPTZ, "1 mon", Step(months=1)),
        (TIMESTAMPTZ, "1 year 3 mons", Step(months=15)),
        (TIMESTAMP, "7 days", Step(days=7)),
        (TIMESTAMP, "1 day 12:00:00", Step(days=1, units=12 * HOUR)),
        (TIMESTAMP, "01:00:00", Step(units=HOUR)),
        (TIMESTAMP, "00:00:00.5", Step(units=500_000)),
        (DATE, "2 years", Step(months=24)),
        (DATE, "01:00:00", None),
        (DATE, "1 day 48:00:00", Step(days=3)),
        (DATE, "", None),
        (DATE, "-1 days", None),
        (TierKind.BIGINT, "1000", Step(units=1000)),
        (TierKind.BIGINT, "0", None),
        (TierKind.BIGINT, "1 day", None),
    ],
)
def test_every_is_read_as_postgres_prints_it(kind: TierKind, interval: str, step: Step | None) -> None:
    assert heap_grid.parse(kind, interval) == step


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("month", "1 month"),
        ("Hours", "1 hour"),
        ("quarter", "3 months"),
        ("fortnight", "fortnight"),
        ("2 days", "2 days"),
    ],
)
def test_a_word_is_one_of_it(typed: str, text: str) -> None:
    assert heap_grid.spelled(typed) == text


@pytest.mark.parametrize(
    ("kind", "interval", "now", "cell"),
    [
        (DATE, "1 mon", "2024-02-17", ("2024-02-01", "2024-03-01")),
        (DATE, "3 mons", "2024-02-17", ("2024-01-01", "2024-04-01")),
        (DATE, "1 year", "2024-02-17", ("2024-01-01", "2025-01-01")),
        (DATE, "7 days", "2024-02-17", ("2024-02-12", "2024-02-19")),
        (DATE, "1 day", "2024-02-17", ("2024-02-17", "2024-02-18")),
        (TIMESTAMP, "06:00:00", "2024-02-17 13:30:00", ("2024-02-17 12:00:00", "2024-02-17 18:00:00")),
        (TierKind.BIGINT, "1000", "12345", ("12000", "13000")),
    ],
)
def test_without_partitions_every_follows_the_calendar(
    kind: TierKind, interval: str, now: str, cell: tuple[str, str]
) -> None:
    moment = at(now, kind)
    grid = heap_grid.find(kind, [], moment, interval=interval)
    assert isinstance(grid, HeapGrid)
    assert texts(heap_grid.missing(grid, [], moment, 0, floor=kind.lowest), kind) == list(cell)


def test_every_goes_on_where_the_partitions_end() -> None:
    there = ranges("2024-01-01", "2024-02-01", "2024-02-15", kind=DATE)
    grid = heap_grid.find(DATE, there, at("2024-02-01", DATE), interval="7 days")
    assert isinstance(grid, HeapGrid)
    missing = heap_grid.missing(grid, there, at("2024-02-01", DATE), 2, floor=DATE.lowest)
    assert texts(missing, DATE) == ["2024-02-15", "2024-02-22", "2024-02-29"]


def test_every_keeps_to_the_midnight_of_the_zone() -> None:
    grid = heap_grid.find(TIMESTAMPTZ, ranges(*BERLIN), at(BERLIN[2]), interval="1 mon", zone="Europe/Berlin")
    assert isinstance(grid, HeapGrid)
    missing = heap_grid.missing(grid, ranges(*BERLIN), at(BERLIN[2]), 1, floor=TIMESTAMPTZ.lowest)
    assert texts(missing) == BERLIN_NEXT


def test_an_every_that_is_no_width_is_no_grid() -> None:
    assert isinstance(heap_grid.find(DATE, [], 0, interval="01:00:00"), Unknown)


def test_what_is_there_is_not_made_again_and_counts() -> None:
    there = [(0, 10), (10, 20), (30, 40)]
    grid = told(there[:2], 15, TierKind.INTEGER)
    assert heap_grid.missing(grid, there, 15, 3, floor=TierKind.INTEGER.lowest) == [(20, 30), (40, 50)]


def test_what_overlaps_is_left_out() -> None:
    there = [(0, 10), (10, 20), (25, 45)]
    grid = told(there[:2], 15, TierKind.INTEGER)
    assert heap_grid.missing(grid, there, 15, 4, floor=TierKind.INTEGER.lowest) == [(50, 60)]


def test_a_partition_without_an_end_is_the_last() -> None:
    there = [(0, 10), (10, 20), (20, None)]
    grid = told([(0, 10), (10, 20)], 15, TierKind.INTEGER)
    assert heap_grid.missing(grid, there, 15, 4, floor=TierKind.INTEGER.lowest) == []


def test_a_gap_before_now_is_filled_unless_it_is_too_long() -> None:
    there = [(0, 10)]
    grid = told(there, 0, TierKind.INTEGER)
    lowest = TierKind.INTEGER.lowest
    assert heap_grid.missing(grid, there, 35, 0, floor=lowest) == [(10, 20), (20, 30), (30, 40)]
    assert heap_grid.missing(grid, there, 10_005, 1, floor=lowest) == [(10_000, 10_010), (10_010, 10_020)]


def test_nothing_is_made_below_the_floor() -> None:
    grid = told([(0, 10)], 0, TierKind.INTEGER)
    assert heap_grid.missing(grid, [], 35, 0, floor=20) == [(20, 30), (30, 40)]


def test_infinity_is_no_place_for_a_partition() -> None:
    there = [(at("2024-01-01", DATE), at("2024-02-01", DATE)), (at("2024-02-01", DATE), DATE.highest)]
    grid = told(there[:1], there[0][0], DATE)
    assert heap_grid.missing(grid, there, there[0][0], 4, floor=DATE.lowest) == []


@given(
    anchor=st.integers(days_of(1900, 1, 1), days_of(2100, 1, 1)),
    step=st.builds(Step, st.integers(0, 30), st.integers(0, 40)).filter(lambda step: step != Step()),
    value=st.integers(days_of(1800, 1, 1), days_of(2200, 1, 1)),
)
def test_every_value_lies_in_one_cell(anchor: int, step: Step, value: int) -> None:
    grid = HeapGrid(DATE, anchor, step)
    cell = grid.cell(value)
    assert cell is not None
    assert cell[0] <= value < cell[1]
    assert grid.cell(cell[0]) == grid.cell(cell[1] - 1) == cell


MONTH, QUARTER, YEAR, DAY, WEEK = Step(1), Step(3), Step(12), Step(0, 1), Step(0, 7)


@pytest.mark.parametrize(
    ("names", "step", "name"),
    [
        (("events_2023_12", "events_2024_01"), MONTH, "events_2024_02"),
        (("events_2024_01",), MONTH, "events_2024_02"),
        (("events_p2023_12", "events_p2024_01"), MONTH, "events_p2024_02"),
        (("events_2023_12_01", "events_2024_01_01"), MONTH, "events_2024_02_01"),
        (("events202312", "events202401"), MONTH, "events202402"),
        (("events_2023-12", "events_2024-01"), MONTH, "events_2024-02"),
        (("events_y2023m12", "events_y2024m01"), MONTH, "events_y2024m02"),
        (("2023_12 events", "2024_01 events"), MONTH, "2024_02 events"),
        (("events_11", "events_12"), MONTH, "events_13"),
        (("e_009", "e_010"), MONTH, "e_011"),
        (("events_old", "events_new"), MONTH, "events_p2024_02"),
        (("events_2024", "events_2024"), MONTH, "events_p2024_02"),
        (("events_2024",), MONTH, "events_p2024_02"),
        ((), MONTH, "events_p2024_02"),
        (("events_2023q4", "events_2024q1"), QUARTER, "events_2024q2"),
        (("events_2023_q4", "events_2024_q1"), QUARTER, "events_2024_q2"),
        (("a", "b"), QUARTER, "events_p2024_04"),
        (("events_2023", "events_2024"), YEAR, "events_2025"),
        ((), YEAR, "events_p2025"),
        (("events_20231231", "events_20240101"), DAY, "events_20240102"),
        (("events_2023_12_31", "events_2024_01_01"), DAY, "events_2024_01_02"),
        (("events_y2023m12d31", "events_y2024m01d01"), DAY, "events_y2024m01d02"),
        ((), DAY, "events_p2024_01_02"),
        (("events_2023_w52", "events_2024_w01"), WEEK, "events_2024_w02"),
    ],
)
def test_a_new_partition_is_called_as_the_others_are(names: tuple[str, ...], step: Step, name: str) -> None:
    grid = HeapGrid(DATE, days_of(2024, 1, 1), step)
    edges = [grid.edge(number) or 0 for number in (-1, 0, 1, 2)]
    cells = [
        Cell(Name("s", label), edges[index], edges[index + 1]) for index, label in enumerate(names, 2 - len(names))
    ]
    made = next_name(EVENTS, grid, cells, edges[2], edges[3])
    assert made.table == name
    assert made.schema == ("public" if "_p" in name and "_p" not in "".join(names) else "s")


def test_a_name_is_that_of_the_local_day() -> None:
    first, second = (Cell(Name("s", f"events_2024_0{number}"), *ranges(*BERLIN)[number - 1]) for number in (1, 2))
    grid = told(ranges(*BERLIN), first.lower, zone="Europe/Berlin")
    assert next_name(EVENTS, grid, [first, second], at(BERLIN[2]), at(BERLIN_NEXT[1])).table == "events_2024_03"


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (("t_0_1000", "t_1000_2000"), "t_2000_3000"),
        (("t_0_999", "t_1000_1999"), "t_2000_2999"),
        (("t_p0", "t_p1000"), "t_p2000"),
        (("t_1", "t_2"), "t_3"),
        (("a", "b"), "events_p2000"),
    ],
)
def test_partitions_of_integers_are_called_as_the_others_are(names: tuple[str, str], name: str) -> None:
    cells = [Cell(Name("public", label), index * 1000, index * 1000 + 1000) for index, label in enumerate(names)]
    grid = HeapGrid(TierKind.BIGINT, 0, Step(units=1000))
    assert next_name(EVENTS, grid, cells, 2000, 3000).table == name


def test_years_before_christ_have_names() -> None:
    grid = HeapGrid(DATE, 0, YEAR)
    known = [Cell(Name("public", name), days_of(year, 1, 1), days_of(year + 1, 1, 1)) for name, year in (("a", -4),)]
    assert next_name(EVENTS, grid, known, days_of(-2, 1, 1), days_of(-1, 1, 1)).table == "events_pm002"


def test_hours_have_their_own_names() -> None:
    grid = HeapGrid(TIMESTAMP, 0, Step(units=6 * HOUR))
    assert next_name(EVENTS, grid, [], 6 * HOUR, 12 * HOUR).table == "events_p1970_01_01_0600"
    grid = HeapGrid(TIMESTAMP, 0, Step(units=90_000_000))
    assert next_name(EVENTS, grid, [], 90_000_000, 180_000_000).table == "events_p1970_01_01_000130"


def test_long_names_are_cut_before_their_place() -> None:
    long = Name("public", "ä" * 31)
    name = next_name(long, HeapGrid(DATE, 0, MONTH), [], days_of(2024, 2, 1), days_of(2024, 3, 1)).table
    assert name.endswith("_p2024_02")
    assert len(name.encode()) <= 63
