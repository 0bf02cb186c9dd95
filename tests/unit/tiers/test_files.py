"""Lake files, grouped for the tasks that read them."""

import pytest

from frostline.tiers.files import ColdFile, grouped


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([60, 40, 1], [[60, 40], [1]]),
        ([1, 101, 1], [[1], [101], [1]]),
        ([50, 51, 49, 1], [[50], [51, 49], [1]]),
    ],
)
def test_files_are_grouped_in_their_order_up_to_a_size(sizes: list[int], groups: list[list[int]]) -> None:
    files = [ColdFile(f"{number}.parquet", 1, size, {}) for number, size in enumerate(sizes)]
    made = list(grouped(files, 100))
    assert [[file.size_bytes for file in group] for group in made] == groups
    assert [file for group in made for file in group] == files
