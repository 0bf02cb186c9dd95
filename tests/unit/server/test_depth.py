"""The depth of a query is known before its tree is made."""

import pytest

from frostline.server.translate import parsing
from frostline.server.translate.complexity import MAX_DEPTH, depth
from frostline.server.translate.statements import TooComplex, parse

TABLE = '"x"."7[,9)"'


@pytest.mark.parametrize(
    ("first", "link", "last"),
    [
        ("select 1", " + 1", ""),
        ("select x", "::numeric(3, 2)", ""),
        ("select x", ' collate "C"', ""),
        ("select x", " is null", ""),
        ("select id between 1 and 2", " is null between 1 and 2", ""),
        ("select 1, 1 where true and true", " union select 1, 1 where true and true", ""),
        (f"select 1 from {TABLE} a", f" join {TABLE} b on true and true", ", c"),
        ("select x", " + (1, 2)", ""),
        ("select f(1, x", " || y[1]", ", 2)"),
    ],
)
def test_a_chain_is_as_deep_as_it_is_long(first: str, link: str, last: str) -> None:
    assert depth(parsing.scan(first + link * 500 + last)) >= 500
    with pytest.raises(TooComplex):
        parse(first + link * 10_000 + last)


@pytest.mark.parametrize(
    "wide",
    [
        "select 1 from t where id in (" + "1, " * 10_000 + "1)",
        "select 1 from t where " + "id = 1 or " * 20_000 + "id = 2",
        "select 1 from t where " + "(id between 1 and 2 and n <> all ('{1,2}')) or " * 5_000 + "true",
        "select 1; " * 20_000,
    ],
)
def test_what_stands_side_by_side_is_not_deep(wide: str) -> None:
    assert depth(parsing.scan(wide)) < MAX_DEPTH / 100
