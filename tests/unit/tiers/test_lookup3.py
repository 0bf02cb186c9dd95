"""The hash functions, against values that PostgreSQL gave."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frostline.tiers.proof import lookup3

FROM_POSTGRES = {
    # select hashtextextended(x, 0)
    b"": -6939563903564495251,
    b"a": 3591986179850072241,
    b"twelve bytes": -7123776401673968163,
    b"thirteen byte": -1147533121609491268,
    b"The quick brown fox jumps over the lazy dog": 2182139051089226439,
}


def hashed(values: list[bytes]) -> list[int]:
    lengths = np.array([len(value) for value in values], np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(values), np.uint8)
    return lookup3.of_strings(data, starts, lengths).view(np.int64).tolist()


def test_strings_hash_as_in_postgres():
    assert hashed(list(FROM_POSTGRES)) == list(FROM_POSTGRES.values())


def test_words_hash_as_in_postgres():
    # select hashint4extended(42, 0), hashtextextended('12345678', 0)
    assert lookup3.of_words(np.array([42], np.uint32)).view(np.int64)[0] == 8010225493015854792
    words = np.frombuffer(b"12345678", np.uint32)
    assert lookup3.of_words(words[:1], words[1:]).view(np.int64).tolist() == hashed([b"12345678"])


@given(st.lists(st.binary(max_size=60), max_size=30))
def test_a_column_hashes_like_its_values_one_by_one(values: list[bytes]):
    alone = [np.uint64(lookup3.of_bytes(value)).astype(np.int64) for value in values]
    assert hashed(values) == alone


def test_few_very_long_values_among_short_ones_hash_like_alone():
    values = [b"x" * length for length in (3, 10_000, 5, 100_001, 97, 96, 95)]
    assert hashed(values) == [hashed([value])[0] for value in values]
