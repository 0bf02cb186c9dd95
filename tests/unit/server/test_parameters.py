"""Parameters of a query, as clients send them."""

import pytest

from frostline.server.session_state import NotText, decoded, with_types

INT8, TEXT, BPCHAR, TIMESTAMP_ARRAY = 20, 25, 1042, 1115


def test_null_and_text() -> None:
    assert decoded(None) is None
    assert decoded("é".encode()) == "é"


@pytest.mark.parametrize("value", [b"a\0b", b"\xff", b"\xed\xa0\x80"])
def test_what_no_database_holds_is_refused(value: bytes) -> None:
    with pytest.raises(NotText):
        decoded(value)


@pytest.mark.parametrize(
    ("text", "types", "typed"),
    [
        ("select $1", [INT8], 'select ($1::"pg_catalog"."int8")'),
        ("select $1, 'é$1', $2, $1", [0, INT8], 'select $1, \'é$1\', ($2::"pg_catalog"."int8"), $1'),
        ("select $1", [TEXT], "select $1"),
        ("select $1", [BPCHAR], 'select ($1::"pg_catalog"."bpchar")'),
        ("select $1", [TIMESTAMP_ARRAY], 'select ($1::"pg_catalog"."timestamp"[])'),
        ("select $12", [INT8], "select $12"),
        ("select $1", [987654321], "select $1"),
    ],
)
def test_declared_types_become_casts(text: str, types: list[int], typed: str) -> None:
    assert with_types(text, types) == typed
