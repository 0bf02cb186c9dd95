"""Tables of which only the partitions are managed: no rename, no view, no lake; and what is past its retention goes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures.command import Command, Said
from tests.fixtures.doomed import die
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.model.names import Name
from frostline.model.policy import ExpireBy, ForeignKeys, Mode, Policy
from frostline.model.tables import Table
from frostline.partitions import dropping, partition_mode
from frostline.pipeline import premake as job
from frostline.relation.registration import Request
from frostline.settings import Settings

EVENTS = Name("public", "events")
CONTENTS = "select k::text, note from public.events order by 1, 2"
PARTITIONS = "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.events'::regclass order by 1"

Parsed = Callable[..., Any]


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(dsn=database, warehouse="/nowhere")


@pytest.fixture
def parsed(command: Command, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Parsed:
    """Runs a command with JSON output and gives back what it printed."""
    monkeypatch.setenv("FROSTLINE_DSN", database)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(tmp_path))

    def call(*words: object) -> Any:
        said = command(*words, "--output", "json")
        assert said.exit_code == 0, said.stderr
        return json.loads(said.stdout)

    return call


def numbers(connection: Connection, *, default: bool, parts: int = 4) -> None:
    """A table of integers with partitions of 100, one row in each hundred, without a primary key."""
    run(connection, "create table public.events (k int, note text) partition by range (k)")
    for number in range(parts):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(connection, f"create table public.p{number} partition of public.events for values {bounds}")
    if default:
        run(connection, "create table public.rest partition of public.events default")
    run(
        connection, f"insert into public.events select i * 100 + 50, 'row ' || i from generate_series(0, {parts - 1}) i"
    )


def manage(connection: Connection, **fields: Any) -> Table:
    return partition_mode.add(connection, Request(EVENTS, Policy(**fields))).table


def parts(connection: Connection) -> list[str]:
    return [name for (name,) in rows(connection, PARTITIONS)]


def test_adding_changes_nothing_but_the_catalog(catalog: Connection) -> None:
    numbers(catalog, default=False)
    objects = (
        "select oid, relname, relkind, relowner from pg_class where relnamespace = 'public'::regnamespace order by 1"
    )
    before = rows(catalog, objects)
    table = manage(catalog, premake=1)
    assert rows(catalog, objects) == before
    assert (table.mode, table.heap, table.policy.hot_period) == (Mode.PARTITION, EVENTS, None)
    again = partition_mode.add(catalog, Request(EVENTS, Policy()))
    assert (again.changed, again.table) == (False, table)
    assert value(catalog, "select count(*) from frostline.seam") == 0
    partition_mode.remove(catalog, table)
    assert tables.list_all(catalog) == []
    assert rows(catalog, objects) == before


def test_a_dry_run_adds_nothing(catalog: Connection) -> None:
    numbers(catalog, default=False)
    assert partition_mode.add(catalog, Request(EVENTS, Policy()), dry_run=True).changed
    assert tables.list_all(catalog) == []


@pytest.mark.parametrize(
    ("create", "asked", "complaint"),
    [
        ("create table public.events (k int)", Policy(), "public.events is not partitioned"),
        ("create view public.events as select 1 as k", Policy(), "public.events is not a table"),
        ("create table public.events (k int) partition by list (k)", Policy(), "not RANGE-partitioned by exactly one"),
        ("create table public.events (k int, j int) partition by range (k, j)", Policy(), "by exactly one column"),
        ("create table public.events (k text) partition by range (k)", Policy(), "its tier key k is of type text"),
        ("create table public.events (k int) partition by range (k)", Policy(), "no partition with two finite bounds"),
        ("create table public.events (k int) partition by range (k)", Policy("5"), "has no hot period"),
        (
            "create table public.events (k int) partition by range (k)",
            Policy(partition_interval="1 day"),
            "--every '1 day' is not a",
        ),
        (
            "create table public.events (k date) partition by range (k)",
            Policy(partition_interval="1 hour"),
            "is no width for a date",
        ),
        (
            """create table public.outer (k int) partition by range (k);
            create table public.events partition of public.outer for values from (0) to (9) partition by range (k)""",
            Policy(partition_interval="3"),
            "the table is itself a partition",
        ),
    ],
)
def test_what_cannot_be_managed_is_refused(catalog: Connection, create: str, asked: Policy, complaint: str) -> None:
    run(catalog, create)
    with pytest.raises(UsageError, match=complaint) as refused:
        partition_mode.add(catalog, Request(EVENTS, asked))
    assert refused.value.hint
    assert tables.list_all(catalog) == []


def test_a_lake_partition_is_refused(catalog: Connection) -> None:
    numbers(catalog, default=False)
    with pytest.raises(UsageError, match="in partition mode it has no lake"):
        partition_mode.add(catalog, Request(EVENTS, Policy(), "truncate[100]"))
    with pytest.raises(UsageError, match="in partition mode it has no lake") as refused:
        partition_mode.add(catalog, Request(EVENTS, Policy(), foreign_keys=ForeignKeys.HOLD))
    assert refused.value.hint == "leave --foreign-keys out"


def test_sub_partitions_foreign_partitions_and_open_ends_are_no_hindrance(
    catalog: Connection, settings: Settings
) -> None:
    run(
        catalog,
        """create table public.events (k int, note text) partition by range (k);
        create table public.p0 partition of public.events for values from (minvalue) to (100);
        create table public.p1 partition of public.events for values from (100) to (200) partition by hash (k);
        create table public.p1a partition of public.p1 for values with (modulus 1, remainder 0);
        create foreign table public.p2 partition of public.events for values from (200) to (300) server frostline_lake;
        create table public.p3 partition of public.events for values from (300) to (400);
        insert into public.events values (-5, 'a'), (150, 'b'), (350, 'c')""",
    )
    table = manage(catalog, premake=1, retention_period="50")
    assert [partition.name.table for partition in job.run(catalog, settings, table).created] == ["p4"]
    result = partition_mode.expire(catalog, settings, table)
    assert result == dropping.Result(dropped=("public.p0", "public.p1", "public.p2"))
    assert parts(catalog) == ["public.p3", "public.p4"]
    assert rows(catalog, CONTENTS) == [("350", "c")]


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("expire_by", ExpireBy)
def test_partitions_past_the_retention_go(
    catalog: Connection, settings: Settings, expire_by: ExpireBy, *, default: bool
) -> None:
    numbers(catalog, default=default)  # the highest row is 350
    table = manage(catalog, premake=0, retention_period="150", expire_by=expire_by)
    result = partition_mode.expire(catalog, settings, table)
    gone = ("public.p0", "public.p1")
    assert result == (dropping.Result(dropped=gone) if expire_by is ExpireBy.DROP else dropping.Result(detached=gone))
    assert result.changed
    assert parts(catalog) == ["public.p2", "public.p3", *(["public.rest"] if default else [])]
    assert [k for k, _ in rows(catalog, CONTENTS)] == ["250", "350"]
    kept = "select count(*) from pg_class where relname in ('p0', 'p1')"
    assert value(catalog, kept) == (0 if expire_by is ExpireBy.DROP else 2)
    if expire_by is ExpireBy.DETACH:
        assert value(catalog, "select note from public.p0") == "row 0"
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()
    assert rows(catalog, "select kind, state from frostline.job") == [("retain", "published")]


def test_without_a_retention_period_nothing_goes(catalog: Connection, settings: Settings) -> None:
    numbers(catalog, default=False)
    assert partition_mode.expire(catalog, settings, manage(catalog)) == dropping.Result()


def test_the_current_partition_stays_however_short_the_retention(catalog: Connection, settings: Settings) -> None:
    numbers(catalog, default=True)
    run(catalog, "insert into public.events values (99999, 'wrong'), (-1, 'old')")
    partition_mode.expire(catalog, settings, manage(catalog, premake=0, retention_period="1"))
    assert parts(catalog) == ["public.p3", "public.rest"]
    assert value(catalog, "select count(*) from only public.rest") == 2


def test_time_expires_by_the_clock(catalog: Connection, settings: Settings) -> None:
    run(catalog, "create table public.events (k timestamptz, note text) partition by range (k)")
    for months in (3, 2, 1, 0):
        run(
            catalog,
            f"""do $$ declare first timestamptz := date_trunc('month', now()) - interval '{months} months'; begin
            execute format('create table public.p{3 - months} partition of public.events for values from (%L) to (%L)',
                           first, first + interval '1 month'); end $$""",
        )
    result = partition_mode.expire(catalog, settings, manage(catalog, retention_period="1 month"))
    assert result.dropped[0] == "public.p0"
    assert set(result.dropped) <= {"public.p0", "public.p1"}


@pytest.mark.parametrize("default", [False, True])
def test_what_a_foreign_key_or_a_view_needs_is_reported_and_stays(
    catalog: Connection, settings: Settings, *, default: bool
) -> None:
    run(
        catalog,
        """create table public.events (k int primary key, note text) partition by range (k);
        create table public.p0 partition of public.events for values from (0) to (100);
        create table public.p1 partition of public.events for values from (100) to (200);
        create table public.p2 partition of public.events for values from (200) to (300);
        create table public.p3 partition of public.events for values from (300) to (400);
        insert into public.events values (50), (150), (250), (350);
        create table public.children (k int references public.events on delete cascade);
        insert into public.children values (50);
        create view public.looks as select * from public.p1""",
    )
    if default:
        run(catalog, "create table public.rest partition of public.events default")
    table = manage(catalog, premake=0, retention_period="50")
    result = partition_mode.expire(catalog, settings, table)
    assert result.dropped == ("public.p2",)
    by_key, by_view = result.waiting
    assert by_key == 'public.p0: Key (k)=(50) is still referenced from table "children".'
    assert by_view.startswith("public.p1: view ")
    assert rows(catalog, "select * from public.children") == [(50,)]
    assert value(catalog, "select count(*) from public.looks") == 1
    run(catalog, "truncate public.children; drop view public.looks")
    assert set(partition_mode.expire(catalog, settings, table).dropped) == {"public.p0", "public.p1"}
    assert parts(catalog) == ["public.p3", *(["public.rest"] if default else [])]


@pytest.fixture
def reader(database: str) -> Iterator[psycopg.Connection]:
    """Somebody else's open transaction."""
    with psycopg.connect(database) as other:
        yield other
        other.rollback()


@pytest.mark.parametrize("default", [False, True])
def test_a_reader_is_waited_for_and_the_next_run_goes_on(
    catalog: Connection,
    settings: Settings,
    database: str,
    reader: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    *,
    default: bool,
) -> None:
    numbers(catalog, default=default, parts=3)
    table = manage(catalog, premake=0, retention_period="50")
    monkeypatch.setattr(dropping, "_HEAP_PATIENCE_S", 0.3)
    monkeypatch.setattr(dropping, "_WAIT_MS", 200)
    run(reader, "set transaction isolation level repeatable read")
    assert value(reader, "select count(*) from public.events") == 3
    result = partition_mode.expire(catalog, settings, table)
    assert (result.dropped, len(result.waiting)) == ((), 2)
    assert result.waiting[0] == "public.p0: it is being read or written"
    assert value(reader, "select count(*) from public.events") == 3
    with psycopg.connect(database, autocommit=True) as other:
        assert value(other, "select count(*) from public.events") == (3 if default else 2)
    reader.rollback()
    assert set(partition_mode.expire(catalog, settings, table).dropped) == {"public.p0", "public.p1"}
    assert [k for k, _ in rows(catalog, CONTENTS)] == ["250"]
    assert value(catalog, "select count(*) from pg_class where relname in ('p0', 'p1')") == 0


PREMAKE = [failpoint for failpoint in Failpoint if failpoint.value.startswith("premake_")]
EXPIRY = [
    *((ExpireBy.DROP, True, failpoint) for failpoint in Failpoint if failpoint.value.startswith("partition_")),
    *((ExpireBy.DROP, False, failpoint) for failpoint in Failpoint if failpoint.value.startswith("partition_")),
    (ExpireBy.DETACH, True, Failpoint.PARTITION_BEFORE_COMMIT),
    (ExpireBy.DETACH, False, Failpoint.PARTITION_MARKED),
    (ExpireBy.DETACH, False, Failpoint.PARTITION_DETACHED_ONE),
]
"""Whether there is a DEFAULT partition decides the way; what a way does not come by is taken out."""
for with_default, place in (
    (True, Failpoint.PARTITION_MARKED),
    (True, Failpoint.PARTITION_DROPPED_ONE),
    (False, Failpoint.PARTITION_BEFORE_COMMIT),
    (True, Failpoint.PARTITION_BEFORE_NOTE),
    (False, Failpoint.PARTITION_BEFORE_NOTE),  # test_expiry_races.py has it
):
    EXPIRY.remove((ExpireBy.DROP, with_default, place))


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", first(2, PREMAKE))
def test_killed_in_premake(catalog: Connection, settings: Settings, database: str, failpoint: Failpoint) -> None:
    numbers(catalog, default=True)
    run(catalog, "insert into public.events values (1050, 'late')")
    table = manage(catalog, premake=2)
    is_guarded = failpoint is Failpoint.PREMAKE_GUARDED
    if not is_guarded:
        run(catalog, "insert into public.events select 400 + i, 'stray' from generate_series(0, 49) i")
    before = rows(catalog, CONTENTS)
    die("frostline.pipeline.premake:run", database, failpoint, small_bytes=0 if is_guarded else 1 << 20)
    assert rows(catalog, CONTENTS) == before
    job.run(catalog, settings, table)
    assert rows(catalog, CONTENTS) == before
    expected = ["public.p4", "public.p5"] if is_guarded else ["public.p4", "public.p5", "public.p6"]
    assert [name for name in parts(catalog) if name > "public.p3"] == [*expected, "public.rest"]
    _nothing_is_left(catalog)
    assert job.run(catalog, settings, table).created == ()
    assert value(catalog, "select count(*) from only public.rest") == 1
    run(catalog, "insert into public.events values (450, 'new'), (550, 'new')")


@pytest.mark.slow
@pytest.mark.parametrize(("expire_by", "default", "failpoint"), first(2, EXPIRY))
def test_killed_in_expiry(
    catalog: Connection,
    settings: Settings,
    database: str,
    failpoint: Failpoint,
    expire_by: ExpireBy,
    *,
    default: bool,
) -> None:
    numbers(catalog, default=default)
    table = manage(catalog, premake=0, retention_period="150", expire_by=expire_by)
    die("frostline.partitions.partition_mode:expire", database, failpoint)
    assert {"250", "350"} <= {k for k, _ in rows(catalog, CONTENTS)}
    partition_mode.expire(catalog, settings, table)
    assert rows(catalog, CONTENTS) == [("250", "row 2"), ("350", "row 3")]
    kept = "select count(*) from pg_class where relname in ('p0', 'p1') and not relispartition"
    assert value(catalog, kept) == (0 if expire_by is ExpireBy.DROP else 2)
    _nothing_is_left(catalog)
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()


def _nothing_is_left(connection: Connection) -> None:
    assert value(connection, "select count(*) from pg_constraint where conname like 'frostline%'") == 0
    commented = "select count(*) from pg_class where obj_description(oid, 'pg_class') ~ 'Frostline.*table [0-9]+$'"
    assert value(connection, commented) == 0
    assert value(connection, "select count(*) from pg_inherits where inhdetachpending") == 0
    assert value(connection, "select count(*) from frostline.expiring_partition") == 0
    assert value(connection, "select count(*) from frostline.lease where holder is not null") == 0
    unfinished = "select count(*) from frostline.job where state not in ('published', 'failed')"
    assert value(connection, unfinished) == 0


def assert_refused(said: Said, complaint: str) -> None:
    assert (said.exit_code, said.stdout) == (2, "")
    assert complaint in said.stderr.splitlines()[0]
    assert said.stderr.splitlines()[1].startswith("hint: ")


def test_the_commands_know_both_modes(catalog: Connection, parsed: Parsed, command: Command) -> None:
    numbers(catalog, default=True)
    words = ("--mode", "partition", "--premake", 2, "--retention", 150, "--expire-by", "detach", "--every", 100)
    added = parsed("table", "add", "events", *words)
    assert (added["mode"], added["lake_partition"], added["changed"]) == ("partition", None, True)
    assert (added["hot"], added["premake"], added["retention"], added["expire_by"]) == (None, 2, "150", "detach")
    assert [record["mode"] for record in parsed("table", "list")] == ["partition"]
    assert [(record["from"], record["to"]) for record in parsed("table", "show", "events")][-2:] == [
        ("300", "400"), ("DEFAULT", "DEFAULT"),
    ]  # fmt: skip
    assert parsed("table", "set", "events", "--premake", 1)["premake"] == 1
    assert parsed("premake", "--dry-run") == [
        {
            "table": "public.events",
            "would_make": ["400 to 500"],
            "problem": None,
            "stray_rows": 0,
            "stray_from_to": None,
        }
    ]
    assert parts(catalog) == ["public.p0", "public.p1", "public.p2", "public.p3", "public.rest"]
    (made,) = parsed("premake", "events")
    assert (made["made"], made["moved_rows"], made["problem"], made["error"]) == (["public.p4"], 0, None, None)
    (again,) = parsed("premake")
    assert again["made"] == []
    (planned,) = parsed("retain", "--dry-run")
    (retained,) = parsed("retain", "events")
    assert planned["partitions"] == retained["partitions"] == ["public.p0", "public.p1"]
    assert parts(catalog) == ["public.p2", "public.p3", "public.p4", "public.rest"]
    assert_refused(command("table", "set", "events", "--hot", "5"), "a table in partition mode has no hot period")
    assert_refused(
        command("table", "add", "events", "--hot", "5"), "public.events is managed already, in mode partition"
    )
    assert command("table", "remove", "events").exit_code == 0
    assert parsed("table", "list") == []
    assert value(catalog, "select count(*) from public.events") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "events"), ("fold", "events"), ("clean", "events"), ("verify", "events"), ("plan", "events"),
        ("undo", "events"), ("thaw", "events", "--from", "0"), ("grant", "postgres", "events"),
        ("table", "remove", "events", "--thaw"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_needs_a_lake_refuses_a_table_without_one(
    catalog: Connection, parsed: Parsed, command: Command, words: tuple[str, ...]
) -> None:
    numbers(catalog, default=False)
    parsed("table", "add", "events", "--mode", "partition")
    assert_refused(command(*words), "public.events is in partition mode and has no lake")


@pytest.mark.parametrize("words", [("archive",), ("fold",), ("clean",), ("verify",), ("plan",), ("grant", "postgres")])
def test_without_a_name_it_is_passed_over(catalog: Connection, parsed: Parsed, words: tuple[str, ...]) -> None:
    numbers(catalog, default=False)
    parsed("table", "add", "events", "--mode", "partition")
    assert parsed(*words) == []


def test_a_table_that_is_gone_can_be_given_up(catalog: Connection, parsed: Parsed, command: Command) -> None:
    numbers(catalog, default=False)
    parsed("table", "add", "events", "--mode", "partition")
    run(catalog, "drop table public.events")
    assert len(parsed("table", "list")) == 1
    said = command("premake")
    assert said.exit_code == 1
    assert "public.events is gone" in said.stderr
    assert command("table", "remove", "events").exit_code == 0
    assert parsed("table", "list") == []
