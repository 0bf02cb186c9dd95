"""The worker of `frostline up`: a process of its own, so that its memory and its Spark are not the lake server's."""

import logging
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

from frostline import logs

STOP_S = 30.0
RESTART_S = 10.0
_POLL_S = 0.1
_log = logging.getLogger(__name__)


class WorkerProcess:
    """`frostline run` for a home. It ends when this process does, whatever ends that."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started_at = 0.0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started_at = time.monotonic()
        command = [sys.executable, "-m", "frostline.cli.main", "run", "--home", str(self._home), "--with-parent"]
        # A session of its own: Ctrl-C is for us, and we tell it.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def keep_alive(self) -> None:
        """Start it again if it has ended by itself, but not in every moment."""
        code = self._process.poll()
        if code is None or time.monotonic() - self._started_at < RESTART_S:
            return
        _log.error("%s", logs.fields(stage="worker", error=f"ended with exit code {code}, and is started again"))
        self._close()
        self._process = self._start()

    def stop(self, at_once: Event) -> None:
        """Let the current step finish or be abandoned, for at most 30 s; do not wait once `at_once` is set."""
        self._process.terminate()
        deadline = time.monotonic() + STOP_S
        while self._process.poll() is None and time.monotonic() < deadline and not at_once.wait(_POLL_S):
            pass
        self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
