"""Ends a lake server that hangs.

Postgres waits for a lake server that took its connection and says nothing; a time limit for that is the session's own
affair. A process that hangs keeps its connections open, one that is gone does not. So a second, tiny process waits for
a sign of life, which is sent only after the lake server answered a new client. When there is none for too long it
kills the first: every waiting query fails at once, and whoever runs the service starts it again.

That client does not come through the port, which strangers may keep busy, but from inside the process.
"""

import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import IO

from frostline import logs

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_SIGNS_A_LIMIT = 5
_log = logging.getLogger(__name__)


@contextmanager
def guarded(asked: Callable[[float], bool], limit_s: float) -> Generator[None]:
    """Have this process killed if the server does not answer for so long; 0 is never.

    `asked` is given a number of seconds, and says whether the server answered within them.
    """
    if not limit_s:
        yield
        return
    command = [sys.executable, "-m", __name__, str(os.getpid()), str(limit_s)]
    stop = threading.Event()
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        assert watcher.stdin is not None
        beat = threading.Thread(target=_send_signs, args=(asked, limit_s, watcher.stdin, stop), daemon=True)
        beat.start()
        try:
            yield
        finally:
            stop.set()
            beat.join()


def _send_signs(asked: Callable[[float], bool], limit_s: float, to: IO[bytes], stop: threading.Event) -> None:
    pause_s = limit_s / _SIGNS_A_LIMIT
    while not stop.is_set():
        if asked(pause_s):
            with suppress(BrokenPipeError):
                os.write(to.fileno(), b".")
        else:
            _log.warning("%s", logs.fields(stage="watchdog", warning="the lake server does not answer"))
        stop.wait(pause_s)


def answers(address: tuple[str, int], limit_s: float) -> bool:
    """Whether the server at that address says anything to the question that Postgres asks first."""
    try:
        with socket.create_connection(address, timeout=limit_s) as probe:
            probe.sendall(_SSL_REQUEST)
            return bool(probe.recv(1))
    except OSError:
        return False


def watch(signs: int, process_id: int, limit_s: float) -> None:
    """Kill the process when no sign comes for so long. Return when it closes its end: then it has ended by itself."""
    while select.select([signs], [], [], limit_s)[0]:
        if not os.read(signs, 4096):
            return
    os.write(2, f"error: the lake server (process {process_id}) does not answer: killed\n".encode())
    os.kill(process_id, signal.SIGKILL)


if __name__ == "__main__":
    watch(0, int(sys.argv[1]), float(sys.argv[2]))
