"""Partitions of lake tables whose values are printed alike: no file has rows of two, and no engine misses any."""

from typing import Any

import duckdb
import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures.lake import Lake
from tests.fixtures.sparkrows import in_spark

from frostline import spark as connector
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.lake import duck, lake_table
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_tables
from frostline.server.writes.shared_files import Wanted

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

ALIKE = "(null, 'x', '1'), ('None', 'x', 'NaN'), ('a, b', 'c', '3'), ('a', 'b, c', '-0'), ('f', null, 'NaN'), ('f', 'None', '0')"
"""The values of two columns, by which the table is cut, and of a float."""
CONDITIONS = {
    "a is null": "a is null",
    "a = 'None'": "a = 'None'",
    "a = 'a, b' and b = 'c'": "a = 'a, b' and b = 'c'",
    "a = 'a' and b = 'b, c'": "a = 'a' and b = 'b, c'",
    "a = 'f' and b is null": "a = 'f' and b is null",
    "a = 'f' and b = 'None'": "a = 'f' and b = 'None'",
    "d = 'NaN'": "d is nan",
    "d > 100": "d is nan",
}
"""As Postgres has them, and PyIceberg."""


def pointer(lake: Lake) -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", "cut"))


def in_duckdb(location: str, where: str) -> list[int]:
    with duckdb.connect() as engine:
        duck.load(engine, "avro")
        duck.load(engine, "iceberg")
        found: list[Any] = engine.execute(f"select id from iceberg_scan(?) where {where}", [location]).fetchall()
    return sorted(row[0] for row in found)


def in_pyiceberg(location: str, where: str) -> list[int]:
    found: list[Any] = StaticTable.from_metadata(location).scan(row_filter=where).to_arrow()["id"].to_pylist()
    return sorted(found)


def same_everywhere(lake: Lake, session: psycopg.Connection) -> None:
    location = pointer(lake).metadata_location
    for condition, for_pyiceberg in CONDITIONS.items():
        told = [row[0] for row in session.execute(f"select id from cut where {condition} order by id".encode())]
        assert told, condition
        assert in_duckdb(location, condition) == told, condition
        assert in_pyiceberg(location, for_pyiceberg) == told, condition
        frame = connector.read(lake.session(), "cut", dsn=lake.dsn, where=condition, columns=["id"])
        assert [row[0] for row in in_spark(frame)] == told, condition


def test_bounds_say_nothing_of_a_column_with_nan(lake: Lake) -> None:
    columns = ("id bigint not null", "d double precision", "e real")
    lake_tables.create(lake.catalog, lake.settings, Name("public", "cut"), columns, Layout())
    with lake.connect() as session:
        session.execute("insert into cut values (1, 1, 1), (2, 'NaN', 2), (3, 5, 'NaN'), (4, null, null)")
        location = pointer(lake).metadata_location
        (file,) = lake_table.state(location).data.values()
        assert set(file.lower_bounds) == set(file.upper_bounds) == {1}
        for condition, ids in (("d > 100", [2]), ("d = 'NaN'", [2]), ("e >= 'NaN'", [3]), ("d < 5", [1])):
            assert in_duckdb(location, condition) == ids
            assert session.execute(f"select array_agg(id) from cut where {condition}".encode()).fetchone() == (ids,)


def test_times_beyond_those_of_python_have_partitions_too(lake: Lake) -> None:
    name, columns = Name("public", "cut"), ("id bigint not null", "ts timestamptz", "at timestamp", "day date")
    lake_tables.create(lake.catalog, lake.settings, name, columns, Layout(["month(ts)", "day(at)", "year(day)"]))
    far = ("infinity", "-infinity", "0044-03-15 BC", "20240-05-06", "2024-05-06", "1969-12-31")
    with lake.connect() as session:
        for number, text in enumerate(far):
            session.execute("insert into cut values (%s, %s, %s, %s)", (number, text, text, text))
        told = session.execute("select array_agg(id order by ts, id), count(distinct at) from cut").fetchone()
        assert told == ([1, 2, 5, 4, 3, 0], 6)
        for number, text in enumerate(far):
            that_day = session.execute("select id from cut where ts = %s and at = %s and day = %s", (text, text, text))
            assert that_day.fetchall() == [(number,)]
        months = {file.partition[0] for file in lake_table.state(pointer(lake).metadata_location).data.values()}
        assert {-1, (2024 - 1970) * 12 + 4, (20240 - 1970) * 12 + 4, (-43 - 1970) * 12 + 2} <= months
    hours = Name("public", "hours")
    made = lake_tables.create(lake.catalog, lake.settings, hours, ("ts timestamp",), Layout(["hour(ts)"]))
    with lake.connect() as session, pytest.raises(psycopg.errors.NumericValueOutOfRange, match="partition hour"):
        session.execute("insert into hours values ('now'), ('infinity')")
    base = lake_table.state(made.metadata_location)
    assert Wanted(base, Added(), {}, rows=[("infinity",)]).is_refused()
    assert not Wanted(base, Added(), {}, rows=[("0044-03-15 00:00:00 BC",), (None,)]).is_refused()


def test_partitions_that_are_printed_alike_stay_apart(lake: Lake) -> None:
    columns = ("id bigint not null", "a text", "b text", "d double precision")
    lake_tables.create(lake.catalog, lake.settings, Name("public", "cut"), columns, Layout(["a", "b"]))
    with lake.connect() as session:
        for first in (10, 20, 30):
            session.execute(
                "insert into cut select %s + row_number() over (), a, b, d::float8 from (values "
                f"{ALIKE}) v(a, b, d)".encode(),
                (first,),
            )
        session.execute("delete from cut where id between 11 and 23")
        state = lake_table.state(pointer(lake).metadata_location)
        assert len(state.deletes) == 6, "one for each partition, whose values are told apart"
        same_everywhere(lake, session)
        session.execute("delete from cut where id = 36")
        (result,) = lake_compact.run(lake.jobs(), [pointer(lake)])
        assert result.error is None
        state = lake_table.state(pointer(lake).metadata_location)
        assert (len(state.data), len(state.deletes)) == (6, 0)
        same_everywhere(lake, session)
        session.execute("insert into cut values (100, null, 'x', 0)")
        session.execute("delete from cut where id >= 31")
        (result,) = lake_compact.run(lake.jobs(), [pointer(lake)])
        assert result.error is None
        assert session.execute("select id from cut order by id").fetchall() == [(24,), (25,), (26,)]
