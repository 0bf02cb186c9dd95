"""A sample of a lake of many files opens few of them, and has as many rows as were asked for."""

from itertools import pairwise

import pytest

from frostline.model.tables import LakeFile
from frostline.server.translate.sampling import FILES_ENOUGH, Sample, drawn


def files(count: int, rows: int = 1000) -> list[LakeFile]:
    return [LakeFile(f"/{number}.parquet", rows, 1, number * 10, number * 10 + 9) for number in range(count)]


def fraction(condition: tuple[str, ...]) -> float:
    (text,) = condition
    return float(text.removeprefix("random() < "))


def test_a_sample_of_pages_opens_files_from_all_over_the_lake() -> None:
    all_files = files(10_000)
    chosen, condition = drawn(all_files, Sample(0.003, of_files=True))
    assert len(chosen) == len(set(chosen)) == FILES_ENOUGH
    gaps = {right.lower - left.lower for left, right in pairwise(chosen)}
    assert gaps <= {200}
    assert fraction(condition) == pytest.approx(0.003 * 10_000 / FILES_ENOUGH)


def test_files_that_are_too_small_for_the_sample_are_opened_in_greater_number() -> None:
    chosen, condition = drawn(files(10_000, rows=10), Sample(0.3, of_files=True))
    assert len(chosen) == 3_000
    assert fraction(condition) == 1.0


def test_each_row_is_drawn_by_itself_when_that_is_asked_for() -> None:
    all_files = files(10_000)
    assert drawn(all_files, Sample(0.003)) == (all_files, (f"random() < {0.003:.17f}",))


def test_a_lake_of_few_files_is_read_whole() -> None:
    all_files = files(FILES_ENOUGH)
    assert drawn(all_files, Sample(0.01, of_files=True)) == (all_files, (f"random() < {0.01:.17f}",))


def test_what_is_no_sample_is_read_whole() -> None:
    assert drawn(files(10_000), None) == (files(10_000), ())
