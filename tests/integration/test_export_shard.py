"""Export of one shard: every value arrives, under one snapshot, or there is no file."""

import dataclasses
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from tests.fixtures import every_type
from tests.fixtures.lake_tables import events, lake_location

from frostline.catalog.connect import Dsn
from frostline.errors import ConflictError, CorruptionError, UnavailableError, UsageError
from frostline.lake import commit, datafiles, snapshots
from frostline.model.names import Name
from frostline.model.range import Range
from frostline.pipeline import export
from frostline.pipeline.export import Export, export_shard
from frostline.tiers import moment, shards, target
from frostline.tiers.moment import Moment
from frostline.tiers.proof import fingerprint
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader, Target

Connection = psycopg.Connection
TABLE = every_type.TABLE
COLUMNS = [column.name for column in TABLE.columns]


@pytest.fixture
def heap(empty_database: str, connect: Callable[[str], Connection]) -> Connection:
    connection = connect(empty_database)
    connection.execute(every_type.definition().encode())
    return connection


def insert(connection: Connection, rows: list[dict[str, str | None]]) -> None:
    """Insert rows of texts; each gets an id and a time in January 2024."""
    target = sql.Identifier(every_type.HEAP.schema, every_type.HEAP.table)
    for number, row in enumerate(rows):
        values = {"id": str(number), "at": f"2024-01-{number % 31 + 1:02} 12:00+00"} | row
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        statement = sql.SQL("insert into {} ({}) values ({})").format(
            target, names, sql.SQL(", ").join(map(sql.Literal, values.values()))
        )
        connection.execute(statement)


def found(at: Moment, name: Name = every_type.HEAP) -> Target:
    with moment.joined(at, purpose="tests") as connection:
        return target.find(connection, [name])[name]


def shard(at: Moment, folder: Path, *, read: Target | None = None, **changes: object) -> Export:
    """All rows of January; the changes are of the export, or of its shard."""
    whole = Shard(found(at) if read is None else read, Range(every_type.LOWER, every_type.UPPER))
    of_shard = {name: changes.pop(name) for name in ("first_block", "last_block") if name in changes}
    part = dataclasses.replace(whole, **of_shard)  # pyright: ignore[reportArgumentType]
    location = lake_location(folder / "wäre house", TABLE)
    piece = Export(TABLE, Reader(at, "export", "frostline archive"), part, location, 1)
    return dataclasses.replace(piece, **changes)  # pyright: ignore[reportArgumentType]


def stored(written: datafiles.WrittenFile | None):
    assert written is not None
    return pq.read_table(written.path.removeprefix("file://"))


ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in every_type.VALUES.items()}),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(ROWS)
def test_every_value_of_every_type_arrives(
    heap: Connection, empty_database: str, tmp_path: Path, rows: list[dict[str, str | None]]
):
    heap.execute("truncate public.\"Every 'type'\"")
    insert(heap, rows)
    with moment.exported(empty_database) as at:
        written = export_shard(shard(at, tmp_path))
    assert written is not None
    assert written.rows == len(rows)
    expected = {name: sum(row[name] is None for row in rows) for name in every_type.VALUES}
    table = stored(written)
    assert {name: table.column(index).null_count for index, name in enumerate(COLUMNS) if name in expected} == expected


def test_floats_that_are_equal_but_not_the_same_keep_their_bits(heap: Connection, empty_database: str, tmp_path: Path):
    insert(heap, [{"float4": zero, "float8": zero} for zero in ("0", "-0", "0", "-0", "NaN") * 50])
    with moment.exported(empty_database) as at:
        table = stored(export_shard(shard(at, tmp_path)))
    for name in ("float4", "float8"):
        assert int(np.signbit(table.column(name).to_numpy()).sum()) == 100


def test_rows_are_read_under_the_exported_snapshot(heap: Connection, empty_database: str, tmp_path: Path):
    insert(heap, [{"text": "before"}])
    with moment.exported(empty_database) as at:
        heap.execute("update public.\"Every 'type'\" set text = 'after'")
        insert(heap, [{"text": "new"}] * 10)
        table = stored(export_shard(shard(at, tmp_path)))
    assert table.column("text").to_pylist() == ["before"]


def test_an_ended_snapshot_is_a_conflict(heap: Connection, empty_database: str, tmp_path: Path):
    with moment.exported(empty_database) as at:
        piece = shard(at, tmp_path)
    with pytest.raises(ConflictError, match="no longer exported"):
        export_shard(piece)
    with pytest.raises(ConflictError, match="no longer exported"):
        export.write(piece, f"file://{tmp_path}/x.parquet", dictionaries=True)


def test_a_shard_without_rows_leaves_no_file(heap: Connection, empty_database: str, tmp_path: Path):
    with moment.exported(empty_database) as at:
        assert export_shard(shard(at, tmp_path)) is None
    assert not list(tmp_path.rglob("*.parquet"))


def test_only_the_slice_is_exported(heap: Connection, empty_database: str, tmp_path: Path):
    times = [
        "2023-12-31 23:59:59.999999+00",
        "2024-01-01 00:00+00",
        "2024-01-31 23:59:59.999999+00",
        "2024-02-01 00:00+00",
    ]
    insert(heap, [{"at": at} for at in times])
    with moment.exported(empty_database) as at:
        written = export_shard(shard(at, tmp_path))
    assert written is not None
    assert (written.rows, written.lower, written.upper) == (2, every_type.LOWER, every_type.UPPER - 1)


def test_block_ranges_divide_the_rows(heap: Connection, empty_database: str, tmp_path: Path):
    insert(heap, [{"text": f"{number:03}" * 400} for number in range(60)])
    blocks = [(None, 1), (2, 4), (5, None)]
    with moment.exported(empty_database) as at:
        parts = [export_shard(shard(at, tmp_path, first_block=first, last_block=last)) for first, last in blocks]
        whole = export_shard(shard(at, tmp_path))
    assert whole is not None
    assert all(part is not None and part.rows for part in parts)
    total = sum((part.fingerprint for part in parts if part), start=type(whole.fingerprint)(0, 0))
    assert total == whole.fingerprint


def test_rows_are_sorted_by_the_tier_key_unless_told_otherwise(heap: Connection, empty_database: str, tmp_path: Path):
    insert(heap, [{"at": f"2024-01-{day:02} 00:00+00"} for day in (9, 3, 27, 1)])
    with moment.exported(empty_database) as at:
        ordered = export_shard(shard(at, tmp_path))
        as_found = export_shard(shard(at, tmp_path, in_order=False))
    assert stored(ordered).column("id").to_pylist() == [3, 1, 0, 2]
    assert stored(as_found).column("id").to_pylist() == [0, 1, 2, 3]
    assert ordered is not None
    assert as_found is not None
    assert ordered.fingerprint == as_found.fingerprint


@pytest.mark.slow
def test_rows_too_wide_to_sort_in_memory_are_written_unsorted(heap: Connection, empty_database: str, tmp_path: Path):
    heap.execute(
        """insert into public."Every 'type'" (id, at, text)
        select i, timestamptz '2024-01-31' - i * interval '1 minute', repeat(md5(i::text), 400)
          from generate_series(1, 30000) as i"""
    )
    with moment.exported(empty_database) as at:
        written = export_shard(shard(at, tmp_path, memory_limit="300MB"))
        assert written is not None
        assert (written.rows, written.in_order) == (30000, False)
        with pytest.raises(UnavailableError, match="needs more memory than 20MB"):
            export_shard(shard(at, tmp_path, memory_limit="20MB"))


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("num_12_2", "NaN"),
        ("timestamp", "294247-01-10 04:00:54.775807"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00"),
    ],
)
def test_a_value_that_the_lake_cannot_hold_is_refused_by_name(
    heap: Connection, empty_database: str, tmp_path: Path, column: str, bad: str
):
    insert(heap, [{column: bad}, {column: bad}, {}])
    with moment.exported(empty_database) as at, pytest.raises(UsageError, match=f"'{column}' has 2 values") as caught:
        export_shard(shard(at, tmp_path))
    assert caught.value.hint
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_differs_from_the_heap_is_never_described(
    heap: Connection, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    insert(heap, [{"text": "a"}, {"text": "b"}])
    query = shards.rows_query

    def with_one_change(*of: Any, **options: Any) -> sql.Composed:
        changed = (
            query(*of, **options).as_string().replace('"text"::text', "'x'::text").replace('"text" as', "'a'::text as")
        )
        return sql.Composed([sql.SQL(changed)])  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(shards, "rows_query", with_one_change)
    with moment.exported(empty_database) as at, pytest.raises(CorruptionError, match="Every 'type'"):
        export_shard(shard(at, tmp_path))


def test_session_settings_of_the_role_do_not_change_what_is_written(
    heap: Connection, empty_database: str, tmp_path: Path
):
    insert(heap, [{"interval": "1 mon 2 days", "range": "[2024-01-01 00:00+00,)", "floats": "{0.1}"}])
    name = heap.info.dbname
    for setting in (
        "TimeZone = 'Asia/Tokyo'",
        "IntervalStyle = 'iso_8601'",
        "extra_float_digits = -10",
        "DateStyle = 'German'",
    ):
        heap.execute(f'alter database "{name}" set {setting}'.encode())
    with moment.exported(empty_database) as at:
        table = stored(export_shard(shard(at, tmp_path)))
    assert table.column("interval").to_pylist() == ["1 mon 2 days"]
    assert table.column("range").to_pylist() == ['["2024-01-01 00:00:00+00",)']
    assert table.column("floats").to_pylist() == ["{0.1}"]


def test_a_failure_to_connect_does_not_tell_the_password(tmp_path: Path):
    dsn = "host=127.0.0.1 port=1 dbname=x user=x password=sesame"
    read = Target(every_type.HEAP, 1, 1, 1, ())
    piece = shard(Moment(Dsn(dsn), "00000003-0000001B-1", "1:1:"), tmp_path, read=read)
    for attempt in (export_shard, lambda s: export.write(s, f"file://{tmp_path}/x.parquet", dictionaries=True)):
        with pytest.raises(UnavailableError) as caught:
            attempt(piece)
        assert "sesame" not in "".join(traceback.format_exception(caught.value))
    assert "sesame" not in repr(piece)


def test_shards_and_descriptions_travel_between_processes(heap: Connection, empty_database: str, tmp_path: Path):
    insert(heap, [{"text": "a"}])
    with moment.exported(empty_database) as at:
        written = export_shard(pickle.loads(pickle.dumps(shard(at, tmp_path))))
    assert pickle.loads(pickle.dumps(written)) == written


def test_exported_files_make_a_lake_table_that_gives_the_rows_back(
    heap: Connection, empty_database: str, tmp_path: Path
):
    insert(heap, [{"text": "ä", "Text": "b", "timestamp": "infinity", "date": "0044-03-15 BC"}, {}])
    with moment.exported(empty_database) as at:
        piece = shard(at, tmp_path)
        written = export_shard(piece)
    assert written is not None
    staged = commit.stage(TABLE, location=piece.location, base=None, add=[written], replace=None, summary={})
    assert staged.snapshot_id is not None
    files = snapshots.files(staged.metadata_location, staged.snapshot_id, TABLE.column("at").field_id)
    assert fingerprint.of_parquet([file.path for file in files], TABLE) == written.fingerprint


def test_an_integer_tier_key_is_cut_by_its_value(
    empty_database: str, connect: Callable[[str], Connection], tmp_path: Path
):
    connect(empty_database).execute(
        "create table numbers as select i::bigint as id, now() as ts, 'x' as note from generate_series(-5, 20) as i"
    )
    table = events(tier_key="id", tier_kind="bigint", lake_partition="truncate[10]", key=("id",))
    table = dataclasses.replace(table, tier_kind=type(TABLE.tier_kind).BIGINT)
    with moment.exported(empty_database) as at:
        part = Shard(found(at, Name("public", "numbers")), Range(-5, 0))
        piece = Export(table, Reader(at, "export", "frostline archive"), part, lake_location(tmp_path, table), 1)
        written = export_shard(piece)
    assert written is not None
    assert (written.rows, written.lower, written.upper, written.partition) == (5, -5, -1, -10)
