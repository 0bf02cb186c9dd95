"""The tutorial, executed word for word: what it shows after a command is what the command prints."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from frostline.runtime.postgres import Postgres

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "first-table.md"
_BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT\S+ (debug|info) ")
_WAITING, _WATCHING = "; do sleep 1; done", "; do kill -0 $! || exit 1; sleep 1; done"
"""A reader whose `up` has failed sees it, and waits no longer."""


@dataclass(frozen=True)
class Step:
    """Commands, and what the page shows after them, if it does."""

    commands: str
    shown: str | None


def steps(page: str) -> Iterator[Step]:
    blocks: list[tuple[str, str]] = _BLOCK.findall(page)
    for position, (kind, text) in enumerate(blocks):
        if kind == "bash":
            after = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
            yield Step(text, after[1] if after[0] == "text" else None)


class Shell:
    """One bash for the whole page, so that variables and background jobs live on."""

    def __init__(self, directory: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FROSTLINE_", "PG"))}
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "--norc"], cwd=directory, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment, "PATH": path, "PSQLRC": os.devnull},
        )  # fmt: skip

    def run(self, commands: str) -> tuple[str, int]:
        """What a reader sees, without the log, and the exit code of the last command."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f'{commands.replace(_WAITING, _WATCHING)}\necho "= $?"\n')
        self._process.stdin.flush()
        lines: list[str] = []
        while not (end := re.fullmatch(r"= (\d+)\n", line := self._process.stdout.readline())):
            assert line, f"bash ended in: {commands}\n{''.join(lines)}"
            lines.append(line)
        return "".join(line for line in lines if not _LOG_LINE.match(line)), int(end[1])

    def close(self) -> None:
        """End it with everything it started."""
        assert self._process.stdin
        self._process.stdin.close()
        with self._process:
            os.killpg(self._process.pid, signal.SIGTERM)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()
    Postgres(tmp_path / "shop" / "postgres", 0, "").stop()  # if it is still there after a failure


def pattern(shown: str) -> re.Pattern[str]:
    """`...` matches anything; spaces at the end of a line do not count."""
    lines = [re.escape(line.rstrip()).replace(re.escape("..."), ".*") for line in shown.strip("\n").splitlines()]
    return re.compile("\n".join(lines), re.DOTALL)


def without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def test_one_that_cannot_start_is_not_waited_for(shell: Shell) -> None:
    start = next(step for step in steps(TUTORIAL.read_text()) if _WAITING in step.commands)
    with pytest.raises(AssertionError, match="bash ended in"):
        shell.run(start.commands.replace("--home shop", "--home up.log"))  # which is a file


@pytest.mark.spark
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    for step in steps(TUTORIAL.read_text()):
        printed, exit_code = shell.run(step.commands)
        assert (exit_code == 0) is not (step.shown or "").startswith("error:"), printed
        if step.shown is not None:
            assert pattern(step.shown).fullmatch(without_trailing_spaces(printed)), f"{step.commands}\n{printed}"
