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
    found = facts.read(connection, TABLES[case])
    assert refusals(found) == []
    assert found.tier_kind is not None
    request = Request(found.name, Policy("1 month"))
    return replace(registration._table(connection, found, request, found.tier_kind), id=7), found


@pytest.mark.parametrize("case", TABLES)
def test_golden(catalog: Connection, golden: Golden, case: str) -> None:
    statements = Definition(*described(catalog, case)).statements()
    golden(f"relation/{case}.sql", "\n\n".join(one.as_string(catalog) for one in statements) + "\n")


@pytest.mark.parametrize("case", TABLES)
def test_what_is_in_the_golden_file_is_what_registration_runs(catalog: Connection, case: str) -> None:
    table, found = described(catalog, case)
    added = registration.add(catalog, Request(found.name, Policy("1" if table.tier_kind == "integer" else "1 month")))
    expected = [one.as_string(catalog) for one in Definition(added.table, found).statements()]
    assert [one for one in added.statements if one in expected] == expected
