"""The functions behind UPDATE and DELETE of the relation plan once, not for each row."""

from collections.abc import Callable

import pytest
from tests.fixtures.statements import run, value

from frostline.catalog.connect import Connection
from frostline.model.tables import Table
from frostline.relation import renewal

ONE = "id = 1 and ts = '2024-03-05 00:00+00'"
KEPT = (
    "select count(*) from pg_backend_memory_contexts where name = 'CachedPlan' and ident like '%frostline_write%hot %'"
)


@pytest.fixture
def table(catalog: Connection, events: str, add: Callable[..., Table]) -> Table:
    """Six partitions and one row. By its costs, Postgres would plan for each row of them."""
    if catalog.info.server_version < renewal.PRUNED_SINCE:
        pytest.skip("this Postgres prepares every partition of a kept plan")
    added = add(events)
    run(catalog, "set timezone = 'UTC'")
    run(catalog, "insert into public.events (id, ts) overriding system value values (1, '2024-03-05 00:00+00')")
    return added


@pytest.mark.parametrize(
    "statement", [f"update public.events set status = 'seen' where {ONE}", f"delete from public.events where {ONE}"]
)
def test_the_first_row_leaves_a_plan_for_all_others(catalog: Connection, table: Table, statement: str) -> None:
    assert value(catalog, KEPT) == 0
    assert run(catalog, statement).rowcount == 1
    assert value(catalog, KEPT) == 1


def test_a_table_of_an_older_version_gets_it_when_frostline_starts(catalog: Connection, table: Table) -> None:
    for verb in renewal.WRITING:
        run(catalog, f"alter function frostline_relation.{verb}_{table.id}() reset plan_cache_mode")
    assert renewal.renew(catalog) == [table.name]
    assert list(renewal.kept_plans(catalog, table)) == []
    assert renewal.renew(catalog) == []
