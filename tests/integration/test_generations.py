"""A lake with files of three generations of the table's columns is one table to every job and every reader."""

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import copies
from tests.fixtures.generations import age, archive, both, generations, is_whole
from tests.fixtures.lake import Lake
from tests.fixtures.sparkrows import in_postgres, in_spark
from tests.fixtures.statements import rows, run, value

from frostline import spark as connector
from frostline.catalog import migrations
from frostline.lake import claim, commit, paths
from frostline.model.names import OWN_SCHEMAS, Name
from frostline.model.policy import Policy
from frostline.pipeline import adopt
from frostline.relation import foreign_server, objects, policy, removal
from frostline.relation.registration import Request

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/seam_reader.py"


@pytest.fixture
def aged(lake: Lake) -> Lake:
    """With files of three generations."""
    age(lake)
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
    plain = [(*known, str(token)) for *known, token in rows(aged.catalog, "select * from public.plain")]
    assert Counter(reader.read(aged.dsn, "public", "events")) == Counter(plain)
    copies.create(aged, "public.events")
    copy = copies.by_pyiceberg(copies.shown(aged)[Name.parse("events")])
    assert Counter(zip(*(column.to_pylist() for column in copy.columns), strict=True)) == Counter(plain)
    chosen = connector.read(session, "public.events", dsn=aged.dsn).where("number % 7 = 0").selectExpr(
        "number", "at", "concat(state, '!') as state", "level", "small", "weight", "amount + 1 as amount", "made", "status", "past"
    )  # fmt: skip
    connector.write(chosen, "public.events", "upsert", dsn=aged.dsn)
    run(aged.catalog, "update public.plain set state = state || '!', amount = amount + 1 where number % 7 = 0")
    is_whole(aged)
    (folded,) = aged.fold()
    assert folded.error is None
    is_whole(aged)


@pytest.mark.slow
def test_a_lake_of_three_generations_is_adopted_and_given_up(aged: Lake) -> None:
    """The catalog is lost, so only the lake's metadata tells what rows have in columns that their files lack."""
    both(aged, "update {t} set amount = 9 where number = 505")
    assert aged.fold()[0].error is None
    policy.change(aged.catalog, aged.table(), grace_period="0")
    assert aged.clean().waiting == ()
    assert generations(aged) == 4
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
