"""A lake with files of three generations of the table's columns is one table to every job and every reader."""

import importlib.util
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.sparkrows import in_postgres, in_spark
from tests.fixtures.statements import rows, run, value

from frostline import spark as connector
from frostline.catalog import migrations
from frostline.lake import claim, commit, paths
from frostline.model.names import OWN_SCHEMAS, Name
from frostline.model.policy import Policy
from frostline.pipeline import adopt, verify
from frostline.relation import columns, foreign_server, guard, objects, policy, removal
from frostline.relation.registration import Request

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/seam_reader.py"
TABLE = """
create table public.{name} (id int, ts timestamptz, status text, amount numeric(9, 2), primary key (id, ts)) {partitioned}"""
MONTHS = """
create table public.events_{0} partition of public._events for values from ('2024-0{0}-01+00') to ('2024-0{1}-01+00')"""
ROWS = """
insert into public.{name} select m * 100 + i, make_timestamptz(2024, m, 5, 0, 0, 0, 'UTC'), 's' || i, i / 4.0
  from generate_series({first}, {last}) m, generate_series(1, 8) i"""
SECOND = (
    "add column level int not null default 7",
    "add column made timestamptz default now()",
    "alter column made set default '2024-06-06+00'",
    "rename column status to state",
)
THIRD = (
    "add column status text default 'new'",
    "rename column amount to passing",
    "rename column level to amount",
    "rename column passing to level",
    "rename column ts to at",
    "rename column id to number",
    "alter column level set default 3",
)
"""Two columns exchange their names; a new one has the name that an old one had."""


def alter(lake: Lake, changes: Sequence[str]) -> None:
    """The same for both tables, in one transaction, in which now() is one time."""
    with lake.connect() as connection, connection.transaction():
        for change in changes:
            for name in ("_events", "plain"):
                run(connection, f"alter table public.{name} {change}")


def both(lake: Lake, *statements: str) -> None:
    with lake.connect() as connection:
        for statement in statements:
            for name in ("events", "plain"):
                run(connection, statement.format(t=f"public.{name}"))


def archive(lake: Lake) -> None:
    (result,) = lake.archive()
    assert result.error is None, result.error


def is_whole(lake: Lake) -> None:
    """Every row is as in the plain table, and every file as it is recorded."""
    with lake.connect() as connection:
        shown = "select t::text from public.{} t order by number, at"
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    assert columns.difference(lake.catalog, lake.table()) is None
    assert verify.run(lake.catalog, lake.table()).faults == ()


def generations(lake: Lake) -> int:
    """How many different sets of columns the lake's files have."""
    recorded = rows(lake.catalog, "select distinct coalesce(fields, '{}') from frostline.lake_file")
    return len(recorded)


@pytest.fixture
def aged(lake: Lake) -> Lake:
    """Six months, two with each generation of columns, all in the lake and still in the heap."""
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)"))
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    lake.add(grace="10 years")
    assert guard.ensure(lake.catalog)
    for name, changes, first in (("status", (), 1), ("state", SECOND, 3), ("status", THIRD, 5)):
        alter(lake, changes)
        for month in (first, first + 1):
            run(lake.catalog, MONTHS.format(month, month + 1))
        with lake.connect() as connection:
            for table in ("events", "plain"):
                run(connection, ROWS.format(name=table, first=first, last=first + 1))
        key = "number" if changes == THIRD else "id"
        both(lake, f"update {{t}} set {name} = 'changed {first}' where {key} > {first}00 and {key} % 8 = {first}")
        archive(lake)
    is_whole(lake)
    assert generations(lake) == 3
    run(lake.catalog, MONTHS.format(7, 8))
    return lake


def test_every_job_goes_on_with_files_of_three_generations(aged: Lake) -> None:
    assert len(aged.undo(to="2024-05-01 00:00:00+00").partitions) == 2
    is_whole(aged)
    policy.change(aged.catalog, aged.table(), release=True)
    archive(aged)
    both(aged, "delete from {t} where number in (101, 301, 501)", "update {t} set made = null where number % 5 = 0")
    (folded,) = aged.fold()
    assert folded.error is None
    is_whole(aged)
    policy.change(aged.catalog, aged.table(), grace_period="0")
    assert aged.clean().waiting == ()
    aged.thaw(first="2024-04-01 00:00:00+00")
    is_whole(aged)
    policy.change(aged.catalog, aged.table(), release=True)
    archive(aged)
    (compacted,) = aged.compact()
    assert compacted.error is None
    is_whole(aged)
    period = str(value(aged.catalog, "select (now() - timestamptz '2024-02-03+00')::text"))
    policy.change(aged.catalog, aged.table(), retention_period=period)
    (retained,) = aged.retain()
    assert retained.error is None
    run(aged.catalog, "delete from public.plain where at < (select retained_timestamptz from frostline.seam)")
    is_whole(aged)
    aged.truncate()
    run(aged.catalog, "truncate public.plain")
    both(aged, "insert into {t} (number, at) values (1, '2024-03-03+00')")
    archive(aged)
    is_whole(aged)


def test_every_reader_and_spark_write_go_on_with_files_of_three_generations(aged: Lake) -> None:
    both(aged, "update {t} set state = 'again' where number % 100 = 3", "delete from {t} where number in (104, 304)")
    session = aged.session()
    expected = in_postgres(aged.catalog, "public.plain")
    assert in_spark(connector.read(session, "public.events", dsn=aged.dsn)) == expected
    reader = _seam_reader()
    plain = rows(aged.catalog, "select * from public.plain")
    assert Counter(reader.read(aged.dsn, "public", "events")) == Counter(plain)
    copies.create(aged, "public.events")
    copy = copies.by_pyiceberg(copies.shown(aged)[Name.parse("events")])
    assert Counter(zip(*(column.to_pylist() for column in copy.columns), strict=True)) == Counter(plain)
    chosen = connector.read(session, "public.events", dsn=aged.dsn).where("number % 7 = 0").selectExpr(
        "number", "at", "concat(state, '!') as state", "level", "amount + 1 as amount", "made", "status"
    )  # fmt: skip
    connector.write(chosen, "public.events", "upsert", dsn=aged.dsn)
    run(aged.catalog, "update public.plain set state = state || '!', amount = amount + 1 where number % 7 = 0")
    is_whole(aged)
    (folded,) = aged.fold()
    assert folded.error is None
    is_whole(aged)


def test_a_lake_of_three_generations_is_adopted_and_given_up(aged: Lake) -> None:
    """The catalog is lost, so only the lake's metadata tells what rows have in columns that their files lack."""
    both(aged, "update {t} set amount = 9 where number = 505")
    assert aged.fold()[0].error is None
    policy.change(aged.catalog, aged.table(), grace_period="0")
    assert aged.clean().waiting == ()
    assert generations(aged) == 3
    where = paths.table_location(aged.settings.warehouse, aged.table())
    run(aged.catalog, f"drop schema {', '.join((*OWN_SCHEMAS, 'frostline_guard'))} cascade")
    run(aged.catalog, "alter table public._events rename to events")
    _install(aged)
    request = Request(Name.parse("events"), Policy("1 month", "0"))
    adopt.run(aged.catalog, aged.settings, adopt.Request(request, where, take_over=True))
    is_whole(aged)
    both(aged, "update {t} set amount = amount + 1 where number % 6 = 0", "delete from {t} where number = 303")
    assert aged.fold()[0].error is None
    is_whole(aged)
    aged.thaw(first="2024-01-01 00:00:00+00")
    is_whole(aged)
    removal.remove(aged.catalog, Name.parse("events"), keep_lake=True)
    with aged.connect() as connection:
        shown = "select t::text from public.{} t order by number, at"
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))


def _seam_reader() -> Any:
    spec = importlib.util.spec_from_file_location("seam_reader", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _install(lake: Lake) -> None:
    migrations.apply(lake.catalog)
    objects.ensure_generator(lake.catalog)
    claim.claim(lake.catalog, lake.settings.warehouse)
    port = lake.server.port
    foreign_server.ensure(lake.catalog, host="127.0.0.1", port=port, user="frostline", password="secret")
    commit.snapshots.read_metadata.cache_clear()
