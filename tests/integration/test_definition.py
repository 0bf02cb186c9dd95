"""The SQL that makes a table a relation of two tiers: `X.table.sql` becomes `X.sql` in `tests/golden/relation`."""

import pytest
from tests.fixtures.golden import GOLDEN, Golden
from tests.fixtures.statements import run, value

from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.relation import objects, registration
from frostline.relation.registration import Request

TABLES = {
    "plain": Name("public", "events"),
    "identity": Name('Odd "Shop"', "Größe"),
    "row_security": Name("public", "messages"),
}


@pytest.mark.parametrize("case", TABLES)
def test_golden(catalog: Connection, golden: Golden, case: str) -> None:
    run(catalog, (GOLDEN / "relation" / f"{case}.table.sql").read_text(encoding="utf-8"))
    run(catalog, "alter table frostline.managed_table alter table_id restart with 7")
    hot_period = "1" if case == "identity" else "1 month"
    added = registration.add(catalog, Request(TABLES[case], Policy(hot_period)))
    assert added.table.id == 7
    of_any_version = [statement for statement in added.statements if "set plan_cache_mode" not in statement]
    golden(f"relation/{case}.sql", "\n\n".join(of_any_version) + "\n")


def test_the_generator_is_installed_once_and_anew_when_it_differs(catalog: Connection) -> None:
    assert not objects.ensure_generator(catalog)
    run(catalog, "update frostline.relation_template set text = 'select' where name = 'objects.arms'")
    run(catalog, "update frostline.generator set digest = 'of another version'")
    assert objects.ensure_generator(catalog)
    assert value(catalog, "select text from frostline.relation_template where name = 'objects.arms'") != "select"
    assert not objects.ensure_generator(catalog)
