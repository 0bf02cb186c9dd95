"""Rows that are printed already, and how those with certain numbers are found among them."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from frostline.server.printed import Sorted
from frostline.server.protocol import rows
from frostline.server.protocol.rows import Printed


def batch(texts: list[str | None]) -> pa.RecordBatch:
    return rows.batch([pa.array(texts, pa.string()), pa.array([text and text * 2 for text in texts], pa.string())])


def sent(given: pa.RecordBatch | Printed) -> bytes:
    return b"".join(bytes(memoryview(chunk)) for chunk in rows.encode(given))


TEXTS: list[str | None] = ["a", None, "", "üü", "x" * 300, "b", None]


def test_they_are_sent_as_any_others() -> None:
    parts = [batch(TEXTS[:3]), batch([]), batch(TEXTS[3:4]), batch(TEXTS[4:])]
    printed = Printed(parts)
    assert (printed.num_rows, sent(printed)) == (len(TEXTS), sent(batch(TEXTS)))


@pytest.mark.parametrize("first", range(len(TEXTS) + 1))
def test_any_piece_is_what_it_would_be_by_itself(first: int) -> None:
    printed = Printed([batch(TEXTS[:3]), batch(TEXTS[3:4]), batch(TEXTS[4:])])
    for length in (*range(len(TEXTS) + 2), None):
        piece = printed.slice(first, length)
        wanted = TEXTS[first:] if length is None else TEXTS[first : first + length]
        assert (piece.num_rows, sent(piece)) == (len(wanted), sent(batch(wanted)) if wanted else b"")
        assert sent(piece.slice(1)) == (sent(batch(wanted[1:])) if wanted[1:] else b"")


def test_nothing_is_a_piece_too() -> None:
    assert (sent(Printed()), Printed().slice(0, 5).num_rows, sent(Printed().slice(3))) == (b"", 0, b"")


def test_numbers_are_found_as_by_looking_at_all() -> None:
    choose = random.Random(3)
    pairs = sorted((choose.randint(-5, 5), choose.choice([-(2**63), -1, 0, 2**63 - 1])) for _ in range(500))
    cuts = [0, *sorted(choose.sample(range(500), 4)), 500]
    texts = [f"{place} {pair}" for place, pair in enumerate(pairs)]
    printed = Printed([batch(list(texts[start:end])) for start, end in pairwise(cuts)])
    columns = [np.array([pair[place] for pair in pairs], np.int64) for place in (0, 1)]
    kept = Sorted(columns, printed)
    for first in range(-6, 7):
        for second in (-(2**63), -1, 0, 5, 2**63 - 1):
            wanted = [text for text, pair in zip(texts, pairs, strict=True) if pair == (first, second)]
            assert sent(kept.find((first, second))) == (sent(batch(list(wanted))) if wanted else b"")
    assert kept.size_bytes > sum(map(len, texts))
