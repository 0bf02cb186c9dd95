"""The embedded server: start, stop, crash, and every reason to refuse."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from frostline.errors import ConflictError, UsageError
from frostline.runtime.postgres import DISPOSABLE, Postgres, free_port, new_password, running_pid
from frostline.runtime.programs import SYSTEM_USER, Programs


@pytest.fixture
def server(tmp_path: Path, postgres_programs: Programs) -> Iterator[Postgres]:
    made = Postgres(tmp_path / "data", free_port(), new_password(), postgres_programs, DISPOSABLE)
    yield made
    made.stop()


def ask(server: Postgres, question: str) -> object:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        cursor = connection.execute(question)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return (cursor.fetchone() or (None,))[0] if cursor.description else None


def test_a_started_server_is_utf8_in_byte_order_and_on_loopback_only(server: Postgres) -> None:
    server.start()
    assert ask(server, "show server_encoding") == "UTF8"
    assert ask(server, "select 'Z' < 'a' collate \"default\"") is True
    assert ask(server, "select upper('ä')") == "Ä"
    assert ask(server, "show listen_addresses") == "127.0.0.1"
    assert ask(server, "show unix_socket_directories") == ""


def test_nobody_gets_in_without_the_password(server: Postgres) -> None:
    server.start()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.dsn().replace(server.password, "guess"))


@pytest.mark.slow
def test_the_embedded_server_has_what_frostline_needs(server: Postgres) -> None:
    server.start()
    ask(server, "create extension postgres_fdw")


@pytest.mark.slow
def test_data_survives_a_stop(server: Postgres) -> None:
    server.start()
    ask(server, "create table kept as select 42 as answer")
    server.stop()
    assert running_pid(server.data_dir) is None
    server.start()
    assert ask(server, "select answer from kept") == 42


@pytest.mark.slow
def test_a_second_stop_does_nothing(server: Postgres) -> None:
    server.start()
    server.stop()
    server.stop()


@pytest.mark.slow
def test_a_killed_server_recovers_what_was_committed(server: Postgres) -> None:
    server.options = {**DISPOSABLE, "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
    server.start()
    ask(server, "create table kept as select 42 as answer")
    kill(server)
    server.start()
    assert ask(server, "select answer from kept") == 42


@pytest.mark.slow
def test_a_pid_file_whose_number_belongs_to_another_process_now_is_no_obstacle(server: Postgres) -> None:
    server.start()
    kill(server)
    (server.data_dir / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data_dir}\n")
    server.start()
    assert ask(server, "select 1") == 1


@pytest.mark.slow
def test_the_port_may_change_between_starts(server: Postgres) -> None:
    server.start()
    server.stop()
    server.port = free_port()
    server.start()
    assert ask(server, "show port") == str(server.port)


@pytest.mark.slow
def test_what_alter_system_sets_wins(server: Postgres) -> None:
    server.start()
    ask(server, "alter system set work_mem = '5MB'")
    server.stop()
    server.start()
    assert ask(server, "show work_mem") == "5MB"


def test_a_taken_port_is_refused_and_nothing_is_made(server: Postgres) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
        with pytest.raises(UsageError, match=f"port {server.port} on 127.0.0.1 is taken"):
            server.start()
    assert not server.data_dir.exists()


def test_a_directory_with_other_files_is_refused(server: Postgres) -> None:
    server.data_dir.mkdir()
    (server.data_dir / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="not a Postgres data directory"):
        server.start()
    assert [entry.name for entry in server.data_dir.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("version", ["9", "99"])
def test_the_data_of_another_version_is_refused(server: Postgres, version: str) -> None:
    server.data_dir.mkdir()
    (server.data_dir / "PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(UsageError, match=f"was made by PostgreSQL {version}, this is {server.programs.major}"):
        server.start()


@pytest.mark.slow
def test_a_directory_in_use_is_a_conflict(server: Postgres) -> None:
    server.start()
    second = Postgres(server.data_dir, free_port(), server.password, server.programs)
    with pytest.raises(ConflictError, match="already runs"):
        second.start()
    assert ask(server, "select 1") == 1


def test_a_directory_without_programs_is_refused(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "data", free_port(), "x", Programs(tmp_path))
    with pytest.raises(UsageError, match="no PostgreSQL program"):
        server.start()


@pytest.mark.slow
def test_a_broken_setting_is_reported_with_the_place_to_look(server: Postgres) -> None:
    server.options = {**DISPOSABLE, "shared_buffers": "plenty"}
    with pytest.raises(Exception, match="did not start") as failure:
        server.start()
    assert str(server.log_file) in str(getattr(failure.value, "hint", ""))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to change user")
def test_root_hands_the_server_to_a_user_of_its_own(server: Postgres) -> None:
    server.start()
    pid = running_pid(server.data_dir)
    assert pid
    assert psutil.Process(pid).username() == SYSTEM_USER
    assert server.data_dir.owner() == SYSTEM_USER


def kill(server: Postgres) -> None:
    pid = running_pid(server.data_dir)
    assert pid
    process = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([process])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for the server")
def test_processes_that_start_at_once_add_one_user() -> None:
    name = f"frostline_test_{os.getpid()}"
    code = f"from frostline.runtime import programs as p; p.SYSTEM_USER = {name!r}; print(p.server_owner().pw_uid)"
    try:
        started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(6)]
        answers = [process.communicate()[0] for process in started]
        assert len(set(answers)) == 1, answers
        assert answers[0].strip().isdigit()
    finally:
        subprocess.run(["userdel", name], check=False, capture_output=True)
