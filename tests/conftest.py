"""Fixtures live in `tests/fixtures`; this only names them, and gives each run a temporary folder of its own.

pytest's usual one is shared by all runs of a user, and each closes it to others when it begins: the Postgres of another
run, which is another user, then cannot open its files.
"""

import shutil
import tempfile
from pathlib import Path

import pytest

_own: list[Path] = []

pytest_plugins = [
    "tests.fixtures.lakeserver",
    "tests.fixtures.cluster",
    "tests.fixtures.command",
    "tests.fixtures.conversion",
    "tests.fixtures.golden",
    "tests.fixtures.postgres",
    "tests.fixtures.spark",
    "tests.fixtures.tables",
    "tests.fixtures.lake",
    "tests.fixtures.own_server",
    "tests.fixtures.pair",
    "tests.fixtures.seaweed",
    "tests.fixtures.s3",
    "tests.fixtures.twins",
    "tests.fixtures.sparkrows",
]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None:
        _own.append(Path(tempfile.mkdtemp(prefix="frostline-tests-")))
        config.option.basetemp = str(_own[0] / "run")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == 0 and not session.testsfailed:
        for folder in _own:
            shutil.rmtree(folder, ignore_errors=True)


collect_ignore = ["interop"]
"""Needs jars that `make interop` fetches."""
