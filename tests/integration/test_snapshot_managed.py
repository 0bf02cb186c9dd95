"""A snapshot takes both tiers of a managed table, as of one moment."""

from collections.abc import Iterator

import pytest
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.statements import rows, run

from frostline.errors import CorruptionError, UsageError
from frostline.model.names import Name
from frostline.pipeline.tasks import Progress

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS, PLAIN = Name("public", "events"), Name("public", "plain")
CHANGES = (
    "update public.{t} set amount = amount + 1000 where ts < '{month}' and id % 5 = 0",
    "delete from public.{t} where ts < '{month}' and id % 7 = 0",
    "insert into public.{t} values (1000, '{month}'::timestamptz - interval '3 d', 'late', 5)",
    "update public.{t} set ts = ts + interval '1 h' where ts < '{month}' and id = 11",
)


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    """A managed table with a cold, a changed cold and a hot month, and a plain one with the same rows."""
    made = World(lake)
    made.fill()
    made.archive()
    made.fill()
    made.both(*CHANGES)
    yield made
    made.connection.close()


def same(lake: Lake) -> int:
    """Both copies have the rows of the relation; says how many."""
    there = copies.shown(lake)
    query = "select id, epoch_us(ts), status, amount from copy order by all"
    content = [copies.by_duckdb(there[name], query) for name in (EVENTS, PLAIN)]
    assert content[0] == content[1]
    assert there[EVENTS].hash_sum == there[PLAIN].hash_sum
    assert len(content[0]) == there[EVENTS].rows == copies.by_pyiceberg(there[EVENTS]).num_rows
    return len(content[0])


@pytest.mark.quick
def test_both_tiers_are_copied_under_the_name_of_the_relation(world: World) -> None:
    copies.create(world.lake, "public.*", exclude=("public.kept",))
    assert list(copies.shown(world.lake)) == [EVENTS, PLAIN]
    assert same(world.lake) == len(rows(world.connection, "select from public.events"))


def test_the_copy_is_of_the_moment_whatever_upkeep_does_meanwhile(world: World) -> None:
    before = rows(world.connection, "select count(*) from public.plain")[0][0]
    done: list[bool] = []

    def change(_progress: Progress) -> None:
        if not done:
            done.append(True)
            world.both("delete from public.{t} where id % 2 = 0", "update public.{t} set amount = -1")

    copies.create(world.lake, "public.events", "public.plain", report=change)
    assert (same(world.lake), done) == (before, [True])
    world.lake.fold()
    world.lake.archive()
    copies.create(world.lake, "public.events", "public.plain")
    assert 0 < same(world.lake) < before


def test_a_copy_goes_on_when_its_table_becomes_managed(lake: Lake) -> None:
    run(
        lake.catalog,
        "create table public.events (id int, gone int, ts date, note text, primary key (id, ts)) partition by range (ts)",
    )
    run(
        lake.catalog,
        "create table public.events_1 partition of public.events for values from ('2020-01-01') to ('2021-01-01')",
    )
    run(lake.catalog, "alter table public.events drop gone; insert into public.events values (1, '2020-02-02', 'x')")
    copies.create(lake, "public.events")
    before = copies.shown(lake)[EVENTS]
    lake.add("events")
    lake.archive()
    copies.create(lake, "public.*")
    after = copies.shown(lake)[EVENTS]
    assert copies.by_duckdb(before) == copies.by_duckdb(after) == rows(lake.catalog, "select * from public.events")
    assert after.metadata_location.rpartition("/metadata/")[0] == before.metadata_location.rpartition("/metadata/")[0]


def test_incremental_knows_a_managed_table_that_has_the_same_rows(world: World) -> None:
    lake = world.lake
    lake.fold()
    copies.create(lake, "public.events", "public.plain")

    def again() -> dict[Name, bool]:
        result = copies.create(lake, "public.events", "public.plain", incremental=True)
        same(lake)
        return {table.name: table.reused for table in result.tables}

    assert again() == {EVENTS: True, PLAIN: True}
    lake.archive()  # the rows are elsewhere, and still the same
    lake.compact()
    assert again() == {EVENTS: True, PLAIN: True}
    world.both("update public.{t} set amount = 7 where id = 3")
    assert again() == {EVENTS: False, PLAIN: False}
    assert again() == {EVENTS: False, PLAIN: True}  # a mark is there, so Postgres alone cannot tell
    lake.fold()
    assert again() == {EVENTS: True, PLAIN: True}


def test_a_damaged_lake_file_is_not_copied(world: World) -> None:
    damaged, *_ = world.lake.data_files()
    content = bytearray(damaged.read_bytes())
    content[60] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptionError, match=damaged.name):
        copies.create(world.lake, "public.events")
    assert rows(world.connection, "select count(*) from frostline.snapshot_cut")[0][0] == 0


def test_the_heap_and_its_partitions_are_never_taken(world: World) -> None:
    for name in ("public._events", "public._events_2"):
        with pytest.raises(UsageError, match="names no table"):
            copies.create(world.lake, name)
