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
