"""Which files are merged, without a lake."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.lake_tables import events

from frostline.model import upkeep
from frostline.model.policy import Policy
from frostline.model.tables import Fingerprint, RecordedFile, Table
from frostline.model.tiers import MICROS_PER_DAY, TierKind
from frostline.model.upkeep import MANIFEST_BYTES, Bin, manifests_are_many

TARGET = 1000
TABLE = events(policy=Policy("1 month", target_file_size=TARGET))


def files(*sizes: int, day: int = 0) -> list[RecordedFile]:
    """One a day of these sizes, from a day of January 1970 on."""
    starts = [(day + number) * MICROS_PER_DAY for number in range(len(sizes))]
    return [
        RecordedFile(f"{start}", size, start, start + 9, Fingerprint(size, start))
        for start, size in zip(starts, sizes, strict=True)
    ]


def sizes(bins: list[Bin]) -> list[list[int]]:
    return [[file.size_bytes for file in merge] for merge in bins]


@pytest.mark.parametrize(
    ("given_sizes", "wanted"),
    [
        ([], []),
        ([10], []),
        ([10, 20], [[10, 20]]),
        ([749, 750], []),
        ([400, 400, 400], [[400, 400]]),
        ([300, 300, 300, 300, 300, 300], [[300, 300, 300], [300, 300, 300]]),
        ([700, 700], []),
        ([700, 10, 5000, 20], [[700, 10, 20]]),
        ([600, 600, 300], [[600, 300]]),
    ],
)
def test_neighbours_are_packed_up_to_the_target(given_sizes: list[int], wanted: list[list[int]]) -> None:
    assert sizes(upkeep.merges(TABLE, files(*given_sizes)[::-1])) == wanted


def test_a_task_opens_a_thousand_files_at_most() -> None:
    (file,) = files(0)
    tiny = [replace(file, path=str(number)) for number in range(2500)]
    assert [len(merge) for merge in upkeep.merges(TABLE, tiny)] == [1000, 1000, 500]


def test_files_of_two_lake_partitions_stay_apart() -> None:
    january, february = files(10, 10), files(10, 10, day=40)
    assert upkeep.merges(TABLE, [*february, *january]) == [tuple(january), tuple(february)]
    assert upkeep.merges(TABLE, [january[0], february[0]]) == []


def test_minus_infinity_is_a_partition_of_its_own() -> None:
    lowest = TierKind.TIMESTAMPTZ.lowest
    ancient = RecordedFile("ancient", 10, lowest, lowest, Fingerprint(1, 1))
    assert upkeep.merges(TABLE, [ancient, *files(10)]) == []


@pytest.mark.parametrize(
    ("given_sizes", "is_due"),
    [([10] * 4, False), ([10] * 5, True), ([500, 499], False), ([500, 500], True), ([700, 700], False)],
)
def test_a_worker_waits_until_it_is_worth_it(given_sizes: list[int], is_due: bool) -> None:
    bins = upkeep.due_merges(TABLE, files(*given_sizes))
    assert bool(bins) == is_due
    if is_due:
        assert bins == upkeep.merges(TABLE, files(*given_sizes))


def test_each_lake_partition_is_due_by_itself() -> None:
    assert upkeep.due_merges(TABLE, [*files(10, 10, 10), *files(10, 10, 10, day=40)]) == []


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(1, 1500)), max_size=40), st.floats(0.3, 1.3))
def test_merging_ends_with_fewer_files_and_every_row_once(drawn: list[tuple[int, int]], shrinks: float) -> None:
    """Whatever becomes of the sizes, as often as it is repeated."""
    left = [file for number, (day, size) in enumerate(drawn) for file in _file(number, day, size)]
    rows = sum((file.fingerprint for file in left), start=Fingerprint(0, 0))
    for _ in range(len(left) + 1):
        bins = upkeep.merges(TABLE, left)
        if not bins:
            break
        left = _merged(TABLE, left, bins, shrinks)
    assert upkeep.merges(TABLE, left) == []
    assert sum((file.fingerprint for file in left), start=Fingerprint(0, 0)) == rows


def _file(number: int, day: int, size: int) -> list[RecordedFile]:
    start = day * MICROS_PER_DAY
    return [RecordedFile(f"{number}", size, start, start + 9, Fingerprint(size, number))]


def _merged(table: Table, left: list[RecordedFile], bins: list[Bin], shrinks: float) -> list[RecordedFile]:
    taken = [file.path for merge in bins for file in merge]
    assert len(set(taken)) == len(taken)
    made = [_one_of(merge, shrinks) for merge in bins]
    kept = [file for file in left if file.path not in taken]
    assert len(kept) + len(made) < len(left)
    assert all(sum(file.size_bytes for file in merge) <= table.policy.target_file_size for merge in bins)
    return kept + made


def _one_of(one: Bin, shrinks: float) -> RecordedFile:
    fingerprint = sum((file.fingerprint for file in one), start=Fingerprint(0, 0))
    size = max(1, int(sum(file.size_bytes for file in one) * shrinks))
    lower, upper = min(file.lower for file in one), max(file.upper for file in one)
    return RecordedFile("+".join(file.path for file in one), size, lower, upper, fingerprint)


def test_manifests_are_many_unless_they_must_be() -> None:
    assert not manifests_are_many([100] * 100)
    assert manifests_are_many([100] * 101)
    assert not manifests_are_many([MANIFEST_BYTES] * 150)
    assert manifests_are_many([MANIFEST_BYTES // 3] * 150)
