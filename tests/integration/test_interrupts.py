"""Ctrl-C, SIGTERM, SIGHUP and closed streams in every command: no trace, the exit code of the signal, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from tests.fixtures.commands import WORDS
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.signals import ignore_hangup, mind_signals
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until, until_true

from frostline.catalog import leases

pytestmark = pytest.mark.slow

PROGRAM = "from frostline.cli.start import main; main()"
TRACES = ("Traceback", "Exception", "\tat ", "this is a bug", "ERROR")
WAITS = "select count(*) from pg_stat_activity where application_name like 'frostline %' and wait_event_type = 'Lock'"
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(lake: Lake, tmp_path: Path) -> Iterator[Start]:
    """The program as a process group of its own, as a shell starts it."""
    started: list[subprocess.Popen[str]] = []
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FROSTLINE_")}
    environment |= {"FROSTLINE_DSN": lake.dsn, "FROSTLINE_WAREHOUSE": str(lake.warehouse)}

    def start_one(*words: str, more: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
        pipes |= {"preexec_fn": mind_signals} | options
        words, pipes["env"] = (sys.executable, "-c", PROGRAM, *words), environment | (more or {})
        process = subprocess.Popen(words, text=True, start_new_session=True, **pipes)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def locked(lake: Lake, table: str) -> Generator[psycopg.Connection]:
    """Nobody else reads the table meanwhile."""
    with lake.connect() as connection, connection.transaction():
        run(connection, f"lock table {table} in access exclusive mode")
        yield connection


def ends_as_told(process: "subprocess.Popen[str]", number: signal.Signals) -> str:
    """Send the signal to all processes of the group, as a terminal does; gives back what was said."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == SIGNALS[number], said
    assert not [word for word in TRACES if word in said], said
    assert [line for line in said.splitlines() if line.startswith("error")] == ["error: interrupted"], said
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive, alive
    return said


@pytest.mark.parametrize("name", WORDS)
def test_ctrl_c_ends_every_command_that_waits_for_postgres(lake: Lake, start: Start, name: str, tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text("version: 1\ntables: {}\n")
    with locked(lake, "frostline.migration"):
        process = start(*WORDS[name].split())
        until(lambda: process.poll() is not None or bool(value(lake.catalog, WAITS)))
        ends_as_told(process, signal.SIGINT)


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Two months to be archived."""
    make_events(lake.catalog, "public.events", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=50)
    lake.add()
    return lake


def stopped_and_no_failure(lake: Lake, start: Start) -> None:
    """What is left says that somebody stopped it; nothing is wrong, and the next archive does everything."""
    states = "select state, interrupted, error from frostline.job order by job_id desc limit 1"
    assert lake.catalog.execute(states).fetchone() == ("failed", True, "somebody stopped it")
    said, _ = start("status", "--output", "json").communicate(timeout=60)
    (table,) = json.loads(said)["tables"]
    assert table["problems"] == []
    assert " interrupted " in table["last_job"]
    assert leases.current_holder(lake.catalog, lake.table()) is None
    (result,) = lake.archive()
    assert (result.rows, result.error) == (100, None)


@pytest.mark.spark
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_tasks_run(events: Lake, start: Start, number: signal.Signals) -> None:
    process = start("archive", "--master", "local[1]")
    until_true(events.catalog, "select count(*) from frostline.job where state = 'captured'")
    with locked(events, "public.events_1"):
        until_true(events.catalog, f"{WAITS} or backend_type = 'client backend' and wait_event = 'relation'")
        ends_as_told(process, number)
    stopped_and_no_failure(events, start)


@pytest.mark.spark
@pytest.mark.parametrize("java_runs", [False, True])
def test_ctrl_c_while_spark_starts(events: Lake, start: Start, java_runs: bool) -> None:
    """At once when its process is there, and when it has begun to do something."""
    process = start("archive", "--master", "local[1]")
    own = psutil.Process(process.pid)
    until(lambda: bool(own.children()))
    if java_runs:
        until(lambda: sum(child.cpu_times().user for child in own.children()) > 1.5)
    ends_as_told(process, signal.SIGINT)
    stopped_and_no_failure(events, start)


def test_ctrl_c_while_the_program_is_loaded_says_nothing(lake: Lake, start: Start) -> None:
    for wait_s in (0.1, 0.2, 0.3, 0.4, 0.5):
        process = start("status", more={"PYTHONUNBUFFERED": "1"})
        time.sleep(wait_s)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGINT, 130, 0), (wait_s, said)
        assert not [word for word in TRACES if word in said], (wait_s, said)


@pytest.mark.quick
def test_a_signal_that_is_to_be_ignored_is(lake: Lake, start: Start) -> None:
    with locked(lake, "frostline.migration"):
        process = start("status", preexec_fn=ignore_hangup)
        until_true(lake.catalog, WAITS)
        os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(60) == 0


@pytest.mark.parametrize("words", ["jobs --output json", "table list --output json", "jobs", "table export", "doctor"])
def test_a_reader_that_has_enough_is_no_error(events: Lake, start: Start, words: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    process = start(*words.split(), stdout=writes)
    os.close(writes)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (141, "") if words != "jobs" else (0, "nothing to show\n")


@pytest.mark.quick
def test_a_full_disk_below_the_output_is_told(events: Lake, start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("table", "list", stdout=full)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert said.startswith("error: cannot write the output: No space left on device\nhint: ")


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_change_nothing(events: Lake, start: Start, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    process = start("table", "set", "events", "--premake", "7", stdout=None, stderr=None, preexec_fn=close)
    assert process.wait(60) == 0
    assert value(events.catalog, "select premake from frostline.managed_table") == 7


def test_bytes_that_are_no_text_are_refused(events: Lake, start: Start) -> None:
    process = start("table", "show", os.fsdecode(b"n\xf6"))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.startswith("error: 'n\\udcf6' is not UTF-8\nhint: ")


def test_names_that_the_terminal_cannot_show_are_shown_somehow(events: Lake, start: Start) -> None:
    run(events.catalog, 'create table public."größe" (id int)')
    process = start("table", "show", '"größe"', "--output", "json", more={"PYTHONIOENCODING": "ascii"})
    _, said = process.communicate(timeout=60)
    assert "größe" in json.loads(said)["error"]["message"]


BROKEN_JAVA = {
    "no Java": ({"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}, "no Java 17 or newer found"),
    "more memory than there is": ({"FROSTLINE_SPARK_MEMORY": "900000g"}, "Java ended at once"),
    "no Spark": ({"SPARK_HOME": "/nowhere"}, "No such file or directory"),
}


@pytest.mark.spark
@pytest.mark.parametrize("what", BROKEN_JAVA)
def test_a_spark_that_does_not_start_is_told(events: Lake, start: Start, what: str) -> None:
    environment, named = BROKEN_JAVA[what]
    process = start("archive", "--master", "local[1]", "--output", "json", more=environment)
    _, said = process.communicate(timeout=120)
    (error,) = [json.loads(line)["error"] for line in said.splitlines() if line.startswith("{")]
    assert (process.returncode, error["class"], error["exit_code"]) == (4, "UnavailableError", 4), said
    assert named in error["message"]
    assert error["hint"]
    assert "Traceback" not in said
