"""A lake table of what a query gives, or a table has: all of its rows in one transaction, or nothing."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import killed
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.lake_commits import pointer
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value

from frostline.catalog import lake_tables as catalog
from frostline.catalog.connect import connect
from frostline.catalog.pointers import Pointer
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import lake_rows
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_create_as, lake_tables
from frostline.pipeline import spark as pipeline_spark
from frostline.relation import lake_foreign

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


TIERED = """
create table public.events (id bigint, ts timestamptz default '2024-03-03', gone int, status text not null default 'new'
                            constraint short check (length(status) < 20), primary key (id, ts)) partition by range (ts);
alter table public.events drop column gone;
create table public.events_1 partition of public.events for values from ('2024-01-01') to ('2024-02-01');
create table public.events_2 partition of public.events for values from ('2024-02-01') to ('2024-03-01');
create table public.events_3 partition of public.events for values from ('2024-03-01') to ('2100-01-01');
insert into public.events select n, timestamptz '2024-01-05' + n * interval '1 day', 'row ' || n from generate_series(1, 70) n;
comment on column public.events.status is 'how it is';
create index on public.events (status)
"""
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "lake-tables.md").read_text()
ROWS = "select id, ts, status from public.{} order by id, ts"


@pytest.fixture
def tiered(lake: Lake) -> Lake:
    """A table with cold rows, cold rows that were changed, were deleted and came late, hot rows, and a later column."""
    run(lake.catalog, TIERED)
    lake.add(grace="1 day")
    (result,) = lake.archive()
    assert result.error is None
    with lake.connect() as session:
        run(session, "update public.events set status = 'changed' where id % 7 = 0")
        run(session, "delete from public.events where id % 11 = 0")
        run(session, "insert into public.events values (900, '2024-01-06', 'late')")
    return lake


def same(lake: Lake, name: str, other: str = "events") -> None:
    with lake.connect() as session:
        assert rows(session, ROWS.format(name)) == rows(session, ROWS.format(other)) != []


def test_the_commands_of_the_guide_turn_a_tiered_table_into_a_lake_table_and_back(
    tiered: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", tiered.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(tiered.warehouse))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    (line,) = re.findall(r"^frostline (lake create .* --from .*)$", GUIDE, re.MULTILINE)
    said = command(*shlex.split(line), "--output", "json")
    assert said.exit_code == 0, said.stderr
    made = json.loads(said.stdout)
    assert (made["rows"], "PRIMARY KEY (id, ts)" in made["not_taken_over"]) == (65, True)
    same(tiered, "logs")
    shown = lake_tables.show(tiered.catalog, pointer(tiered, "logs"))
    assert (shown.partition, shown.checks) == (["month(ts)"], ["short ((length(status) < 20))"])
    (block,) = (block for block in re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL) if "events_again" in block)
    with tiered.connect() as session:
        run(session, "set timezone = 'UTC'")
        run(session, block)
    same(tiered, "events_again")
    tiered.add("events_again")
    assert [result.error for result in tiered.archive("events_again")] == [None]
    same(tiered, "events_again")
    assert len(tiered.data_files()) > 0


def test_a_lake_table_of_a_table_has_its_rules_and_its_rights(tiered: Lake) -> None:
    with role(tiered.dsn, "reader"), role(tiered.dsn, "writer"):
        run(
            tiered.catalog,
            "grant select on public.events to reader; grant insert, update (status) on public.events to writer",
        )
        made, count, taken = lake_create_as.create_from(
            tiered.jobs(), Name("public", "logs"), Name("public", "events"), Layout()
        )
        assert (made.table, count, taken.comments) == ("logs", 65, {"status": "how it is"})
        listed = "select has_table_privilege(%s, 'public.logs', %s)"
        may = [
            value(tiered.catalog, listed, [who, what]) for who in ("reader", "writer") for what in ("select", "insert")
        ]
        assert may == [True, False, False, True]
        assert value(tiered.catalog, "select has_column_privilege('writer', 'public.logs', 'status', 'update')") is True
        with tiered.connect() as session:
            run(session, "insert into public.logs (id) values (1000)")
            assert rows(session, "select ts = '2024-03-03', status from public.logs where id = 1000") == [(True, "new")]
            with pytest.raises(Exception, match="short"):
                run(session, "insert into public.logs (id, status) values (1001, repeat('x', 30))")
        assert tiered.value("select count(*) from public.events where id = 1000") == 0


def test_a_role_that_sees_some_rows_of_a_table_gets_no_right_to_read_all_of_its_copy(tiered: Lake) -> None:
    with role(tiered.dsn, "reader"), role(tiered.dsn, "owner"):
        run(
            tiered.catalog,
            "grant select on public.events to reader; alter table public._events enable row level security;"
            " create policy few on public._events using (id < 10)",
        )
        run(tiered.catalog, TABLE)
        run(
            tiered.catalog,
            "alter table public.source owner to owner; grant select, update (name) on public.source to reader, public;"
            " alter table public.source enable row level security;"
            " create view public.few as select * from public.source;"
            " grant select on public.few to reader, public",
        )
        for source, hides, count in (
            ("events", "row security", 65),
            ("source", "row security", 40),
            ("few", "a view", 40),
        ):
            name = Name("public", f"copy_of_{source}")
            _, rows_there, taken = lake_create_as.create_from(tiered.jobs(), name, Name("public", source), Layout())
            assert rows_there == count
            assert taken.left_behind[-1] == f"rights of others than the owner: {hides} may hide rows"
            may = "select has_any_column_privilege('reader', %s, 'select, update')"
            assert value(tiered.catalog, may, [str(name)]) is False
        assert value(tiered.catalog, "select has_table_privilege('owner', 'public.copy_of_source', 'select')") is True


def test_a_plain_table_and_a_lake_table_are_copied_as_well(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    for source, name in (("source", "copy"), ("copy", "again")):
        made = lake_create_as.create_from(lake.jobs(), Name("public", name), Name("public", source), LAYOUT)
        assert made[1] == 40
    compare(lake)
    with lake.connect() as session:
        texts = [rows(session, f"select t::text from public.{name} t order by id") for name in ("copy", "again")]
    assert texts[0] == texts[1]


def test_a_table_that_is_altered_meanwhile_is_not_copied(tiered: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied() -> None:
        lake_create_as.create_from(tiered.jobs(), Name("public", "logs"), Name("public", "events"), Layout())

    like, read = lake_foreign.like, list[object]()

    def altered(*arguments: object) -> object:
        found = like(*arguments)  # pyright: ignore[reportArgumentType]
        if not read:
            read.append(found)
            with tiered.connect() as other:
                run(other, "alter table public._events alter column status set default 'other'")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(lake_foreign, "like", altered)
        with pytest.raises(ConflictError, match=r"public\.events was altered just now"):
            copied()
    with pytest.raises(UsageError, match="does not exist"):
        lake_create_as.create_from(tiered.jobs(), Name("public", "logs"), Name("public", "nothing"), Layout())
    assert value(tiered.catalog, "select count(*) from frostline.lake_table") == 0
    assert value(tiered.catalog, "select count(*) from pg_tables where schemaname = 'frostline_stage'") == 0


def test_a_role_from_which_row_security_hides_rows_gets_no_copy_of_the_others(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    run(lake.catalog, "alter table public.source enable row level security")
    run(lake.catalog, "create policy first on public.source using (id < 10)")
    with role(lake.dsn, "poor") as dsn, connect(dsn, purpose="create") as own:
        run(lake.catalog, "grant usage on schema frostline, frostline_stage to poor")
        run(
            lake.catalog,
            "grant select on all tables in schema frostline to poor; grant select on public.source to poor",
        )
        run(lake.catalog, "grant execute on all functions in schema frostline, frostline_stage to poor")
        jobs = replace(lake, dsn=dsn, catalog=own).jobs()
        with pytest.raises(UsageError, match=r"row security of public\.source applies to this role"):
            lake_create_as.create_from(jobs, NAME, Name("public", "source"), Layout())
    assert nothing_is_there(lake)


def test_code_of_a_role_with_fewer_rights_does_not_run_with_ours(lake: Lake) -> None:
    run(lake.catalog, TABLE)
    with role(lake.dsn, "planter"):
        run(lake.catalog, "create function public.his(bigint) returns bigint immutable language sql as 'select $1'")
        run(lake.catalog, "create index on public.source (public.his(id))")
        run(
            lake.catalog,
            "alter function public.his(bigint) owner to planter; alter table public.source owner to planter",
        )
        with pytest.raises(UsageError, match=r"cannot read public\.source: .* of a role with fewer rights"):
            lake_create_as.create_from(lake.jobs(), NAME, Name("public", "source"), Layout())
    assert nothing_is_there(lake)


@pytest.mark.slow
def test_killed_at_every_step_the_source_is_complete_and_the_table_is_there_or_not(tiered: Lake) -> None:
    before = rows(tiered.catalog, ROWS.format("events"))
    for failpoint in CREATE:
        ended = killed.run(tiered, "create from", "events", failpoint=failpoint)
        assert ended.returncode == (1 if failpoint in killed.IN_TASKS else killed.KILLED), ended.said
        assert rows(tiered.catalog, ROWS.format("events")) == before
        is_made = failpoint is Failpoint.CREATE_PUBLISHED
        assert value(tiered.catalog, "select count(*) from frostline.lake_table") == is_made, failpoint
    same(tiered, "copy")
