"""The tutorial, executed word for word."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures.pages import WAITING, Shell, steps

from frostline.runtime.postgres import Postgres

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "first-table.md"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()
    Postgres(tmp_path / "shop" / "postgres", 0, "").stop()  # if it is still there after a failure


def test_one_that_cannot_start_is_not_waited_for(shell: Shell) -> None:
    start = next(step for step in steps(TUTORIAL.read_text()) if WAITING in step.commands)
    with pytest.raises(AssertionError, match="bash ended in"):
        shell.run(start.commands.replace("--home shop", "--home up.log"))  # which is a file


@pytest.mark.spark
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    for step in steps(TUTORIAL.read_text()):
        shell.do(step)
