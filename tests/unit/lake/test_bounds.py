"""Bounds in manifests hold what they promise."""

from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import BinaryType, DecimalType, DoubleType, StringType, TimestamptzType

from frostline.lake import bounds, parquet

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT)
def test_text_lies_between_its_bounds(text: str):
    lower, upper = bounds.lower_bytes(text.encode(), StringType()), bounds.upper_bytes(text.encode(), StringType())
    assert lower <= text.encode()
    assert upper is None or text.encode() <= upper
    assert len(lower.decode()) <= 16


@given(st.binary(max_size=40))
def test_bytes_lie_between_their_bounds(value: bytes):
    lower, upper = bounds.lower_bytes(value, BinaryType()), bounds.upper_bytes(value, BinaryType())
    assert lower <= value
    assert upper is None or value <= upper


def test_text_that_cannot_be_followed_has_no_upper_bound():
    assert bounds.upper_bytes(("\U0010ffff" * 17).encode(), StringType()) is None
    assert bounds.upper_bytes(b"\xff" * 17, BinaryType()) is None


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals_are_written_as_iceberg_reads_them(unscaled: int):
    kind = DecimalType(38, 4)
    assert from_bytes(kind, bounds.exact_bytes(unscaled, kind)) == Decimal(f"{unscaled}e-4")


def test_zero_stands_for_both_zeros():
    assert bounds.lower_bytes(0.0, DoubleType()) == bounds.exact_bytes(-0.0, DoubleType())
    assert bounds.upper_bytes(-0.0, DoubleType()) == bounds.exact_bytes(0.0, DoubleType())


@pytest.mark.parametrize("micros", [-(2**63) + 1, -210_866_803_200_000_000, 0, 2**63 - 1])
def test_tier_values_come_back_from_their_bounds(micros: int):
    assert bounds.tier_value(bounds.exact_bytes(micros, TimestamptzType())) == micros


def chunks(tmp_path: Path, query: str):
    file = tmp_path / "bounds.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"copy ({query}) to '{file}' (format parquet, row_group_size 2048, field_ids {{'c': 1}})")
    return parquet.footer(f"file://{file}").columns[1]


def test_a_row_group_of_nulls_does_not_hide_the_others(tmp_path: Path):
    query = "select case when i < 2048 then null else i end as c from range(6000) as numbers(i)"
    assert bounds.raw_range(chunks(tmp_path, query)) == (2048, 5999)


def test_a_column_of_nulls_has_no_bounds(tmp_path: Path):
    assert bounds.raw_range(chunks(tmp_path, "select null::integer as c from range(10)")) is None


def test_a_column_with_a_nan_has_no_bounds(tmp_path: Path):
    query = "select case when i = 5 then 'nan'::double else i end as c from range(10) as numbers(i)"
    assert bounds.raw_range(chunks(tmp_path, query)) is None


def test_wide_decimals_compare_as_numbers(tmp_path: Path):
    query = "select (i - 3)::decimal(38, 2) as c from range(10) as numbers(i)"
    assert bounds.raw_range(chunks(tmp_path, query)) == (-300, 600)
