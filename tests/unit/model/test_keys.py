"""Keys as one text: no two keys have the same, and each is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.golden import GOLDEN

from frostline.model.keys import SEPARATOR, decode, encode

PARTS = st.lists(st.text(st.sampled_from(["\\", SEPARATOR, "u", "a", "😀"]) | st.characters(), max_size=8), min_size=1)
"""Mostly of the characters that mean something."""
VECTORS = json.loads((GOLDEN / "keys.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["of"])
def test_the_vectors_hold(vector: dict[str, object]) -> None:
    parts, key = vector["parts"], vector["key"]
    assert isinstance(parts, list)
    assert isinstance(key, str)
    assert (encode(parts), decode(key)) == (key, tuple(parts))


@given(PARTS)
def test_a_key_is_read_back(parts: list[str]) -> None:
    assert decode(encode(parts)) == tuple(parts)


@given(PARTS, PARTS)
def test_different_keys_have_different_texts(one: list[str], other: list[str]) -> None:
    assert (encode(one) == encode(other)) == (one == other)


@given(PARTS)
def test_the_separator_stands_between_parts_only(parts: list[str]) -> None:
    assert encode(parts).count(SEPARATOR) == len(parts) - 1


@given(st.text(st.sampled_from(["\\", SEPARATOR, "u", "a"])))
def test_what_is_read_at_all_is_written_the_same(text: str) -> None:
    try:
        parts = decode(text)
    except ValueError:
        return
    assert encode(parts) == text


@pytest.mark.parametrize("text", ["\\", "a\\", "\\a", "\\\\\\", f"a\\{SEPARATOR}b"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an encoded key"):
        decode(text)


def test_a_key_has_a_column() -> None:
    """It would have the text of a key whose one part is empty."""
    with pytest.raises(ValueError, match="at least one column"):
        encode([])
