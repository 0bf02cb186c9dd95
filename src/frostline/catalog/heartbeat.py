"""Renews something that runs out by itself, for as long as a block lasts."""

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from frostline.catalog.connect import connect
from frostline.errors import UnavailableError


@contextmanager
def beating(dsn: str, purpose: str, statement: sql.SQL, values: Mapping[str, Any]) -> Generator[None]:
    """Run the statement three times in each of its `seconds`, in a thread with a session of its own.

    One statement may renew several things. What cannot be renewed expires, and its holder notices at
    its next check.
    """
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(done, dsn, purpose, statement, values), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()


def _beat(done: threading.Event, dsn: str, purpose: str, statement: sql.SQL, values: Mapping[str, Any]) -> None:
    pause_s = values["seconds"] / 3
    while not done.wait(pause_s):
        with suppress(psycopg.Error, UnavailableError), connect(dsn, purpose=purpose) as connection:
            while connection.execute(statement, values).rowcount:
                if done.wait(pause_s):
                    return
