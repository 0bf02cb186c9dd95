"""What a case yields: one measured run of one thing."""

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil


@dataclass(frozen=True)
class Sample:
    """One run. `rows` is what a rate is counted in."""

    what: str
    seconds: float
    rows: int
    peak_bytes: int = 0
    """The most resident memory that this process and its children had more than before the run."""
    peaks: Mapping[str, int] = field(default_factory=dict[str, int])
    """The most resident memory in all, by program."""
    size_bytes: int = 0
    """Where the question is about bytes, on disk or in memory."""
    note: str = ""
    """What the page says of it below the table, in Markdown: a plan, a reason."""

    @property
    def rows_a_second(self) -> float:
        """The rate."""
        return self.rows / self.seconds

    def __str__(self) -> str:
        rate = f", {self.rows_a_second:,.0f} rows/s" if self.rows > 1 else ""
        size = f", {self.size_bytes / 1e6:,.1f} MB" if self.size_bytes else ""
        peaks = "".join(f", {program} {size / 1e6:,.0f} MB" for program, size in self.peaks.items())
        return f"{self.what}: {self.seconds:.4g} s{rate}{size}{peaks}"


class Watch:
    """The clock and the memory of one run."""

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self.peak_bytes: int = 0
        self.peaks: dict[str, int] = {}

    def see(self, resident: Mapping[str, int]) -> None:
        """Remember the highest figures."""
        for program, size in resident.items():
            self.peaks[program] = max(self.peaks.get(program, 0), size)


@contextmanager
def watched(interval_s: float = 0.25) -> Generator[Watch]:
    """Time the block, and look at the memory of the process tree now and then."""
    watch, over = Watch(), threading.Event()
    before = _resident()

    def look() -> None:
        while not over.wait(interval_s):
            watch.peak_bytes = max(watch.peak_bytes, _resident() - before)
            watch.see(resident_by_program())

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
    root = psutil.Process()
    for process in (root, *root.children(recursive=True)):
        try:
            if "postgres" not in process.name() and "java" not in process.name():
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def resident_by_program() -> dict[str, int]:
    """Resident bytes now: of this process, of Spark's Java, of the lake server, and of Spark's largest Python worker."""
    root = psutil.Process()
    resident = {"driver": root.memory_info().rss, "java": 0, "frostline": 0, "worker": 0}
    for process in root.children(recursive=True):
        try:
            name, size = process.name(), process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if "postgres" not in name:
            program = next((known for known in ("java", "frostline") if known in name), "worker")
            resident[program] = max(resident[program], size)
    return resident
