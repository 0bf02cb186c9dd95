"""Calls into Java run in a thread of their own, so that Ctrl-C never breaks into one.

In the main thread PySpark would handle Ctrl-C itself, by calling into Java in the middle of another call, and an
interrupted call leaves a connection on which the next one reads the wrong answer.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import psutil
from py4j.protocol import Py4JError

_ENDING_S = 5.0
"""How long Java may take to remove its temporary files."""
_POLL_S = 0.1

Made = TypeVar("Made")


def apart(function: Callable[[], Made]) -> Made:
    """Call it in another thread and wait. If the wait is interrupted, a Java that the call has started is ended."""
    before = set(_children())
    running: Future[Made] = Future()
    threading.Thread(target=_run, args=(function, running), daemon=True).start()
    try:
        return running.result()
    except BaseException:
        if not running.done():
            say_no_more()
            _end_children(before, running)
        raise


def told_by_java(error: Exception) -> str:
    """The text of an error of Java's, which Java itself is asked for; empty if it is gone meanwhile."""
    try:
        return str(getattr(error, "java_exception", error))
    except (Py4JError, OSError):
        return ""


def say_no_more() -> None:
    """From now on nobody hears of broken calls to Java: py4j writes a traceback of each to the root logger."""
    logging.getLogger().addHandler(logging.NullHandler())


def _run(function: Callable[[], Made], running: "Future[Made]") -> None:
    try:
        running.set_result(function())
    except BaseException as error:  # noqa: BLE001  (whoever waits raises it)
        running.set_exception(error)


def _end_children(before: set[psutil.Process], running: "Future[Made]") -> None:
    """End what the call has started until it gives up: by request, so that it tidies up, then by force.

    Nothing is waited for by its process id: PySpark does that, and goes on for ever if somebody else was faster.
    """
    force_at = time.monotonic() + _ENDING_S
    while not wait([running], _POLL_S).done and time.monotonic() < force_at + _ENDING_S:
        for child in set(_children()) - before:
            _signal(child.kill if time.monotonic() > force_at else child.terminate)


def _children() -> list[psutil.Process]:
    return psutil.Process().children()


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
