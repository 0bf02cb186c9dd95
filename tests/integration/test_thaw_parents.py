"""Thaw of rows that refer to a table whose rows were deleted while they lay in the lake."""

import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events

from frostline.catalog import jobs
from frostline.errors import UsageError
from frostline.model.policy import ForeignKeys
from frostline.relation import holding

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.events e"


@pytest.fixture
def referring(lake: Lake) -> Lake:
    """Six months in the lake only; each row but the third of a kind has a row in `Kinds`."""
    run(lake.catalog, 'create table public."Kinds" (a int, b text, primary key (a, b))')
    run(lake.catalog, """insert into public."Kinds" select i, 'b' from generate_series(0, 9) i""")
    make_events(lake.catalog, "public.events")
    run(lake.catalog, "alter table public.events add kind_a int, add kind_b text")
    key = 'alter table public.events add constraint "its kind" foreign key (kind_a, kind_b) references public."Kinds"'
    run(lake.catalog, key)
    fill_events(lake.catalog, rows_a_month=50)
    run(lake.catalog, "update public.events set kind_a = id % 10, kind_b = case when id % 3 > 0 then 'b' end")
    lake.add()
    holding.switch(lake.catalog, lake.table(), ForeignKeys.IGNORE)
    lake.archive()
    lake.clean()
    assert value(lake.catalog, "select count(*) from public._events") == 0
    return lake


def test_they_are_refused_with_the_constraint_their_number_and_a_way_out(referring: Lake) -> None:
    before = referring.value(EVERYTHING)
    run(referring.catalog, 'delete from public."Kinds" where a = 7')
    of_january = "select count(*) from public.events where kind_a = 7 and kind_b is not null and ts < '2024-02-01'"
    orphans = referring.value(of_january)
    with pytest.raises(UsageError) as refused:
        referring.thaw()
    assert f'{orphans} rows have no row in public."Kinds" (its kind)' in str(refused.value)
    assert "Key (kind_a, kind_b)=(7, b) is not present" in str(refused.value)
    assert referring.value(EVERYTHING) == before
    assert value(referring.catalog, "select error from frostline.job order by job_id desc limit 1")
    assert refused.value.hint
    way_out = refused.value.hint.splitlines()[0].partition("or: ")[2]
    run(referring.catalog, way_out)
    referring.thaw()
    assert referring.value(EVERYTHING) == before


@pytest.mark.slow
def test_they_come_back_when_their_parent_does(referring: Lake) -> None:
    before = referring.value(EVERYTHING)
    run(referring.catalog, 'delete from public."Kinds" where a = 7')
    with pytest.raises(UsageError):
        referring.thaw()
    run(referring.catalog, """insert into public."Kinds" values (7, 'b')""")
    referring.thaw()
    assert referring.value(EVERYTHING) == before
    assert value(referring.catalog, "select count(*) from public._events") == 300
    assert list(jobs.failures(referring.catalog, referring.table())) == []
