"""What the lake server counts. One short lock a query and a fetch, none a row."""

import threading
import time
from bisect import bisect_left
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from frostline.errors import FrostlineError

LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CANCELLED = "57014"


class Outcome(StrEnum):
    """How a query ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Reading:
    """All counters at one moment."""

    queries: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    latency_counts: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS_S) + 1)
    """Queries by how long the server worked for them, one bucket a bound and one above all."""
    latency_s: float = 0.0
    rows: int = 0
    size_bytes: int = 0
    files_opened: int = 0
    files_pruned: int = 0
    files_extracted: int = 0
    compared_bytes: int = 0


class Meter:
    """The counters of one server. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Reading = Reading()

    def reading(self) -> Reading:
        """The counters as they are now."""
        return self._now

    def query(self) -> "Query":
        """A query that begins now."""
        return Query(self)

    @contextmanager
    def refusals(self) -> Generator[None]:
        """Count what is refused in this block before it is a query, as text that cannot be parsed."""
        query = self.query()
        with query.working():
            yield

    def ended(self, outcome: Outcome, seconds: float) -> None:
        """A query has ended after so much work."""
        place = bisect_left(LATENCY_BOUNDS_S, seconds)
        with self._lock:
            now = self._now
            counts = (*now.latency_counts[:place], now.latency_counts[place] + 1, *now.latency_counts[place + 1 :])
            queries = {**now.queries, outcome: now.queries[outcome] + 1}
            self._now = replace(now, queries=queries, latency_counts=counts, latency_s=now.latency_s + seconds)

    def sent(self, rows: int, size_bytes: int) -> None:
        """So much of a result went to its client."""
        with self._lock:
            self._now = replace(self._now, rows=self._now.rows + rows, size_bytes=self._now.size_bytes + size_bytes)

    def compared(self, size_bytes: int) -> None:
        """Files of so many bytes were read whole, because of their checksums."""
        if size_bytes:
            with self._lock:
                self._now = replace(self._now, compared_bytes=self._now.compared_bytes + size_bytes)

    def pruned(self, files: int) -> None:
        """A scan passes over so many files of its snapshot."""
        with self._lock:
            self._now = replace(self._now, files_pruned=self._now.files_pruned + files)

    def read(self, files: int, *, from_extract: bool) -> None:
        """A query opens so many files, or has their rows from an extract."""
        with self._lock:
            now = self._now
            if from_extract:
                self._now = replace(now, files_extracted=now.files_extracted + files)
            else:
                self._now = replace(now, files_opened=now.files_opened + files)


class Query:
    """One query, of one session. Its time is what the server works, not what its client takes to read."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._seconds, self._has_ended = meter, 0.0, False

    @contextmanager
    def working(self) -> Generator[None]:
        """Count the time of the block. An error in it ends the query."""
        began = time.monotonic()
        try:
            yield
        except FrostlineError as error:
            self._seconds += time.monotonic() - began
            self.end(Outcome.CANCELLED if error.sqlstate == _CANCELLED else Outcome.ERROR)
            raise
        self._seconds += time.monotonic() - began

    def end(self, outcome: Outcome) -> None:
        """The query is over; only the first end counts."""
        if not self._has_ended:
            self._has_ended = True
            self._meter.ended(outcome, self._seconds)
