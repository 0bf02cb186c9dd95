"""How far the retention line rises, without a database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.lake_tables import column, events

from frostline.model.names import Name
from frostline.model.tables import NO_ROWS, RecordedFile, Table
from frostline.model.tiers import MICROS_PER_DAY, TierKind, from_text
from frostline.model.upkeep import RetentionLine, UncleanedPartition, files_below, retention_line

TABLE = events()
LOWEST = TABLE.tier_kind.lowest
HOUR = MICROS_PER_DAY // 24
INTEGERS = events(
    columns=(column(1, "id", "bigint", "int8"),),
    key=("id",),
    tier_key="id",
    tier_kind=TierKind.BIGINT,
    lake_partition="truncate[1000]",
)
MAY = Name("public", "events_5")


def at(text: str) -> int:
    return from_text(TierKind.TIMESTAMPTZ, text + "+00")


T = at("2024-06-01 00:00:00")


def test_the_line_is_the_day_of_the_cutoff() -> None:
    wanted = retention_line(TABLE, at("2024-03-05 17:23:11.5"), T, [], None)
    assert wanted == RetentionLine(at("2024-03-05 00:00:00"), at("2024-03-05 00:00:00"))


@pytest.mark.parametrize(
    ("table", "cutoff", "wanted"),
    [
        (events(lake_partition="hour"), 25 * HOUR + 7, 25 * HOUR),
        (events(lake_partition="day"), 25 * HOUR + 7, 24 * HOUR),
        (events(lake_partition="year"), -7, -24 * HOUR),
        (events(tier_kind=TierKind.DATE), 19_000, 19_000),
        (INTEGERS, 12_345, 12_000),
        (INTEGERS, -1, -1000),
    ],
)
def test_the_line_is_cut_down_to_what_the_lake_is_cut_by(table: Table, cutoff: int, wanted: int) -> None:
    assert retention_line(table, cutoff, 10**18, [], None).value == wanted


def test_it_never_passes_the_frost_line() -> None:
    assert retention_line(TABLE, at("2024-07-09 00:00:00"), T, [], None) == RetentionLine(T, T)
    assert retention_line(TABLE, at("2024-07-09 00:00:00"), LOWEST, [], None) == RetentionLine(None, LOWEST)


def test_it_waits_for_partitions_that_are_whole() -> None:
    first, second = (
        UncleanedPartition(MAY, at("2024-05-01 00:00:00")),
        UncleanedPartition(Name("public", "x"), at("2024-05-20 00:00:00")),
    )
    wanted = retention_line(TABLE, at("2024-05-17 00:00:00"), T, [second, first], None)
    assert wanted == RetentionLine(first.lower, first.lower or 0, waits_for=MAY)
    assert retention_line(TABLE, at("2024-04-17 00:00:00"), T, [first], None).waits_for is None


def test_a_whole_partition_without_a_lower_bound_stops_everything() -> None:
    assert retention_line(TABLE, T, T, [UncleanedPartition(MAY, None)], None) == RetentionLine(
        None, LOWEST, waits_for=MAY
    )


def test_it_never_falls() -> None:
    before = at("2024-03-05 00:00:00")
    assert retention_line(TABLE, at("2024-02-01 00:00:00"), T, [], before) == RetentionLine(before, before)
    assert retention_line(TABLE, None, T, [], before) == RetentionLine(before, before)
    assert retention_line(TABLE, None, T, [], None) == RetentionLine(None, LOWEST)


def test_what_a_thaw_brought_back_is_left_alone() -> None:
    """T, or a partition that was archived again, may lie below R; then nothing above either is touched."""
    before, thawed = at("2024-03-05 00:00:00"), at("2024-03-01 00:00:00")
    assert retention_line(TABLE, None, thawed, [], before) == RetentionLine(before, thawed)
    assert retention_line(TABLE, None, T, [UncleanedPartition(MAY, thawed)], before) == RetentionLine(
        before, thawed, waits_for=MAY
    )


def test_files_are_told_apart_by_the_line() -> None:
    files = [
        RecordedFile(f"{lower}", 1, lower, upper, NO_ROWS) for lower, upper in ((0, 9), (5, 10), (9, 10), (10, 20))
    ]
    gone, across = files_below(files, 10)
    assert [file.lower for file in gone] == [0]
    assert [file.lower for file in across] == [5, 9]


@given(
    st.none() | st.integers(-10_000, 10_000),
    st.integers(-10_000, 10_000),
    st.lists(st.integers(-10_000, 10_000), max_size=3),
    st.none() | st.integers(-10_000, 10_000),
)
def test_the_rules_hold_for_every_table(cutoff: int | None, frost: int, lowers: list[int], current: int | None) -> None:
    risen = retention_line(INTEGERS, cutoff, frost, [UncleanedPartition(MAY, lower) for lower in lowers], current)
    if risen.value is None:
        assert current is None
        return
    assert risen.reach <= min([risen.value, frost, *lowers])
    if risen.value != current:
        assert current is None or risen.value > current
        assert cutoff is not None
        assert risen.value <= min([cutoff, frost, *lowers])
