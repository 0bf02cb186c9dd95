"""What is made of files for look-ups that come again and again: when that is worth it, how much is kept, and how long.

Whatever it is, it is made in a thread of its own, once the look-ups have taken as long as it will take: if no other
follows, it was twice the time, not more. It is of files as they were at one time, which its key says.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from frostline.errors import FrostlineError
from frostline.lake.filecheck import Stamp

LEAST_ASKED = 8
_PAUSE_S = 10.0
"""A look-up that comes later than this after the last of its kind is the first again."""
_IDLE_S = 60.0
"""What nobody has asked for so long is dropped. What there was no room for is tried again then."""
_MOST_COUNTED = 256
_CLOSE_S = 5.0

_log = logging.getLogger(__name__)

Stamps: TypeAlias = tuple[Stamp, ...]
Connect: TypeAlias = Callable[[], duckdb.DuckDBPyConnection]
Clock: TypeAlias = Callable[[], float]
Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Order(Generic[Item]):
    """What could be made for look-ups of a kind."""

    build_s: float
    """How long that takes, roughly."""
    make: Callable[[duckdb.DuckDBPyConnection], tuple[Item, int]]
    """Makes it, and says how many bytes it takes. Calls `make_room` when it knows that."""
    is_true: Callable[[], bool]
    """Whether the files are still those of its key."""


@dataclass
class _Count:
    """How often look-ups of a kind came, and what they took, without it."""

    asked: int = 0
    spent_s: float = 0.0
    asked_at: float = 0.0
    refused_at: float | None = None


@dataclass
class _Kept(Generic[Item]):
    item: Item
    size_bytes: int
    asked_at: float


class NoRoom(Exception):
    """There is too little memory left for it."""


class TooLarge(Exception):
    """It would take more than all of them may: always, since a file does not change."""


class Keeper(Generic[Key, Item]):
    """Counts look-ups, and has made what is worth it. For many threads at once. Nothing here fails a query."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        share_bytes: int,
        clock: Clock = time.monotonic,
        drop: Callable[[duckdb.DuckDBPyConnection, Sequence[Item]], None] | None = None,
    ) -> None:
        """`name` is for the log. `drop` gives back what garbage collection does not."""
        self._name, self._connect, self.share_bytes, self._clock, self._drop = name, connect, share_bytes, clock, drop
        self._lock = threading.Lock()
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self._made: OrderedDict[Key, _Kept[Item]] = OrderedDict()
        self._builder: threading.Thread | None = None
        self._building: duckdb.DuckDBPyConnection | None = None
        self._is_closed = False
        self._era = self._begun_in = 0
        """The next begins when all is given up: what is being made then comes too late."""

    @property
    def size_bytes(self) -> int:
        """What all of it takes in memory, roughly."""
        with self._lock:
            return sum(kept.size_bytes for kept in self._made.values())

    def find(self, key: Key) -> Item | None:
        """What was made for a look-up, if it is there."""
        with self._lock:
            kept = self._made.get(key)
            if kept is None:
                return None
            kept.asked_at = self._clock()
            self._made.move_to_end(key)
            return kept.item

    def spent(self, key: Key, seconds: float, order: Order[Item]) -> None:
        """A look-up without it took so long. Begins to make it if that has become worth it."""
        with self._lock:
            count = self._counted(key, seconds)
            if self._is_closed or self._builder is not None or key in self._made:
                return
            if not _is_worth_it(count, order.build_s, self._clock()):
                return
            self._begun_in = self._era
            build = partial(self._build, key, order)
            self._builder = threading.Thread(target=build, name="frostline-lake-extract", daemon=True)
            try:
                self._builder.start()
            except RuntimeError:  # no more threads for now
                self._builder = None

    def _counted(self, key: Key, seconds: float) -> _Count:
        now = self._clock()
        count = self._counts.get(key)
        if count is None or now - count.asked_at > _PAUSE_S:
            count = self._counts[key] = _Count(refused_at=count.refused_at if count else None)
        count.asked, count.spent_s, count.asked_at = count.asked + 1, count.spent_s + seconds, now
        self._counts.move_to_end(key)
        while len(self._counts) > _MOST_COUNTED:
            self._counts.popitem(last=False)
        return count

    def _build(self, key: Key, order: Order[Item]) -> None:
        began = self._clock()
        try:
            with self._connect() as connection:
                self._building = connection
                item, size_bytes = order.make(connection)
                self._keep(connection, key, _Kept(item, size_bytes, self._clock()), order)
            took_ms = (self._clock() - began) * 1000
            _log.info("%s made size_bytes=%d elapsed_ms=%.1f", self._name, size_bytes, took_ms)
        except (NoRoom, TooLarge, duckdb.Error, pa.ArrowException, FrostlineError, OSError) as error:
            _log.debug("no %s made error=%s", self._name, type(error).__name__)
            with self._lock:
                if self._begun_in == self._era:
                    count = self._counts.setdefault(key, _Count(asked_at=self._clock()))
                    count.refused_at = math.inf if isinstance(error, TooLarge) else self._clock()
        finally:
            self._building = self._builder = None

    def make_room(
        self,
        connection: duckdb.DuckDBPyConnection,
        size_bytes: int,
        fits: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """Drop what was not asked for longest; NoRoom if that is not enough, or somebody asks for it right now.

        `fits` says whether there is memory enough once so much is given back.
        """
        with self._lock:
            before = left = sum(kept.size_bytes for kept in self._made.values())
            oldest: list[Key] = []
            for key, kept in self._made.items():
                if left + size_bytes <= self.share_bytes:
                    break
                if self._clock() - kept.asked_at < _PAUSE_S:
                    raise NoRoom
                oldest.append(key)
                left -= kept.size_bytes
        if not fits(before - left) or self._begun_in != self._era:
            raise NoRoom
        with self._lock:
            dropped = [self._made.pop(key).item for key in oldest if key in self._made]
        self._give_back(connection, dropped)

    def _keep(self, connection: duckdb.DuckDBPyConnection, key: Key, kept: _Kept[Item], order: Order[Item]) -> None:
        is_kept = False
        try:
            is_true = order.is_true()
            with self._lock:
                self._counts.pop(key, None)
                if is_true and self._begun_in == self._era:
                    self._made[key] = kept
                    is_kept = True
        finally:
            if not is_kept:
                self._give_back(connection, [kept.item])

    def drop_idle(self) -> None:
        """Give back what nobody has asked for in a while."""
        before = self._clock() - _IDLE_S
        with self._lock:
            idle = [key for key, kept in self._made.items() if kept.asked_at < before]
            items = [self._made.pop(key).item for key in idle]
            for key in [key for key, count in self._counts.items() if count.asked_at < before]:
                del self._counts[key]
        self._give_back_by_itself(items)

    def clear(self) -> None:
        """Give everything back, because the files are others or the memory is needed."""
        with self._lock:
            self._era += 1
            items = [kept.item for kept in self._made.values()]
            self._made.clear()
        self._interrupt()
        self._give_back_by_itself(items)

    def close(self) -> None:
        """Stop making anything. The engine ends, and all that is in it."""
        with self._lock:
            self._is_closed, self._era = True, self._era + 1
            self._made.clear()
            builder = self._builder
        until = time.monotonic() + _CLOSE_S
        while builder is not None and builder.is_alive() and time.monotonic() < until:
            self._interrupt()  # one that comes between two statements is lost
            builder.join(timeout=0.1)

    def _interrupt(self) -> None:
        building = self._building
        if building is not None:
            with suppress(duckdb.Error):
                building.interrupt()

    def _give_back_by_itself(self, items: Sequence[Item]) -> None:
        if items and self._drop is not None:
            with suppress(duckdb.Error), self._connect() as connection:
                self._give_back(connection, items)

    def _give_back(self, connection: duckdb.DuckDBPyConnection, items: Sequence[Item]) -> None:
        if self._drop is not None:
            self._drop(connection, items)


def _is_worth_it(count: _Count, build_s: float, now: float) -> bool:
    if count.refused_at is not None and now - count.refused_at < _IDLE_S:
        return False
    return count.asked >= LEAST_ASKED and count.spent_s >= build_s
