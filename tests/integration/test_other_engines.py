"""The Python code of docs/guides/other-engines.md reads what Postgres shows."""

from typing import Any

import duckdb
import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.other_engines import blocks, reader
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.lake import duck
from frostline.model import snapshot as rules
from frostline.pipeline import snapshot
from frostline.pipeline.snapshot_plan import Request

pytestmark = pytest.mark.slow


def load(engine: duckdb.DuckDBPyConnection) -> None:
    """Nothing is downloaded in a test: the extension is the installed package's."""
    duck.load(engine, "avro")
    duck.load(engine, "iceberg")


@pytest.mark.spark
def test_the_code_of_the_guide_reads_a_whole_table(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=2, rows_a_month=20)
    lake.add(hot="1 month")
    lake.archive()
    with lake.connect() as connection:
        run(connection, "delete from events where id % 7 = 0; insert into events (ts) values (now())")
        wanted = rows(connection, "select id, status, amount from events order by id")
    request = Request("nightly", tuple(rules.parse_patterns(["public.events"])))
    snapshot.create(lake.catalog, lake.session, lake.settings, request, lambda *_: None)
    code = blocks("python")
    assert list(code) == ["PyIceberg", "DuckDB"]
    with reader(lake.dsn) as dsn:
        for engine, words in code.items():
            names: dict[str, Any] = {"dsn": dsn, "load": load}
            exec(words.replace('engine.execute("load iceberg")', "load(engine)"), names)
            records = names["rows"].select(["id", "status", "amount"]).sort_by("id").to_pylist()
            assert [tuple(row.values()) for row in records] == wanted, engine
