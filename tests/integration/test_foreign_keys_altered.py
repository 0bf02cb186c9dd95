"""ALTERs of a referenced table that would leave rows in the lake without their parents: as on a plain table, or refused."""

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.keyed import Keyed, make, state
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run, value

from frostline.relation import foreign_keys, guard, holding

pytestmark = pytest.mark.spark


@pytest.fixture
def cascading(lake: Lake) -> Lake:
    """Children in the lake, in their grace period and hot, with ON DELETE CASCADE."""
    make(lake, "c", Keyed("on delete cascade on update cascade"))
    assert guard.ensure(lake.catalog)
    return lake


def same(lake: Lake) -> None:
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")


@pytest.mark.parametrize("which", ["user", '"!frostline_children_{id}_delete"'])
def test_what_leaves_the_triggers_of_postgres_on_leaves_ours_on(cascading: Lake, which: str) -> None:
    which = which.format(id=cascading.table("c").id)
    with cascading.connect() as app:
        run(app, f"alter table public.c_parent disable trigger {which}")
        for child in ("c", "c_plain"):
            run(app, f"delete from public.{child}_parent where k in (1, 5)")
    same(cascading)


def test_without_event_triggers_the_worker_switches_them_on_again(cascading: Lake) -> None:
    run(cascading.catalog, "; ".join(f"drop event trigger {name}" for name in guard.TRIGGERS))
    run(cascading.catalog, "alter table public.c_parent disable trigger user")
    assert foreign_keys.strayed(cascading.catalog) == [cascading.table("c").name]
    assert holding.follow(cascading.catalog) == [cascading.table("c").name]
    assert foreign_keys.strayed(cascading.catalog) == []
    for child in ("c", "c_plain"):
        run(cascading.catalog, f"delete from public.{child}_parent where k in (1, 5)")
    same(cascading)


@pytest.fixture
def parted(lake: Lake) -> Lake:
    """Children whose parent has partitions: of 1 to 5, of 6 and 7, and of rows that nobody references."""
    run(lake.catalog, "create table public.p (k int primary key) partition by range (k)")
    for name, first, last in (("low", 1, 6), ("high", 6, 8), ("free", 8, 20)):
        run(lake.catalog, f"create table public.{name} partition of public.p for values from ({first}) to ({last})")
    run(lake.catalog, "insert into public.p select generate_series(1, 15)")
    run(
        lake.catalog,
        "create table public.c (id int, ts date, p int references public.p, primary key (id, ts)) partition by range (ts)",
    )
    run(lake.catalog, "create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01')")
    run(lake.catalog, "insert into public.c select i, '2024-01-05', i from generate_series(1, 5) i")
    lake.add("c")
    assert lake.archive("c")[0].error is None
    assert lake.clean("c").waiting == ()
    assert guard.ensure(lake.catalog)
    return lake


def test_a_partition_whose_rows_the_lake_references_stays(parted: Lake) -> None:
    with parted.connect() as app:
        with pytest.raises(errors.ForeignKeyViolation, match=r"removing partition public\.low"):
            run(app, "alter table public.p detach partition public.low")
        for free in ("high", "free"):
            run(app, f"alter table public.p detach partition public.{free}")
        assert value(app, "select count(*) from public.p") == 5


def test_a_partition_is_not_detached_while_the_lake_is_down(parted: Lake) -> None:
    parted.server.stop()
    with (
        parted.connect() as app,
        pytest.raises(psycopg.OperationalError, match=r"cannot tell whether rows of public\._c"),
    ):
        run(app, "alter table public.p detach partition public.free")
