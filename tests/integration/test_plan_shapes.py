"""A question about hot rows is planned as on the heap: the same joins, the same order, the same indexes, and no lake."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

pytestmark = pytest.mark.spark

TABLE = """
create table public.{name} (id bigint not null, ts timestamptz not null, customer bigint not null, amount numeric(12,2), primary key (id, ts))
    partition by range (ts);
create table public.{name}_old partition of public.{name} for values from ('2024-01-01 00:00+00') to ('2024-02-01 00:00+00');
create table public.{name}_hot partition of public.{name} for values from ('2090-01-01 00:00+00') to ('2090-02-01 00:00+00');
create table public.{name}_rest partition of public.{name} default;
create index on public.{name} (customer);
create index on public.{name} (ts);
insert into public.{name} select i, timestamptz '2024-01-01 00:00+00' + i * interval '1 min', i % 1000, i from generate_series(1, 300) i;
insert into public.{name} select i, timestamptz '2090-01-01 00:00+00' + i * interval '1 min', i % 1000, i from generate_series(1001, 31000) i;
"""
CUSTOMERS = """
create table public.customers (id bigint primary key, name text not null unique);
insert into public.customers select i, 'customer ' || i from generate_series(0, 999) i;
create table public.changes (id bigint primary key, ts timestamptz not null, amount numeric(12,2));
insert into public.changes select i, timestamptz '2090-01-01 00:00+00' + i * interval '1 min', 1 from generate_series(1001, 1003) i;
"""

HOT = "ts >= '2090-01-01 00:00+00'"
JIT_ABOVE_COST = 100_000
QUESTIONS = {
    "point": "select * from {t} where id = 2000 and ts = '2090-01-02 09:20+00'",
    "point without the exact tier key": f"select * from {{t}} where id = 2000 and {HOT}",
    "index join": f"select e.id from customers c join {{t}} e on e.customer = c.id where c.name in ('customer 7', 'customer 8', 'customer 9') and {HOT}",
    "semi-join": f"select id from {{t}} where customer in (select id from customers where name = 'customer 7') and {HOT}",
    "exists": f"select name from customers c where name < 'customer 11' and exists (select from {{t}} e where e.customer = c.id and {HOT})",
    "lateral": f"select c.name, x.ts from customers c, lateral (select ts from {{t}} e where e.customer = c.id and {HOT} order by ts desc limit 3) x where c.name = 'customer 7'",
    "latest": f"select id from {{t}} where {HOT} order by ts desc limit 10",
    "first": f"select id from {{t}} where {HOT} order by ts limit 10",
    "highest": f"select max(ts) from {{t}} where {HOT}",
    "lowest": f"select min(ts) from {{t}} where {HOT}",
    "paging": f"select id from {{t}} where {HOT} and (ts, id) > ('2090-01-03 00:00+00', 1) order by ts, id limit 20",
    "merge join": f"select count(*) from {{t}} a join {{t}} b using (id, ts) where a.{HOT} and b.{HOT}",
    "two bounds": f"select count(*) from {{t}} where {HOT} and ts < '2090-01-02 00:00+00'",
}


@pytest.fixture(scope="module")
def both(shared_lake: Lake) -> Lake:
    """`events` with its old partition archived and cleaned, and `plain`, which has everything in its heap."""
    for name in ("events", "plain"):
        run(shared_lake.catalog, TABLE.format(name=name))
    run(shared_lake.catalog, CUSTOMERS)
    shared_lake.add()
    (result,) = shared_lake.archive("events")
    assert result.error is None
    assert shared_lake.clean().waiting == ()
    run(shared_lake.catalog, "vacuum analyze public._events")
    run(shared_lake.catalog, "vacuum analyze public.plain")
    run(shared_lake.catalog, f"vacuum analyze frostline_overlay.{shared_lake.table().internal}")
    run(shared_lake.catalog, "analyze public.customers; analyze public.changes")
    return shared_lake


@pytest.fixture
def session(both: Lake) -> Iterator[psycopg.Connection]:
    """A transaction that is rolled back, for which there is no lake server."""
    with both.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set search_path = public; set timezone = 'UTC'")
        run(connection, "alter server frostline_lake options (set port '1')")
        yield connection


def plan(connection: psycopg.Connection, statement: str, options: str = "") -> dict[str, Any]:
    text = value(connection, f"explain ({options}verbose, format json) {statement}")
    (explained,) = json.loads(text) if isinstance(text, str) else text
    return explained["Plan"]


def shape(node: dict[str, Any]) -> Any:
    """What does what on what, without the parts that a relation has beside its heap: the seam and the overlay."""
    children = [
        child
        for child in node.get("Plans", ())
        if not child.get("Subplan Name", "").startswith("InitPlan") or _is_asked(child)
    ]
    shapes = [made for child in children if (made := shape(child)) is not None]
    if node["Node Type"] in ("Append", "Merge Append", "Materialize") and len(shapes) == 1:
        return shapes[0]
    if node.get("Schema", "public") != "public":
        return None
    scanned = node.get("Relation Name", "").removeprefix("events").removeprefix("plain")
    index = node.get("Index Name", "").removeprefix("events").removeprefix("plain")
    return (
        (node["Node Type"], node.get("Join Type"), scanned, index, shapes)
        if "Relation Name" in node or shapes
        else None
    )


def _is_asked(node: dict[str, Any]) -> bool:
    """An init plan of the question itself (min and max are some), and not one that reads the seam."""
    return node.get("Relation Name") != "seam"


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_hot_question_has_the_plan_that_the_heap_has(session: psycopg.Connection, question: str) -> None:
    # Which join is cheaper is Postgres' guess; that it can have this one is what counts.
    run(session, f"set local enable_hashjoin = {'off' if question == 'merge join' else 'on'}")
    ours, plain = (plan(session, QUESTIONS[question].format(t=name)) for name in ("events", "plain"))
    assert shape(ours) == shape(plain)
    assert "Foreign Scan" not in json.dumps(ours)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_hot_question_has_the_answer_that_the_heap_has(session: psycopg.Connection, question: str) -> None:
    ours, plain = (rows(session, QUESTIONS[question].format(t=name)) for name in ("events", "plain"))
    assert sorted(ours) == sorted(plain)
    assert ours


def test_an_update_by_join_looks_up_each_row_by_its_index(session: psycopg.Connection) -> None:
    statement = f"update events e set amount = c.amount from changes c where e.id = c.id and e.ts = c.ts and e.{HOT}"
    explained = json.dumps(plan(session, statement, "analyze, timing off, "))
    assert '"Node Type": "Nested Loop"' in explained
    assert '"Index Name": "events_hot_' in explained
    assert "Foreign Scan" not in explained
    assert rows(session, "select count(*) from events where amount = 1 and ts > '2090-01-01'") == [(3,)]


def test_partitions_below_the_frost_line_are_pruned_when_the_statement_runs(session: psycopg.Connection) -> None:
    run(session, "set local plan_cache_mode = force_generic_plan")
    run(session, "prepare point (bigint, timestamptz) as select * from events where id = $1 and ts >= $2")
    explained = json.dumps(plan(session, "execute point (2000, '2090-01-01 00:00+00')", "analyze, timing off, "))
    assert '"Relation Name": "events_hot"' in explained
    assert "Foreign Scan" not in explained


def executed(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes that were run."""
    if node.get("Actual Loops", 0) > 0:
        yield node
        for child in node.get("Plans", ()):
            yield from executed(child)


def test_archived_partitions_are_not_read_for_a_question_without_a_tier_key(both: Lake) -> None:
    with both.connect() as connection:
        explained = plan(connection, "select * from public.events where id = 5", "analyze, timing off, ")
    read = {node.get("Relation Name") for node in executed(explained)}
    assert "events_hot" in read
    assert "events_old" not in read


@pytest.mark.parametrize("direction", ["desc", "asc"])
def test_the_lake_is_asked_in_order_and_not_sorted_here(both: Lake, direction: str) -> None:
    with both.connect() as connection:
        explained = plan(connection, f"select * from public.events order by ts {direction} limit 10")
        (merge,) = explained["Plans"][-1:]
        (asked,) = [node for node in merge["Plans"] if node["Node Type"] == "Foreign Scan"]
        assert merge["Node Type"] == "Merge Append"
        assert f"ORDER BY ts {direction.upper()}" in asked["Remote SQL"]


def test_the_rows_of_the_lake_are_estimated_as_they_are(both: Lake) -> None:
    with both.connect() as connection:
        explained = plan(connection, "select * from public.events where ts < '2024-03-01'")
        (asked,) = [node for node in explained["Plans"] if node["Node Type"] == "Foreign Scan"]
        assert 250 <= asked["Plan Rows"] <= 350


def test_a_look_up_in_the_lake_is_not_so_dear_that_postgres_compiles_it(both: Lake) -> None:
    """What Postgres expects for each row of the lake decides about JIT, which would take longer than the look-up."""
    with both.connect() as connection:
        explained = plan(connection, "select * from public.events where id = 5 and ts < '2024-03-01'")
        (asked,) = [node for node in explained["Plans"] if node["Node Type"] == "Foreign Scan"]
        lake_rows = 300
        assert asked["Total Cost"] - asked["Startup Cost"] < 0.1 * lake_rows
        assert asked["Total Cost"] < 0.05 * JIT_ABOVE_COST
