"""The parser's tree, as the rules see it."""

import pytest

from frostline.server.translate import parsing, tree
from frostline.server.translate.statements import SyntaxRefused, TooComplex, parse
from frostline.server.translate.tree import walk


def select(text: str) -> tree.SelectStmt:
    (raw,) = parsing.parse_sql(text)
    assert isinstance(raw.node, tree.SelectStmt)
    return raw.node


def test_plain_distinct_is_not_nothing() -> None:
    assert select("select distinct a from t").distinct_clause
    assert not select("select a from t").distinct_clause


def test_what_the_text_does_not_say_is_empty() -> None:
    node = select("select 0, '' from t")
    assert (node.where_clause, node.having_clause, node.limit_count, list(node.sort_clause)) == (None, None, None, [])
    zero, empty = (target.val for target in node.target_list)
    assert isinstance(zero, tree.A_Const)
    assert isinstance(zero.val, tree.Integer)
    assert zero.val.ival == 0
    assert isinstance(empty, tree.A_Const)
    assert isinstance(empty.val, tree.String)


@pytest.mark.parametrize(
    "hidden",
    [
        "case when f() then 1 end",
        "(array[1])[f()]",
        "row(1, f())",
        "sum(a) filter (where f())",
        "sum(a) over (partition by b order by c rows between f() preceding and current row)",
        "coalesce(null, f())",
        "cast(f() as int)",
        "a in (1, f())",
        "exists (select from (values (f())) v)",
        "json_value(a, '$' default f() on empty)",
        "xmlelement(name b, f())",
        "f() collate \"C\" at time zone 'utc'",
    ],
)
def test_no_node_is_out_of_sight(hidden: str) -> None:
    called = [part for part in walk(select(f"select {hidden} from t")) if isinstance(part, tree.FuncCall)]
    assert ["f"] in [[name.sval for name in call.funcname if isinstance(name, tree.String)] for call in called]


def test_a_place_in_the_text_is_counted_in_bytes() -> None:
    text = 'select \'é\' as ü from "ä"."7[,9)"'
    (table,) = (part for part in walk(select(text)) if isinstance(part, tree.RangeVar))
    assert text.encode()[table.location :].decode() == '"ä"."7[,9)"'
    first, second = parse("select 'é€😀'; select 1")
    assert [getattr(statement, "sql", "") for statement in (first, second)] == ["select 'é€😀'", "select 1"]


@pytest.mark.parametrize("link", [" + 1", "::int", ' collate "C"', " is null", " || 'é'"])
def test_a_chain_of_thousands_is_a_tree(link: str) -> None:
    assert sum(1 for _ in walk(select("select 1" + link * 4_000))) > 4_000


@pytest.mark.parametrize("opening", ["f(", "(select ", "array[", "row(", "case when true then 1 else "])
def test_what_is_too_deep_for_the_parser_is_told_as_such(opening: str) -> None:
    with pytest.raises(TooComplex):
        parse("select " + opening * 5_000)


def test_a_text_does_not_end_at_a_null_byte() -> None:
    with pytest.raises(SyntaxRefused):
        parse("select 1\0; drop table t")
