"""Which files of a lake table are written anew, and which snapshots go."""

from dataclasses import replace
from datetime import timedelta

import pytest

from frostline.model import lake_upkeep
from frostline.model.lake_tables import FILE_ROWS
from frostline.model.lake_upkeep import Keeping, KeptFile, Known, Past, Ref, Since, expired

TARGET = 1000
A, B = (0, "a"), (0, "b")


def file(name: str, size: int, gone: int = 0, partition: tuple[int, str] = A) -> KeptFile:
    return KeptFile(name, size, 100, gone, partition)


def test_no_file_gets_more_rows_than_can_be_told_apart() -> None:
    files = [KeptFile(str(number), 10, FILE_ROWS // 3 + 1, 0, A) for number in range(5)]
    assert names(files) == [["0", "1"], ["2", "3"]]
    assert names([file._replace(rows=FILE_ROWS // 2) for file in files[:3]]) == [["0", "1"]]


def names(files: list[KeptFile], *, only_due: bool = False) -> list[list[str]]:
    return [[file.path for file in bin_] for bin_ in lake_upkeep.rewrites(files, TARGET, only_due=only_due)]


def test_small_files_of_a_partition_are_merged_up_to_the_target() -> None:
    files = [file("1", 600), file("2", 300), file("3", 300), file("4", 100), file("5", 10, partition=B)]
    assert names([*files, file("large", 800)]) == [["1", "2"], ["3", "4"]]


def test_a_file_with_rows_that_are_gone_is_written_anew_however_large_it_is() -> None:
    assert names([file("1", 2000, gone=1), file("2", 2000)]) == [["1"]]


def test_it_is_due_when_files_are_many_or_enough_or_many_rows_are_gone() -> None:
    assert names([file("1", 10), file("2", 10)], only_due=True) == []
    assert len(names([file(str(number), 10) for number in range(5)], only_due=True)) == 1
    assert len(names([file("1", 500), file("2", 500)], only_due=True)) == 1
    assert names([file("1", 2000, gone=9)], only_due=True) == []
    assert names([file("1", 2000, gone=10)], only_due=True) == [["1"]]


@pytest.mark.parametrize("text", ["", "many", "-1", "1e9", "\u0663", "9" * 40])
def test_nonsense_is_no_target_size(text: str) -> None:
    assert lake_upkeep.target_file_size({lake_upkeep.TARGET_FILE_SIZE: text}) == lake_upkeep.target_file_size({})


def test_what_was_written_is_of_no_use_when_a_file_is_gone_or_has_changed() -> None:
    rewrite = (file("1", 10), file("2", 10))
    assert not lake_upkeep.is_overtaken(rewrite, {"1", "2", "3"}, {"3"})
    assert lake_upkeep.is_overtaken(rewrite, {"1", "3"}, set())
    assert lake_upkeep.is_overtaken(rewrite, {"1", "2"}, {"2"})


DAYS = Keeping(timedelta(days=5), timedelta(days=5), 1)
DAY_MS = 86_400_000
LINE = Past(
    [Known(number, number - 1 or None, number, number * DAY_MS) for number in range(1, 7)],
    [Ref("main", 6, is_branch=True)],
    [(number, number * DAY_MS) for number in range(1, 7)],
    now_ms=6 * DAY_MS,
)
"""Six snapshots, one after the other, one a day."""


def at(number: int) -> Since:
    """The state with that snapshot is the oldest that somebody may read."""
    return Since(number, number, (number, number * DAY_MS))


def test_the_snapshots_before_the_oldest_state_that_is_read_go() -> None:
    assert expired(LINE, at(4), DAYS) == {1, 2, 3}
    assert expired(LINE, at(6), DAYS) == {1, 2, 3, 4, 5}
    assert expired(LINE, Since(None, 0, None), DAYS) == set()


def test_some_of_each_branch_and_what_refs_name_stay() -> None:
    assert expired(LINE, at(6), replace(DAYS, snapshots=3)) == {1, 2, 3}
    tagged = replace(LINE, refs=[*LINE.refs, Ref("kept", 2, is_branch=False)])
    assert expired(tagged, at(6), DAYS) == {1, 3, 4, 5}
    own = replace(LINE, refs=[Ref("main", 6, is_branch=True, snapshots=2)])
    assert expired(own, at(6), DAYS) == {1, 2, 3, 4}
    young = replace(LINE, refs=[Ref("main", 6, is_branch=True, age_ms=3 * DAY_MS)])
    assert expired(young, at(6), DAYS) == {1, 2, 3}


def test_of_another_branch_what_is_younger_than_the_policy_stays() -> None:
    side = [Known(11, 1, 7, 2 * DAY_MS), Known(12, 11, 8, 4 * DAY_MS)]
    past = replace(LINE, snapshots=[*LINE.snapshots, *side], refs=[*LINE.refs, Ref("side", 12, is_branch=True)])
    since = Since(6, 8, (6, 6 * DAY_MS))
    assert expired(past, since, replace(DAYS, age=timedelta(days=3))) == {1, 2, 3, 4, 5, 11}


def test_a_snapshot_that_somebody_has_gone_back_to_was_read_since() -> None:
    back = replace(LINE, log=[*LINE.log, (2, 7 * DAY_MS), (6, 8 * DAY_MS)])
    assert expired(back, at(5), DAYS) == {1, 3, 4}
    assert expired(back, Since(9, 5, (9, 1)), DAYS) == set(), "nobody knows what was read since"


def test_without_a_policy_states_stay_for_days_and_of_many_for_an_hour() -> None:
    assert lake_upkeep.keeping({}) == Keeping(timedelta(days=5), timedelta(hours=1), 1)
    given = {lake_upkeep.SNAPSHOT_AGE: "3600000", lake_upkeep.SNAPSHOTS_KEPT: "9"}
    assert lake_upkeep.keeping(given) == Keeping(timedelta(hours=1), timedelta(hours=1), 9)
    assert lake_upkeep.keeping({lake_upkeep.SNAPSHOT_AGE: "1"}).age == lake_upkeep.LEAST_AGE
    assert lake_upkeep.keeping({lake_upkeep.SNAPSHOT_AGE: "soon"}) == lake_upkeep.keeping({})


@pytest.mark.parametrize(
    ("earlier", "later", "count"),
    [("a/00007-x.json", "a/00007-x.json", 0), ("a/00007-x.json", "b/00019-y.json", 12), ("a/x.json", "a/y.json", 1)],
)
def test_commits_are_counted_by_the_numbers_of_metadata_files(earlier: str, later: str, count: int) -> None:
    assert lake_upkeep.commits_between(earlier, later) == count


@pytest.mark.parametrize(
    ("name", "known"), [("a.parquet", True), ("b.metadata.json", True), ("c.avro", True), ("d.txt", False)]
)
def test_only_files_that_engines_write_are_swept(name: str, known: bool) -> None:
    assert lake_upkeep.is_of_iceberg(f"file:///w/~lake/t/{name}") is known
