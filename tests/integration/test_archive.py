"""Archive: rows move to the lake, and nobody who reads the relation can tell."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first, some
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until_true

from frostline.catalog import jobs, patience, seams
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.lake import commit
from frostline.observe import status
from frostline.pipeline import archive, plan
from frostline.relation import bound, heap, policy

EVERYTHING = "select count(*), sum(amount), md5(string_agg(e::text, '|' order by id)) from public.events e"


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Six months of rows in `public.events`, registered and not yet archived."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add()
    return lake


def answers(connection: psycopg.Connection) -> tuple[object, ...]:
    row = connection.execute(EVERYTHING).fetchone()
    assert row is not None
    return row


def test_the_relation_is_the_same_before_and_after(events: Lake) -> None:
    with events.connect() as connection:
        before = answers(connection)
        (result,) = events.archive()
        assert (result.partitions, result.rows, result.error) == (6, 3000, None)
        assert answers(connection) == before
    assert events.value("select count(*) from public._events where ts >= '2024-07-01'") == 0
    assert len(events.data_files()) == 6


def test_a_second_archive_is_a_no_op(events: Lake) -> None:
    events.archive()
    seam = seams.get(events.catalog, events.table())
    (again,) = events.archive()
    assert (again.partitions, again.rows) == (0, 0)
    assert seams.get(events.catalog, events.table()) == seam


def test_readers_never_notice_and_never_wait(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=25)
    fill_events(lake.catalog, months=25, rows_a_month=8000)
    lake.add(hot="1 month")
    with lake.connect() as first:
        before = answers(first)
    seen: set[tuple[object, ...]] = set()
    with _looping_reader(lake, seen), lake.connect() as held, lake.connect() as prepared:
        held.execute("begin isolation level repeatable read")
        assert answers(held) == before
        prepared.execute("prepare everything as " + EVERYTHING)
        (result,) = lake.archive()
        assert (result.partitions, result.rows) == (25, 200_000)
        assert answers(held) == before
        assert prepared.execute("execute everything").fetchone() == before
        lake.clean()
        assert answers(held) == before
    assert seen == {before}


@contextmanager
def _looping_reader(lake: Lake, seen: set[tuple[object, ...]]) -> Generator[None]:
    """Read all the time, with a lock timeout so short that any wait for a lock is an error."""
    stop, failures = threading.Event(), list[Exception]()

    def read() -> None:
        with lake.connect() as connection:
            connection.execute("set lock_timeout = '1ms'")
            while not stop.is_set():
                try:
                    seen.add(answers(connection))
                except Exception as error:  # noqa: BLE001  (whatever it is, the test fails with it)
                    failures.append(error)
                    return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
    assert failures == []


@pytest.mark.slow
def test_an_empty_partition_moves_the_line_and_writes_no_file(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=2)
    lake.add()
    (result,) = lake.archive()
    assert (result.partitions, result.rows) == (2, 0)
    assert lake.data_files() == []
    (state,) = status.read(lake.catalog).tables
    assert (state.lake.frost_line, state.lake.snapshot_id) == ("2024-03-01 00:00:00+00", None)
    assert lake.value("select count(*) from public.events") == 0


@pytest.mark.slow
def test_a_gap_between_partitions_is_crossed(events: Lake) -> None:
    events.catalog.execute("drop table public.events_3")
    with events.connect() as connection:
        connection.execute("insert into public.events (ts, status) values ('2024-03-10', 'in the gap')")
        before = answers(connection)
        (result,) = events.archive()
        assert result.partitions == 5
        assert answers(connection) == before
        assert events.value("select status from public.events where ts = '2024-03-10'") == "in the gap"


@pytest.mark.slow
def test_partitions_that_start_at_local_midnight_are_cut_at_the_lakes_months(lake: Lake) -> None:
    lake.catalog.execute("""
        create table public.events (id bigint generated always as identity, ts timestamptz, status text,
            amount numeric(12,2), data jsonb, primary key (id, ts)) partition by range (ts);
        create table public.first partition of public.events for values from (minvalue) to ('2024-01-01 00:00:00+02');
        create table public.second partition of public.events
            for values from ('2024-01-01 00:00:00+02') to ('2024-02-01 00:00:00+02')
    """)
    fill_events(lake.catalog, months=1)
    lake.catalog.execute(
        "insert into public.events (ts)"
        " values ('0044-03-15 BC'), ('-infinity'), ('2023-12-31 22:30:00+00'), ('1999-01-01')"
    )
    lake.add()
    with lake.connect() as connection:
        before = answers(connection)
        lake.archive()
        assert answers(connection) == before
    assert len(lake.data_files()) == 5


@pytest.mark.parametrize(
    ("kind", "rows", "edges"),
    first(
        2,
        [
            ("date", "date '2024-01-01' + i", ("'2024-01-01'", "'2024-03-01'", "'2024-05-01'")),
            (
                "timestamp",
                "timestamp '2024-01-01' + i * interval '1 day'",
                ("'2024-01-01'", "'2024-03-01'", "'2024-05-01'"),
            ),
            ("smallint", "i", ("0", "50", "120")),
            ("integer", "i * 1000", ("minvalue", "50000", "120000")),
            ("bigint", "-i * 1000000000000", ("-120000000000000", "-50000000000000", "1")),
        ],
    ),
)
def test_every_tier_key_type_archives(lake: Lake, kind: str, rows: str, edges: tuple[str, str, str]) -> None:
    low, middle, high = edges
    run(
        lake.catalog,
        f"create table public.t (k {kind} primary key, v text) partition by range (k);"
        f"create table public.t_1 partition of public.t for values from ({low}) to ({middle});"
        f"create table public.t_2 partition of public.t for values from ({middle}) to ({high});"
        f"insert into public.t select ({rows})::{kind}, i::text from generate_series(0, 99) i",
    )
    everything = "select md5(string_agg(t::text, '|' order by k)) from public.t t"
    before = lake.value(everything)
    lake.add("t", hot="1 month" if kind in ("date", "timestamp") else "1")
    (result,) = lake.archive("t")
    assert result.error is None
    assert result.rows > 0
    assert lake.value(everything) == before


LOWEST = {"bigint": -(2**63), "integer": -(2**31), "smallint": -(2**15)}
LOW_TABLE = """
create table public.t (k {kind} primary key, v text) partition by range (k);
create table public.t_1 partition of public.t for values from (minvalue) to ({middle});
create table public.t_2 partition of public.t for values from ({middle}) to (100);
insert into public.t values ({lowest}, 'first'), ({lowest} + 5, 'low'), (50, 'high');
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(LOWEST, "bigint"))
def test_the_lowest_values_of_an_integer_archive_where_the_lake_partition_can_begin_there(
    lake: Lake, kind: str
) -> None:
    run(lake.catalog, LOW_TABLE.format(kind=kind, lowest=LOWEST[kind], middle=LOWEST[kind] + 1000))
    lake.add("t", hot="1", lake_partition="truncate[1024]")
    (result,) = lake.archive("t")
    assert (result.error, result.rows) == (None, 2)
    assert lake.value("select string_agg(v, ' ' order by k) from public.t") == "first low high"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bigint", "integer"])
def test_a_value_whose_lake_partition_would_begin_below_its_type_is_refused(lake: Lake, kind: str) -> None:
    run(lake.catalog, LOW_TABLE.format(kind=kind, lowest=LOWEST[kind], middle=LOWEST[kind] + 1000))
    lake.add("t", hot="1", lake_partition="truncate[1000]")
    (result,) = lake.archive("t")
    assert isinstance(result.error, UsageError)
    assert str(LOWEST[kind]) in str(result.error)
    assert "truncate[1024]" in (result.error.hint or "")
    assert lake.value("select string_agg(v, ' ' order by k) from public.t") == "first low high"


def test_a_row_changed_during_the_export_is_right_afterwards(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change falls between the export's snapshot and the publish, where other systems lose it."""
    changes = [
        "update public.events set status = 'changed' where id in (1, 2)",
        "update public._events set status = 'changed below the view' where id = 3",
        "delete from public.events where id = 4",
        "insert into public.events (ts, status) values ('2024-02-02', 'late')",
        "update public.events set ts = ts + interval '1 month' where id = 5",
        "update public.events set ts = '2030-01-01' where id = 6",
    ]
    real, reference = commit.stage, list[tuple[object, ...]]()

    def stage(*arguments: object, **options: object) -> commit.StagedCommit:
        with events.connect() as connection:
            for change in changes:
                run(connection, change)
            reference.append(answers(connection))
        return real(*arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(archive.commit, "stage", stage)
    events.archive()
    with events.connect() as connection:
        assert [answers(connection)] == reference
    (state,) = status.read(events.catalog).tables
    assert state.lake.overlay_rows == 8


def test_a_writer_before_capture_and_a_writer_of_a_lake_row_are_both_right(events: Lake) -> None:
    before = events.value("select status from public.events where id = 1")
    with events.connect() as writer, ThreadPoolExecutor() as pool:
        with writer.transaction():
            writer.execute("update public.events set status = 'late' where id = 1500")
            archived = pool.submit(events.archive)  # capture waits for this writer
        archived.result()
        with writer.transaction():
            writer.execute("update public.events set status = 'later' where id = 1")
            assert events.value("select status from public.events where id = 1") == before
    assert events.value("select status from public.events where id = 1") == "later"
    assert events.value("select status from public.events where id = 1500") == "late"


def test_capture_gives_up_on_a_writer_that_stays(events: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    (first, *_) = heap.partitions(events.catalog, events.table())
    with events.connect() as writer, writer.transaction():
        writer.execute("update public.events set status = 'late' where id = 1")
        with pytest.raises(UnavailableError, match=f"partition {first.name} is still being written to"):
            heap.capture(events.catalog, events.table(), first.name)
    heap.capture(events.catalog, events.table(), first.name)
    heap.capture(events.catalog, events.table(), first.name)


@pytest.mark.slow
def test_one_tables_failure_does_not_stop_the_others(events: Lake) -> None:
    make_events(events.catalog, "public.broken")
    events.catalog.execute("insert into public.broken (ts, amount) values ('2024-01-05', 'NaN')")
    events.add("broken")
    results = {result.table.name.table: result for result in events.archive()}
    assert results["events"].rows == 3000
    assert isinstance(results["broken"].error, UsageError)
    assert "amount" in str(results["broken"].error)
    job = jobs.last(events.catalog, events.table("broken"))
    assert job is not None
    assert job.state == "failed"
    assert events.value("select count(*) from public.broken") == 1


def test_a_backlog_is_published_piece_by_piece(events: Lake) -> None:
    events.settings = events.settings.model_copy(update={"archive_batch_bytes": 200_000})
    size = sum(partition.size_bytes for partition in plan.of_table(events.catalog, events.table()).plan.partitions)
    assert size > 400_000
    before = events.value("select md5(string_agg(e::text, '|' order by id)) from public.events e")
    (result,) = events.archive()
    assert result.partitions == 6
    assert events.value("select count(*) > 1 from frostline.job")
    assert events.value("select md5(string_agg(e::text, '|' order by id)) from public.events e") == before


@pytest.mark.slow
def test_many_small_shards_make_the_same_table(events: Lake) -> None:
    events.settings = events.settings.model_copy(update={"export_shard_bytes": 16_384})
    before = events.value("select md5(string_agg(e::text, '|' order by id)) from public.events e")
    events.archive()
    assert len(events.data_files()) > 6
    assert events.value("select md5(string_agg(e::text, '|' order by id)) from public.events e") == before


@pytest.mark.slow
def test_the_bound_is_raised_by_attaching_and_merged_later(events: Lake) -> None:
    make_events_later = (
        "create table public.events_7 partition of public._events for values from ('2024-07-01') to ('2024-08-01')"
    )
    events.archive()
    events.catalog.execute(make_events_later)
    events.catalog.execute("insert into public.events (ts) values ('2024-07-05')")
    before = events.value("select count(*) from public.events")
    foreign = "select count(*) from pg_foreign_table f join pg_inherits i on i.inhrelid = f.ftrelid"
    with events.connect() as reader, reader.transaction():
        reader.execute("select count(*) from public.events")
        events.archive()  # the reader's lock keeps the foreign tables from being merged
        assert events.value(foreign) == 2
        assert events.value("select count(*) from public.events") == before
    events.clean()
    assert events.value(foreign) == 1
    assert events.value("select count(*) from public.events") == before


def test_publish_waits_for_a_statement_that_was_planned_with_the_old_bound(events: Lake) -> None:
    """A statement planned before the attach and executed after the publish would miss the moved rows."""
    table, said = events.table(), list[str]()
    events.catalog.execute("create table public.held (x int) partition by range (x)")
    events.catalog.execute("create table public.held_1 partition of public.held for values from (0) to (9)")
    # The planner has seen the lake's partitions when it comes to the second table's, and waits there.
    query = "select (select count(*) from public.events), (select count(*) from public.held)"
    connections = events.connect(), events.connect(), events.connect()
    with connections[0] as blocker, connections[1] as reader, connections[2] as watcher, ThreadPoolExecutor() as pool:
        pid = reader.info.backend_pid
        with blocker.transaction():
            blocker.execute("lock table public.held_1 in access exclusive mode")
            answer = pool.submit(lambda: reader.execute(query).fetchone())
            until_true(
                watcher, "select count(*) from pg_locks where not granted and relation = 'public.held_1'::regclass"
            )
            raising = pool.submit(bound.raise_to, events.catalog, table, 1_704_067_200_000_000, said.append)
            until_true(watcher, "select count(*) from pg_class where relname like 'events%until%'")
            assert wait([raising], timeout=0.5).not_done
        assert answer.result() == (3000, 0)
        raising.result()
    assert any(str(pid) in line for line in said)


def test_read_only_transactions_and_select_only_roles_read_both_tiers(events: Lake) -> None:
    events.archive()
    with events.connect() as connection:
        connection.execute("create role frostline_onlooker")
        try:
            connection.execute("grant select on public.events to frostline_onlooker")
            connection.execute("begin read only; set local role frostline_onlooker")
            assert connection.execute("select count(*) from public.events").fetchone() == (3000,)
            connection.execute("rollback")
        finally:
            connection.execute("drop owned by frostline_onlooker; drop role frostline_onlooker")


HOT_QUERIES = [
    "select count(*) from public.events where ts >= '2024-07-01'",
    "select count(*) from public.events where ts > now() - interval '1 day'",
    "execute by_parameter('2024-07-01')",
    "execute by_range('2024-07-01', '2025-07-01')",
    "select * from public.events where id = 5 and ts = '2024-07-05'",
]


@pytest.mark.parametrize("query", first(2, HOT_QUERIES))
def test_a_hot_query_never_executes_the_foreign_scan(events: Lake, query: str) -> None:
    events.catalog.execute(
        "create table public.events_7 partition of public._events for values from ('2024-07-01') to ('2024-08-01')"
    )
    events.table()
    events.catalog.execute("update frostline.managed_table set hot_interval = now() - timestamptz '2024-07-02'")
    events.archive()
    with events.connect() as connection:
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute("prepare by_parameter(timestamptz) as select count(*) from public.events where ts >= $1")
        connection.execute(
            "prepare by_range(timestamptz, timestamptz) as select * from public.events where ts >= $1 and ts < $2"
        )
        plan_lines = [line for (line,) in run(connection, f"explain (analyze, costs off) {query}")]
        scans = [line for line in plan_lines if "Foreign Scan" in line]
        assert all("never executed" in line for line in scans), "\n".join(plan_lines)


def test_while_the_lake_is_down_hot_work_goes_on_and_cold_queries_fail_clearly(events: Lake) -> None:
    events.archive()
    events.catalog.execute(
        "create table public.events_7 partition of public._events for values from ('2024-07-01') to ('2024-08-01')"
    )
    events.server.stop()
    with events.connect() as connection:
        connection.execute("insert into public.events (ts, status) values ('2024-07-05', 'hot')")
        hot = connection.execute("select status from public.events where ts >= '2024-07-01'").fetchall()
        assert hot == [("hot",)]
        with pytest.raises(psycopg.OperationalError, match="frostline_lake"):
            connection.execute("select count(*) from public.events")
    (state,) = status.read(events.catalog).tables
    assert state.lake.rows == 3000


@pytest.mark.parametrize(
    "change", first(1, ["drop table public.events_3", "alter table public._events detach partition public.events_3"])
)
def test_a_partition_that_goes_away_meanwhile_is_not_published(
    events: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its rows were exported already."""
    stage = commit.stage

    def then(*arguments: Any, **named: Any) -> commit.StagedCommit:
        staged = stage(*arguments, **named)
        run(events.catalog, change)
        return staged

    with monkeypatch.context() as patched:
        patched.setattr(commit, "stage", then)
        (result,) = events.archive()
    assert isinstance(result.error, ConflictError)
    assert events.value("select count(*) from public.events") == 2500
    (again,) = events.archive()
    assert again.error is None
    assert events.value("select count(*) from public.events") == 2500


@pytest.mark.slow
def test_marks_of_a_dropped_partition_do_not_come_back(events: Lake) -> None:
    """Undo leaves marks above the line; whoever then drops the partition means its rows, too."""
    policy.change(events.catalog, events.table(), grace_period="1 day")
    events.archive()
    with events.connect() as connection:
        run(connection, "update public.events set status = 'marked' where ts >= '2024-06-01' and ts < '2024-06-03'")
    events.undo()
    run(events.catalog, "drop table public.events_6")
    policy.change(events.catalog, events.table(), grace_period="0", release=True)
    july = "for values from ('2024-07-01 00:00+00') to ('2024-08-01 00:00+00')"
    run(events.catalog, f"create table public.events_7 partition of public._events {july}")
    (result,) = events.archive()
    assert result.error is None
    assert events.value("select count(*) from public.events where ts >= '2024-06-01' and ts < '2024-07-01'") == 0
