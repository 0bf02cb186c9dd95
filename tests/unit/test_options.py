"""The nearest explicit option wins: after the command, before it, the environment, the file, the default."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from tests.fixtures.commands import leaves

from frostline import settings
from frostline.cli.invocation import Invocation, shared_options
from frostline.cli.main import run
from frostline.cli.output import JsonOutput, TextOutput
from frostline.settings import Settings, write_file

SHARED = [str(option.name) for option in shared_options()]

VALUES: dict[str, tuple[str, str, str]] = {
    "home": ("/a", "/b", "/c"),
    "output": ("text", "json", "text"),
}
"""By shared option that has a value: of the environment, before the command, after it. A new one needs a line here."""
FLAGS = {"debug"}
SEEN: dict[str, Callable[[Invocation], str]] = {
    "home": lambda invocation: str(invocation.home),
    "output": lambda invocation: {TextOutput: "text", JsonOutput: "json"}[type(invocation.output)],  # pyright: ignore[reportArgumentType]
    "debug": lambda invocation: str(invocation.debug),
}
SETTINGS = {"dsn": "dsn", "warehouse": "warehouse", "master": "spark_master"}
"""Options of single commands that are settings."""
SETTING_VALUES = {
    "dsn": ("host=127.0.0.1 port=1", "host=127.0.0.1 port=2", "host=127.0.0.1 port=3"),
    "warehouse": ("/file", "/environment", "/option"),
    "spark_master": ("local[1]", "local[2]", "local[3]"),
}


NAMES = [name for name, _ in leaves()]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Invocation]:
    """Runs a command that only says what the shared options came to."""
    for name in SHARED:
        monkeypatch.delenv(f"FROSTLINE_{name.upper()}", raising=False)

    def call(name: str, words: list[str]) -> Invocation:
        invocations: list[Invocation] = []
        command = dict(leaves())[name]
        own = [parameter for parameter in command.params if parameter.name in SHARED]
        monkeypatch.setattr(command, "params", own)
        monkeypatch.setattr(command, "callback", lambda: invocations.append(click.get_current_context().obj))
        assert run(words) == 0
        return invocations[0]

    return call


def test_every_shared_option_is_tried_here() -> None:
    assert VALUES.keys() | FLAGS == set(SHARED) == SEEN.keys()


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("name", NAMES)
def test_the_nearest_shared_option_wins(
    heard: Callable[..., Invocation], monkeypatch: pytest.MonkeyPatch, name: str, option: str
) -> None:
    environment, before, after = VALUES[option]
    see, words, flag = SEEN[option], name.split(), f"--{option}"
    monkeypatch.setenv(f"FROSTLINE_{option.upper()}", environment)
    assert see(heard(name, words)) == environment
    assert see(heard(name, [flag, before, *words])) == before
    assert see(heard(name, [*words, flag, after])) == after
    assert see(heard(name, [flag, before, *words, flag, after])) == after
    if len(words) > 1:
        assert see(heard(name, [flag, before, words[0], flag, after, words[1]])) == after
        assert see(heard(name, [words[0], flag, before, words[1]])) == before


@pytest.mark.parametrize("option", VALUES)
def test_a_wrong_variable_does_not_matter_where_the_option_is_given(
    heard: Callable[..., Invocation], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").touch()
    wrong = {"home": str(tmp_path / "file"), "output": "xml"}[option]
    monkeypatch.setenv(f"FROSTLINE_{option.upper()}", wrong)
    _, before, after = VALUES[option]
    assert SEEN[option](heard("status", [f"--{option}", before, "status"])) == before
    assert SEEN[option](heard("status", ["status", f"--{option}", after])) == after
    assert run(["status"]) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_holds_wherever_it_stands(
    heard: Callable[..., Invocation], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words = name.split()
    assert not heard(name, words).debug
    assert heard(name, ["--debug", *words]).debug
    assert heard(name, [*words, "--debug"]).debug
    monkeypatch.setenv("FROSTLINE_DEBUG", "0")
    assert heard(name, ["--debug", *words]).debug
    monkeypatch.setenv("FROSTLINE_DEBUG", "1")
    assert heard(name, words).debug


def option_settings() -> list[tuple[str, str, str]]:
    """Command, option and setting of every option of a command that is a setting; `up` keeps what its home has."""
    return [
        (name, parameter.opts[0], SETTINGS[parameter.name])
        for name, command in leaves()
        for parameter in command.params
        if parameter.name in SETTINGS and name != "up"
    ]


@pytest.mark.parametrize(("name", "option", "setting"), option_settings())
def test_an_option_that_is_a_setting_wins_over_variable_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, option: str, setting: str
) -> None:
    read: list[Settings] = []
    load = settings.load

    def noted(home: Path | None = None, given: Any = None) -> Settings:
        read.append(load(home, given))
        return read[-1]

    monkeypatch.setattr(settings, "load", noted)
    for key, value in {"dsn": "host=127.0.0.1 port=1", "warehouse": "/nowhere"}.items():
        monkeypatch.setenv(f"FROSTLINE_{key.upper()}", value)
    monkeypatch.delenv(f"FROSTLINE_{setting.upper()}", raising=False)
    in_file, in_environment, given = SETTING_VALUES[setting]
    write_file(tmp_path / "frostline.toml", {setting: in_file})
    words = [*name.split(), *REQUIRED.get(name, []), "--home", str(tmp_path)]
    run(words)
    assert getattr(read[-1], setting) == in_file
    monkeypatch.setenv(f"FROSTLINE_{setting.upper()}", in_environment)
    run(words)
    assert getattr(read[-1], setting) == in_environment
    run([*words, option, given])
    assert getattr(read[-1], setting) == given


REQUIRED = {
    "undo": ["t"],
    "thaw": ["t", "--from", "1"],
    "snapshot create": ["n", "--tables", "public.*"],
    "lake create": ["t", "--as", "select 1 as a"],
}
"""What else such a command must be told. The database does not answer, so none does anything."""


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "archive" in capsys.readouterr().err
    assert run(["--output", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["message"] == "missing command"
