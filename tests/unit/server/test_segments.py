"""Files in the order of a column: every value once, and no file opened before it is needed."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from frostline.model.range import Range
from frostline.model.tables import KeyBounds, LakeFile
from frostline.server import segments as module
from frostline.server.segments import Segment, placed, segments


def file(name: str, lower: int, upper: int, rows: int = 10) -> LakeFile:
    return LakeFile(name, rows, 1, lower, upper)


def parts_of(files: Sequence[LakeFile], *, downward: bool = False, is_limited: bool = True) -> list[Segment]:
    known = placed(files, 0, is_tier_key=True)
    assert known is not None
    return list(segments(known, downward=downward, is_limited=is_limited))


def names(files: Sequence[LakeFile], *, downward: bool = False) -> list[str]:
    return ["".join(cold_file.path for cold_file in part.files) for part in parts_of(files, downward=downward)]


APART = [file("a", 0, 9), file("b", 10, 19), file("c", 20, 29), file("d", 30, 39)]


def test_files_that_lie_apart_come_one_after_the_other() -> None:
    assert names(APART) == ["a", "bc", "d"]
    assert names(APART, downward=True) == ["d", "cb", "a"]
    assert all(part.is_whole for part in parts_of(APART, downward=True, is_limited=True))


def test_a_file_that_reaches_into_the_next_stays_open() -> None:
    (first, second) = parts_of([file("a", 0, 15), file("b", 10, 19)], downward=False, is_limited=False)
    assert ([cold_file.path for cold_file in first.files], first.range, first.is_whole) == (
        ["a"],
        Range(None, 10),
        False,
    )
    assert ([cold_file.path for cold_file in second.files], second.range, second.new_files) == (
        ["a", "b"],
        Range(10, None),
        1,
    )


def test_files_that_begin_together_are_opened_together() -> None:
    assert names([file("a", 5, 9), file("b", 5, 5), file("c", 5, 7), file("d", 6, 9)]) == ["bca", "cad"]


def test_the_ends_of_the_axis_are_values_too() -> None:
    last = 2**63 - 1
    files = [file("a", -last, 3), file("b", 4, last), file("c", 9, last)]
    assert names(files, downward=True) == ["cb", "a"]
    assert [part.range for part in parts_of(files, downward=True, is_limited=True)] == [Range(4, None), Range(None, 4)]


def test_what_is_sorted_as_a_whole_is_not_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 20)
    many = [file(f"{number:02}", number, number) for number in range(20)]
    limited = [len(part.files) for part in parts_of(many, downward=False, is_limited=True)]
    assert limited == [1, 2, 4, 8, 5]
    assert max(len(part.files) for part in parts_of(many, downward=False, is_limited=False)) == 2


@pytest.mark.parametrize("seed", range(200))
def test_every_value_is_in_one_segment_and_they_are_in_order(seed: int) -> None:
    chance = random.Random(seed)
    span = chance.choice([5, 50, 1000])
    files = []
    for number in range(chance.randint(1, 12)):
        lower = chance.randint(-span, span)
        files.append(file(str(number), lower, lower + chance.randint(0, chance.choice([0, 3, span]))))
    downward, is_limited = chance.random() < 0.5, chance.random() < 0.5
    parts = parts_of(files, downward=downward, is_limited=is_limited)
    for cold_file in files:
        for value in (cold_file.lower, cold_file.upper, (cold_file.lower + cold_file.upper) // 2):
            holding = [part for part in parts if cold_file in part.files and value in part.range]
            assert len(holding) == 1, (cold_file, value)
    edges = [part.range for part in parts]
    for before, after in pairwise(edges):
        assert (after.upper == before.lower) if downward else (before.upper == after.lower)
    assert sum(part.new_files for part in parts) == len(files)
    assert len({opened.path for part in parts for opened in part.files}) == len(files)


@pytest.mark.parametrize("downward", [True, False])
def test_of_ten_thousand_files_a_handful_is_opened(downward: bool) -> None:
    """Ten rows of the end, where each file has some and reaches into the next."""
    files = placed([file(f"{number}", number * 10, number * 10 + 12) for number in range(10_000)], 0, is_tier_key=True)
    assert files is not None
    parts = segments(files, downward=downward, is_limited=True)
    assert sum(next(parts).new_files for _ in range(2)) <= 4


def test_a_column_without_bounds_in_one_file_has_no_place() -> None:
    known = LakeFile("a", 1, 1, 0, 0, (KeyBounds(3, 1, 2),))
    unknown = LakeFile("b", 1, 1, 0, 0)
    text = LakeFile("c", 1, 1, 0, 0, (KeyBounds(3, b"a", b"b"),))
    assert placed([known], 3, is_tier_key=False) == [(1, 2, 0, known)]
    assert placed([known, unknown], 3, is_tier_key=False) is None
    assert placed([known, text], 3, is_tier_key=False) is None
    assert placed([known, unknown], 3, is_tier_key=True) == [(0, 0, 0, known), (0, 0, 1, unknown)]
