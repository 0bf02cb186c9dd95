"""A snapshot of many tables is one moment of all of them, and all of it is visible or nothing."""

import threading
import time
from collections.abc import Callable

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.catalog import snapshot_versions
from frostline.catalog.connect import connect
from frostline.errors import ConflictError, OutcomeUnknown, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.model.names import Name
from frostline.pipeline import snapshot_copy, snapshot_destinations, snapshot_drop
from frostline.pipeline.tasks import Progress

pytestmark = pytest.mark.spark

TWO = """
create table public.orders (id int, amount numeric(10,2), note text);
insert into public.orders select i, i / 4.0, 'order ' || i from generate_series(1, 1000) i;
create table public.customers (id int primary key, name text);
insert into public.customers values (1, 'Ann'), (2, null);
"""
ORDERS, CUSTOMERS = Name("public", "orders"), Name("public", "customers")
_HOLDER = (
    "select pid from pg_stat_activity where application_name = 'frostline snapshot' and datname = current_database()"
)


@pytest.fixture
def two(lake: Lake) -> Lake:
    """Two plain tables."""
    run(lake.catalog, TWO)
    return lake


def once(act: Callable[[], None]) -> Callable[[Progress], None]:
    """Do it when the run reports for the first time: the snapshot is taken then, and tasks are under way."""
    done: list[bool] = []

    def report(_progress: Progress) -> None:
        if not done:
            done.append(True)
            act()

    return report


def nothing_is_visible(lake: Lake) -> None:
    assert value(lake.catalog, "select count(*) from frostline.iceberg_tables") == 0
    assert value(lake.catalog, "select count(*) from frostline.snapshot_cut") == 0
    assert snapshot_versions.versions(lake.catalog) == []


def test_tables_are_copied_and_other_engines_read_them(two: Lake) -> None:
    result = copies.create(two, "public.*")
    assert (result.version, [table.name for table in result.tables]) == (1, [CUSTOMERS, ORDERS])
    there = copies.shown(two)
    expected = rows(two.catalog, "select id, amount, note from public.orders")
    assert (there[ORDERS].rows, there[CUSTOMERS].rows) == (1000, 2)
    assert sorted(map(tuple, (row.values() for row in copies.by_pyiceberg(there[ORDERS]).to_pylist()))) == expected
    assert sorted(copies.by_duckdb(there[ORDERS])) == expected
    assert sorted(copies.by_spark(two.session(), there[ORDERS])) == expected


def test_the_catalog_of_iceberg_has_the_copies(two: Lake) -> None:
    copies.create(two, "public.*")
    pointers = "select table_namespace, table_name, metadata_location from frostline.iceberg_tables order by 2"
    cut = (
        "select namespace, lake_table, metadata_location from frostline.snapshot_cut where name = 'nightly' order by 2"
    )
    assert rows(two.catalog, pointers) == rows(two.catalog, cut)
    assert [row[:2] for row in rows(two.catalog, cut)] == [
        ("nightly.public", "customers"),
        ("nightly.public", "orders"),
    ]
    namespaces = "select namespace from frostline.iceberg_namespace_properties order by 1"
    assert rows(two.catalog, namespaces) == [("nightly",), ("nightly.public",)]


def test_every_table_is_of_the_same_moment(two: Lake) -> None:
    run(two.catalog, "create table public.accounts_a as select i as id, 100 as held from generate_series(1, 50) i")
    run(two.catalog, "create table public.accounts_b as select i as id, 100 as held from generate_series(1, 50) i")
    stop = threading.Event()

    def transfer() -> None:
        with psycopg.connect(two.dsn) as connection:
            while not stop.is_set():
                run(connection, "update public.accounts_a set held = held - 1 where id = 7")
                run(connection, "update public.accounts_b set held = held + 1 where id = 9")
                connection.commit()

    def change() -> None:
        with two.connect() as connection:
            run(connection, "insert into public.accounts_a values (99, 1000000); delete from public.customers")

    writer = threading.Thread(target=transfer)
    writer.start()
    try:
        copies.create(two, "public.*", report=once(change))
    finally:
        stop.set()
        writer.join()
    there = copies.shown(two)
    sums = [
        copies.by_duckdb(there[Name("public", f"accounts_{letter}")], "select sum(held) from copy") for letter in "ab"
    ]
    assert sum(held for ((held,),) in sums) == 10_000
    assert there[CUSTOMERS].rows == 2


def test_a_table_that_cannot_be_copied_leaves_nothing_visible_and_the_next_run_deletes_the_files(two: Lake) -> None:
    run(two.catalog, "insert into public.orders values (0, 'NaN', 'no number')")
    with pytest.raises(UsageError, match=r"public\.orders: column 'amount' has 1 values"):
        copies.create(two, "public.*")
    nothing_is_visible(two)
    (failed,) = snapshot_versions.versions(two.catalog, include_unpublished=True)
    assert (failed.state, "'amount'" in str(failed.error)) == ("failed", True)
    left = two.data_files()
    assert left
    run(two.catalog, "delete from public.orders where id = 0")
    assert copies.create(two, "public.*").version == 2
    assert not set(left) & set(two.data_files())


def kill_holder(lake: Lake) -> None:
    with lake.connect() as connection:
        run(connection, f"select pg_terminate_backend(pid) from ({_HOLDER}) holder")


def test_the_loss_of_the_holder_ends_the_run(two: Lake) -> None:
    with pytest.raises(UnavailableError, match="connection that holds the snapshot was lost"):
        copies.create(two, "public.*", report=once(lambda: kill_holder(two)))
    nothing_is_visible(two)


def test_the_loss_of_the_holder_is_noticed_while_tasks_run(two: Lake) -> None:
    """A lock that is waited for keeps the tasks busy; none of them can notice anything."""
    session = two.session
    with two.connect() as other:
        run(other, "begin")
        waiting = threading.Thread(target=run, args=(other, "lock table public.orders"))

        def hold_up() -> SparkSession:
            waiting.start()
            while not value(two.catalog, "select count(*) from pg_locks where not granted"):
                time.sleep(0.02)
            kill_holder(two)
            return session()

        two.session = hold_up
        with pytest.raises(UnavailableError, match="connection that holds the snapshot was lost"):
            copies.create(two, "public.*")
        waiting.join()
    nothing_is_visible(two)


def test_who_waits_to_alter_a_table_does_not_wait_for_ever(two: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_copy, "_LOCK_TIMEOUT_S", 1)
    session = two.session
    with two.connect() as other:
        waiting = threading.Thread(target=run, args=(other, "drop table public.orders"))

        def begin_to_drop() -> SparkSession:
            waiting.start()
            while not value(two.catalog, "select count(*) from pg_locks where not granted"):
                time.sleep(0.02)
            return session()

        two.session = begin_to_drop
        with pytest.raises(UnavailableError, match=r"cannot read public\.orders: .* lock timeout"):
            copies.create(two, "public.*")
        waiting.join()
    nothing_is_visible(two)


def test_dropping_and_altering_wait_for_the_run(two: Lake) -> None:
    refused: list[str] = []

    def alter() -> None:
        with two.connect() as connection:
            run(connection, "set lock_timeout = '100ms'")
            for statement in (
                "drop table public.orders",
                "truncate public.orders",
                "alter table public.orders drop note",
            ):
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    run(connection, statement)
                refused.append(statement)
            run(connection, "insert into public.orders values (5000, 1, 'nobody else waits')")

    copies.create(two, "public.*", report=once(alter))
    assert len(refused) == 3
    assert copies.shown(two)[ORDERS].rows == 1000


@pytest.mark.parametrize("change", ["drop table public.orders", "alter table public.orders add more text default 'x'"])
def test_a_table_that_changes_before_it_is_locked_is_looked_at_again(two: Lake, change: str) -> None:
    with two.connect() as other:
        run(other, f"begin; {change}")

        def commit() -> None:
            time.sleep(1)
            run(other, "commit")

        committing = threading.Thread(target=commit)
        committing.start()
        copies.create(two, "public.*")
        committing.join()
    there = copies.shown(two)
    if change.startswith("drop"):
        assert list(there) == [CUSTOMERS]
    else:
        assert set(copies.by_pyiceberg(there[ORDERS])["more"].to_pylist()) == {"x"}


def test_a_named_table_that_is_gone_by_then_is_an_error(two: Lake) -> None:
    with two.connect() as other:
        run(other, "begin; drop table public.orders")
        committing = threading.Timer(1, lambda: run(other, "commit"))
        committing.start()
        with pytest.raises(UsageError, match=r"--tables 'public\.orders' names no table"):
            copies.create(two, "public.orders", "public.customers")
        committing.join()
    nothing_is_visible(two)


def test_a_second_run_of_the_same_name_is_refused(two: Lake) -> None:
    with connect(two.dsn, purpose="tests") as other, snapshot_versions.exclusive(other, "nightly"):
        with pytest.raises(ConflictError, match="another run on snapshot 'nightly' is going on"):
            copies.create(two, "public.*")
        assert copies.create(two, "public.customers", name="hourly").version == 1


def test_a_commit_of_somebody_else_is_not_overwritten(two: Lake) -> None:
    copies.create(two, "public.*")
    with two.connect() as other:
        run(other, "set session_replication_role = replica")  # past the trigger that would refuse it
        run(other, "update frostline.iceberg_tables set metadata_location = 'theirs' where table_name = 'orders'")
    with pytest.raises(ConflictError, match=r"nightly\.public\.orders was committed to by somebody else") as refused:
        copies.create(two, "public.*")
    assert snapshot_versions.versions(two.catalog)[-1].version == 1
    assert (
        value(two.catalog, "select metadata_location from frostline.iceberg_tables where table_name = 'orders'")
        == "theirs"
    )
    assert str(refused.value.hint).startswith("frostline snapshot drop nightly,")
    snapshot_drop.drop(two.catalog, two.settings, "nightly")
    copies.create(two, "public.*")


def kill_publisher(lake: Lake) -> None:
    pid = lake.catalog.info.backend_pid
    with lake.connect() as connection:
        run(connection, f"select pg_terminate_backend({pid})")


def only_a_dead_run_is_there(lake: Lake) -> None:
    with lake.connect() as connection:
        assert rows(connection, "select state from frostline.snapshot") == [("running",)]
        assert value(connection, "select count(*) from frostline.snapshot_cut") == 0
        assert value(connection, "select count(*) from frostline.iceberg_tables") == 0


def test_a_connection_that_is_lost_before_the_publish_publishes_nothing(two: Lake) -> None:
    with pytest.raises(UnavailableError, match="connection that is to publish the snapshot was lost"):
        copies.create(two, "public.*", report=once(lambda: kill_publisher(two)))
    only_a_dead_run_is_there(two)


def test_a_connection_that_is_lost_in_the_publish_is_an_unknown_outcome(
    two: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(place: Failpoint) -> None:
        if place is Failpoint.SNAPSHOT_BEFORE_COMMIT:
            kill_publisher(two)

    monkeypatch.setattr(snapshot_destinations, "reached", reached)
    with pytest.raises(OutcomeUnknown, match="lost Postgres while publishing 'nightly'"):
        copies.create(two, "public.*")
    only_a_dead_run_is_there(two)
