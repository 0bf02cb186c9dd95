"""The plans behind the promises about cost: what a read or a write of the relation touches, and what it does not."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run, value
from tests.fixtures.twins import make_twins

pytestmark = pytest.mark.spark

MARKS = 20_000


@pytest.fixture(scope="module")
def planned(shared_lake: Lake) -> Lake:
    """The twins with many hot rows, all tables analyzed."""
    make_twins(shared_lake)
    run(
        shared_lake.catalog,
        "insert into public.events (ts) select timestamptz '2090-01-02' + i * interval '1 min' from generate_series(1, 30000) i",
    )
    run(shared_lake.catalog, f"analyze public._events; analyze frostline.seam; analyze {overlay(shared_lake)}")
    return shared_lake


@pytest.fixture
def session(planned: Lake) -> Iterator[psycopg.Connection]:
    """A transaction that is rolled back."""
    with planned.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set search_path = public; set timezone = 'UTC'")
        yield connection


def overlay(lake: Lake) -> str:
    return f"frostline_overlay.events_{lake.table().id}"


def nodes(connection: psycopg.Connection, statement: str, *, analyze: bool = True) -> list[dict[str, Any]]:
    """The nodes of the plan that were run; with `analyze` off, all of them."""
    options = "analyze, timing off, verbose, format json" if analyze else "verbose, format json"
    plan = value(connection, f"explain ({options}) {statement}")
    (explained,) = json.loads(plan) if isinstance(plan, str) else plan
    gathered: list[dict[str, Any]] = []
    _gather(explained["Plan"], gathered, analyze=analyze)
    return gathered


def _gather(node: dict[str, Any], found: list[dict[str, Any]], *, analyze: bool) -> None:
    if not analyze or node.get("Actual Loops", 0) > 0:
        found.append(node)
        for child in node.get("Plans", ()):
            _gather(child, found, analyze=analyze)


HOT_POINT = "select * from events where id = 70 and ts = '2090-01-01 10:00+00'"


def assert_two_probes_beyond_the_heap(session: psycopg.Connection, planned: Lake, statement: str) -> None:
    """The seam is read for the heap's arm and for the overlay's. That hot keys are not in the overlay the index knows."""
    scans = [node for node in nodes(session, statement) if "Relation Name" in node]
    (heap,) = [node for node in scans if node["Relation Name"] == "events_hot"]
    assert (heap["Node Type"], heap["Actual Rows"]) == ("Index Scan", 1)
    others = [node for node in scans if node is not heap]
    assert {node["Relation Name"] for node in others} == {"seam", planned.table().internal}
    # Postgres 18 says how often an index was searched: not at all, where the conditions contradict each other.
    assert len([node for node in others if node.get("Index Searches") != 0]) <= 2 + (
        session.info.server_version < 180000
    )


def test_a_hot_point_read_pays_two_probes(session: psycopg.Connection, planned: Lake) -> None:
    assert_two_probes_beyond_the_heap(session, planned, HOT_POINT)


def test_a_hot_point_read_of_a_generic_plan_pays_two_probes(session: psycopg.Connection, planned: Lake) -> None:
    run(session, "set local plan_cache_mode = force_generic_plan")
    run(session, "prepare point (bigint, timestamptz) as select * from events where id = $1 and ts = $2")
    assert_two_probes_beyond_the_heap(session, planned, "execute point (70, '2090-01-01 10:00+00')")


@pytest.fixture
def marked(session: psycopg.Connection, planned: Lake) -> psycopg.Connection:
    """Many marks of cold keys, analyzed."""
    run(
        session,
        f"insert into {overlay(planned)} (id, ts, frostline_live) select i, timestamptz '2024-01-01 00:00+00' + i % 744 * interval '1 hour', false"
        f" from generate_series(100000, {100000 + MARKS}) i",
    )
    run(session, f"analyze {overlay(planned)}")
    return session


COLD_POINT = "select * from events where id = 5 and ts = '2024-01-01 05:00+00'"
COLD_ID = "select * from events where id = 5 and ts < '2024-04-01'"


@pytest.mark.parametrize("statement", [COLD_POINT, COLD_ID])
def test_a_cold_point_read_with_many_marks_reads_their_keys_once(
    marked: psycopg.Connection, planned: Lake, statement: str
) -> None:
    """Into a hash table. By probes of the index Postgres would count one for each row of the lake, and switch JIT on."""
    scans = nodes(marked, statement)
    (once,) = [node for node in scans if node.get("Parent Relationship") == "SubPlan"]
    assert (once["Relation Name"], once["Actual Loops"]) == (planned.table().internal, 1)
    live = [node for node in scans if node.get("Relation Name") == planned.table().internal and node is not once]
    assert {node.get("Index Name") for node in live} == {planned.table().internal + "_pkey"}
    assert sum(node["Actual Rows"] for node in scans if node["Node Type"] == "Foreign Scan") == 1


def test_a_hot_insert_is_one_insert_without_a_trigger(session: psycopg.Connection) -> None:
    plan = value(session, "explain (analyze, timing off, format json) insert into events (ts) values ('2090-05-05')")
    (explained,) = json.loads(plan) if isinstance(plan, str) else plan
    assert (explained["Plan"]["Node Type"], explained["Plan"]["Operation"]) == ("ModifyTable", "Insert")
    assert explained["Plan"]["Relation Name"] == "_events"
    assert [node["Node Type"] for node in explained["Plan"]["Plans"]] == ["Result"]
    assert explained["Triggers"] == []
    assert (
        value(session, "select count(*) from pg_trigger where tgrelid = 'events_hot'::regclass and not tgisinternal")
        == 0
    )


@pytest.mark.parametrize("statement", ["update events set status = 'x'", "delete from events"])
def test_a_hot_write_by_key_asks_neither_lake_nor_all_of_the_heap(session: psycopg.Connection, statement: str) -> None:
    scans = nodes(session, f"{statement} where id = 70 and ts = '2090-01-01 10:00+00'")
    assert not [
        node for node in scans if node["Node Type"] in ("Foreign Scan", "Seq Scan") and node["Relation Name"] != "seam"
    ]


MANY_COLD_ROWS = {
    "update": "update events set status = 'x' where ts < '2024-04-01 00:00+00'",
    "delete": "delete from events where ts < '2024-04-01 00:00+00'",
    "mark": "insert into events (id, ts) select 900000 + i, timestamptz '2024-02-02' from generate_series(1, 60) i",
}


@pytest.mark.parametrize("function", MANY_COLD_ROWS)
def test_a_write_of_many_cold_rows_reads_no_table_whole_for_each(
    session: psycopg.Connection, planned: Lake, function: str
) -> None:
    """A function keeps the plan that it made while a table had no page, when reading it whole cost nothing."""
    table = overlay(planned) if function == "mark" else "events_default"
    emptied = f"truncate {table}; analyze {table}"
    if function == "mark":
        guard = '"!frostline_truncate"'
        emptied = (
            f"alter table {table} disable trigger {guard}; {emptied}; alter table {table} enable always trigger {guard}"
        )
    run(session, emptied)
    assert run(session, MANY_COLD_ROWS[function]).rowcount == 60
    query = "select seq_scan from pg_stat_xact_all_tables where relid = %s::regclass"
    assert value(session, query, (table,)) < 10
