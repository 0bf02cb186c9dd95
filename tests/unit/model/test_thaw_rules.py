"""How the cold range is made up, and how far the frost line can go down."""

from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.tables import NO_ROWS, RecordedFile
from frostline.model.thaw import Archived, ColdRange, Holds, beginning, cold_ranges, reach, settled

LOWEST = -100


def name(text: str) -> Name:
    return Name("public", text)


def partition(text: str, lower: int | None, upper: int | None) -> Partition:
    return Partition(name(text), lower, upper, False, 0, 0)


def archived(text: str, lower: int | None, upper: int, *, in_heap: bool = False) -> Archived:
    return Archived(name(text), lower, upper, in_heap)


def file(lower: int, upper: int) -> RecordedFile:
    return RecordedFile("f", 1, lower, upper, NO_ROWS)


def test_a_cold_range_has_no_holes() -> None:
    parts = cold_ranges(
        [partition("b", 10, 20), partition("hot", 50, None)],
        [archived("a", 0, 10), archived("b", 10, 20, in_heap=True), archived("c", 30, 40)],
        40,
        LOWEST,
    )
    assert [(part.lower, part.upper, part.holds, part.name and part.name.table) for part in parts] == [
        (LOWEST, 0, Holds.NO_PARTITION, None),
        (0, 10, Holds.CHANGES, "a"),
        (10, 20, Holds.EVERYTHING, "b"),
        (20, 30, Holds.NO_PARTITION, None),
        (30, 40, Holds.CHANGES, "c"),
    ]
    assert [part.partition for part in parts] == [None, None, name("b"), None, None]


def test_a_partition_from_the_beginning_begins_at_the_lowest_value() -> None:
    assert cold_ranges([], [archived("a", None, 10)], 10, LOWEST) == [ColdRange(LOWEST, 10, Holds.CHANGES, name("a"))]


def test_a_partition_that_somebody_made_over_old_ones_counts_first() -> None:
    parts = cold_ranges([partition("new", 5, 15)], [archived("a", 0, 10), archived("b", 10, 20)], 20, 0)
    assert [(part.lower, part.upper, part.holds, part.name and part.name.table) for part in parts] == [
        (0, 5, Holds.CHANGES, "a"),
        (5, 15, Holds.NO_PARTITION, "new"),
        (15, 20, Holds.CHANGES, "b"),
    ]


def test_an_emptied_partition_that_is_still_there_has_changes_only() -> None:
    (part,) = cold_ranges([partition("a", 0, 10)], [archived("a", 0, 10)], 10, 0)
    assert part == ColdRange(0, 10, Holds.CHANGES, name("a"), name("a"))


def test_undo_goes_through_partitions_and_through_gaps_that_the_lake_has_nothing_of() -> None:
    cold = [
        ColdRange(0, 10, Holds.CHANGES),
        ColdRange(10, 20, Holds.EVERYTHING),
        ColdRange(20, 30, Holds.NO_PARTITION),
        ColdRange(30, 40, Holds.EVERYTHING),
    ]
    assert reach(cold, [file(0, 9), file(10, 19), file(30, 39)]) == [30, 10]
    assert reach(cold, [file(0, 9), file(10, 20), file(30, 39)]) == [30]
    assert reach(cold, [file(29, 31)]) == [30]
    assert reach(cold[:1], []) == []


def test_the_line_goes_back_to_the_beginning_when_nothing_is_left_below() -> None:
    gap, kept = ColdRange(LOWEST, 0, Holds.NO_PARTITION), ColdRange(0, 10, Holds.EVERYTHING)
    assert settled(0, [gap, kept], [file(0, 5)], LOWEST) == LOWEST
    assert settled(0, [gap, kept], [file(-1, 5)], LOWEST) == 0
    assert settled(10, [gap, kept], [], LOWEST) == 10


def test_a_value_is_rounded_down_to_where_its_stretch_begins() -> None:
    cold = [ColdRange(LOWEST, 0, Holds.NO_PARTITION), ColdRange(0, 10, Holds.CHANGES)]
    assert [beginning(cold, value) for value in (LOWEST, -1, 0, 9, 10)] == [LOWEST, LOWEST, 0, 0, None]
