"""`docs/reference/errors.md` says what Postgres says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import LiteralString, cast

import psycopg
import pytest
from tests.fixtures.quick import first
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.model.tiers import from_text
from frostline.relation import bound, guard

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
_SAID = re.compile(r"```sql\n(.*?)```\n(?:\n```text\n(\w{5}) (.*?)\n```)?", re.DOTALL)

CASES: list[tuple[str, str, str]] = _SAID.findall(PAGE.read_text())


@pytest.fixture
def tables(catalog: Connection, events: str, add: Callable[..., Table]) -> Connection:
    """`events`; `secrets` with row security; `archived`, whose lake nobody serves."""
    make_events(catalog, "public.secrets")
    catalog.execute("alter table public.secrets enable row level security")
    make_events(catalog, "public.archived")
    for name in (events, "public.secrets"):
        add(name)
    archived = add("public.archived")
    bound.raise_to(catalog, archived, from_text(archived.tier_kind, "2024-02-01 00:00:00+00"), print)
    assert guard.ensure(catalog)
    catalog.execute("set search_path = public; set frostline.guard = on")
    return catalog


def say(connection: Connection, statement: str) -> None:
    if not statement.startswith("copy"):
        run(connection, statement)
        return
    with connection.cursor().copy(cast(LiteralString, statement)):
        pass  # some refusals come only after the client was asked for rows


@pytest.mark.parametrize(("statement", "sqlstate", "message"), first(6, CASES))
def test_the_page_says_what_postgres_says(tables: Connection, statement: str, sqlstate: str, message: str) -> None:
    if not sqlstate:
        say(tables, statement)
        return
    with pytest.raises(psycopg.Error) as raised:
        say(tables, statement)
    assert (raised.value.sqlstate, raised.value.diag.message_primary) == (sqlstate, message)


def test_there_are_cases() -> None:
    assert len(CASES) == 13
