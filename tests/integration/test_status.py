"""`frostline status`: one screen with where every table stands, what comes next, what is wrong and what helps."""

import json
from typing import Any

import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.catalog import leases
from frostline.catalog.connect import connect


@pytest.fixture
def events(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Six months of rows, registered and not archived, and the settings in the environment."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", str(lake.settings.lake_port))
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add(grace="10 years", premake=0)
    return lake


def told(command: Command) -> dict[str, Any]:
    said = command("status", "--output", "json")
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


def problems(command: Command) -> dict[str, str]:
    return {problem["command"]: problem["problem"] for problem in told(command)["problems"]}


def test_what_is_due_is_next_and_somebody_must_do_it(events: Lake, command: Command) -> None:
    shown = told(command)
    (table,) = shown["tables"]
    assert (table["next_action"], table["next_at"]) == ("archive", None)
    assert table["next_why"] == "6 partitions older than the hot period"
    assert table["lag_s"] > 365 * 86_400
    assert problems(command) == {"frostline run": "no worker runs, and 1 action is due"}
    with connect(events.dsn, purpose="worker") as other, leases.leading(other):
        assert told(command)["worker"].startswith("process ")
        assert problems(command) == {}


def test_a_table_that_is_worked_on_says_by_whom(events: Lake, command: Command) -> None:
    with connect(events.dsn, purpose="other") as other, leases.held(other, events.table()):
        assert told(command)["tables"][0]["running"].startswith("process ")
        assert "running: process " in command("status").stdout


def test_after_an_archive_comes_the_end_of_the_grace_period(events: Lake, command: Command) -> None:
    events.archive()
    (table,) = told(command)["tables"]
    assert (table["next_action"], table["lag"], table["next_at"][:4]) == ("clean", 0, "2036")
    line, *rest = command("status").stdout.splitlines()[1:]
    assert line.split()[:2] == ["public.events", "2024-07-01"]
    assert "3,000 rows" in line
    assert "archive ok" in line
    assert rest == ["worker: none"]


def test_each_fault_is_named_with_the_command_that_helps(events: Lake, command: Command) -> None:
    events.archive()
    events.undo()
    run(
        events.catalog,
        "insert into public.events (ts) values (now() + interval '1 year'), (now() + interval '2 years')",
    )
    run(
        events.catalog,
        "insert into frostline.job (table_id, kind, state, error) select table_id, 'fold', 'failed', 'no room' from frostline.managed_table",
    )
    events.server.stop()
    by_command = problems(command)
    assert by_command["frostline premake public.events"] == "public.events: 2 rows lie beyond the last partition"
    assert by_command["frostline fold public.events"] == "public.events: fold failed once: no room"
    assert "keeps archive from going past" in by_command["frostline table set public.events --release"]
    assert "does not answer" in by_command["frostline serve"]
    text = command("status").stdout
    assert "! public.events: fold failed once: no room\n    frostline fold public.events\n" in text


def test_an_old_transaction_that_keeps_partitions_is_named(events: Lake, command: Command) -> None:
    with events.connect() as reader, reader.transaction():
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from public.events")
        events.archive()
        run(events.catalog, "update frostline.managed_table set grace_period = '0'")
        problem = problems(command)["select * from pg_stat_activity order by xact_start"]
        assert str(reader.info.backend_pid) in problem
    assert "select * from pg_stat_activity order by xact_start" not in problems(command)


def test_an_irregular_grid_says_how_to_make_it_regular(lake: Lake, events: Lake, command: Command) -> None:
    run(lake.catalog, "update frostline.managed_table set premake = 4")
    for name, lower, upper in (("odd", "2024-07-01", "2030-06-07"), ("odder", "2030-06-07", "2030-06-09")):
        bounds = f"for values from ('{lower}') to ('{upper}')"
        run(lake.catalog, f"create table public.{name} partition of public._events {bounds}")
    by_command = problems(command)
    assert "frostline table set public.events --every '1 month'" in by_command


def test_without_a_table_there_is_no_problem(lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    assert told(command) == {"tables": [], "lake_tables": [], "worker": None, "problems": []}
