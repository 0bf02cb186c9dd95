"""Reading lake tables from Spark: what Postgres shows through the foreign table at that moment."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, update_table_metadata
from pyspark.sql import DataFrame, SparkSession
from tests.fixtures.cold_twins import make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.sparkrows import in_postgres, in_spark, nothing_is_held, plan

from frostline import spark as connector
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakeMove, LakePointer, Pointer
from frostline.errors import UnavailableError, UsageError
from frostline.lake import lake_commit, lake_table
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_tables
from frostline.spark import frames
from frostline.tiers import point

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

COLUMNS = (
    "id bigint not null",
    "ts timestamptz",
    "day date",
    "small smallint",
    "amount numeric(12,2)",
    "ratio double precision",
    "device text",
    "data jsonb",
    "key uuid",
    "raw bytea",
    "tags text[]",
    "flag boolean",
)
FILL = """
insert into public.readings
select n, timestamptz '2024-01-01 00:00+00' + n * interval '1 hour', date '2024-01-01' + n / 24, mod(n, 100), n / 100.0,
       case when mod(n, 7) = 0 then 'NaN' else n / 8.0 end, 'device ' || mod(n, 5), jsonb_build_object('n', n), md5(n::text)::uuid,
       decode(lpad(to_hex(n), 8, '0'), 'hex'), array['a', n::text], case when mod(n, 3) = 0 then mod(n, 2) = 0 end
  from generate_series(%s::int, %s::int) n
"""


def session_of(lake: Lake) -> psycopg.Connection:
    return psycopg.connect(lake.dsn, autocommit=True)


@pytest.fixture(scope="module")
def readings(shared_lake: Lake) -> Lake:
    """Four days of rows in files of a day and a device each, of which some are deleted and replaced; and `events`."""
    make_archived(shared_lake)
    layout = Layout(["day(ts)", "bucket(4, device)"], ["ts"])
    lake_tables.create(shared_lake.catalog, shared_lake.settings, Name("public", "readings"), COLUMNS, layout)
    lake_tables.create(shared_lake.catalog, shared_lake.settings, Name("public", "empty"), COLUMNS, Layout())
    with session_of(shared_lake) as session:
        session.execute(FILL, (0, 47))
        session.execute(FILL, (48, 95))
        session.execute("insert into public.readings (id) values (1000)")
        session.execute("delete from public.readings where id in (3, 4, 50)")
        session.execute("update public.readings set data = '{\"new\": 1}' where mod(id, 10) = 7")
    return shared_lake


def read(lake: Lake, table: str = "readings", **options: Any) -> DataFrame:
    return connector.read(lake.session(), table, dsn=lake.dsn, **options)


def shown(lake: Lake, where: str = "true", table: str = "readings", columns: str = "*") -> list[Any]:
    with session_of(lake) as session:
        return in_postgres(session, f"public.{table}", where, columns)


def same(frame: DataFrame, expected: list[Any]) -> bool:
    """Whether it shows these rows; NaN is one value."""
    assert repr(in_spark(frame)) == repr(expected)
    return True


def pointer(lake: Lake, table: str = "readings") -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", table))


@pytest.mark.quick
def test_a_lake_table_is_the_same_in_spark_and_in_postgres(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = read(readings)
    assert same(frame, shown(readings))
    assert frame.count() == 94
    assert in_spark(read(readings, "empty")) == []
    loaded = readings.session().read.format("frostline").option("table", "public.readings").option("dsn", readings.dsn)
    connector.register(readings.session())
    assert same(loaded.load(), shown(readings))
    some = "id < 30 and device = 'device 2'"
    assert same(loaded.load().where(some), shown(readings, some))
    monkeypatch.setattr(frames, "_opens", lambda *_: False)  # tasks of ours read the files
    assert in_spark(read(readings, columns=["data", "id"])) == shown(readings, columns="data, id")


CONDITIONS = {
    "ts >= '2024-01-02' and ts < '2024-01-02 12:00:00'": 4,
    "day = '2024-01-03'": 4,
    "id >= 90 or id < 2": 5,
    "device = 'device 3' and id in (3, 8, 13)": 1,
    "device is null": 1,
    "flag is not null and 'device 3' > device and 10 > id": 1,
    "ratio > 5": 16,
    "not (id < 1000)": 1,
    "id = 1 and ts > '2025-01-01'": 0,
}
"""How many of the sixteen files with a device and the one without are read."""


def test_a_condition_leaves_files_out_and_no_row(readings: Lake) -> None:
    """NaN is the largest number for Spark as for Postgres, so bounds of floats say nothing, nor do statistics."""
    for condition, files in CONDITIONS.items():
        frame = read(readings, where=condition)
        assert same(frame, shown(readings, condition))
        data = [path for path in frame.inputFiles() if not path.endswith("-deletes.parquet")]
        assert (condition, len(data)) == (condition, files)
        connector.release()


def test_spark_prunes_columns_and_pushes_filters_to_parquet(readings: Lake) -> None:
    text = plan(read(readings).where("device = 'device 3'").select("id"))
    assert "EqualTo(device,device 3)" in text.partition("PushedFilters")[2]
    assert "BatchScan" not in text, "nothing is asked of Postgres"


def test_tiered_tables_and_lake_tables_are_of_one_moment(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commits while the point is taken is in none of its tables."""
    joined = point.moments.joined

    def late(*args: Any, **options: Any) -> Any:
        with session_of(readings) as session:
            session.execute(
                "begin; insert into public.empty (id) values (1); update public.events set status = 'late'; commit"
            )
        return joined(*args, **options)

    monkeypatch.setattr(point.moments, "joined", late)
    frame_of = connector.read_many(readings.session(), ["public.events", "empty", "readings"], dsn=readings.dsn)
    monkeypatch.undo()
    with session_of(readings) as session:
        session.execute("delete from public.readings where id = 20")
    try:
        assert frame_of["empty"].count() == 0
        assert frame_of["public.events"].where("status = 'late'").count() == 0
        assert frame_of["readings"].where("id = 20").count() == 1
        assert in_spark(read(readings, "empty").select("id")) == [(1,)]
    finally:
        with session_of(readings) as session:
            session.execute(FILL, (20, 20))
            session.execute("delete from public.empty")


def test_an_earlier_state_is_read_by_snapshot_and_by_time(readings: Lake) -> None:
    with session_of(readings) as session:
        session.execute("insert into public.empty (id) values (7)")
        first = lake_tables.show(readings.catalog, pointer(readings, "empty")).snapshot_id
        before = lake_table.state(pointer(readings, "empty").metadata_location).metadata.last_updated_ms
        while datetime.now(UTC).timestamp() * 1000 <= before + 1:
            pass
        session.execute("update public.empty set id = 8")
    at = datetime.fromtimestamp(before / 1000, UTC)
    try:
        assert in_spark(read(readings, "empty").select("id")) == [(8,)]
        assert in_spark(read(readings, "empty", as_of=first).select("id")) == [(7,)]
        assert in_spark(read(readings, "empty", as_of=at).select("id")) == [(7,)]
        for wrong, message in (
            (5, "the lake of public.empty does not have the lake snapshot 5"),
            (at - timedelta(days=9), "the lake of public.empty does not have the state of"),
            (datetime(2020, 1, 1), "as_of 2020-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
            ("nightly", "snapshot 'nightly' has no table public.empty"),
        ):
            with pytest.raises(UsageError, match=message):
                read(readings, "empty", as_of=wrong)
    finally:
        with session_of(readings) as session:
            session.execute("delete from public.empty")


def test_a_role_needs_the_right_to_select_from_the_foreign_table(readings: Lake) -> None:
    with role(readings.dsn, "spark_lake_reader") as dsn, psycopg.connect(readings.dsn, autocommit=True) as owner:
        owner.execute("grant usage on schema frostline to spark_lake_reader")
        owner.execute("grant select on all tables in schema frostline to spark_lake_reader")
        with pytest.raises(UsageError, match=r"may not read public\.readings"):
            connector.read(readings.session(), "readings", dsn=dsn)
        owner.execute("grant select on public.readings to spark_lake_reader")
        assert connector.read(readings.session(), "readings", dsn=dsn).count() == 94
        connector.release()
    assert nothing_is_held(readings)


def _renamed(metadata: TableMetadata) -> TableMetadata:
    """As another engine does it: `id` is called `device`, and `device` is called `id`."""
    names = {"id": "device", "device": "id"}
    fields = [
        field.model_copy(update={"name": names.get(field.name, field.name)}) for field in metadata.schema().fields
    ]
    updates = (
        AddSchemaUpdate(schema=Schema(*fields, schema_id=1, identifier_field_ids=[])),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    )
    return update_table_metadata(metadata, updates)


def test_columns_are_found_by_their_field_ids_whatever_they_are_called(lake: Lake) -> None:
    lake_tables.create(
        lake.catalog, lake.settings, Name("public", "named"), ("id bigint not null", "device text"), Layout()
    )
    with session_of(lake) as session:
        session.execute("insert into public.named select n, 'd' || n from generate_series(1, 9) n")
        session.execute("delete from public.named where id = 2")
        old = pointer(lake, "named")
        renamed = _renamed(lake_table.state(old.metadata_location).metadata)
        location = lake_commit.write_metadata(renamed, uuid.uuid4(), old.metadata_location)
        catalog.commit(lake.catalog, [LakeMove(old.id, old.metadata_location, location)])
    frame = read(lake, "named", where="device > 3 and id <> 'd5'")
    assert [row.id for row in frame.orderBy("device").collect()] == ["d4", "d6", "d7", "d8", "d9"]


def test_columns_may_be_called_as_duckdb_and_spark_call_a_rows_place(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else deleted rows would come back: places would be compared with the columns."""
    columns = (
        "id bigint",
        "filename text",
        "file_row_number bigint",
        "_metadata text",
        "frostline_place bigint",
        "file_index bigint",
    )
    lake_tables.create(lake.catalog, lake.settings, Name("public", "named"), columns, Layout())
    with session_of(lake) as session:
        session.execute("insert into public.named select n, 'f' || n, n, 'm', n, n from generate_series(0, 9) n")
        session.execute("delete from public.named where id in (2, 3)")
        expected = in_postgres(session, "public.named")
        assert len(expected) == 8
        assert same(read(lake, "named"), expected)
        monkeypatch.setattr(frames, "_opens", lambda *_: False)
        assert same(read(lake, "named", columns=["id", "filename"]), [row[:2] for row in expected])
        (result,) = lake_compact.run(lake.jobs(), [pointer(lake, "named")])
        assert (result.error, result.written_files) == (None, 1)
        assert in_postgres(session, "public.named") == expected


def test_a_file_that_is_gone_is_an_error_that_names_it(lake: Lake) -> None:
    lake_tables.create(lake.catalog, lake.settings, Name("public", "readings"), COLUMNS, Layout())
    with session_of(lake) as session:
        session.execute(FILL, (1, 3))
        session.execute("delete from public.readings where id = 2")
    frame = read(lake)
    with session_of(lake) as session:
        session.execute("insert into public.readings (id) values (9)")
        lake_compact.run(lake.jobs(), [pointer(lake)])
    assert frame.count() == 2, "files that were replaced are there until they are expired"
    for path in lake.data_files():
        path.unlink()
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        frame.collect()
    with pytest.raises(UnavailableError, match=r"\.parquet"):
        read(lake)
    connector.release()
    assert nothing_is_held(lake)


def test_a_node_says_where_the_catalog_is(spark: SparkSession, empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as node:
        node.execute("create extension postgres_fdw; create server frostline_lake foreign data wrapper postgres_fdw")
        node.execute(
            "create foreign table public.readings (id bigint) server frostline_lake options (table_name 'lake_1')"
        )
    with pytest.raises(UsageError, match="this Postgres is a node"):
        connector.read(spark, "readings", dsn=empty_database)
    with pytest.raises(UsageError, match="this Postgres is a node"):
        connector.write(spark.sql("select 1L as id"), "readings", dsn=empty_database)
