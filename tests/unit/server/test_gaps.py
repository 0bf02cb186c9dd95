"""Which parameters of a query are looked for, and what is left of it without them."""

import pytest
from tests.fixtures.lakeserver import column

from frostline.server.translate import gaps, statements
from frostline.server.translate.operands import Const
from frostline.server.translate.statements import Declare, Select

FROM = 'public."7[,100)"'


def select(where: str, rest: str = "", shown: str = "id") -> Select:
    (parsed,) = statements.parse(f"declare c1 cursor for select {shown} from {FROM} where {where}{rest}")
    assert isinstance(parsed, Declare)
    return parsed.query


@pytest.mark.parametrize(
    ("where", "places"),
    [
        ("frostline_snapshot = $1::bigint and k = $2::bigint", {1}),
        ("((k = $1::integer)) and (($2::date = day))", {0, 1}),
        ("k = $1", {0}),
        ("k operator(pg_catalog.=) $1", {0}),
        ("k = $1 and n = $1", set()),
        ("k = $1 and n < $2", {0}),
        ("k = $1 or n = $2", set()),
        ("not (k = $1)", set()),
        ("k <> $1", set()),
        ("k operator(public.=) $1", set()),
        ("k = $1::public.mine", set()),
        ("k = any($1::bigint[])", set()),
        ("k = $1 and exists (select 1)", set()),
        ("k = $1 and random() < 0.5", set()),
        ("k = $3", set()),
    ],
)
def test_a_gap_is_an_equality_that_every_row_has_to_fulfil(where: str, places: set[int]) -> None:
    assert {gap.parameter for gap in gaps.gaps(select(where), 2)} == places


@pytest.mark.parametrize("rest", [" order by id", " limit 1", " offset 1", " group by id"])
def test_only_plain_rows_have_gaps(rest: str) -> None:
    assert gaps.gaps(select("k = $1", rest), 1) == ()
    assert gaps.gaps(select("k = $1", shown="count(*)"), 1) == ()
    assert gaps.gaps(select("k = $1", shown="distinct id"), 1) == ()


def test_the_rest_is_what_has_no_gap() -> None:
    whole = select("k = $1 and n < 5 and m = $2")
    rest = gaps.without(whole, gaps.gaps(whole, 2))
    assert len(rest.nodes) < len(whole.nodes)
    assert gaps.gaps(rest, 2) == ()
    nothing = select("k = $1")
    assert gaps.without(nothing, gaps.gaps(nothing, 1)).node.where_clause is None


def test_a_text_that_is_parsed_again_is_another_tree() -> None:
    first, second = select("k = $1 and n = 1"), select("k = $1 and n = 2")
    with pytest.raises(AssertionError):
        gaps.without(second, gaps.gaps(first, 1))


@pytest.mark.parametrize(
    ("kind", "cast", "text", "number"),
    [
        ("int8", "int8", "-5", -5),
        ("int4", None, "7", 7),
        ("int4", "int8", "99999999999", 99_999_999_999),
        ("int4", None, "99999999999", None),
        ("int8", "numeric", "7", None),
        ("int8", "int8", "7.0", None),
        ("int8", "int8", None, None),
        ("date", "date", "1970-01-02", 1),
        ("date", None, "infinity", 2**31 - 1),
        ("date", "timestamp", "1970-01-02 00:00:00", None),
        ("date", "date", "1970-02-30", None),
        ("timestamptz", "timestamptz", "1970-01-01 01:00:00+01", 0),
        ("timestamptz", "timestamptz", "1970-01-01 01:00:00", None),
    ],
)
def test_what_equals_one_number_and_what_takes_more(
    kind: str, cast: str | None, text: str | None, number: int | None
) -> None:
    assert gaps.number(column(1, "k", kind), Const(cast, text)) == number
