"""Where a converted table is cut, what its partitions are called, and every reason to refuse one at once."""

from dataclasses import replace
from itertools import pairwise

import pytest

from frostline.model.conversion import (
    MAX_PARTITIONS,
    ConversionFacts,
    Extent,
    NewPartition,
    extent_refusals,
    new_partitions,
    refusals,
    step,
)
from frostline.model.heap_grid import HeapGrid, Step, calendar, parse
from frostline.model.names import MAX_BYTES, Name
from frostline.model.registration import HeapColumn, HeapFacts, Refusal
from frostline.model.tiers import MICROS_PER_DAY, TierKind, from_text, to_text
from frostline.model.types import Collation, PgType

NAME = Name("public", "events")
ZONED = TierKind.TIMESTAMPTZ
HOUR = MICROS_PER_DAY // 24


def column(attnum: int, name: str, type_name: str, *, generated: bool = False) -> HeapColumn:
    return HeapColumn(
        attnum=attnum,
        name=name,
        pg_type=PgType(type_name, type_name, builtin=True),
        not_null=True,
        generated=generated,
        identity="",
        default=None,
        collation=Collation.NONE,
        collation_name=None,
        comment=None,
        identity_sequence=None,
    )


HEAP = HeapFacts(
    name=NAME,
    oid=1,
    relkind="r",
    persistence="p",
    owner="me",
    owner_is_ours=True,
    strategy=None,
    key_parts=0,
    tier_attnum=None,
    is_partition=False,
    row_security=False,
    columns=(column(1, "id", "int8"), column(2, "ts", "timestamptz"), column(3, "sum", "int8", generated=True)),
    primary_key=("id",),
    partitions=(),
    default_has_rows=False,
    inbound_foreign_keys=(),
    materialized_views=(),
    row_type_users=(),
    heap_name_taken=False,
    comment=None,
)
GOOD = ConversionFacts(HEAP, "ts")


def made(kind: TierKind, every: str) -> Step:
    width = step(kind, every, parse(kind, every))
    assert isinstance(width, Step)
    return width


MONTH = made(ZONED, "1 mon")
QUARTER = made(ZONED, "3 mons")
YEAR = made(ZONED, "1 year")
DAY = made(ZONED, "1 day")
WEEK = made(ZONED, "7 days")
HALF_DAY = made(ZONED, "12:00:00")
NOW = from_text(ZONED, "2024-03-15 00:00:00+00")


@pytest.mark.parametrize(
    ("width", "value", "lower", "upper"),
    [
        (MONTH, "2024-02-29 23:59:59+00", "2024-02-01 00:00:00+00", "2024-03-01 00:00:00+00"),
        (MONTH, "2023-12-31 23:59:59+00", "2023-12-01 00:00:00+00", "2024-01-01 00:00:00+00"),
        (QUARTER, "2024-05-15 00:00:00+00", "2024-04-01 00:00:00+00", "2024-07-01 00:00:00+00"),
        (YEAR, "2024-12-31 00:00:00+00", "2024-01-01 00:00:00+00", "2025-01-01 00:00:00+00"),
        (YEAR, "0044-03-15 00:00:00+00 BC", "0044-01-01 00:00:00+00 BC", "0043-01-01 00:00:00+00 BC"),
        (DAY, "1969-12-31 12:00:00+00", "1969-12-31 00:00:00+00", "1970-01-01 00:00:00+00"),
        (WEEK, "2024-01-07 23:00:00+00", "2024-01-01 00:00:00+00", "2024-01-08 00:00:00+00"),  # from Monday to Sunday
        (HALF_DAY, "2024-01-07 12:00:00+00", "2024-01-07 12:00:00+00", "2024-01-08 00:00:00+00"),
    ],
)
def test_a_value_lies_in_the_cell_of_the_calendar(width: Step, value: str, lower: str, upper: str) -> None:
    cell = calendar(ZONED, width, NOW).cell(from_text(ZONED, value))
    assert cell is not None
    assert [to_text(ZONED, edge) for edge in cell] == [lower, upper]


def test_dates_are_cut_by_whole_days() -> None:
    kind = TierKind.DATE
    cell = calendar(kind, made(kind, "7 days"), 0).cell(from_text(kind, "2024-01-07"))
    assert cell is not None
    assert [to_text(kind, edge) for edge in cell] == ["2024-01-01", "2024-01-08"]
    assert made(kind, "24:00:00") == DAY
    assert isinstance(step(kind, "12 hours", parse(kind, "12:00:00")), Refusal)


def test_in_utc_24_hours_are_a_day() -> None:
    assert calendar(ZONED, made(ZONED, "168:00:00"), NOW) == calendar(ZONED, WEEK, NOW)
    assert calendar(ZONED, made(ZONED, "7 days 12:00:00"), NOW) == HeapGrid(ZONED, 0, Step(days=7, units=12 * HOUR))


@pytest.mark.parametrize(
    "printed", ["00:00:00", "-1 mons", "1 mon 1 day", "-1 days", "00:00:59.999999", "1 mon 24:00:00"]
)
def test_what_is_no_width_of_time(printed: str) -> None:
    assert isinstance(step(ZONED, "x", parse(ZONED, printed)), Refusal)


@pytest.mark.parametrize("every", ["month", "0", "-5", "1.5", "40000", "²", ""])
def test_what_is_no_width_of_a_number(every: str) -> None:
    assert isinstance(step(TierKind.SMALLINT, every, parse(TierKind.SMALLINT, every)), Refusal)


def labels(kind: TierKind, width: Step, extent: Extent) -> list[str]:
    partitions = new_partitions(NAME, kind, width, extent)
    assert isinstance(partitions, list)
    return [cell.name.table for cell in partitions]


def at(text: str) -> int:
    return from_text(ZONED, text + "+00")


def test_there_are_partitions_for_the_rows_and_for_what_comes_next() -> None:
    extent = Extent(at("2023-11-30 00:00:00"), at("2024-01-01 00:00:00"), at("2024-03-15 00:00:00"), has_null=False)
    assert labels(ZONED, MONTH, extent) == [
        *("events_p2023_11", "events_p2023_12", "events_p2024_01"),
        *("events_p2024_03", "events_p2024_04", "events_p2024_05", "events_p2024_06"),
    ]


def test_small_partitions_are_made_for_a_week() -> None:
    made_names = labels(ZONED, HALF_DAY, Extent(None, None, at("2024-03-15 00:00:00"), has_null=False))
    assert (len(made_names), made_names[-1]) == (15, "events_p2024_03_22_0000")


def test_of_many_numbers_a_tenth_is_made_ahead() -> None:
    made_names = labels(TierKind.BIGINT, Step(units=10), Extent(0, 999, 0, has_null=False))
    assert (len(made_names), made_names[-1]) == (110, "events_p1090")


def test_cells_do_not_overlap_and_hold_the_ends() -> None:
    low, high = at("2023-12-31 23:59:59"), at("2024-12-01 00:00:00")
    partitions = new_partitions(NAME, ZONED, WEEK, Extent(low, high, high, has_null=False))
    assert isinstance(partitions, list)
    assert partitions[0].lower <= low
    assert all(lower.upper == other.lower for lower, other in pairwise(partitions))
    assert any(partition.upper is not None and partition.lower <= high < partition.upper for partition in partitions)


@pytest.mark.parametrize(
    ("width", "label"),
    [
        (YEAR, "2024"),
        (QUARTER, "2024_01"),
        (DAY, "2024_01_01"),
        (Step(units=24 * HOUR), "2024_01_01"),
        (WEEK, "2024_01_01"),
        (HALF_DAY, "2024_01_01_0000"),
        (Step(units=12 * HOUR + 30_000_000), "2023_12_31_162900"),
    ],
)
def test_names_say_where_a_partition_begins(width: Step, label: str) -> None:
    now = at("2024-01-01 00:00:00")
    assert labels(ZONED, width, Extent(None, None, now, has_null=False))[0] == f"events_p{label}"


def test_numbers_are_cut_from_zero_and_to_the_ends_of_their_type() -> None:
    kind = TierKind.SMALLINT
    partitions = new_partitions(NAME, kind, made(kind, "30000"), Extent(-32768, 32767, 0, has_null=False))
    assert partitions == [
        NewPartition(Name("public", "events_pm60000"), -32768, -30000),
        NewPartition(Name("public", "events_pm30000"), -30000, 0),
        NewPartition(Name("public", "events_p0"), 0, 30000),
        NewPartition(Name("public", "events_p30000"), 30000, None),
    ]


def test_the_calendar_has_two_ends_as_well() -> None:
    kind = TierKind.DATE
    early, late = (from_text(kind, text) for text in ("4714-11-24 BC", "5874897-12-31"))
    (first, *_), (*_, last) = (
        partitions
        for day in (early, late)
        if isinstance(
            partitions := new_partitions(
                NAME, kind, YEAR, Extent(day, day, 0 if day == early else day, has_null=False)
            ),
            list,
        )
    )
    assert first == NewPartition(Name("public", "events_pm4713"), early, from_text(kind, "4713-01-01 BC"))
    assert last == NewPartition(Name("public", "events_p5874897"), from_text(kind, "5874897-01-01"), None)


def test_an_empty_table_can_be_cut_too_finely_as_well() -> None:
    refused = new_partitions(NAME, ZONED, Step(units=60_000_000), Extent(None, None, NOW, has_null=False))
    assert isinstance(refused, Refusal)
    assert refused.reason == f"there would be more than {MAX_PARTITIONS} partitions"


def test_long_names_are_cut_and_keep_their_end() -> None:
    partitions = new_partitions(
        Name("public", "ß" * 31), ZONED, MONTH, Extent(None, None, at("2024-01-01 00:00:00"), has_null=False)
    )
    assert isinstance(partitions, list)
    assert all(len(cell.name.table.encode()) <= MAX_BYTES for cell in partitions)
    assert partitions[0].name.table.endswith("ß_p2024_01")


def test_too_many_partitions_are_refused() -> None:
    low, now = at("2020-01-01 00:00:00"), at("2020-01-01 00:00:00")
    fits = Extent(low, low + (MAX_PARTITIONS - 1) * MICROS_PER_DAY, now, has_null=False)
    assert isinstance(new_partitions(NAME, ZONED, DAY, fits), list)
    refused = new_partitions(NAME, ZONED, DAY, replace(fits, highest=at("9999-12-31 00:00:00")))
    assert isinstance(refused, Refusal)
    assert "2020-01-01 00:00:00+00 to 9999-12-31 00:00:00+00" in refused.reason


def test_values_without_a_place_are_refused() -> None:
    assert extent_refusals(ZONED, "ts", Extent(0, 5, 0, has_null=False)) == []
    assert extent_refusals(TierKind.BIGINT, "n", Extent(0, TierKind.BIGINT.highest, 0, has_null=False)) == []
    both = extent_refusals(ZONED, "ts", Extent(ZONED.lowest, 5, 0, has_null=True))
    assert [refusal.reason for refusal in both] == ["ts is NULL in some rows", "ts is infinite in some rows"]


def test_a_good_table_is_not_refused() -> None:
    assert refusals(GOOD) == []
    assert GOOD.new_key == ("id", "ts")
    assert replace(GOOD, heap=replace(HEAP, primary_key=("ts", "id"))).new_key == ("ts", "id")


def test_all_reasons_are_told_at_once() -> None:
    bad = ConversionFacts(
        heap=replace(
            HEAP,
            persistence="u",
            owner_is_ours=False,
            primary_key=(),
            inbound_foreign_keys=("f on child",),
            materialized_views=("public.m",),
            row_type_users=("function g()",),
        ),
        tier_key="nothing",
        is_inherited=True,
        unique_elsewhere=("by_mail",),
        unfit_constraints=(("a", "excludes"), ("b", "unvalidated"), ("c", "uninherited")),
        unfit_triggers=("moved",),
        replicated_by=("publication p",),
        has_identity_index=True,
        has_hidden_rows=True,
        owner_may=False,
        holders=("rule r",),
        key_holders=("view v",),
    )
    refused = refusals(bad)
    assert len(refused) == 19
    assert all(refusal.reason and refusal.hint for refusal in refused)


@pytest.mark.parametrize(("relkind", "reason"), [("p", "partitioned already"), ("v", "is not a table")])
def test_what_is_no_plain_table_has_one_reason(relkind: str, reason: str) -> None:
    (only,) = refusals(replace(GOOD, heap=replace(HEAP, relkind=relkind, primary_key=())))
    assert reason in only.reason


@pytest.mark.parametrize(
    ("tier_key", "reason"), [("sum", "its column sum is generated"), ("id2", "it has no column id2")]
)
def test_columns_that_cannot_be_tier_keys(tier_key: str, reason: str) -> None:
    assert [refusal.reason for refusal in refusals(replace(GOOD, tier_key=tier_key))] == [reason]
