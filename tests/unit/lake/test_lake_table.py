"""What a lake table's metadata says of its columns, and what is not believed."""

import json
from typing import Any

import pytest

from frostline.errors import UnavailableError
from frostline.lake import pg_types

WRITTEN: dict[str, Any] = {
    "type": "text",
    "name": "text",
    "builtin": True,
    "precision": None,
    "scale": None,
    "collation": "bytes",
    "collation_name": '"C"',
}


def read(**changes: Any) -> Any:
    properties = {pg_types.PG_COLUMNS: json.dumps({"1": WRITTEN | changes})}
    return pg_types.pg_columns(properties)["1"]


def test_what_postgres_has_written_is_read_as_it_was() -> None:
    assert read().collation_name == '"C"'
    assert pg_types.pg_columns({}) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "int); drop table users; --"},
        {"type": "int default (select 1)"},
        {"type": "int --"},
        {"type": "int /*"},
        {"type": "int, b int"},
        {"type": "public.evil"},  # says that it is Postgres' own
        {"type": "public.evil(1)[]"},
        {"type": "int", "builtin": False},
        {"type": "a.b.c", "builtin": False},
        {"type": ""},
        {"type": 'x"', "builtin": True},
        {"collation_name": '"C"; drop table users'},
        {"collation_name": "a.b.c"},
        {"collation": "none of them"},
    ],
)
def test_what_is_more_than_a_type_or_a_collation_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match="was not written by Postgres"):
        read(**changes)


@pytest.mark.parametrize("text", ["[]", "{", '{"1": {}}', '{"1": 5}', '"x"'])
def test_what_is_not_even_a_description_is_refused(text: str) -> None:
    with pytest.raises(UnavailableError, match="was not written by Postgres"):
        pg_types.pg_columns({pg_types.PG_COLUMNS: text})
