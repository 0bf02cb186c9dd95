"""`frostline up`: starts the parts in order, watches them, and stops them in the opposite order."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from threading import Event

import psycopg
from psycopg import sql

from frostline.catalog.connect import connect
from frostline.embedded import lake, passfile
from frostline.embedded.home import DATABASE, Home
from frostline.embedded.install import install
from frostline.embedded.postgres import Postgres, running_pid
from frostline.errors import UnavailableError
from frostline.settings import Settings

_WATCH_INTERVAL_S = 1.0


def run(home: Home, settings: Settings, *, announce: Callable[[str], None], stop: Event) -> None:
    """Run everything of this home until `stop` is set."""
    with started(home, settings) as postgres:
        announce(f"ready dsn={settings.dsn}")
        _watch(postgres, stop)


@contextmanager
def started(home: Home, settings: Settings) -> Generator[Postgres]:
    """Everything of this home, for the block. A part that fails to start takes the others down again."""
    with ExitStack() as parts:
        postgres = home.postgres
        parts.callback(postgres.stop)
        postgres.start()
        _ensure_database(postgres)
        passfile.write(settings)
        install(settings)
        parts.callback(lake.start(settings).stop)
        yield postgres


def _ensure_database(postgres: Postgres) -> None:
    with connect(postgres.dsn(), purpose="up") as connection:
        try:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        except psycopg.errors.DuplicateDatabase:
            return


def _watch(postgres: Postgres, stop: Event) -> None:
    while not stop.wait(_WATCH_INTERVAL_S):
        if running_pid(postgres.data_dir) is None:
            raise UnavailableError("the embedded Postgres has ended by itself", hint=f"see {postgres.log_file}")
