"""Statements that were parsed before."""

import pytest

from frostline.server.translate import statements
from frostline.server.translate.statements import Declare, SyntaxRefused, parse

QUERY = "SELECT id FROM public.events WHERE ((note = 'für'))"


def test_the_same_text_is_parsed_once() -> None:
    statements._remembered.cache_clear()  # pyright: ignore[reportPrivateUsage]
    first, second = parse(QUERY), parse(QUERY)
    assert first[0] is second[0]
    assert first is not second, "the list is the caller's"
    assert parse(QUERY + " ")[0] is not first[0]


def test_what_is_remembered_is_bounded() -> None:
    long = "select '" + "x" * 5000 + "'"
    for text in (long, *(f"select {number}" for number in range(600))):
        parse(text)
    info = statements._remembered.cache_info()  # pyright: ignore[reportPrivateUsage]
    assert info.currsize == info.maxsize == 512
    assert parse(long)[0] is not parse(long)[0]


def test_an_error_is_an_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(SyntaxRefused):
            parse("selec 1")


@pytest.mark.parametrize(
    "beginning",
    [
        "DECLARE c1 CURSOR FOR\n",
        "declare c1 cursor for ",
        'DECLARE "for" CURSOR FOR ',
        "DECLARE c1 /* for für */ CURSOR WITHOUT HOLD FOR ",
        "DECLARE for_ CURSOR FOR\t",
    ],
)
def test_the_query_of_a_cursor_keeps_its_place_in_the_text(beginning: str) -> None:
    """The fallback to Postgres replaces names by their place, in bytes."""
    (statement,) = parse(beginning + QUERY)
    assert isinstance(statement, Declare)
    text = statement.query.sql.encode()
    assert text.strip().decode() == QUERY
    place = statement.query.node.from_clause[0].location  # pyright: ignore[reportAttributeAccessIssue]
    assert text[place:].startswith(b"public.events")
