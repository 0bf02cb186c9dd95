"""Renews something that runs out by itself, for as long as a block lasts."""

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from frostline.catalog import queries
from frostline.catalog.connect import connect
from frostline.errors import UnavailableError


@contextmanager
def beating(dsn: str, noun: str, query: str, values: Mapping[str, Any]) -> Generator[None]:
    """Run the named statement three times in each of its `seconds`, in a thread with a session of its own.

    One statement may renew several things. What cannot be renewed runs out, and whoever needs it finds that out when
    he looks.
    """
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(done, dsn, noun, query, values), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()


def _beat(done: threading.Event, dsn: str, noun: str, query: str, values: Mapping[str, Any]) -> None:
    pause_s = values["seconds"] / 3
    while not done.wait(pause_s):
        with suppress(psycopg.Error, UnavailableError), connect(dsn, purpose=noun) as connection:
            while connection.execute(queries.get(noun, query), values).rowcount:
                if done.wait(pause_s):
                    return
