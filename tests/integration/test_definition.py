"""The SQL that makes a table a relation of two tiers: `X.table.sql` becomes `X.sql` in `tests/golden/relation`."""

from dataclasses import replace

import pytest
from tests.fixtures.golden import GOLDEN, Golden
from tests.fixtures.statements import run

from frostline.catalog import facts
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.registration import HeapFacts, refusals
from frostline.model.tables import Table
from frostline.relation import registration
from frostline.relation.definition import Definition
from frostline.relation.registration import Request

TABLES = {
    "plain": Name("public", "events"),
    "identity": Name('Odd "Shop"', "Größe"),
    "row_security": Name("public", "messages"),
}


def described(connection: Connection, case: str) -> tuple[Table, HeapFacts]:
    """The table of that golden file as registration sees it, with number 7."""
    run(connection, (GOLDEN / "relation" / f"{case}.table.sql").read_text(encoding="utf-8"))
    read = facts.read(connection, TABLES[case])
    assert refusals(read) == []
    assert read.tier_kind is not None
    request = Request(read.name, Policy("1 month"))
    return replace(registration._table(connection, read, request, read.tier_kind), id=7), read


@pytest.mark.parametrize("case", TABLES)
def test_golden(catalog: Connection, golden: Golden, case: str) -> None:
    statements = Definition(*described(catalog, case)).statements()
    golden(f"relation/{case}.sql", "\n\n".join(statement.as_string(catalog) for statement in statements) + "\n")


@pytest.mark.parametrize("case", TABLES)
def test_what_is_in_the_golden_file_is_what_registration_runs(catalog: Connection, case: str) -> None:
    table, heap_facts = described(catalog, case)
    added = registration.add(
        catalog, Request(heap_facts.name, Policy("1" if table.tier_kind == "integer" else "1 month"))
    )
    expected = [statement.as_string(catalog) for statement in Definition(added.table, heap_facts).statements()]
    assert [statement for statement in added.statements if statement in expected] == expected
