"""Appending to lake tables from Spark: the rows that an INSERT would make, all of them or none, and with a label once."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import value

from frostline import failpoints
from frostline import spark as connector
from frostline.catalog import lake_tables
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_register
from frostline.pipeline import lake_tables as jobs
from frostline.spark import lake_write_task, writes
from frostline.spark.writes import Written

pytestmark = [pytest.mark.spark]

COLUMNS = (
    "id bigint not null",
    "ts timestamptz",
    "amount numeric(6,2) default 7",
    "code char(5)",
    "small smallint",
    "data jsonb",
    "raw bytea",
    "tags text[]",
    "note varchar(4)",
    "ratio real",
)
QUERY = """
select id, timestamp_micros(id * 3600000000) as ts, concat('{"b":1,  "a":', id, '}') as data, cast(id % 100 as int) as small,
       cast(concat('raw', id) as binary) as raw, array('x', cast(null as string), concat('"', id)) as tags,
       case when id % 2 = 0 then '' end as note, 'ab' as code, cast('NaN' as float) as ratio
  from range(0, {rows}, 1, 2)
"""
MADE = """
select n, timestamptz 'epoch' + n * interval '1 hour', 7, 'ab', mod(n, 100), jsonb_build_object('a', n, 'b', 1),
       convert_to('raw' || n, 'UTF8'), array['x', null, '"' || n], case when mod(n, 2) = 0 then '' end, 'NaN'
  from generate_series(0, {rows} - 1) n
"""


@pytest.fixture
def readings(lake: Lake) -> Lake:
    """Two lake tables alike."""
    for name in ("readings", "plain"):
        jobs.create(lake.catalog, lake.settings, Name("public", name), COLUMNS, Layout(["day(ts)"], ["id desc"]))
    return lake


def frame(lake: Lake, rows: int) -> DataFrame:
    return lake.session().sql(QUERY.replace("{rows}", str(rows)))


def write(lake: Lake, df: DataFrame, **options: Any) -> Written:
    chosen: dict[str, Any] = {"dsn": lake.dsn, **options}
    return connector.write(df, "readings", **chosen)


def rows(lake: Lake, table: str = "readings") -> list[tuple[Any, ...]]:
    with psycopg.connect(lake.dsn) as connection:
        return connection.execute(f"select t::text from public.{table} t order by id".encode()).fetchall()


def unnamed(lake: Lake) -> set[str]:
    """Data files that no snapshot has."""
    table = StaticTable.from_metadata(catalog.load(lake.catalog, Pointer("public", "readings")).metadata_location)
    named = {
        entry.data_file.file_path.rpartition("/")[2]
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }
    return {path.name for path in lake.data_files() if "readings-" in str(path)} - named


@pytest.mark.quick
def test_what_is_appended_is_what_postgres_would_insert_and_a_label_is_applied_once(readings: Lake) -> None:
    done = write(readings, frame(readings, 50), label="one")
    assert done == Written(50, inserted=50, as_files=50)
    readings.catalog.execute(f"insert into public.plain {MADE.replace('{rows}', '50')}".encode())
    assert rows(readings) == rows(readings, "plain")
    assert write(readings, frame(readings, 50), label="one") == Written(50, applied=False)
    assert write(readings, frame(readings, 0), label="nothing") == Written(0)
    assert write(readings, frame(readings, 1).select("id")).rows == 1
    assert len(rows(readings)) == 51
    assert unnamed(readings) == set()
    text = lake_write_task._parsed(b'\n""\n"a\n""b"\n', 1)
    assert text.column(0).to_pylist() == [None, "", 'a\n"b']


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("select cast(null as bigint) as id", {}, "null value in column"),
    ("select 1L as id, 70000 as small", {}, "out of range for type smallint"),
    ("select 1L as id, 'abcde' as note", {}, "value too long"),
    ("select 1L as id, '{' as data", {}, "invalid input syntax for type json"),
    ("select 1L as id, 99999.0 as amount", {}, "numeric field overflow"),
    ("select 'x' as note", {}, "must not be null and has no default"),
    ("select 1L as id, 2 as other", {}, "has no column other"),
    ("select 1L as id", {"mode": "upsert"}, "takes no batches of mode upsert"),
]


def test_what_postgres_would_refuse_is_refused_and_leaves_no_file(readings: Lake) -> None:
    for query, options, message in WRONG:
        with pytest.raises(UsageError, match=message):
            write(readings, readings.session().sql(query), **options)
    assert rows(readings) == []
    assert unnamed(readings) == set()


def test_checks_hold_for_a_registered_table_whose_foreign_table_has_none(lake: Lake) -> None:
    columns = ("id bigint check (id > 0)", "note text constraint short check (length(note) < 4 or id = 7)")
    jobs.create(lake.catalog, lake.settings, Name("public", "readings"), columns, Layout())
    lake.catalog.execute("drop foreign table public.readings")
    lake_register.register(lake.catalog, lake.settings, Pointer("public", "readings"), Name("public", "readings"), None)
    assert value(lake.catalog, "select count(*) from pg_constraint where conrelid = 'public.readings'::regclass") == 0
    for query, broken in (
        ("select id, 'abc' as note from range(1, 20001, 1, 2) union all select 0, 'x'", "readings_id_check"),
        ("select 8L as id, 'long' as note", "short"),
        ("select 8L as id, 'ü€𝄞x' as note", "short"),
    ):
        with pytest.raises(UsageError, match=f'violates check constraint "{broken}"'):
            write(lake, lake.session().sql(query), label="batch")
    assert (rows(lake), unnamed(lake)) == ([], set())
    good = "select 7L as id, 'long' as note union all select null, 'abc' union all select 1, null"
    assert write(lake, lake.session().sql(good), label="batch").rows == 3
    assert sorted(rows(lake)) == [("(,abc)",), ("(1,)",), ("(7,long)",)]


def test_a_role_needs_insert_and_the_right_to_commit(readings: Lake) -> None:
    with role(readings.dsn, "spark_lake_writer") as dsn:
        with pytest.raises(UsageError, match=r"may not insert into public\.readings"):
            write(readings, frame(readings, 1), dsn=dsn)
        readings.catalog.execute("grant select, insert on public.readings to spark_lake_writer")
        with pytest.raises(UsageError, match="only Frostline's role may put files into a lake table"):
            write(readings, frame(readings, 1), dsn=dsn, label="x")
    assert rows(readings) == []


def meanwhile(monkeypatch: pytest.MonkeyPatch, place: Failpoint, act: Callable[[], object], times: int = 1) -> None:
    """Do something when the driver gets there."""
    left = [act] * times

    def reached(here: Failpoint) -> None:
        if here is place and left:
            left.pop()()

    monkeypatch.setattr("frostline.spark.lake_writes.reached", reached)
    monkeypatch.setattr(failpoints, "reached", reached)


def test_appends_do_not_conflict_with_what_others_commit_meanwhile(
    readings: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(readings, frame(readings, 2))

    def others() -> None:
        with psycopg.connect(readings.dsn) as connection:
            connection.execute("insert into public.readings (id) values (100)")
            connection.execute("delete from public.readings where id = 1")

    meanwhile(monkeypatch, Failpoint.APPEND_STAGED, others)
    write(readings, frame(readings, 2).selectExpr("id + 10 as id"))
    assert [row[0].partition(",")[0] for row in rows(readings)] == ["(0", "(10", "(11", "(100"]
    assert unnamed(readings) == set()


def test_two_drivers_with_one_label_write_it_once(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    others = list[Written]()
    meanwhile(
        monkeypatch,
        Failpoint.APPEND_STAGED,
        lambda: others.append(write(readings, frame(readings, 5), label="both")),
    )
    assert write(readings, frame(readings, 5), label="both") == Written(5, applied=False)
    assert others == [Written(5, inserted=5, as_files=5)]
    assert len(rows(readings)) == 5
    assert unnamed(readings) == set()


def test_columns_that_change_meanwhile_refuse_the_batch(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.spark.lake_writes._shape", lambda state: state.location)

    def other() -> None:
        with psycopg.connect(readings.dsn) as connection:
            connection.execute("insert into public.readings (id) values (1)")

    meanwhile(monkeypatch, Failpoint.APPEND_WRITTEN, other)
    with pytest.raises(ConflictError, match=r"the columns of public\.readings have changed meanwhile"):
        write(readings, frame(readings, 2))
    assert len(rows(readings)) == 1
    assert unnamed(readings) == set()


@pytest.mark.parametrize("label", ["lost", None])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_lost_answer_writes_the_batch_once(
    readings: Lake, monkeypatch: pytest.MonkeyPatch, label: str | None, is_committed: bool
) -> None:
    """The connection ends with the COMMIT, or just before it."""
    end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'frostline spark write' and datname = current_database()"
    commit = lake_tables.commit

    def lost(connection: Any, moves: Any) -> None:
        monkeypatch.setattr(lake_tables, "commit", commit)
        commit(connection, moves)
        if is_committed:
            connection.execute("commit")
        readings.catalog.execute(end)

    monkeypatch.setattr(lake_tables, "commit", lost)
    assert write(readings, frame(readings, 3), label=label) == Written(3, inserted=3, as_files=3)
    assert len(rows(readings)) == 3
    assert unnamed(readings) == set()
    assert value(readings.catalog, "select count(*) from frostline.applied_lake_batch") == (label is not None)


def test_a_task_that_cannot_reach_postgres_writes_nothing(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.spark.lake_writes.dsn_of", lambda _: make_conninfo(readings.dsn, port=1))
    with pytest.raises(UnavailableError, match="cannot connect to Postgres"):
        write(readings, frame(readings, 2))
    assert rows(readings) == []


def test_an_attempt_that_lost_is_not_in_the_table(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may run a task twice: the driver gets the files of one attempt for each."""
    real = writes._reported

    def twice(df: DataFrame, task: Any, schema: str) -> list[Any]:
        real(df, task, schema)
        return real(df, task, schema)

    monkeypatch.setattr(writes, "_reported", twice)
    assert write(readings, frame(readings, 4)).rows == 4
    assert len(rows(readings)) == 4


def test_a_named_snapshot_has_what_was_appended(readings: Lake) -> None:
    write(readings, frame(readings, 4))
    made = copies.create(readings, "public.*")
    assert {table.name.table: table.fingerprint.rows for table in made.tables} == {"plain": 0, "readings": 4}
    appended = copies.by_pyiceberg(copies.shown(readings)[Name("public", "readings")])
    assert sorted(row["id"] for row in appended.to_pylist()) == [0, 1, 2, 3]
