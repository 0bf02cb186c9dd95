"""Running in the foreground until somebody says stop."""

import logging
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from frostline import logs
from frostline.cli.errors import INTERRUPTED, Stopped

FINISH_S = 20
"""How long the current step may go on after the first signal."""
ABANDON_S = 8
"""How long it may take to abandon it."""
_AGAIN_S = 2
"""psycopg forgets the interrupt if the statement it cancels has failed by itself in that moment."""
_log = logging.getLogger(__name__)


def _stopping() -> list[signal.Signals]:
    """The signals that stop us; not SIGHUP where whoever started us wants it to be ignored, as `nohup` does.

    SIGINT is ignored also by a shell that starts something in the background, which has to be stopped somehow.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT] if ignored else [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


class Stop(threading.Event):
    """Set by SIGTERM, SIGINT and SIGHUP. `again` is set by a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.again = threading.Event()


def stop_requested() -> Stop:
    """An event that the signals set, from now on instead of ending the process."""
    requested = Stop()

    def request(_number: int, _frame: FrameType | None) -> None:
        (requested.again if requested.is_set() else requested).set()

    for number in _stopping():
        signal.signal(number, request)
    return requested


def end_as_interrupted() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C from now on: the work is broken off and cleans up after itself.

    The exit code says which it was. A signal that whoever started us wants to be ignored, as `nohup` does, stays so.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


@contextmanager
def stopped_in_time() -> Generator[threading.Event]:
    """Yield an event that the first signal sets. The block then has 20 s to end, and is interrupted after that.

    If the interrupted block does not end within 8 s either, or a second signal comes, the process exits at once: every
    step may be killed anywhere.
    """
    requested = threading.Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        if requested.is_set():
            os._exit(INTERRUPTED)
        requested.set()
        last.start()
        signal.setitimer(signal.ITIMER_REAL, FINISH_S, _AGAIN_S)

    def abandon(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # A thread, because a library that is busy in C does not let the main thread see a signal.
    last = threading.Timer(FINISH_S + ABANDON_S, os._exit, [INTERRUPTED])
    last.daemon = True
    stopping = _stopping()
    before = {number: signal.getsignal(number) for number in (*stopping, signal.SIGALRM)}
    for number in stopping:
        signal.signal(number, request)
    signal.signal(signal.SIGALRM, abandon)
    try:
        yield requested
    except KeyboardInterrupt:
        _log.warning("%s", logs.fields(stage="stop", note="the current step was abandoned"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        last.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_parent() -> None:
    """Send this process SIGTERM when its standard input closes: whoever started it is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
