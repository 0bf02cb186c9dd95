"""What a case yields: one measured run of one thing."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Sample:
    """One run. `rows` is what a rate is counted in."""

    what: str
    seconds: float
    rows: int
    peak_bytes: int = 0
    """The most resident memory that this process and its children had more than before the run."""

    @property
    def rows_a_second(self) -> float:
        """The rate."""
        return self.rows / self.seconds


class Watch:
    """The clock and the memory of one run."""

    seconds: float = 0.0
    peak_bytes: int = 0


@contextmanager
def watched(interval_s: float = 0.05) -> Generator[Watch]:
    """Time the block, and look at the memory of the process tree now and then."""
    watch, over = Watch(), threading.Event()
    before = _resident()

    def look() -> None:
        while not over.wait(interval_s):
            watch.peak_bytes = max(watch.peak_bytes, _resident() - before)

    looker = threading.Thread(target=look)
    looker.start()
    start = time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - start
        over.set()
        looker.join()


def _resident() -> int:
    total = 0
    process = psutil.Process()
    for one in (process, *process.children(recursive=True)):
        try:
            if "postgres" not in one.name() and "java" not in one.name():
                total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
