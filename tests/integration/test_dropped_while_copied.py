"""A column goes while named snapshots and Spark work on the table."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.fixtures import copies
from tests.fixtures.batches import Row, World, frame, new, old, when_staged
from tests.fixtures.cold_twins import both, compare
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline import spark as connector
from frostline.errors import FrostlineError
from frostline.model.names import Name
from frostline.pipeline import verify
from frostline.relation import columns, guard
from frostline.spark.writes import Written

pytestmark = pytest.mark.spark

WRITTEN = {"upsert": Written(2, updated=2), "append": Written(2, inserted=2), "delete": Written(2, deleted=2)}


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
    return lake


def alter(lake: Lake, change: str) -> None:
    """The same for the heap and for the plain table."""
    with lake.connect() as connection:
        run(connection, f"alter table public._events {change}")
        run(connection, f"alter table public.plain {change}")


def is_whole(lake: Lake) -> None:
    compare(lake)
    assert columns.difference(lake.catalog, lake.table()) is None
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_named_snapshots_go_on_without_the_column(cold: Lake) -> None:
    """Incremental ones: files that a version has copied keep what they have."""
    without = value(cold.catalog, "select count(*) from public.plain where data is null")
    copies.create(cold, "public.events")
    with cold.connect() as connection:
        both(connection, "update public.{t} set amount = 3 where id in (5, 35, 65)")
    alter(cold, "drop column data")
    copies.create(cold, "public.events")
    alter(cold, "add column data int")
    with cold.connect() as connection:
        both(connection, "update public.{t} set data = id where id in (6, 36, 66)")
    copies.create(cold, "public.events")
    (folded,) = cold.fold("events")
    assert folded.error is None
    copies.create(cold, "public.events")
    copied = [
        copies.by_pyiceberg(copies.shown(cold, version=version)[Name.parse("events")]) for version in (1, 2, 3, 4)
    ]
    assert [table.column_names[3:] for table in copied] == [
        ["amount", "data"],
        ["amount"],
        ["amount", "data"],
        ["amount", "data"],
    ]
    expected = rows(cold.catalog, "select id, amount, data from public.plain order by id")
    for table in copied[2:]:
        arrow = table.sort_by("id")
        assert list(zip(*(arrow[name].to_pylist() for name in ("id", "amount", "data")), strict=True)) == expected
    assert copied[0]["data"].null_count == without
    is_whole(cold)


PLAIN = {
    "append": "insert into public.plain values (%(id)s, %(ts)s, %(status)s, %(amount)s)",
    "upsert": "update public.plain set status = %(status)s, amount = %(amount)s where (id, ts) = (%(id)s, %(ts)s)",
    "delete": "delete from public.plain where (id, ts) = (%(id)s, %(ts)s)",
}


def by_sql(lake: Lake, mode: str, given: Sequence[Row]) -> None:
    for row in given:
        run(lake.catalog, PLAIN[mode], row._asdict())


@pytest.mark.parametrize("mode", list(WRITTEN))
def test_a_spark_batch_of_the_old_columns_writes_nothing_and_one_of_the_new_goes_on(
    cold: Lake, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    world = World(cold)
    given = [new(901, hot=False), new(902, hot=True)] if mode == "append" else [old(5), old(65)]
    with monkeypatch.context() as patch:
        when_staged(patch, lambda: alter(cold, "drop column data"))
        if mode == "delete":  # by their keys, which are what they were
            assert world.write(given, mode) == WRITTEN[mode]
            by_sql(cold, mode, given)
            given = [old(6), old(66)]
        else:
            with pytest.raises(FrostlineError):
                world.write(given, mode)
    is_whole(cold)
    if mode != "delete":
        with pytest.raises(FrostlineError, match="data"):
            world.write(given, mode)
    is_whole(cold)
    batch = frame(world.session, given).drop("data")
    assert connector.write(batch, "public.events", mode, dsn=cold.dsn) == WRITTEN[mode]
    by_sql(cold, mode, given)
    is_whole(cold)
