"""Postgres is killed in the middle of an archive and of a fold, while writers write: nothing is lost, nothing is doubled."""

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import DIFFERENCE, OwnServers, Served, archive_below, connected, kill, make_ranges
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until_true

from frostline.catalog import seams
from frostline.catalog.connect import connect as open_connection
from frostline.errors import FrostlineError, OutcomeUnknown, UnavailableError
from frostline.lake import commit
from frostline.pipeline import archive, fold, verify
from frostline.relation import bound, marks
from frostline.runtime.postgres import Postgres
from frostline.settings import write_file

pytestmark = pytest.mark.slow

IDS = 400


@pytest.fixture
def server(own_servers: OwnServers) -> Postgres:
    """A server that the test kills."""
    return own_servers.new("server")


@pytest.fixture
def lake(server: Postgres, served: Served) -> Lake:
    """`events` with ten ranges of 100 and nothing archived, `reference` with the same rows, and `marker`."""
    lake = served(server)
    make_ranges(lake, IDS)
    run(lake.catalog, "create table public.marker (number int primary key)")
    return lake


class Writers:
    """Threads that change rows of both tiers, each transaction in `events` and `reference`, and note what was committed."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.committed: set[int] = set()
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Generator[None]:
        threads = [threading.Thread(target=self._write, args=(random.Random(seed),)) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _write(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with connected(self.server) as connection:
                    while not self._stop.is_set():
                        self._transaction(connection, chance)
            except psycopg.OperationalError:
                # Whether the last one was committed nobody can say; both tables and its marker must agree about it.
                self.counts["lost"] += 1
                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001  (whatever it is, the test fails with it)
                self.failures.append(repr(error))
                return

    def _transaction(self, connection: psycopg.Connection, chance: random.Random) -> None:
        number, statement = next(self._numbers), _statement(chance)
        try:
            with connection.transaction():
                connection.execute("insert into public.marker values (%s)", (number,))
                got = [sorted(rows(connection, statement.format(table))) for table in ("events", "reference")]
                assert got[0] == got[1], statement
        except (errors.SerializationFailure, errors.DeadlockDetected):
            return
        self.committed.add(number)


def _statement(chance: random.Random) -> str:
    number, key, kind = chance.randint(1, IDS), chance.randint(0, 999), chance.random()
    if kind < 0.5:
        return f"update public.{{}} set n = n + 1 where id = {number} returning id, k, n"
    if kind < 0.65:
        return f"update public.{{}} set k = {key}, v = 'moved' where id = {number} returning id, k, n"
    if kind < 0.75:
        return f"delete from public.{{}} where id = {number} returning id, k, n"
    return (
        f"insert into public.{{}} (id, k, v) values ({chance.randint(10_000, 10**9)}, {key}, 'new') returning id, k, n"
    )


Job = Callable[[Lake, Callable[[], None]], archive.Result | fold.Result]


def archive_it(lake: Lake, report: Callable[[], None]) -> archive.Result:
    """Archive one range more than the last time it went well."""
    line: Any = value(lake.catalog, "select line_integer from frostline.seam")
    return archive_below(lake, max(line, 0) + 100, report)


def fold_it(lake: Lake, report: Callable[[], None]) -> fold.Result:
    (result,) = fold.run(lake.jobs(lambda _t, _p: report()), [lake.table()])
    return result


MOMENTS: list[tuple[Job, str, Any, str, type[FrostlineError]]] = [
    (archive_it, "while tasks run", None, "", UnavailableError),
    (archive_it, "before the metadata is written", commit, "stage", UnavailableError),
    (archive_it, "before the bound is raised", bound, "raise_to", UnavailableError),
    (archive_it, "inside the publishing transaction", seams, "move", OutcomeUnknown),
    (archive_it, "after it", bound, "analyze", UnavailableError),
    (fold_it, "while tasks run", None, "", UnavailableError),
    (fold_it, "before the metadata is written", commit, "stage", OutcomeUnknown),
    (fold_it, "inside the publishing transaction", marks, "take_away", OutcomeUnknown),
]


@pytest.mark.spark
def test_a_killed_server_loses_nothing_whatever_the_job_was_at(lake: Lake, server: Postgres) -> None:
    archive_it(lake, lambda: None)
    writers = Writers(server)
    with writers.running():
        for job, moment, module, function, kind in MOMENTS:
            error = _killed(lake, server, job, module, function)
            where = f"{job.__name__} {moment}"
            assert isinstance(error, kind), (where, error)
            assert "\n" not in str(error), where
            assert error.hint, where
            server.start()
            lake.catalog = open_connection(lake.dsn, purpose="tests")
            assert rows(lake.catalog, DIFFERENCE) == [(0, 0)], where
            again = job(lake, lambda: None)
            assert again.error is None, (where, again.error)
            assert rows(lake.catalog, DIFFERENCE) == [(0, 0)], where
    assert writers.failures == []
    assert writers.counts["lost"] > 0
    _nothing_is_missing(lake, writers)


def _killed(lake: Lake, server: Postgres, job: Job, module: Any, function: str) -> FrostlineError | None:
    """Run the job and kill the server before it calls that function; without one, when it reports progress."""
    time.sleep(0.3)  # some changes come in between
    if module is None:
        return job(lake, lambda: kill(server)).error
    with pytest.MonkeyPatch.context() as patch:
        original = getattr(module, function)

        def dying(*given: Any, **named: Any) -> Any:
            kill(server)
            return original(*given, **named)

        patch.setattr(module, function, dying)
        return job(lake, lambda: None).error


def _nothing_is_missing(lake: Lake, writers: Writers) -> None:
    numbers = {number for (number,) in rows(lake.catalog, "select number from public.marker")}
    assert writers.committed <= numbers
    assert fold_it(lake, lambda: None).error is None
    lake.clean()
    assert rows(lake.catalog, DIFFERENCE) == [(0, 0)]
    assert verify.run(lake.catalog, lake.table()).faults == ()
    unfinished = "select count(*) from frostline.job where state not in ('published', 'cleaned', 'failed')"
    assert value(lake.catalog, unfinished) == 0


@pytest.fixture
def home(lake: Lake, tmp_path: Path) -> Path:
    """A directory with the settings of the lake, for commands."""
    (tmp_path / "home").mkdir()
    write_file(tmp_path / "home" / "frostline.toml", {"dsn": lake.dsn, "warehouse": str(lake.warehouse)})
    return tmp_path / "home"


@pytest.mark.spark
def test_the_command_says_what_happened_in_one_line_with_a_hint(lake: Lake, server: Postgres, home: Path) -> None:
    run(lake.catalog, "update frostline.managed_table set hot_span = 500")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FROSTLINE_")}
    words = [str(Path(sys.executable).with_name("frostline")), "archive", "--home", str(home), "--master", "local[1]"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            until_true(lake.catalog, "select count(*) from frostline.job where state = 'captured'")
            kill(server)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == UnavailableError.exit_code
    assert "Traceback" not in said
    lines = said.splitlines()
    errors_said = [line for line in lines if line.startswith("error: ")]
    assert len(errors_said) == 1
    assert lines[lines.index(errors_said[0]) + 1].startswith("hint: ")
