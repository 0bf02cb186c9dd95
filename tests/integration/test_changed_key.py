"""The primary key, by which overlay and lake know a row: another one is refused, or found before it does harm."""

import psycopg
import pytest
from tests.fixtures.cold_twins import both, compare, make_guarded
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run
from tests.fixtures.twins import make_twins

from frostline.errors import UsageError
from frostline.pipeline import verify
from frostline.relation import columns, following, guard, removal, renewal

OTHER = {
    "wider": "drop constraint events_pkey, add primary key (id, ts, status)",
    "as long": "drop constraint events_pkey, add primary key (status, ts)",
    "of a new column": "add column n int default 1, drop constraint events_pkey, add primary key (id, ts, n)",
    "with a wider type": "drop constraint events_pkey, alter column amount type numeric(14, 2), add primary key (id, ts, amount)",
    "none": "drop constraint events_pkey",
    "a unique constraint": "drop constraint events_pkey, add unique (id, ts)",
}
"""What is done to the key, each in one ALTER TABLE."""


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_guarded(lake)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (1, 30)")
        both(connection, "delete from public.{t} where id in (2, 31)")
    return lake


@pytest.fixture
def quiet(lake: Lake) -> Lake:
    """The same where no event trigger could be made."""
    make_twins(lake)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (1, 30)")
        both(connection, "delete from public.{t} where id in (2, 31)")
    return lake


def test_a_key_that_was_changed_before_keeps_nobody_from_altering_the_table(quiet: Lake) -> None:
    run(quiet.catalog, f"alter table public._events {OTHER['wider']}")
    assert guard.ensure(quiet.catalog)
    run(quiet.catalog, "alter table public._events alter column status set default 'x'")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="primary key"):
        run(quiet.catalog, "alter table public._events drop constraint _events_pkey")
    run(quiet.catalog, "alter table public._events drop constraint _events_pkey, add primary key (id, ts)")
    is_whole(quiet)


def is_whole(lake: Lake) -> None:
    compare(lake)
    assert columns.difference(lake.catalog, lake.table()) is None
    assert renewal.is_current(lake.catalog, lake.table())
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.parametrize("what", OTHER)
def test_another_key_is_refused(cold: Lake, what: str) -> None:
    with cold.connect() as connection, pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        run(connection, f"alter table public._events {OTHER[what]}")
    assert "frostline table remove public.events --thaw" in (refused.value.diag.message_hint or "")
    assert "(id, ts)" in (refused.value.diag.message_primary or "")
    is_whole(cold)


@pytest.mark.parametrize(
    "change",
    [
        "drop constraint events_pkey, add primary key (id, ts)",
        "drop constraint events_pkey, add constraint again primary key (ts, id)",
        "rename constraint events_pkey to again",
    ],
)
def test_the_same_key_may_be_made_again_and_have_another_name(cold: Lake, change: str) -> None:
    with cold.connect() as connection:
        run(connection, f"alter table public._events {change}")
        is_whole(cold)
        both(connection, "update public.{t} set status = 'again' where id in (1, 4, 70)")
        both(connection, "insert into public.{t} (id, ts) values (9001, '2024-02-02 02:02+00')")
        both(connection, "delete from public.{t} where id in (5, 30)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            run(connection, "insert into public.events (id, ts) values (9001, '2024-02-02 02:02+00')")
    assert cold.fold()[0].error is None
    is_whole(cold)


def test_without_event_triggers_rows_are_known_by_the_key_that_the_overlay_has(quiet: Lake) -> None:
    run(quiet.catalog, f"alter table public._events {OTHER['wider']}")
    assert "its primary key is (id, ts, status), no longer (id, ts)" in (
        columns.difference(quiet.catalog, quiet.table()) or ""
    )
    with pytest.raises(UsageError, match="primary key"):
        following.follow(quiet.catalog, quiet.table())
    renewal.renew(quiet.catalog)
    with quiet.connect() as connection:
        both(connection, "update public.{t} set status = 'again' where id in (3, 70)")
        both(connection, "delete from public.{t} where id in (4, 30)")
    compare(quiet)
    (folded,) = quiet.fold()
    assert "primary key" in str(folded.error)
    assert rows(quiet.catalog, "select key_columns from frostline.seam_v1") == [(["id", "ts"],)]


@pytest.mark.parametrize("what", ["wider", "none"])
def test_a_table_whose_key_was_changed_can_be_given_up(quiet: Lake, what: str) -> None:
    """The hint of the error is the way out, also where event triggers have come since."""
    before = rows(quiet.catalog, "select id, t::text from public.plain t order by id, ts")
    run(quiet.catalog, f"alter table public._events {OTHER[what]}")
    assert guard.ensure(quiet.catalog)
    quiet.thaw()
    removal.remove(quiet.catalog, quiet.table().name)
    assert rows(quiet.catalog, "select id, t::text from public.events t order by id, ts") == before
