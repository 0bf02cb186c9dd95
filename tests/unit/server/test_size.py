"""How large a statement may be, and who waits for a large one."""

import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures.quick import first
from tests.unit.server.test_translate import OneTable

from frostline.server.served_tables import OnlyManaged
from frostline.server.session_state import MAX_CHARS, MAX_NAMED, Prepared
from frostline.server.translate import parsing
from frostline.server.translate.complexity import MAX_CODE_CHARS, MAX_TOKENS, TooComplex, check_text, code_chars
from frostline.server.translate.plan import DuckPlan, PostgresPlan, plan
from frostline.server.translate.statements import NotServed, Select, parse

QUERY = 'select id from "x"."7[,1000)" where '
LONG = "x" * (2 * MAX_CODE_CHARS)


@pytest.mark.parametrize(
    "text",
    [f"'{LONG}'", f"E'{LONG}\\''", f'"{LONG}"', f"$${LONG}$$", f"$é${LONG}'$é$", f"1 --{LONG}'\n", f"'it''s {LONG}'"],
)
def test_a_string_may_have_any_length(text: str) -> None:
    check_text(f"select {text}")


@pytest.mark.parametrize(
    "before", ["", "E'\\''", "$$'$$", "/*'*/", '"\'"', "--'\n", "type'x'", "$1", "a$'x'", "é'e'", "U&'\\'"]
)
def test_nothing_hides_what_is_written_out(before: str) -> None:
    with pytest.raises(TooComplex, match="outside of strings"):
        parse(f"select {before}, " + "1," * MAX_CODE_CHARS + " '")


@given(st.text("'\"$eEn\\-/* \n1a,é", max_size=40))
@settings(max_examples=settings().max_examples * 20)
def test_there_are_never_more_tokens_than_were_counted(text: str) -> None:
    try:
        tokens = parsing.scan(text)
    except parsing.ParseError:
        return
    assert len(tokens) <= code_chars(text, len(text))


def test_too_many_tokens_are_refused_with_a_way_out() -> None:
    with pytest.raises(TooComplex, match=re.escape(f"and {MAX_TOKENS} are accepted")) as refused:
        parse(QUERY + "id in (1" + ",1" * (MAX_TOKENS // 2) + ")")
    assert refused.value.sqlstate == "54001"
    assert "any ($1)" in (refused.value.hint or "")


def decided(sql: str, *params: str) -> DuckPlan | PostgresPlan:
    (statement,) = parse(sql)
    assert isinstance(statement, Select)
    return plan(statement, params, OnlyManaged(OneTable()))


def keys(count: int) -> str:
    return "{" + ",".join(map(str, range(count))) + "}"


@pytest.mark.parametrize("count", first(1, [10_000, 150_000]))
def test_a_long_array_is_looked_up_by_duckdb(count: int) -> None:
    assert isinstance(decided(f"{QUERY} id = any('{keys(count)}'::bigint[])"), DuckPlan)
    assert isinstance(decided(f"{QUERY} id = any($1::bigint[])", keys(count)), DuckPlan)


@pytest.mark.parametrize(
    ("where", "param"),
    [
        ("id = any($1::bigint[])", keys(300_000)),
        ("code = $1", LONG * 5),
        (" and ".join(["id = any($1)"] * 5), keys(190_000)),
    ],
)
def test_what_would_occupy_duckdb_is_left_to_postgres(where: str, param: str) -> None:
    answered = decided(QUERY + where, param)
    assert isinstance(answered, PostgresPlan)
    assert sum(map(len, answered.scans[0].conditions)) < 5_000_000


def test_a_short_statement_does_not_wait_for_a_long_one() -> None:
    done = threading.Event()
    busy = threading.Thread(target=lambda: parsing._called(lambda _: done.wait(60), " " * (parsing.SHORT_BYTES + 1)))
    busy.start()
    try:
        assert len(parsing.parse_sql("select 1")) == 1
        assert not done.is_set()
    finally:
        done.set()
        busy.join()


def test_prepared_statements_are_few_and_not_too_long() -> None:
    prepared = Prepared()
    prepared.keep("", LONG * 9, [])
    prepared.keep("a", "x" * (MAX_CHARS - 1), [])
    with pytest.raises(TooComplex):
        prepared.keep("b", "xx", [])
    prepared.keep("a", "x", [])
    for number in range(MAX_NAMED - 1):
        prepared.keep(str(number), "x", [])
    with pytest.raises(NotServed):
        prepared.keep("one more", "x", [])
    prepared.keep("", "x", [])
    prepared.keep("0", "y", [])
