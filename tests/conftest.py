"""Fixtures live in `tests/fixtures`; this only names them, and gives each run a temporary folder of its own.

pytest's usual one is shared by all runs of a user, and each closes it to others when it begins: the Postgres of another
run, which is another user, then cannot open its files. It is in memory, where there is enough: each test has a database of
its own, and hundreds of files are made and deleted for each. On a disk that is a tenth of a second of work or more, in
memory almost nothing. TMPDIR says otherwise.
"""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import psutil
import pytest

_own: list[Path] = []
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No test runs Java for so long that it would pay to compile well: a start of Spark takes half of the work."""

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30
"""More than all workers of a run need there at once."""

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("frostline", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=30)

pytest_plugins = [
    "tests.fixtures.lakeserver",
    "tests.fixtures.catalogserver",
    "tests.fixtures.cluster",
    "tests.fixtures.command",
    "tests.fixtures.conversion",
    "tests.fixtures.golden",
    "tests.fixtures.postgres",
    "tests.fixtures.spark",
    "tests.fixtures.tables",
    "tests.fixtures.lake",
    "tests.fixtures.lake_sessions",
    "tests.fixtures.lake_commits",
    "tests.fixtures.own_server",
    "tests.fixtures.pair",
    "tests.fixtures.rest_nodes",
    "tests.fixtures.seaweed",
    "tests.fixtures.s3",
    "tests.fixtures.twins",
    "tests.fixtures.sparkrows",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backwards", action="store_true", help="run the tests of each file from the last to the first")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, _QUICK_JAVA)
    hypothesis.settings.load_profile("quick" if "not slow" in config.option.markexpr else "frostline")
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        _own.append(Path(tempfile.mkdtemp(prefix="frostline-tests-", dir=_MEMORY)))
        _own[0].chmod(0o1777)  # as the usual one, for the servers' user
        os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(_own[0])
        tempfile.tempdir = None  # what it had found before
    if config.option.basetemp is None:
        _own.append(Path(tempfile.mkdtemp(prefix="frostline-tests-")))
        config.option.basetemp = str(_own[-1] / "run")


def _has_room(folder: Path) -> bool:
    """Programs are started from there, too."""
    if not folder.is_dir() or not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= _ROOM and psutil.virtual_memory().available >= 2 * _ROOM


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whoever interrupts a run ends its workers at once: the servers that they leave end when they miss their files."""
    if not session.testsfailed:
        for folder in _own:
            shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first, then those with Spark, and unit tests last.

    Of processes side by side, each takes the next file when it has done one: with a long file at the end, the others would wait.
    """
    if config.option.backwards:
        items.reverse()
    marks: dict[Path, set[str]] = {}
    for item in items:
        marks.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    items.sort(key=lambda item: _order(item.path, marks[item.path]))


def _order(file: Path, marks: set[str]) -> tuple[bool, bool, bool]:
    return "unit" in file.parts, "slow" not in marks, "spark" not in marks


collect_ignore = ["interop"]
"""Needs jars that `make interop` fetches."""
