"""What a reader in Spark is refused, rather than shown other rows, and what becomes of points that nobody needs."""

import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Client
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from tests.fixtures import copies
from tests.fixtures.cold_twins import change, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.sparkrows import in_postgres, in_spark, nothing_is_held
from tests.fixtures.statements import run, value
from tests.fixtures.waiting import until

from frostline import spark as connector
from frostline.catalog import seams
from frostline.errors import UnavailableError, UsageError
from frostline.spark import keeper, source
from frostline.spark.keeper import KEEPER, Kept, Request
from frostline.spark.source import FrostlineReader, Task
from frostline.tiers import files
from frostline.tiers.pieces import Part

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

GRANTS = """
grant usage on schema public, frostline, frostline_overlay to spark_guest;
grant all on all tables in schema public, frostline, frostline_overlay to spark_guest;
grant usage on all sequences in schema frostline to spark_guest;
"""
SMALL = """
create table public.{0} (id int, ts timestamptz, a varchar(10), b text, primary key (id, ts)) partition by range (ts);
create table public.{0}_1 partition of public.{0} for values from ('2090-01-01+00') to ('2091-01-01+00');
insert into public.{0} select i, '2090-03-01+00', 'a', 'b' from generate_series(1, 10) i;
"""
SWAPPED = """
alter table {0} rename status to swapped; alter table {0} rename data to status; alter table {0} rename swapped to data
"""

MADE_AGAIN = "alter table public._made_again rename b to c; alter table public._made_again add b text"
RETYPED = """
do $$ begin
    execute (select string_agg(format('drop view %s cascade', v), ';') from (
        select distinct d.ev_class::regclass as v from pg_rewrite d join pg_depend p on p.objid = d.oid
         where p.refobjid = 'public._retyped'::regclass and d.ev_class::regclass::text like 'frostline_%') as views);
end $$;
alter table public._retyped alter a type text
"""
HOT, LIVE = "ts >= '2090-01-01' and ts < '2091-01-01'", "ts < '2020-01-01'"
"""The rows of the heap alone, and of the overlay alone."""


@pytest.fixture(scope="module")
def changed(shared_lake: Lake) -> Lake:
    """`events` with rows in the heap, in the lake and in the overlay; a test that changes more takes it back."""
    make_archived(shared_lake)
    change(shared_lake)
    connector.register(shared_lake.session())
    return shared_lake


@pytest.fixture
def guest(changed: Lake) -> Iterator[str]:
    """A role that may read everything."""
    with role(changed.dsn, "spark_guest") as dsn:
        run(changed.catalog, GRANTS)
        yield dsn
        connector.release()  # while there is a role that can: a pin of one that is gone stays until it runs out


def read(lake: Lake, table: str = "public.events", **options: Any) -> DataFrame:
    return connector.read(lake.session(), table, **{"dsn": lake.dsn, **options})


def load(lake: Lake, **options: str) -> DataFrame:
    reader = lake.session().read.format("frostline").option("dsn", lake.dsn).option("table", "public.events")
    return reader.options(**options).load()


def shown(lake: Lake, table: str = "public.events") -> list[Any]:
    with lake.connect() as connection:
        return in_postgres(connection, table)


@contextmanager
def done(lake: Lake, statement: str, undo: str) -> Generator[None]:
    """Run the statement, and take it back afterwards."""
    run(lake.catalog, statement)
    try:
        yield
    finally:
        run(lake.catalog, undo)


def policies(table: str) -> tuple[str, str]:
    on, off = "enable row level security", "disable row level security"
    return f"alter table {table} {on}", f"alter table {table} {off}"


# Rights.


@pytest.mark.slow
def test_row_security_of_a_partition_is_an_error_and_never_fewer_rows(changed: Lake, guest: str) -> None:
    frame = read(changed, dsn=guest, where=HOT)
    count = value(changed.catalog, f"select count(*) from public.events where {HOT}")
    assert frame.count() == count
    with done(changed, *policies("public.events_hot")):
        with pytest.raises(
            PySparkException, match=r'row security of "events_hot" applies to this role.*read as a role'
        ):
            frame.collect()
        with pytest.raises(UsageError, match=r"row security of public\.events_hot applies to this role"):
            read(changed, dsn=guest)
    assert frame.count() == count


def test_who_may_not_read_the_table_reads_none_of_its_states(changed: Lake, guest: str) -> None:
    snapshot = seams.get(changed.catalog, changed.table()).snapshot_id
    ways: list[dict[str, Any]] = [{"where": "ts < '2024-02-01'"}, {"as_of": snapshot}, {"as_of": datetime.now(UTC)}]
    for statements, message in (
        (("revoke all on public._events from spark_guest", GRANTS), r"this role may not read public\.events"),
        (policies("public._events"), r"row security of public\.events applies to this role"),
    ):
        with done(changed, *statements):
            for way in ways:
                with pytest.raises(UsageError, match=message):
                    read(changed, dsn=guest, **way)
    for way in ways:
        assert read(changed, dsn=guest, **way).count() > 0


@pytest.mark.slow
def test_a_named_snapshot_asks_for_the_rights_on_its_table(changed: Lake, guest: str) -> None:
    run(changed.catalog, "create table public.short as select 1 as id; grant all on public.short to spark_guest")
    copies.create(changed, "public.short", "public.events")
    named: dict[str, Any] = {"as_of": "nightly", "dsn": guest}
    assert in_spark(read(changed, "short", **named)) == [(1,)]
    for statements, table in (
        (("revoke all on public.short from spark_guest", GRANTS), "short"),
        (policies("public.short"), "short"),
        (("revoke all on public.events from spark_guest", GRANTS), "events"),
        (policies("public._events"), "events"),
    ):
        refused = pytest.raises(UsageError, match=rf"(may not read|row security of) public\.{table}")
        with done(changed, *statements), refused:
            read(changed, table, **named)
    run(changed.catalog, "drop table public.short")
    assert in_spark(read(changed, "short", **named)) == [(1,)]


# Columns that change.


@pytest.mark.slow
def test_columns_that_swap_names_after_the_point_are_an_error_and_never_other_values(changed: Lake) -> None:
    for table, leaf, where in (
        ("public._events", r"public\.events_(hot|default)", HOT),
        ("frostline_overlay.events_1", r"frostline_overlay\.events_1", LIVE),
    ):
        frame = read(changed, where=where)
        refused = pytest.raises(PySparkException, match=f"the columns of {leaf} have changed since the point in time")
        with done(changed, SWAPPED.format(table), SWAPPED.format(table)), refused:
            frame.collect()
        assert frame.count() == value(changed.catalog, f"select count(*) from public.events where {where}")


@pytest.mark.parametrize(
    ("table", "statement"),
    [("made_again", MADE_AGAIN), ("retyped", RETYPED)],
    ids=["made again", "retyped"],
)
@pytest.mark.slow
def test_a_column_that_was_made_anew_or_has_another_type_is_an_error(changed: Lake, table: str, statement: str) -> None:
    run(changed.catalog, SMALL.format(table))
    changed.add(table)
    frame = read(changed, table)
    assert frame.where("b = 'b'").count() == 10
    filenode = f"select pg_relation_filenode('public.{table}_1')"
    before = value(changed.catalog, filenode)
    run(changed.catalog, statement)
    assert value(changed.catalog, filenode) == before  # that is looked at already
    with pytest.raises(PySparkException, match=rf"the columns of public\.{table}_1 have changed since"):
        frame.collect()


@pytest.mark.slow
def test_columns_with_other_names_in_the_overlay_are_refused(changed: Lake) -> None:
    heap = SWAPPED.format("public._events")
    with done(changed, heap, heap):
        with pytest.raises(UsageError, match=r"column 'data' of public\.events is 'status' in its overlay") as refused:
            read(changed)
        assert refused.value.hint == "frostline table sync public.events"
    assert in_spark(read(changed)) == shown(changed)


@pytest.mark.slow
def test_a_file_that_does_not_tell_its_tier_values_is_not_taken_for_one_below_the_line(
    changed: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is lowered by hand, so that the file of February lies on both sides of it."""
    real = files.of_state
    monkeypatch.setattr(files, "of_state", lambda *of: tuple(replace(file, ranges={}) for file in real(*of)))
    line = value(changed.catalog, "select line_timestamptz::text from frostline.seam limit 1")
    lower = "update frostline.seam set line_timestamptz = '{}' where table_id = 1"
    with done(changed, lower.format("2024-02-01 05:00:00+00"), lower.format(line)):
        expected = shown(changed)
        assert in_spark(read(changed)) == expected
        assert _counted(KEEPER.get(KEEPER.ids()[0])) == len(expected)


def _counted(kept: Kept) -> int:
    """The rows that the tasks of the data source read, in this process."""
    at = kept.point.tables["public.events"]
    reading = source.reading(kept.point.moment, None, at, Part.ALL, files.shown_names(at.table))
    pieces = [partition.piece for partition in FrostlineReader(reading).partitions() if isinstance(partition, Task)]
    return sum(batch.num_rows for piece in pieces for batch in source.batches(reading, piece))


# Points that nobody needs.


@pytest.mark.slow
def test_a_load_that_fails_holds_nothing(changed: Lake) -> None:
    for options, message in (
        ({"columns": "id,nope"}, "has no column 'nope'"),
        ({"columns": "[id"}, "option 'columns' is no list"),
        ({"part": "bogus"}, "unknown part 'bogus'"),
    ):
        with pytest.raises(PySparkException, match=message):
            load(changed, **options)
        assert KEEPER.ids() == []
    reader = changed.session().read.format("frostline").option("dsn", changed.dsn).option("table", "events")
    with pytest.raises(PySparkException, match="a schema of your own cannot be given"):
        reader.schema("id int").load().collect()
    until(lambda: nothing_is_held(changed))


@pytest.mark.slow
def test_release_finds_every_point_of_what_was_derived(changed: Lake) -> None:
    spark = changed.session()
    derivations: list[Callable[[DataFrame, DataFrame], DataFrame]] = [
        lambda first, other: first.unionAll(other),
        lambda first, other: first.join(other, "id").groupBy().count().select("count"),
        lambda first, other: other.where(first.where("id = 5").select("id").exists()),
    ]
    for derived in derivations:
        left, other = read(changed, columns=["id"], where=HOT), load(changed, columns="id")
        assert len(KEEPER.ids()) == 2
        connector.release(derived(left, other))
        assert KEEPER.ids() == []
    with pytest.raises(UsageError, match="this DataFrame shows no point in time"):
        connector.release(spark.range(3).toDF("id"))


def test_a_view_that_replaces_another_releases_it(changed: Lake) -> None:
    spark = changed.session()
    for _ in range(2):
        connector.view(spark, "replaced", "events", dsn=changed.dsn, where=HOT)
        connector.view(spark, "another", "events", dsn=changed.dsn, where=HOT)
    assert len(KEEPER.ids()) == 2
    assert spark.table("replaced").count() == spark.table("another").count() > 0


def test_a_point_whose_asker_has_gone_is_released(changed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Kept] = []
    take = KEEPER.take
    monkeypatch.setattr(KEEPER, "take", lambda *of: taken.append(take(*of)) or taken[-1])
    address = KEEPER.address()
    with Client(("127.0.0.1", address.port), authkey=address.secret) as connection:
        connection.send(Request(changed.dsn, None, ("events",)))
    until(lambda: bool(taken) and not KEEPER.ids())
    until(lambda: nothing_is_held(changed))


def test_who_says_nothing_to_the_keeper_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "ANSWER_S", 20.0)
    monkeypatch.setattr(keeper, "HANDSHAKE_S", 0.5)
    address = KEEPER.address()
    with socket.create_connection(("127.0.0.1", address.port)) as silent:
        with pytest.raises(UsageError, match="the point in time of this DataFrame was released"):
            keeper.ask(address, Request(point_id="none"))
        silent.settimeout(20)
        while silent.recv(1024):  # the greeting; then the keeper gives up
            pass


def test_a_driver_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = keeper.Address(deaf.getsockname()[1], b"secret")
        with pytest.raises(UnavailableError, match=r"the Spark driver gave no point in time within 0\.2 s"):
            keeper.ask(address, Request(tables=("events",)))
