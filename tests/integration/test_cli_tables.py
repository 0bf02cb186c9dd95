"""The commands about tables: what they print, and how they refuse."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.command import Command, Said
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.pipeline import spark as pipeline_spark

STATE = """
select (select count(*) from frostline.managed_table), (select count(*) from frostline.job),
       (select array_agg((hot_interval, grace_period, fold_rows, fold_age)::text) from frostline.managed_table),
       (select array_agg(oid::regclass || relkind::text order by 1) from pg_class
         where relnamespace = 'public'::regnamespace)
"""

Parsed = Callable[..., Any]


@pytest.fixture
def events(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A plain table with two months of rows, and the settings in the environment."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    make_events(lake.catalog, "public.events", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=100)
    return lake


@pytest.fixture(scope="module")
def made_once(shared_lake: Lake) -> Lake:
    """The same table, and `logs`, which is registered, for all tests that change nothing."""
    for name in ("public.events", "public.logs"):
        make_events(shared_lake.catalog, name, months=2)
    shared_lake.add("logs", grace="10 years")
    return shared_lake


@pytest.fixture
def both(made_once: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Those, and the settings in the environment."""
    monkeypatch.setenv("FROSTLINE_DSN", made_once.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(made_once.warehouse))
    return made_once


@pytest.fixture
def managed(events: Lake) -> Lake:
    """The same table, registered."""
    events.add(grace="10 years")
    return events


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command uses the run's Spark session, and leaves it running."""
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)


@pytest.fixture
def parsed(command: Command) -> Parsed:
    """Runs a command with JSON output and gives back what it printed."""

    def call(*words: object) -> Any:
        said = command(*words, "--output", "json")
        assert said.exit_code == 0, said.stderr
        return json.loads(said.stdout)

    return call


def assert_refused(said: Said, *words: str) -> None:
    assert (said.exit_code, said.stdout) == (2, "")
    error, *hints = said.stderr.splitlines()
    assert error.startswith("error: ")
    assert all(word in error for word in words), error
    assert hints
    assert all(hint.startswith("hint: ") for hint in hints)


def test_add_says_what_it_registered(events: Lake, parsed: Parsed) -> None:
    fold = ("--fold-rows", 500, "--fold-age", "2 hours")
    upkeep = ("--retention", "2 years", "--premake", 2, "--snapshot-retention", "1 day", "--target-file-size", "64MB")
    periods = ("--hot", "2 months", "--grace", "3 days", "--lake-partition", "day")
    added = parsed("table", "add", "events", *periods, *fold, *upkeep)
    assert added == {
        "table": "public.events",
        "tier_key": "ts timestamp with time zone",
        "relation": "public.events",
        "heap": "public._events",
        "mode": "tiered",
        "foreign_keys": "hold",
        "hot": "2 months",
        "grace": "3 days",
        "retention": "2 years",
        "premake": 2,
        "every": None,
        "expire_by": "drop",
        "fold_rows": 500,
        "fold_age": "2 hours",
        "snapshot_retention": "1 day",
        "target_file_size_bytes": 64_000_000,
        "lake_partition": "day",
        "held_from": None,
        "id": added["id"],
        "changed": True,
    }
    assert value(events.catalog, "select relkind from pg_class where oid = 'public.events'::regclass") == "v"


def test_an_unpartitioned_table_is_partitioned_first(events: Lake, command: Command, parsed: Parsed) -> None:
    run(
        events.catalog,
        "create table public.flat as select n as id, timestamptz '2024-01-01' + n * interval '1 day' as ts, n::text as note"
        "  from generate_series(1, 400) n;"
        "alter table public.flat add primary key (id)",
    )
    words = ("table", "add", "flat", "--partition-by", "ts", "--every", "month", "--hot", "1 month")
    assert_refused(command(*words, "--retention", "1 day"), "--retention '1 day' is not longer")
    before = rows(events.catalog, STATE)
    assert "partition by range" in command(*words, "--dry-run").stdout
    assert rows(events.catalog, STATE) == before
    added = parsed(*words)
    assert (added["tier_key"], added["every"], added["changed"]) == ("ts timestamp with time zone", "1 month", True)
    assert parsed(*words)["changed"] is False
    assert value(events.catalog, "select count(*) from public.flat") == 400
    months = "select count(*) from pg_inherits where inhparent = 'public._flat'::regclass"
    assert int(str(value(events.catalog, months))) > 13


def test_adding_again_changes_nothing_and_says_so(events: Lake, parsed: Parsed) -> None:
    parsed("table", "add", "events", "--hot", "2 months")
    before = rows(events.catalog, STATE)
    assert parsed("table", "add", "public.events", "--hot", "1 day")["changed"] is False
    assert rows(events.catalog, STATE) == before


def test_add_as_a_dry_run_prints_the_sql_and_changes_nothing(events: Lake, command: Command) -> None:
    before = rows(events.catalog, STATE)
    said = command("table", "add", "events", "--hot", "1 month", "--dry-run")
    assert said.exit_code == 0
    assert 'alter table "public"."events" rename to "_events";' in said.stdout
    assert rows(events.catalog, STATE) == before


def test_the_printed_sql_is_sql(events: Lake, command: Command) -> None:
    from frostline.server.translate.parsing import parse_sql

    said = command("table", "add", "events", "--hot", "1 month", "--dry-run")
    assert len(parse_sql(said.stdout)) > 10


def test_list_and_show_describe_tables_and_columns(managed: Lake, parsed: Parsed) -> None:
    (listed,) = parsed("table", "list")
    assert (listed["table"], listed["hot"], listed["grace"]) == ("public.events", "1 mon", "10 years")
    columns = {record["column"]: record for record in parsed("table", "show", "events")}
    assert list(columns) == ["id", "ts", "status", "amount", "data"]
    assert (columns["amount"]["lake_type"], columns["amount"]["travels_as"]) == ("decimal(12, 2)", "itself")
    assert (columns["data"]["travels_as"], columns["data"]["conditions_run_in"]) == ("text", "Postgres")
    assert [name for name, column in columns.items() if column["key"]] == ["id", "ts"]


def test_an_empty_list_is_said_on_stderr(events: Lake, command: Command, parsed: Parsed) -> None:
    said = command("table", "list")
    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "nothing to show\n")
    assert parsed("table", "list") == []


def test_set_changes_the_policy_and_says_so(managed: Lake, parsed: Parsed) -> None:
    changed = parsed("table", "set", "events", "--hot", "90 days", "--grace", "0")
    assert (changed["hot"], changed["grace"], changed["changed"]) == ("90 days", "00:00:00", True)
    assert parsed("table", "set", "events", "--hot", "90 days")["changed"] is False
    changed = parsed("table", "set", "events", "--fold-rows", 7, "--fold-age", "1 hour")
    assert (changed["fold_rows"], changed["fold_age"], changed["changed"]) == (7, "01:00:00", True)
    (listed,) = parsed("table", "list")
    assert (listed["hot"], listed["fold_rows"], listed["fold_age"]) == ("90 days", 7, "01:00:00")


def test_remove_gives_the_table_back(managed: Lake, command: Command) -> None:
    before = rows(managed.catalog, STATE)
    dry = command("table", "remove", "events", "--dry-run")
    assert "rename to" in dry.stdout
    assert rows(managed.catalog, STATE) == before
    said = command("table", "remove", "events")
    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "public.events is a plain table again\n")
    assert value(managed.catalog, "select relkind from pg_class where oid = 'public.events'::regclass") == "p"


def test_remove_refuses_to_hide_cold_rows(managed: Lake, command: Command) -> None:
    managed.archive()
    before = rows(managed.catalog, STATE)
    assert_refused(command("table", "remove", "events"), "public.events has 200 rows in the lake")
    assert rows(managed.catalog, STATE) == before
    assert command("table", "remove", "events", "--keep-lake").exit_code == 0
    assert len(managed.data_files()) == 2


def test_plan_says_what_would_move_and_why(managed: Lake, parsed: Parsed) -> None:
    (plan,) = parsed("plan", "events")
    assert (plan["partitions"], plan["first_partition"], plan["last_partition"]) == (
        2,
        "public.events_1",
        "public.events_2",
    )
    assert (plan["frost_line"], plan["new_frost_line"]) == (None, "2024-03-01 00:00:00+00")
    assert plan["rows_estimate"] == 200
    assert plan["heap_bytes"] > plan["lake_estimate_bytes"] > 0
    assert plan["because"].startswith("ts before ")
    assert plan["because"].endswith(" is older than 1 mon")


def test_plan_of_a_table_with_nothing_old_is_empty(events: Lake, parsed: Parsed) -> None:
    events.add(hot="1000 years")
    (plan,) = parsed("plan")
    assert (plan["partitions"], plan["first_partition"], plan["rows_estimate"]) == (0, None, 0)
    assert plan["new_frost_line"] is None


def test_archive_as_a_dry_run_is_the_plan(managed: Lake, command: Command) -> None:
    before = rows(managed.catalog, STATE)
    (planned,) = json.loads(command("archive", "--dry-run", "--output", "json").stdout)
    assert planned["partitions"] == 2
    assert rows(managed.catalog, STATE) == before
    assert managed.data_files() == []


@pytest.mark.usefixtures("shared_spark")
def test_archive_and_status_tell_where_the_rows_are(managed: Lake, parsed: Parsed) -> None:
    (before,) = parsed("status")["tables"]
    assert (before["frost_line"], before["cold_rows"], before["last_job"]) == (None, 0, None)
    (done,) = parsed("archive", "events")
    assert (done["table"], done["archived_partitions"], done["rows"]) == ("public.events", 2, 200)
    assert (done["cleaned_partitions"], done["waiting_partitions"], done["error"]) == (0, 2, None)
    (after,) = parsed("status")["tables"]
    assert (after["frost_line"], after["cold_rows"], after["cold_files"]) == ("2024-03-01 00:00:00+00", 200, 2)
    assert after["cold_bytes"] == done["lake_bytes"] == sum(file.stat().st_size for file in managed.data_files())
    assert (after["uncleaned_partitions"], after["overlay_rows"], after["error"]) == (2, 0, None)
    assert " published " in after["last_job"]
    assert parsed("archive")[0]["archived_partitions"] == 0


@pytest.mark.usefixtures("shared_spark")
def test_a_failed_table_is_in_the_output_and_in_the_exit_code(managed: Lake, command: Command) -> None:
    make_events(managed.catalog, "public.broken", months=1)
    run(managed.catalog, "insert into public.broken (ts, amount) values ('2024-01-05', 'NaN')")
    managed.add("broken")
    said = command("archive", "--output", "json")
    assert said.exit_code == 2
    broken, sound = json.loads(said.stdout)
    assert "'amount' has 1 values" in broken["error"]
    assert (sound["rows"], sound["error"]) == (200, None)
    states = {table["table"]: table for table in json.loads(command("status", "--output", "json").stdout)["tables"]}
    assert "'amount' has 1 values" in states["public.broken"]["error"]
    assert states["public.broken"]["frost_line"] is None


@pytest.mark.parametrize("command_name", ["plan", "verify", "clean", "archive"])
def test_without_tables_there_is_nothing_to_do(events: Lake, parsed: Parsed, command_name: str) -> None:
    assert parsed(command_name) == []


def test_text_output_is_one_table(managed: Lake, command: Command) -> None:
    for words in (("table", "list"), ("table", "show", "events"), ("plan",), ("status",)):
        said = command(*words)
        assert (said.exit_code, said.stderr) == (0, "")
        heading, *lines = said.stdout.splitlines()
        assert heading.split()[0] in ("table", "column")
        assert lines


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("table", "add"), "missing argument"),
        (("table", "add", "events"), "no hot period is given"),
        (("table", "add", "events", "--hot", "soon"), "--hot 'soon' is not an interval"),
        (("table", "add", "events", "--hot", "-1 day"), "--hot '-1 day' is not positive"),
        (("table", "add", "events", "--hot", ""), "--hot '' is not an interval"),
        (("table", "add", "events", "--hot", "1 day", "--grace", "x"), "--grace 'x' is not an interval"),
        (("table", "add", "events", "--hot", "1 day", "--grace", "-1 s"), "--grace '-1 s' is not positive"),
        (("table", "add", "events", "--hot", "1 day", "--lake-partition", "week"), "'week' is not one of"),
        (("table", "add", "a.b.c", "--hot", "1 day"), "not a table name: 'a.b.c'"),
        (("table", "add", "", "--hot", "1 day"), "not a table name: ''"),
        (("table", "add", "nosuch", "--hot", "1 day"), "public.nosuch does not exist"),
        (("table", "add", "events_1", "--hot", "1 day"), "public.events_1"),
        (("table", "add", "EVENTS", "nosuch", "--hot", "1 day"), "unexpected extra argument (nosuch)"),
        (("table", "nosuch"), "no such command 'nosuch'"),
        (("table", "list", "extra"), "extra"),
        (("table", "show"), "missing argument"),
        (("table", "show", "nosuch"), "public.nosuch is not managed"),
        (("table", "set", "nosuch", "--hot", "1 day"), "public.nosuch is not managed"),
        (("table", "remove", "nosuch"), "public.nosuch is not managed"),
        (("table", "remove", "events"), "public.events is not managed"),
        (("plan", "nosuch"), "public.nosuch is not managed"),
        (("plan", '"'), "not a table name"),
        (("status", "events"), "events"),
        (("archive", "nosuch"), "public.nosuch is not managed"),
        (("archive", "nosuch", "--dry-run"), "public.nosuch is not managed"),
        (("archive", "a b"), "not a table name: 'a b'"),
        (("archive", "--master"), "--master"),
        (("clean", "nosuch"), "public.nosuch is not managed"),
        (("verify", "x.nosuch"), "x.nosuch is not managed"),
        (("status", "--output", "yaml"), "'yaml'"),
    ],
)
def test_a_wrong_request_changes_nothing(both: Lake, command: Command, words: tuple[str, ...], complaint: str) -> None:
    before = rows(both.catalog, STATE)
    assert_refused(command(*words), complaint)
    assert rows(both.catalog, STATE) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "nothing to set"),
        (("--hot", "nonsense"), "--hot 'nonsense' is not an interval"),
        (("--hot", "0"), "--hot '0' is not positive"),
        (("--hot", "1 day", "--grace", "-1 day"), "--grace '-1 day' is not positive"),
        (("--fold-rows", "0"), "0 is not in the range"),
        (("--hot", "1 day", "--fold-age", "0"), "--fold-age '0' is not positive"),
        (("--fold-age", "soon"), "--fold-age 'soon' is not an interval"),
        (("--lake-partition", "day"), "--lake-partition"),
        (("--retention", "1 month"), "--retention '1 month' is not longer than the hot period '1 mon'"),
        (("--retention", "0"), "--retention '0' is not positive"),
        (("--hot", "3 years", "--retention", "2 years"), "is not longer than the hot period '3 years'"),
        (("--every", "soon"), "--every 'soon' is not an interval"),
        (("--premake", "-1"), "-1 is not in the range"),
        (("--expire-by", "burning"), "'burning'"),
        (("--snapshot-retention", "-1 s"), "--snapshot-retention '-1 s' is not positive"),
        (("--target-file-size", "5"), "'5' is less than 1MB"),
        (("--target-file-size", "big"), "'big' is not a size such as 256MB"),
    ],
)
def test_a_wrong_policy_changes_nothing(both: Lake, command: Command, words: tuple[str, ...], complaint: str) -> None:
    before = rows(both.catalog, STATE)
    assert_refused(command("table", "set", "logs", *words), complaint)
    assert rows(both.catalog, STATE) == before


@pytest.mark.parametrize(("hot", "fits"), [("5", True), ("0", False), ("-5", False), ("1 month", False), ("1.5", False),
                                           ("99999999999999999999", False), ("\u0665", False)])  # fmt: skip
def test_an_integer_tier_key_counts_in_its_own_units(events: Lake, command: Command, hot: str, *, fits: bool) -> None:
    run(events.catalog, "create table public.n (k int primary key) partition by range (k)")
    said = command("table", "add", "n", "--hot", hot)
    if fits:
        assert said.exit_code == 0
    else:
        assert_refused(said, f"--hot '{hot}' is not a positive number")


def test_set_counts_an_integer_tier_key_in_its_own_units(events: Lake, command: Command, parsed: Parsed) -> None:
    run(events.catalog, "create table public.n (k int primary key) partition by range (k)")
    parsed("table", "add", "n", "--hot", "5")
    assert parsed("table", "set", "n", "--hot", "7")["hot"] == "7"
    assert_refused(command("table", "set", "n", "--hot", "1 month"), "--hot '1 month' is not a positive number")
    assert parsed("table", "list")[0]["hot"] == "7"


def test_a_database_without_the_catalog_is_told_to_install_it(
    events: Lake, command: Command, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", empty_database)
    for words in (("table", "list"), ("plan",), ("status",), ("archive",), ("verify",), ("clean",)):
        said = command(*words)
        assert_refused(said, "not installed in this database")
        assert "frostline init" in said.stderr


def test_a_table_of_a_missing_heap_is_reported_and_does_not_hide_the_hint(managed: Lake, command: Command) -> None:
    run(managed.catalog, "alter table public._events rename to lost")
    said = command("status")
    assert said.exit_code == 0
    assert "! public.events: its heap public._events is gone\n    frostline table adopt public.events\n" in said.stdout
