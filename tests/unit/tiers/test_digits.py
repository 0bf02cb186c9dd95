"""Decimals as Postgres prints them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frostline.tiers.proof import columnhash


def printed(values: list[int], precision: int, scale: int) -> list[str]:
    words = np.array([[value & 2**64 - 1, value >> 64 & 2**64 - 1] for value in values], np.uint64).reshape(-1, 2)
    data, starts, lengths = columnhash.decimal_text(words[:, 0], words[:, 1], precision, scale)
    text = data.tobytes().decode()
    return [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def expected(value: int, scale: int) -> str:
    whole, part = divmod(abs(value), 10**scale)
    return ("-" if value < 0 else "") + str(whole) + (f".{part:0{scale}}" if scale else "")


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[int], int, int]:
    precision = draw(st.integers(1, 38))
    limit = 10**precision - 1
    values = draw(
        st.lists(st.one_of(st.integers(-limit, limit), st.sampled_from([0, 1, -1, limit, -limit])), max_size=20)
    )
    return values, precision, draw(st.integers(0, precision))


@given(columns())
def test_numbers_print_as_in_postgres(column: tuple[list[int], int, int]):
    values, precision, scale = column
    assert printed(values, precision, scale) == [expected(value, scale) for value in values]
