"""One thing done to many, in threads that nobody waits for at the end of the process: their disk may be away."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

_POLL_S = 0.05

Item = TypeVar("Item")
GiveUp: TypeAlias = Callable[[], None]
"""Is called all the time, and raises when the work is not wanted any more."""


class _Stopped(Exception):
    """Another thread has failed, or the caller is gone."""


def each(items: Sequence[Item], do: Callable[[Item, GiveUp], None], threads: int, give_up: GiveUp) -> None:
    """Call the function with each. Raises the first error, and what `give_up` raises; the others then stop soon."""
    crew, needed = _Crew(items, do), min(threads, len(items))
    workers = [threading.Thread(target=crew.work, name="frostline-check", daemon=True) for _ in range(needed)]
    for worker in workers:
        worker.start()
    try:
        give_up()  # also where all is done before anybody waits
        for worker in workers:
            while worker.is_alive():
                worker.join(_POLL_S)
                give_up()
    finally:
        crew.ended.set()
    if crew.failed:
        raise crew.failed[0]


class _Crew(Generic[Item]):
    def __init__(self, items: Sequence[Item], do: Callable[[Item, GiveUp], None]) -> None:
        self._left, self._do = deque(items), do
        self.failed: list[BaseException] = []
        self.ended = threading.Event()

    def _stop(self) -> None:
        if self.ended.is_set():
            raise _Stopped

    def _next(self) -> Item | None:
        self._stop()
        try:
            return self._left.popleft()
        except IndexError:
            return None

    def work(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._do(item, self._stop)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  (it is raised where the work was asked for)
            self.failed.append(error)
            self.ended.set()
