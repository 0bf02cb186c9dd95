"""Writing from Spark: all rows or none, once only, whatever Spark runs again and whoever dies."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions
from tests.fixtures.batches import STAGES, Row, World, by_sql, frame, new, old, when_staged
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline import failpoints, spark
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.relation import guard
from frostline.spark import write_task
from frostline.spark.writes import Mode, Written

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def world(shared_lake: Lake) -> World:
    make_twins(shared_lake)
    return World(shared_lake)


def _mixed(world: World, where: str) -> tuple[list[Row], list[Row]]:
    """Rows that are not there yet, and rows that are."""
    numbers = world.ids(6)
    fresh = {
        "hot": [new(number, hot=True) for number in numbers],
        "cold": [new(number, hot=False) for number in numbers],
        "both": [new(number, hot=number % 2 == 0) for number in numbers],
    }[where]
    return fresh, {"hot": [old(61), old(62)], "cold": [old(1), old(22)], "both": [old(3), old(63)]}[where]


@pytest.mark.parametrize("where", some(["hot", "cold", "both"], "both"))
def test_each_mode_does_what_plain_sql_does(world: World, where: str) -> None:
    fresh, there = _mixed(world, where)
    assert world.both(fresh) == Written(6, inserted=6)
    changed = [row._replace(status="changed", amount=None, data=None) for row in (*there, *fresh[:2])]
    later = [row._replace(id=number) for row, number in zip(fresh, world.ids(6), strict=True)]
    assert world.both([*changed, *later], "upsert") == Written(10, inserted=6, updated=4)
    gone = [*later, *fresh, *there[:1], Row(-1, fresh[0].ts)]
    assert world.both(gone, "delete") == Written(14, deleted=13)
    assert world.both(there[:1], "append") == Written(1, inserted=1)


def test_columns_that_are_not_given_stay_or_get_their_defaults(world: World) -> None:
    (number,) = world.ids(1)
    given = frame(world.session, [old(4), old(64), new(number, hot=False)]).select("ts", "amount", "id")
    assert spark.write(given, "events", "upsert", dsn=world.lake.dsn) == Written(3, inserted=1, updated=2)
    run(world.lake.catalog, "update public.plain set amount = 1.5 where id in (4, 64)")
    run(
        world.lake.catalog,
        "insert into public.plain (id, ts, amount) values (%s, '2024-02-03 00:00+00', 1.5)",
        [number],
    )
    world.compare()


def test_an_upsert_of_keys_alone_inserts_those_that_are_missing(world: World) -> None:
    (number,) = world.ids(1)
    given = frame(world.session, [old(4), old(64), new(number, hot=False)]).select("id", "ts")
    assert spark.write(given, "events", "upsert", dsn=world.lake.dsn) == Written(3, inserted=1)
    run(world.lake.catalog, "insert into public.plain (id, ts) values (%s, '2024-02-03 00:00+00')", [number])
    world.compare()


def test_a_dataframe_without_rows_changes_nothing_and_takes_its_label(world: World) -> None:
    empty = frame(world.session, [])
    for mode in ("append", "upsert", "delete"):
        assert spark.write(empty, "events", mode, dsn=world.lake.dsn, label=f"empty {mode}") == Written(0)
        assert not spark.write(empty, "events", mode, dsn=world.lake.dsn, label=f"empty {mode}").applied
    world.compare()


def test_a_key_given_twice_is_refused_for_upsert_and_counts_once_for_delete(world: World) -> None:
    twice = [old(5), old(65), old(5), old(65)]
    with pytest.raises(UsageError, match=r"the key \(id, ts\) = \((5|65), 20\d\d-01-01 05:00:00\+00\) more than once"):
        world.write(twice, "upsert")
    world.compare()
    assert world.both(twice, "delete") == Written(4, deleted=2)
    world.both([old(5), old(65)])


@pytest.mark.parametrize("there", [6, 66])
def test_an_append_of_a_key_that_exists_writes_nothing(world: World, there: int) -> None:
    (number,) = world.ids(1)
    with pytest.raises(UsageError, match="duplicate key") as caught:
        world.write([new(number, hot=False), old(there)], label=f"duplicate {there}")
    assert caught.value.hint == "mode='upsert' replaces rows whose key exists"
    world.compare()
    assert world.both([new(number, hot=False)], label=f"duplicate {there}").applied  # the label was not taken


def test_a_value_that_postgres_refuses_writes_nothing(world: World) -> None:
    (number,) = world.ids(1)
    given = frame(world.session, [new(number, hot=True, data="{"), new(number + 1, hot=True)])
    with pytest.raises(UsageError, match="refused a row of the batch: invalid input syntax for type json"):
        spark.write(given, "events", dsn=world.lake.dsn)
    with pytest.raises(UsageError, match="violates check constraint"):
        world.write([new(number, hot=True, amount=Decimal(-1))])
    world.compare()


@pytest.mark.parametrize("mode", some(["upsert", "delete"], "delete"))
def test_a_key_that_exchanges_its_name_meanwhile_is_not_taken_for_another_column(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """The batch has a key that is not there; as values of the other column it would be that of a row."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    run(lake.catalog, "alter table public._events add column other bigint default 3")
    everything = "select count(*), sum(amount), count(distinct status) from public.events"
    before = rows(lake.catalog, everything)

    def exchange() -> None:
        for change in ("id to x", "other to id", "x to other"):
            run(lake.catalog, f"alter table public._events rename column {change}")

    when_staged(monkeypatch, exchange)
    batch = [old(row_id)._replace(id=3) for row_id in (4, 64)]
    with pytest.raises(ConflictError, match="its key has another name"):
        spark.write(frame(lake.session(), batch), "events", mode, dsn=lake.dsn)
    assert rows(lake.catalog, everything) == before


def test_a_batch_of_hot_rows_needs_no_lake_server(world: World) -> None:
    (number,) = world.ids(1)
    run(world.lake.catalog, "alter server frostline_lake options (set port '1')")
    try:
        hot = [old(67, status="lake is down"), new(number, hot=True)]
        assert world.write(hot, "upsert") == Written(2, inserted=1, updated=1)
        with pytest.raises(UnavailableError, match="nothing was written") as caught:
            world.write([old(7)], "upsert")
        assert "frostline serve" in str(caught.value.hint)
        assert world.write(hot[1:], "delete") == Written(1, deleted=1)
    finally:
        run(world.lake.catalog, f"alter server frostline_lake options (set port '{world.lake.server.port}')")
    by_sql(world.lake.catalog, "upsert", hot[:1])
    world.compare()


def _never(df: DataFrame) -> DataFrame:
    """Fails when it is run."""
    return df.where(functions.raise_error(functions.lit("a task ran")).isNull())


WRONG: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[str, Any], str, str]] = {
    "unknown": (lambda df: df.withColumnRenamed("status", "Status"), {}, 'events has no column "Status"', "did you mean status?"),
    "strange": (lambda df: df.withColumn("else", functions.lit(1)), {}, "has no column else", r"df\.drop\('else'\)"),
    "type": (lambda df: df.withColumn("id", functions.lit(1.5)), {}, "column id of public.events is bigint, the DataFrame's is double", "cast"),
    "instant": (lambda df: df.withColumn("ts", functions.col("ts").cast("timestamp_ntz")), {}, "is timestamp with time zone, .* timestamp_ntz", "cast"),
    "struct": (lambda df: df.withColumn("data", functions.struct("id")), {}, "column data .* is jsonb, .* struct<id:bigint>", "to_json"),
    "twice": (lambda df: df.select("*", functions.lit(1).alias("id")), {}, "the column id twice", "once"),
    "key": (lambda df: df.drop("ts"), {"mode": "upsert"}, "no column ts", r"\(id, ts\)"),
    "delete": (lambda df: df.select("status"), {"mode": "delete"}, "no column id", r"\(id, ts\)"),
    "mode": (lambda df: df, {"mode": "overwrite"}, "there is no mode 'overwrite'", "append, upsert or delete"),
    "label": (lambda df: df, {"label": ""}, "not a label: ''", "1 to 1000"),
    "table": (lambda df: df, {"table": "public.plain"}, "public.plain is not a table that Frostline manages", "table list"),
    "no table": (lambda df: df, {"table": "nowhere"}, "public.nowhere is not a table", "table list"),
    "name": (lambda df: df, {"table": "a.b.c"}, "not a table name: 'a.b.c'", "public.events"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_before_a_task_runs(world: World, case: str) -> None:
    change, options, message, hint = WRONG[case]
    given = change(_never(frame(world.session, [old(1)])))
    wanted: dict[str, Any] = {"table": "events", "dsn": world.lake.dsn, **options}
    with pytest.raises(UsageError, match=message) as caught:
        spark.write(given, **wanted)
    assert re.search(hint, str(caught.value.hint)), caught.value.hint


def test_a_database_must_be_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given = frame(world.session, [])
    monkeypatch.delenv("FROSTLINE_DSN", raising=False)
    monkeypatch.delenv("FROSTLINE_HOME", raising=False)
    with pytest.raises(UsageError, match="dsn is not set"):
        spark.write(given, "events")
    monkeypatch.setenv("FROSTLINE_DSN", world.lake.dsn)
    assert spark.write(given, "events") == Written(0)


# What Spark runs again


@pytest.mark.slow
def test_rows_of_attempts_that_have_lost_are_not_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a task leaves them that failed after its COPY, or that was run a second time and was slower."""
    numbers = world.ids(4)
    wanted = [new(number, hot=number % 2 == 0) for number in numbers]

    def lose() -> None:
        ((stage,),) = rows(world.lake.catalog, f"{STAGES.replace('count(*)', 'relname')}")
        for attempt in (10**6, 10**6 + 1):
            again = frame(world.session, [row._replace(status="lost") for row in wanted], 1).toArrow().to_batches()
            assert write_task.outcome(world.lake.dsn, stage, again, attempt).error is None

    when_staged(monkeypatch, lose)
    assert world.both(wanted) == Written(4, inserted=4)
    assert world.both([row._replace(status="upserted") for row in wanted], "upsert") == Written(4, updated=4)


_RETRIED = """
import sys
from pyspark import TaskContext
from frostline import spark
from frostline.pipeline import spark as start
from frostline.spark import write_task, writes

def lose_the_first(batches):
    for batch in batches:
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() > 0:
            raise RuntimeError("after its COPY")
        yield batch

def collected(reports):
    reported = writes.mapped(reports, lose_the_first, write_task.REPORT).collect()
    import psycopg
    with psycopg.connect(sys.argv[1]) as connection:
        stage = connection.execute("select relname from pg_class where relname like 'batch%'").fetchone()[0]
        print(connection.execute(f"select count(*), count(distinct attempt) from frostline_stage.{stage}").fetchone())
    return reported

writes._collected = collected
session = start.session("local[2,3]")
df = session.range(0, 30, 1, 3).selectExpr(
    "5000 + id as id", "timestamp '2024-02-03 00:00:00' as ts", "'retried' as status")
print(spark.write(df, "events", dsn=sys.argv[1]))
start.stop(session)
"""


@pytest.mark.slow
def test_a_task_that_fails_after_its_copy_and_is_run_again_writes_once(world: World) -> None:
    command = [sys.executable, "-c", _RETRIED, world.lake.dsn]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "(50, 5)", done.stdout  # two of three parts are there twice
    assert "Written(rows=30, inserted=30" in done.stdout
    statement = "insert into public.plain (id, ts, status) select i, '2024-02-03 00:00+00', 'retried' from generate_series(5000, 5029) i"
    run(world.lake.catalog, statement)
    world.compare()


# Labels


def test_a_label_is_applied_once_and_belongs_to_one_mode(world: World) -> None:
    given = [new(number, hot=number % 2 == 0) for number in world.ids(2)]
    assert world.both(given, label='it\'s a "label" %s') == Written(2, inserted=2)
    never = _never(frame(world.session, given))
    again = spark.write(never, "events", dsn=world.lake.dsn, label='it\'s a "label" %s')
    assert again == Written(2, applied=False)
    with pytest.raises(UsageError, match="was used for a batch of mode append, this one is delete"):
        spark.write(never, "events", "delete", dsn=world.lake.dsn, label='it\'s a "label" %s')
    world.compare()


@pytest.mark.slow
@pytest.mark.parametrize("first_fails", [False, True])
def test_two_drivers_with_one_label_write_once(
    world: World, monkeypatch: pytest.MonkeyPatch, first_fails: bool
) -> None:
    """Both have staged when the first claims the label; the second waits for the first's end."""
    given = [new(number, hot=number % 2 == 0) for number in world.ids(2)]
    label = f"two drivers {first_fails}"
    both_staged = threading.Barrier(2)
    when_staged(monkeypatch, both_staged.wait)
    turns: list[int] = []

    def first_waits(place: Failpoint) -> None:
        if place is Failpoint.WRITE_BEFORE_COMMIT:
            turns.append(1)
            if len(turns) == 1:
                _until_somebody_waits(world.lake)
                if first_fails:
                    raise ConflictError("the first gives up")

    monkeypatch.setattr(failpoints, "reached", first_waits)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(world.write, given, label=label) for _ in range(2)]
        failed = [future.exception() for future in running]
    results = [future.result().applied for future, error in zip(running, failed, strict=True) if error is None]
    assert sorted(results) == ([True] if first_fails else [False, True])
    by_sql(world.lake.catalog, "append", given)
    world.compare()


def _until_somebody_waits(lake: Lake) -> None:
    waiting = "select count(*) from pg_stat_activity where application_name = 'frostline spark write' and wait_event_type = 'Lock' and datname = current_database()"
    with lake.connect() as connection:
        while not value(connection, waiting):
            time.sleep(0.02)
