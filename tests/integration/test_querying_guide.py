"""docs/guides/querying.md: each statement fetches as many rows from the lake as the page says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs/guides/querying.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sql (setup|fetches (at most )?(\d+))\n(.*?)```", PAGE, re.DOTALL)
SETUP = "".join(text for kind, _, _, text in BLOCKS if kind == "setup")
EXAMPLES = [(text, int(count), bool(most)) for kind, most, count, text in BLOCKS if kind != "setup"]


@pytest.fixture(scope="module")
def page(shared_lake: Lake) -> Lake:
    """The page's tables, `plain` with the same rows in its heap, and the old partitions in the lake only."""
    run(shared_lake.catalog, "set search_path = public; " + SETUP)
    run(shared_lake.catalog, "create table plain as select * from events")
    shared_lake.add()
    (result,) = shared_lake.archive("events")
    assert result.error is None
    assert shared_lake.clean().waiting == ()
    run(shared_lake.catalog, "analyze public._events; analyze public.customers")
    return shared_lake


@pytest.fixture
def session(page: Lake) -> Iterator[psycopg.Connection]:
    with page.connect() as connection:
        run(connection, "set search_path = public; set timezone = 'UTC'")
        yield connection


def fetched(node: dict[str, Any]) -> int:
    """How many rows came from the lake."""
    own = node["Actual Rows"] * node["Actual Loops"] if node["Node Type"] == "Foreign Scan" else 0
    removed = node.get("Rows Removed by Filter", 0) * node["Actual Loops"] if node["Node Type"] == "Foreign Scan" else 0
    return round(own + removed) + sum(map(fetched, node.get("Plans", ())))


@pytest.mark.parametrize(("statement", "count", "at_most"), EXAMPLES)
def test_it_fetches_so_many_rows(session: psycopg.Connection, statement: str, count: int, at_most: bool) -> None:
    plan = value(session, f"explain (analyze, timing off, format json) {statement}")
    (explained,) = json.loads(plan) if isinstance(plan, str) else plan
    rows_fetched = fetched(explained["Plan"])
    assert (0 if at_most else count) <= rows_fetched <= count


@pytest.mark.parametrize(("statement", "count", "at_most"), EXAMPLES)
def test_its_answer_is_that_of_a_plain_table(
    session: psycopg.Connection, statement: str, count: int, at_most: bool
) -> None:
    assert sorted(rows(session, statement)) == sorted(rows(session, re.sub(r"\bevents\b", "plain", statement)))


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("```sql fetches")
    assert len(EXAMPLES) > 5
