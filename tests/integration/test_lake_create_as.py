"""A lake table of what a query gives: all of its rows in one transaction, or nothing."""

import json

import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import killed
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import CorruptionError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import lake_rows
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_create_as
from frostline.pipeline import spark as pipeline_spark

pytestmark = [pytest.mark.spark]

TABLE = """
create table public.source (id bigint, ts timestamptz, price numeric(8,2), ratio float8, name text collate "C", data jsonb,
                            raw bytea, tags int[], code char(5));
insert into public.source
select n, case n when 7 then 'infinity' else timestamptz '2024-01-01' + n * interval '6 hours' end, n / 100.0,
       case n when 8 then 'NaN' when 9 then '-0' else 0.0::float8 end, 'n' || n, jsonb_build_object('n', n), '\\xff00'::bytea, array[n, null], 'ab'
  from generate_series(1, 40) n
"""
NAME = Name("public", "copy")
LAYOUT = Layout(["day(ts)"], ["id desc"])


def compare(lake: Lake) -> None:
    shown = "select t::text from public.{} t order by id"
    with lake.connect() as connection:
        assert rows(connection, shown.format("copy")) == rows(connection, shown.format("source"))


def nothing_is_there(lake: Lake) -> bool:
    """No table, no stage and no file of one."""
    left = value(
        lake.catalog,
        "select (select count(*) from frostline.lake_table) + (select count(*) from frostline.iceberg_tables)"
        " + (select count(*) from pg_foreign_table) + (select count(*) from pg_tables where schemaname = 'frostline_stage')",
    )
    return left == 0 and lake.data_files() == []


@pytest.mark.quick
def test_a_lake_table_has_the_columns_and_the_rows_of_a_query(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    made, count = lake_create_as.create(lake.jobs(), NAME, "select * from public.source;", LAYOUT)
    assert count == 40
    compare(lake)
    snapshots = StaticTable.from_metadata(made.metadata_location).metadata.snapshots
    loaded = StaticTable.from_metadata(catalog.load(lake.catalog, Pointer("public", "copy")).metadata_location)
    assert (len(snapshots), len(loaded.metadata.snapshots), loaded.scan().to_arrow().num_rows) == (0, 1, 40)
    with lake.connect() as connection:
        connection.execute("insert into public.copy (id) values (100)")
        connection.execute("delete from public.copy where id < 3")
        assert rows(connection, "select count(*) from public.copy") == [(39,)]
    empty, none = lake_create_as.create(lake.jobs(), Name("public", "empty"), "select 1 as a where false", Layout())
    assert (empty.table, none) == ("empty", 0)
    assert lake.value("select count(*) from public.empty") == 0


WRONG = [
    ("select * from nowhere", LAYOUT, 'relation "nowhere" does not exist'),
    ("drop table public.source", LAYOUT, "syntax error"),
    ("select 1 as a, 2 as a", Layout(), "specified more than once"),
    ("select 1 as a", LAYOUT, "there is no column 'ts'"),
    ("select 'NaN'::numeric(5,2) as a", Layout(), "cannot hold"),
]


def test_what_cannot_be_made_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.catalog, TABLE)
    for query, layout, message in WRONG:
        with pytest.raises(UsageError, match=message):
            lake_create_as.create(lake.jobs(), NAME, query, layout)
        assert nothing_is_there(lake), query
    parts = lake_rows._parts
    monkeypatch.setattr(lake_create_as.lake_rows, "_parts", lambda *given: list(parts(*given))[1:])
    with pytest.raises(CorruptionError, match="are not what the query gave"):
        _here(lake, monkeypatch)
    assert nothing_is_there(lake)


def _here(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, so that what a test has changed holds in the tasks."""
    jobs = type(lake.jobs())
    monkeypatch.setattr(jobs, "run_tasks", lambda _self, _table, function, items: [function(item) for item in items])
    lake_create_as.create(lake.jobs(), NAME, "select * from public.source", LAYOUT)


def test_the_command_makes_it(lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    run(lake.catalog, TABLE)
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    said = command("lake", "create", "copy", "--as", "select * from public.source", "--sort", "id", "--output", "json")
    assert json.loads(said.stdout)["rows"] == 40, said.stderr
    compare(lake)
    refused = command("lake", "create", "other", "--as", "select 1 as a", "--column", "a int")
    assert refused.exit_code == 2
    assert "leave --column out" in refused.stderr


CREATE = [failpoint for failpoint in Failpoint if failpoint.value.startswith("create_")]


@pytest.mark.slow
def test_killed_at_every_step_there_is_no_table_and_the_next_run_makes_it(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    for failpoint in CREATE:
        ended = killed.run(lake, "create as", "select * from public.source", failpoint=failpoint)
        assert ended.returncode == (1 if failpoint in killed.IN_TASKS else killed.KILLED), ended.said
        is_made = failpoint is Failpoint.CREATE_PUBLISHED
        assert value(lake.catalog, "select count(*) from frostline.lake_table") == is_made, failpoint
        assert value(lake.catalog, "select count(*) from frostline.iceberg_tables") == is_made
    compare(lake)
    with pytest.raises(UsageError, match="exists"):
        lake_create_as.create(lake.jobs(), NAME, "select * from public.source", LAYOUT)
    assert value(lake.catalog, "select count(*) from pg_tables where schemaname = 'frostline_stage'") == 0
