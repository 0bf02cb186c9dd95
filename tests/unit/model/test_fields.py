"""Which field ids the columns of a changed table have."""

from dataclasses import replace

import pytest
from tests.fixtures.lake_tables import column

from frostline.model import fields
from frostline.model.tables import Column

A = column(1, "a", "integer", "int4")
B = column(2, "b", "text", "text")
C = column(3, "c", "numeric(12,2)", "numeric")
BEFORE = [fields.of(known) for known in (A, B, C)]


def as_type(one: Column, lake_type: str) -> Column:
    return replace(one, encoding=replace(one.encoding, lake_type=lake_type))


def ids(columns: list[Column], last: int = 3) -> tuple[dict[str, int], int]:
    """By name, whatever ids the columns claim to have."""
    made, last = fields.evolve([replace(wanted, field_id=0) for wanted in columns], BEFORE, last)
    return {field.name: field.field_id for field in made}, last


def test_a_new_table_counts_from_one() -> None:
    made, last = fields.evolve([replace(field, field_id=0) for field in (C, A)], (), 0)
    assert ([(field.name, field.field_id) for field in made], last) == ([("c", 1), ("a", 2)], 2)


@pytest.mark.parametrize(
    ("now", "expected", "last"),
    [
        ([A, B, C], {"a": 1, "b": 2, "c": 3}, 3),
        ([C, A, B], {"c": 3, "a": 1, "b": 2}, 3),
        ([A, B, C, column(4, "d", "date", "date")], {"a": 1, "b": 2, "c": 3, "d": 4}, 4),
        ([A, C], {"a": 1, "c": 3}, 3),
        ([replace(A, name="z"), B, C], {"z": 1, "b": 2, "c": 3}, 3),
        ([replace(A, name="b"), replace(B, name="a"), C], {"b": 1, "a": 2, "c": 3}, 3),
        ([as_type(A, "long"), B, as_type(C, "decimal(20, 2)")], {"a": 1, "b": 2, "c": 3}, 3),
        ([as_type(A, "string"), B, as_type(C, "decimal(10, 2)")], {"a": 4, "b": 2, "c": 5}, 5),
        ([A, replace(B, attnum=4), C], {"a": 1, "b": 4, "c": 3}, 4),
    ],
    ids=["same", "moved", "added", "dropped", "renamed", "swapped", "promoted", "other type", "dropped and added"],
)
def test_a_column_keeps_its_id_as_long_as_it_means_the_same(
    now: list[Column], expected: dict[str, int], last: int
) -> None:
    assert ids(now) == (expected, last)


def test_an_id_is_never_given_twice() -> None:
    """Also not that of a column which is gone: files still have its values."""
    made, last = fields.evolve([A, column(4, "d", "date", "date")], [fields.of(A)], 3)
    assert ([field.field_id for field in made], last) == ([1, 4], 4)


def test_only_what_is_asked_for_has_changed() -> None:
    (made,), _ = fields.evolve([replace(A, field_id=0, name="z")], BEFORE, 3)
    assert made == replace(A, name="z")
    assert fields.Field(**fields.of(made).to_record()) == fields.of(made)
