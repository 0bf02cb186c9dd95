"""Names: read as SQL reads them, shown as a person types them, cut where Postgres cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.names import MAX_BYTES, BadName, Name, RemoteName, cut, internal, quoted

IDENTIFIERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("events", Name("public", "events")),
        ("Events", Name("public", "events")),
        ("shop.Events", Name("shop", "events")),
        ('"Events"', Name("public", "Events")),
        ('shop."Two Words"', Name("shop", "Two Words")),
        ('"a.b"."c""d"', Name("a.b", 'c"d')),
        (" shop . events ", Name("shop", "events")),
        ("größe.Straße", Name("größe", "straße")),
    ],
)
def test_a_name_is_read_as_sql_reads_it(text: str, name: Name) -> None:
    assert Name.parse(text) == name


@pytest.mark.parametrize("text", ["", " ", ".", "a.", ".a", "a.b.c", '"', '""', '"a', 'a"b', '"a"b', "a b", "a..b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadName, match="not a table name"):
        Name.parse(text)


@given(IDENTIFIERS, IDENTIFIERS)
def test_the_shown_name_is_read_back_as_the_same(schema: str, table: str) -> None:
    name = Name(schema, table)
    assert Name.parse(str(name)) == name


def test_the_heap_has_the_name_with_an_underscore() -> None:
    assert Name("shop", "Events").heap == Name("shop", "_Events")


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [("events", "events"), ("_e$1", "_e$1"), ("Events", '"Events"'), ("1st", '"1st"'), ('a"b', '"a""b"'), ("é", '"é"')],
)
def test_only_names_that_need_quotes_get_them(identifier: str, shown: str) -> None:
    assert quoted(identifier) == shown


@given(IDENTIFIERS, st.integers(0, 80))
def test_a_name_is_cut_between_characters(text: str, size: int) -> None:
    shortened = cut(text, size)
    assert text.startswith(shortened)
    assert len(shortened.encode()) <= size
    following = text[len(shortened) : len(shortened) + 1]
    assert not following or len((shortened + following).encode()) > size


@given(IDENTIFIERS, st.integers(1, 2**31 - 1))
def test_the_internal_name_fits_and_ends_in_the_tables_number(table: str, table_id: int) -> None:
    name = internal(table, table_id)
    assert len(name.encode()) <= MAX_BYTES
    assert name.endswith(f"_{table_id}")


@given(st.integers(0), st.none() | st.integers(-(2**63), 2**63), st.integers(-(2**63), 2**63))
def test_a_remote_name_is_read_back_as_the_same(table_id: int, lower: int | None, upper: int) -> None:
    remote = RemoteName(table_id, lower, upper)
    assert RemoteName.parse(str(remote)) == remote


def test_a_remote_name_shows_its_range() -> None:
    assert str(RemoteName(7, None, 1704067200000000)) == "7[,1704067200000000)"
    assert str(RemoteName(7, -5, 5)) == "7[-5,5)"


@pytest.mark.parametrize("text", ["", "7", "7[1,2]", "7[,)", "x[1,2)", "7[-,2)", "7[1,2) ", "-7[1,2)", "7[1.5,2)"])
def test_what_is_no_remote_name_is_refused(text: str) -> None:
    with pytest.raises(BadName, match="not a lake table"):
        RemoteName.parse(text)
