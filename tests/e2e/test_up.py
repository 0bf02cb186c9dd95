"""`frostline up` as a user runs it: a process of its own, stopped by signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.fixtures.signals import ignore_hangup, mind_signals
from tests.fixtures.waiting import until

from frostline.runtime.home import prepare
from frostline.runtime.postgres import free_port, running_pid
from frostline.settings import load

pytestmark = pytest.mark.slow

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[tuple[Path, subprocess.Popen[str]]] = []

    def start_one(
        home: Path, *, worker: bool = False, signals: Callable[[], None] = mind_signals
    ) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FROSTLINE_")}
        ports = [] if home.exists() else ["--pg-port", str(free_port()), "--lake-port", str(free_port())]
        command = [str(Path(sys.executable).with_name("frostline")), "up", "--home", str(home), *ports]
        command += [] if worker else ["--no-worker"]
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "env": environment, "preexec_fn": signals}
        process = subprocess.Popen(command, text=True, **options)
        started.append((home, process))
        return process

    yield start_one
    for _, process in started:
        with process:
            process.terminate()
    for home, _ in started:
        if (home / "frostline.toml").exists():
            with prepare(home, pg_port=None, lake_port=None):
                pass  # stops a server that a killed process left behind


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("ready dsn="), line
    return line.removeprefix("ready dsn=").strip()


@pytest.mark.quick
def test_it_says_ready_when_the_database_can_be_used(start: Start, tmp_path: Path) -> None:
    with psycopg.connect(ready(start(tmp_path / "home"))) as connection:
        row = connection.execute("select count(*) from pg_foreign_server where srvname = 'frostline_lake'").fetchone()
    assert row == (1,)


def test_what_it_prints_has_no_password_and_connects_whoever_may_read_the_file(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "my home")
    dsn = ready(process)
    passfile = tmp_path / "my home" / "postgres.pgpass"
    password = str(conninfo_to_dict(load(tmp_path / "my home").dsn)["password"])
    assert password not in dsn
    assert conninfo_to_dict(dsn)["passfile"] == str(passfile)
    assert password in passfile.read_text()
    assert (passfile.stat().st_mode & 0o777, passfile.stat().st_uid) == (0o600, os.geteuid())
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select current_user, current_database()").fetchone() == ("postgres", "frostline")
    passfile.unlink()
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(dsn)
    process.terminate()
    assert process.stdout
    assert password not in process.stdout.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything_in_order(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path / "home")
    ready(process)
    process.send_signal(number)
    assert process.wait() == 0
    assert running_pid(tmp_path / "home" / "postgres") is None


def test_nohup_keeps_it_alive(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "home", signals=ignore_hangup)
    dsn = ready(process)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_second_start_finds_the_data_at_the_same_place(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path / "home")
    dsn = ready(first)
    with psycopg.connect(dsn) as connection:
        connection.execute("create table kept as select 42 as answer")
    first.terminate()
    first.wait()
    assert ready(start(tmp_path / "home")) == dsn
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_a_lake_that_is_away_is_told_and_hot_rows_are_there(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = start(home)
    ready(first)
    first.terminate()
    assert first.wait(60) == 0
    (home / "warehouse").rename(tmp_path / "away")
    second = start(home)
    assert second.stdout
    line = second.stdout.readline()
    assert line.startswith(f"the lake cannot be used: warehouse file://{home / 'warehouse'} is empty"), line
    with psycopg.connect(ready(second)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert not (home / "warehouse").exists()


def test_a_start_after_kill_works(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path / "home")
    dsn = ready(first)
    first.kill()
    first.wait()
    assert ready(start(tmp_path / "home")) == dsn


def test_a_second_start_at_the_same_time_is_refused(start: Start, tmp_path: Path) -> None:
    ready(start(tmp_path / "home"))
    assert start(tmp_path / "home").wait() == 3


def test_it_ends_with_an_error_when_its_postgres_does(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "home")
    ready(process)
    pid = running_pid(tmp_path / "home" / "postgres")
    assert pid
    os.kill(pid, signal.SIGQUIT)
    assert process.wait() == 4


def test_psql_gets_the_connection_and_no_password_on_its_command_line(start: Start, tmp_path: Path) -> None:
    ready(start(tmp_path / "home"))
    command = [str(Path(sys.executable).with_name("frostline")), "psql", "--home", str(tmp_path / "home"), "-Atc"]
    done = subprocess.run([*command, "select current_database()"], capture_output=True, text=True, check=True)
    assert done.stdout == "frostline\n"
    password = load(tmp_path / "home").dsn.split(":")[2].split("@")[0]
    shown = subprocess.run([*command, r"\! ps -ww -o args= -p $PPID"], capture_output=True, text=True, check=True)
    assert "psql" in shown.stdout
    assert password not in shown.stdout


def worker_pid(home: Path) -> int | None:
    """The process that works for this home."""
    wanted = ["frostline.cli.main", "run", "--home", str(home)]
    processes = psutil.process_iter(["cmdline"])
    return next((process.pid for process in processes if set(wanted) <= set(process.info["cmdline"] or [])), None)


def leader(dsn: str) -> tuple[object, ...] | None:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select epoch from frostline.leader where holder is not null").fetchone()


def test_a_worker_belongs_to_it_is_started_again_and_dies_with_it(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "home", worker=True)
    dsn = ready(process)
    until(lambda: leader(dsn) == (1,))
    first = worker_pid(tmp_path / "home")
    assert first
    os.kill(first, signal.SIGKILL)
    until(lambda: leader(dsn) == (2,))
    process.kill()
    process.wait()
    until(lambda: worker_pid(tmp_path / "home") is None)


def test_a_signal_stops_the_worker_too(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "home", worker=True)
    dsn = ready(process)
    until(lambda: leader(dsn) == (1,))
    process.terminate()
    assert process.wait() == 0
    assert worker_pid(tmp_path / "home") is None
