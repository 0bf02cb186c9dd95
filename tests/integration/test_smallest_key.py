"""An integer tier key may have the smallest value of its type, if the lake's partitions can hold it."""

import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.statements import rows, run, value

from frostline.errors import UsageError
from frostline.pipeline import verify

pytestmark = pytest.mark.spark
LOWEST = {"smallint": -(2**15), "integer": -(2**31), "bigint": -(2**63)}


def make(lake: Lake, kind: str, *keys: int) -> None:
    """`events` by an integer, with rows of these keys and a hot one."""
    run(lake.catalog, f"create table public.events (k {kind} primary key, note text) partition by range (k)")
    for name, lower, upper in (("a", "minvalue", "0"), ("b", "0", "100"), ("c", "100", "200")):
        bounds = f"from ({lower}) to ({upper})"
        run(lake.catalog, f"create table public.{name} partition of public.events for values {bounds}")
    for key in (*keys, -5, 150):
        run(lake.catalog, f"insert into public.events values ({key}, 'row')")


@pytest.mark.parametrize("kind", some(LOWEST, "bigint"))
def test_a_row_with_the_smallest_key_lives_in_both_tiers(lake: Lake, kind: str) -> None:
    lowest = LOWEST[kind]
    make(lake, kind, lowest, lowest + 1)
    lake.add(hot="60", lake_partition="truncate[128]")
    before = rows(lake.catalog, "select * from public.events order by k")
    (result,) = lake.archive()
    assert (result.error, result.rows) == (None, 3)
    assert rows(lake.catalog, "select * from public.events order by k") == before
    assert run(lake.catalog, f"update public.events set note = 'changed' where k = {lowest}").rowcount == 1
    assert lake.fold()[0].error is None
    assert value(lake.catalog, f"select note from public.events where k = {lowest}") == "changed"
    assert verify.run(lake.catalog, lake.table()).faults == ()
    lake.thaw()
    assert value(lake.catalog, f"select note from public._events where k = {lowest}") == "changed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", first(1, ["integer", "bigint"]))
def test_a_key_that_the_lake_cannot_hold_is_told_before_anything_is_written(lake: Lake, kind: str) -> None:
    make(lake, kind)
    lake.add(hot="60")
    run(lake.catalog, f"insert into public.events values ({LOWEST[kind]}, 'too small')")
    (result,) = lake.archive()
    assert isinstance(result.error, UsageError)
    assert "no lake partition truncate[100] begins below" in str(result.error)
    run(lake.catalog, f"delete from public.events where k = {LOWEST[kind]}")
    assert lake.archive()[0].error is None
    run(lake.catalog, f"insert into public.events values ({LOWEST[kind]}, 'too small, and cold')")
    (folded,) = lake.fold()
    assert isinstance(folded.error, UsageError)
    run(lake.catalog, f"delete from public.events where k = {LOWEST[kind]}")
    run(lake.catalog, f"insert into public.events values ({LOWEST[kind] + 100}, 'fits')")
    assert lake.fold()[0].error is None
    assert rows(lake.catalog, "select k from public.events order by k limit 1") == [(LOWEST[kind] + 100,)]
