"""Running in the foreground until somebody says stop."""

import signal
import threading
from types import FrameType


def stop_requested() -> threading.Event:
    """An event that SIGTERM, SIGINT and SIGHUP set, from now on instead of ending the process."""
    requested = threading.Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        requested.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, request)
    return requested


def interrupt_when_stopped() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C from now on: the work is broken off and cleans up after itself."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
