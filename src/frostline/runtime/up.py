"""`frostline up`: starts the parts in order, watches them, and stops them in the opposite order."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event

import psycopg
from psycopg import sql

from frostline.catalog.connect import connect
from frostline.errors import UnavailableError
from frostline.runtime import lake_server, passfile
from frostline.runtime.home import DATABASE, Home
from frostline.runtime.install import install_and_find_lake
from frostline.runtime.postgres import Postgres, running_pid
from frostline.runtime.worker_process import WorkerProcess
from frostline.settings import Settings

_WATCH_INTERVAL_S = 1.0


def run(
    home: Home, settings: Settings, *, worker: bool, announce: Callable[[str], None], stop: Event, at_once: Event
) -> None:
    """Run everything of this home until `stop` is set. Stopping does not wait for the worker once `at_once` is set."""
    with started(home, settings, announce) as postgres:
        watched = [WorkerProcess(home.directory)] if worker else []
        try:
            announce(f"ready dsn={home.client_dsn}")
            _watch(postgres, watched, stop)
        finally:
            for one in watched:
                one.stop(at_once)


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
        passfile.write(settings)
        passfile.write_for_clients(home.client_passfile, postgres)
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


def _watch(postgres: Postgres, workers: Sequence[WorkerProcess], stop: Event) -> None:
    while not stop.wait(_WATCH_INTERVAL_S):
        for worker in workers:
            worker.keep_alive()
        if running_pid(postgres.data_dir) is None:
            raise UnavailableError("the embedded Postgres has ended by itself", hint=f"see {postgres.log_file}")
