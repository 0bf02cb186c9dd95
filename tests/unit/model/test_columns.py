"""How the columns of a table differ from those that are known of it, in words."""

from dataclasses import replace

import pytest
from tests.fixtures.lakeserver import column, table

from frostline.model.columns import difference
from frostline.model.tiers import TierKind

KNOWN = {"id": "integer", "a": "text", "b": "text"}


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (KNOWN, None),
        ({"id": "integer", "a": "text"}, "it has no column b"),
        ({**KNOWN, "c": "text", "d": "text"}, "it has a new column c, d"),
        ({"id": "integer", "a": "text", "c": "text"}, "it has no column b, it has a new column c"),
        ({**KNOWN, "id": "bigint"}, "column id is bigint now"),
        ({"id": "integer", "b": "text", "a": "text"}, "columns have changed their places"),
    ],
)
def test_a_difference_is_told_in_words(present: dict[str, str], expected: str | None) -> None:
    assert difference(KNOWN, present) == expected


def test_a_column_that_is_another_under_the_old_name_is_told() -> None:
    assert difference(KNOWN, KNOWN, {"a"}) == "it has made anew the column a"


def test_columns_of_one_type_that_exchange_their_names_make_another_table() -> None:
    known = table(7, [column(1, "id", "int4"), column(2, "a", "text"), column(3, "b", "text")], "id", TierKind.INTEGER)
    swapped = table(
        7, [column(1, "id", "int4"), column(3, "a", "text"), column(2, "b", "text")], "id", TierKind.INTEGER
    )
    assert known.difference(known) is None
    assert swapped.difference(known) == "it has made anew the column a, b"
    assert replace(known, key=("id", "a")).difference(known) == "its primary key is id, a now"
