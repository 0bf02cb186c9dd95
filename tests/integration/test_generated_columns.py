"""Generated columns that are computed otherwise, or no more: rows in the lake have the values that they have."""

import psycopg
import pytest
from tests.fixtures.cold_twins import alter, both, compare
from tests.fixtures.lake import Lake
from tests.fixtures.remembered import remembered
from tests.fixtures.statements import rows, run

from frostline.errors import UsageError
from frostline.pipeline import verify
from frostline.relation import columns, following, guard, renewal

TABLE = """
create table public.{name} (id bigint, ts timestamptz, price int, doubled int generated always as (price * 2) stored,
    third real generated always as (price / 3.0::real) stored, primary key (id, ts)) {partitioned}
"""
JANUARY = "('2024-01-01 00:00+00') to ('2024-02-01 00:00+00')"
LATER = "('2090-01-01 00:00+00') to ('2091-01-01 00:00+00')"
ANEW = "alter column doubled set expression as (price * 3)"


@remembered
def _make(lake: Lake) -> None:
    for name, partitioned in (("events", "partition by range (ts)"), ("plain", "")):
        run(lake.catalog, TABLE.format(name=name, partitioned=partitioned))
    run(lake.catalog, f"create table public.events_1 partition of public.events for values from {JANUARY}")
    run(lake.catalog, f"create table public.events_hot partition of public.events for values from {LATER}")
    both(
        lake.catalog,
        "insert into public.{t} (id, ts, price) select i, '2024-01-02 00:00+00', i from generate_series(1, 9) i",
    )
    both(lake.catalog, "insert into public.{t} (id, ts, price) values (20, '2090-01-01 00:00+00', 20)")
    lake.add(grace="10 years")


@pytest.fixture
def quiet(lake: Lake) -> Lake:
    """Nine rows of `events`, archived and cleaned, and a hot one; no event trigger could be made."""
    _make(lake)
    assert lake.archive("events")[0].error is None
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    assert lake.clean().waiting == ()
    with lake.connect() as connection:
        both(connection, "update public.{t} set price = 100 where id = 4")
    return lake


@pytest.fixture
def cold(quiet: Lake) -> Lake:
    """The same with event triggers."""
    assert guard.ensure(quiet.catalog)
    return quiet


@pytest.fixture
def since_17(lake: Lake) -> None:
    """Before, nothing computes a column otherwise."""
    if lake.catalog.info.server_version < 170_000:
        pytest.skip("SET EXPRESSION came with PostgreSQL 17")


def is_whole(lake: Lake) -> None:
    compare(lake)
    assert columns.difference(lake.catalog, lake.table()) is None
    assert renewal.is_current(lake.catalog, lake.table())
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.usefixtures("since_17")
def test_a_column_is_not_computed_otherwise_while_the_lake_has_rows(cold: Lake) -> None:
    with (
        cold.connect() as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported, match="computed anew") as refused,
    ):
        run(connection, f"alter table public._events {ANEW}")
    assert "update public.events set doubled = (price * 3)" in (refused.value.diag.message_hint or "").replace('"', "")
    is_whole(cold)


@pytest.mark.usefixtures("since_17")
def test_nor_while_the_overlay_has_rows(lake: Lake) -> None:
    """Their images would not be computed anew."""
    _make(lake)
    assert lake.archive("events")[0].error is None
    assert guard.ensure(lake.catalog)
    with lake.connect() as connection:
        both(connection, "delete from public.{t} where id < 10")
        assert lake.fold()[0].error is None
        both(connection, "insert into public.{t} (id, ts, price) values (1, '2024-01-02 00:00+00', 1)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="computed anew"):
            run(connection, f"alter table public._events {ANEW}")
    is_whole(lake)


@pytest.mark.usefixtures("since_17")
def test_a_column_is_computed_otherwise_while_all_rows_are_hot(lake: Lake) -> None:
    _make(lake)
    assert guard.ensure(lake.catalog)
    alter(lake, ANEW)
    is_whole(lake)
    assert lake.archive("events")[0].error is None
    is_whole(lake)


@pytest.mark.usefixtures("since_17")
@pytest.mark.parametrize("partition", ["events_1", "events_default"])
def test_a_partition_with_cold_rows_is_not_computed_otherwise(lake: Lake, partition: str) -> None:
    """Archived and not cleaned; or DEFAULT, which has the newest versions of cold rows."""
    _make(lake)
    assert lake.archive("events")[0].error is None
    assert guard.ensure(lake.catalog)
    with (
        lake.connect() as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="computed anew"),
    ):
        run(connection, f"alter table public.{partition} {ANEW}")
    is_whole(lake)


def test_a_column_that_is_computed_no_more_keeps_its_values(cold: Lake) -> None:
    alter(cold, "alter column doubled drop expression")
    is_whole(cold)
    with cold.connect() as connection:
        both(connection, "update public.{t} set price = 50 where id in (3, 4, 20)")
        both(connection, "update public.{t} set doubled = 7 where id in (5, 20)")
        both(connection, "insert into public.{t} (id, ts, price, doubled) values (30, '2024-01-03+00', 1, 9)")
    is_whole(cold)
    assert cold.fold()[0].error is None
    is_whole(cold)


def test_a_generated_column_may_have_a_new_name_and_so_may_what_it_is_computed_from(cold: Lake) -> None:
    alter(cold, "rename column price to cost")
    alter(cold, "rename column doubled to twice")
    with cold.connect() as connection:
        both(connection, "update public.{t} set cost = 50 where id in (3, 20)")
    is_whole(cold)


def test_a_wider_type_that_computes_other_values_is_refused(cold: Lake) -> None:
    """`real` rounds what `double precision` does not."""
    alter(cold, "alter column doubled type bigint")
    is_whole(cold)
    with cold.connect() as connection, pytest.raises(psycopg.errors.FeatureNotSupported, match="computed anew"):
        run(connection, "alter table public._events alter column third type double precision")
    is_whole(cold)


@pytest.mark.usefixtures("since_17")
def test_without_event_triggers_no_row_leaves_a_heap_that_computes_otherwise(quiet: Lake) -> None:
    run(quiet.catalog, f"alter table public._events {ANEW}")
    assert "column doubled is computed otherwise" in (columns.difference(quiet.catalog, quiet.table()) or "")
    assert "computed otherwise" in str(quiet.fold()[0].error)
    with pytest.raises(UsageError, match="computed otherwise"):
        following.follow(quiet.catalog, quiet.table())
    with quiet.connect() as connection:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be read"):
            run(connection, "select doubled from public.events")
        assert rows(connection, "select doubled from public.events where ts > '2089-01-01'") == [(60,)]
    run(quiet.catalog, "alter table public._events alter column doubled set expression as (price * 2)")
    is_whole(quiet)


def test_without_event_triggers_the_sync_follows_a_column_that_is_computed_no_more(quiet: Lake) -> None:
    alter(quiet, "alter column doubled drop expression")
    assert "column doubled is not computed any more" in (columns.difference(quiet.catalog, quiet.table()) or "")
    compare(quiet)
    with (
        quiet.connect() as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be written"),
    ):
        run(connection, "update public.events set price = 50 where id = 5")
    assert following.follow(quiet.catalog, quiet.table()) == ("doubled is not computed any more",)
    with quiet.connect() as connection:
        both(connection, "update public.{t} set price = 50, doubled = 8 where id in (3, 4, 20)")
    is_whole(quiet)
