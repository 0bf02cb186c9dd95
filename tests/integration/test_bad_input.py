"""Wrong requests: one line that says what, a hint that says what to do, exit code 2, and nothing has changed."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures.command import Command, Said

from frostline.cli.main import COMMANDS
from frostline.errors import ConflictError
from frostline.settings import write_file


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def assert_refused(said: Said, *words: str) -> None:
    error, hint = said.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert all(word in error for word in words), error
    assert (said.exit_code, said.stdout) == (2, "")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("nosuch", "'nosuch'"),
        ("--nosuch", "--nosuch"),
        ("up --nosuch", "--nosuch"),
        ("up extra", "extra"),
        ("up --home", "--home"),
        ("up", "home"),
        ("up --home new --pg-port 0", "0 is not in the range"),
        ("up --home new --pg-port 65536", "65536"),
        ("up --home new --pg-port x", "'x' is not a valid integer"),
        ("up --home new --lake-port -1", "-1"),
        ("up --home new --pg-port 20001 --lake-port 20001", "20001"),
        ("up --home file", "file"),
        ("up --home file/below", "below"),
        ("serve", "dsn is not set"),
        ("serve --home new", "frostline.toml"),
        ("psql", "dsn is not set"),
        ("psql --home new", "frostline.toml"),
        ("init", "dsn is not set"),
        ("init --dsn host=x", "warehouse is not set"),
        ("init --dsn nonsense --warehouse w", "connection string"),
        ("init --dsn color=red --warehouse w", "color"),
        ("init --output xml", "'xml'"),
    ],
)
def test_a_wrong_command_line_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert_refused(command(*line.split()), word)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("option", ["--pg-port", "--lake-port"])
def test_a_taken_port_is_refused_before_anything_is_made(
    command: Command, tmp_path: Path, taken_port: int, option: str
) -> None:
    said = command("up", "--home", tmp_path / "home", option, taken_port)
    assert_refused(said, str(taken_port), "taken")
    assert said.stderr.endswith(f"choose another: {option} N\n")
    assert not (tmp_path / "home").exists()


def test_a_directory_with_other_files_is_not_taken_over(command: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    assert_refused(command("up", "--home", tmp_path), "not a home")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_home_of_somebody_elses_postgres_is_not_started(command: Command, tmp_path: Path) -> None:
    write_file(tmp_path / "frostline.toml", {"dsn": "host=db", "warehouse": "/lake"})
    assert_refused(command("up", "--home", tmp_path), "not embedded")


def test_a_misspelt_setting_in_the_home_is_refused(command: Command, tmp_path: Path) -> None:
    write_file(tmp_path / "frostline.toml", {"dsn": "host=db", "warehouse": "/lake", "lake_prot": 1})
    assert_refused(command("psql", "--home", tmp_path), "lake_prot")


def test_a_database_that_does_not_answer_is_unavailable(command: Command, tmp_path: Path) -> None:
    said = command("init", "--dsn", "postgresql://me:hunter2@127.0.0.1:1/x", "--warehouse", tmp_path)
    assert said.exit_code == 4
    assert "hunter2" not in said.stderr


def test_a_home_in_use_is_a_conflict(command: Command, tmp_path: Path) -> None:
    from frostline.runtime.home import prepare

    with prepare(tmp_path / "home", pg_port=None, lake_port=None):
        said = command("up", "--home", tmp_path / "home")
    assert said.exit_code == ConflictError.exit_code
    assert f"in use by process {os.getpid()}" in said.stderr


def test_an_unexpected_error_is_one_line_and_asks_for_a_report(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "up", "frostline.cli.nowhere:up")
    said = command("up")
    assert said.exit_code == 1
    assert said.stderr.startswith("error: unexpected ModuleNotFoundError")
    assert "--debug" in said.stderr


def test_debug_shows_where_an_error_came_from(command: Command, tmp_path: Path) -> None:
    said = command("psql", "--home", tmp_path, "--debug")
    assert "Traceback" in said.stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_home_may_stand_before_or_after_the_command(command: Command, tmp_path: Path, place: str) -> None:
    home = ("--home", tmp_path)
    said = command(*home, "psql") if place == "before" else command("psql", *home)
    assert str(tmp_path) in said.stderr


def test_home_may_come_from_the_environment(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_HOME", str(tmp_path))
    assert str(tmp_path) in command("psql").stderr
