"""Answers of TPC-H are compared value by value, and only what an ORDER BY leaves open may differ."""

from decimal import Decimal

import duckdb
import pytest

from benchmarks.rig import tpch
from frostline.lake import duck

LIMITED = "select c_custkey, c_name, revenue from t order by revenue desc limit 3"
ROWS: list[tuple[object, ...]] = [(1, "a", Decimal("9.00")), (2, "b", Decimal("5.00")), (3, "c", Decimal("5.00"))]


def test_the_same_rows_in_another_order_are_the_same_answer():
    tpch.check_same(1, "select 1", ROWS[::-1], ROWS)


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [(1, "a", Decimal("9.01")), *ROWS[1:]],
        [(1, "a", Decimal("9.0")), *ROWS[1:]],
        [(1, None, Decimal("9.00")), *ROWS[1:]],
        [ROWS[0], ROWS[1], ROWS[1]],
    ],
)
def test_a_row_less_or_more_and_a_value_that_is_printed_otherwise_is_another_answer(other: list[tuple[object, ...]]):
    with pytest.raises(AssertionError, match="Q1: other rows"):
        tpch.check_same(1, "select 1", other, ROWS)


def test_rows_that_tie_at_a_limit_may_be_others():
    tpch.check_same(10, LIMITED, [ROWS[0], ROWS[1], (4, "d", Decimal("5.00"))], ROWS)


@pytest.mark.parametrize(
    "other",
    [
        [(4, "d", Decimal("9.00")), *ROWS[1:]],
        [*ROWS[:2], (4, "d", Decimal("4.00"))],
        [ROWS[0], ROWS[1]],
        [ROWS[1], ROWS[0], ROWS[2]],
    ],
)
def test_rows_above_the_tie_and_the_order_of_a_limited_answer_may_not(other: list[tuple[object, ...]]):
    with pytest.raises(AssertionError, match="Q10: other rows"):
        tpch.check_same(10, LIMITED, other, ROWS)


def test_every_query_with_a_limit_says_what_it_is_ordered_by():
    with duckdb.connect() as connection:
        duck.load(connection, "tpch")
        rows = connection.execute("select query_nr, query from tpch_queries()").fetchall()
    assert len(rows) == 22
    limited = {number for number, query in rows if "limit" in query.lower()}
    assert limited == set(tpch.ORDERED_BY)
    for number in limited:
        assert tpch.limit_of(tpch.plain(dict(rows)[number])), number
