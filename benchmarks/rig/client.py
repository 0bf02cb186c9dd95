"""A client in a process of its own: one statement after the other until it is told to stop, and how long each took.

`python -m benchmarks.rig.client` reads one line of JSON: dsn, statement, the parameters to take in turn. It says `ready` when it has warmed up, begins
with the next line and ends with the one after; then it prints the seconds of every statement as JSON. A statement that Postgres asks to
repeat (40001) is repeated, and its time goes on.
"""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.errors import SerializationFailure

WARM_UP = 300


def main() -> None:
    """Be the client."""
    wanted = json.loads(sys.stdin.readline())
    with psycopg.connect(wanted["dsn"], autocommit=True, options="-c timezone=UTC") as connection:

        def ask(parameters: Sequence[Any]) -> None:
            connection.execute(wanted["statement"], parameters, prepare=True)

        turns = itertools.cycle(wanted["parameters"])
        for _ in range(WARM_UP):
            _patiently(ask, next(turns))
        print(json.dumps([os.getpid(), connection.info.backend_pid]), flush=True)
        sys.stdin.readline()
        print(json.dumps(_spent(ask, turns)), flush=True)


def _spent(ask: Callable[[Sequence[Any]], None], turns: "itertools.cycle[Sequence[Any]]") -> list[float]:
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    spent: list[float] = []
    while not over.is_set():
        start = time.perf_counter()
        _patiently(ask, next(turns))
        spent.append(time.perf_counter() - start)
    return spent


def _patiently(ask: Callable[[Sequence[Any]], None], parameters: Sequence[Any]) -> None:
    while True:
        try:
            return ask(parameters)
        except SerializationFailure:
            continue


if __name__ == "__main__":
    main()
