"""`frostline up`: starts the parts in order, watches them, and stops them in the opposite order.

Passwords are in password files of libpq, so that they need not be where others see them. From one the embedded Postgres
takes the lake server's: no dump has it. From the other, clients take that of the embedded Postgres: nothing has to
print it.
"""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import psycopg
from psycopg import sql

from frostline import logs
from frostline.catalog.connect import connect
from frostline.errors import UnavailableError, UsageError
from frostline.relation import foreign_server
from frostline.runtime import lake_server
from frostline.runtime.home import DATABASE, Home
from frostline.runtime.install import install_and_find_lake
from frostline.runtime.postgres import HOST, USER, Postgres, running_pid
from frostline.runtime.programs import give
from frostline.settings import Settings

_WATCH_INTERVAL_S = 1.0
_STOP_S = 30.0
_RESTART_S = 10.0
_POLL_S = 0.1
_log = logging.getLogger(__name__)


def run(
    home: Home, settings: Settings, *, worker: bool, announce: Callable[[str], None], stop: Event, at_once: Event
) -> None:
    """Run everything of this home until `stop` is set. Stopping does not wait for the worker once `at_once` is set."""
    with started(home, settings, announce) as postgres:
        watched = [_WorkerProcess(home.directory)] if worker else []
        try:
            announce(f"ready dsn={home.client_dsn}")
            _watch(postgres, watched, stop)
        finally:
            for process in watched:
                process.stop(at_once)


@contextmanager
def started(home: Home, settings: Settings, announce: Callable[[str], None]) -> Generator[Postgres]:
    """Everything of this home, for the block. A part that fails to start takes the others down again.

    A lake that is away is told, and stops nobody from using hot rows, nor from `frostline undo`.
    """
    with ExitStack() as parts:
        postgres = home.postgres
        parts.callback(postgres.stop)
        postgres.start()
        _ensure_database(postgres)
        _write_lake_passfile(settings)
        _write_client_passfile(home.client_passfile, postgres)
        away = install_and_find_lake(settings)
        if away:
            announce(f"the lake cannot be used: {away.args[0]} ({away.hint})")
        parts.enter_context(lake_server.running(settings, without_lake=away is not None))
        yield postgres


def _ensure_database(postgres: Postgres) -> None:
    with connect(postgres.dsn(), purpose="up") as connection:
        try:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        except psycopg.errors.DuplicateDatabase:
            return


def _write_lake_passfile(settings: Settings) -> None:
    """Write the lake server's password, for the user that runs Postgres only. It appears complete or not at all."""
    assert settings.lake_passfile
    if settings.lake_password is None:
        raise UsageError("lake_password is not set", hint="set it in frostline.toml to a password of your choice")
    password = settings.lake_password.get_secret_value()
    text = passfile_line(settings.lake_host, settings.lake_port, foreign_server.DATABASE, settings.lake_user, password)
    draft = _drafted(Path(settings.lake_passfile), text)
    give(draft)
    draft.replace(settings.lake_passfile)


def _write_client_passfile(file: Path, server: Postgres) -> None:
    """Write the superuser's password, for our own user only. It appears complete or not at all."""
    _drafted(file, passfile_line(HOST, server.port, "*", USER, server.password)).replace(file)


def _drafted(file: Path, text: str) -> Path:
    """The text in a new file of mode 0600, without which libpq does not read it, beside the one it will be."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fsync(draft.fileno())
    return Path(draft.name)


def passfile_line(host: str, port: int, database: str, user: str, password: str) -> str:
    """One line of a password file; `*` is any database."""
    fields = (host, str(port), database, user, password)
    return ":".join(field.replace("\\", "\\\\").replace(":", "\\:") for field in fields) + "\n"


def _watch(postgres: Postgres, workers: Sequence["_WorkerProcess"], stop: Event) -> None:
    while not stop.wait(_WATCH_INTERVAL_S):
        for worker in workers:
            worker.keep_alive()
        if running_pid(postgres.data_dir) is None:
            raise UnavailableError("the embedded Postgres has ended by itself", hint=f"see {postgres.log_file}")


class _WorkerProcess:
    """`frostline run` for a home, a process of its own: its memory and its Spark are not the lake server's.

    It ends when this process does, whatever ends that.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started_at = 0.0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started_at = time.monotonic()
        command = [sys.executable, "-m", "frostline.cli.main", "run", "--home", str(self._home), "--with-parent"]
        # A session of its own: Ctrl-C is for us, and we tell it.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def keep_alive(self) -> None:
        """Start it again if it has ended by itself, but not in every moment."""
        code = self._process.poll()
        if code is None or time.monotonic() - self._started_at < _RESTART_S:
            return
        _log.error("%s", logs.fields(stage="worker", error=f"ended with exit code {code}, and is started again"))
        self._close()
        self._process = self._start()

    def stop(self, at_once: Event) -> None:
        """Let the current step finish or be abandoned, for at most 30 s; do not wait once `at_once` is set."""
        self._process.terminate()
        deadline = time.monotonic() + _STOP_S
        while self._process.poll() is None and time.monotonic() < deadline and not at_once.wait(_POLL_S):
            pass
        self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
