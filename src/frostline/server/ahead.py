"""What is there before it is asked for: a few things, made in a thread while whoever asks is busy with the last."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Ahead(Generic[Made]):
    """What `produce` gives, in order, until it gives None or raises; its error is raised where the thing is asked for.

    The thread ends when enough is there, and another begins when there is room again: a client that takes its time
    keeps none. Nobody waits for it at the end of the process, since its disk may be away.
    """

    def __init__(self, produce: Callable[[], Made | None], most: int) -> None:
        self._produce, self._most = produce, most
        self._ready: deque[Made | BaseException | None] = deque()
        self._changed = threading.Condition()
        self._runs = self._over = False

    def __iter__(self) -> Iterator[Made]:
        while (made := self._next()) is not None:
            yield made

    def _next(self) -> Made | None:
        with self._changed:
            self._go_on()
            self._changed.wait_for(lambda: self._ready or not self._runs)
            made = self._ready.popleft() if self._ready else None
            self._go_on()
        if isinstance(made, BaseException):
            raise made
        return made

    def _go_on(self) -> None:
        if not self._runs and self._has_room():
            self._runs = True
            threading.Thread(target=self._fill, name="frostline-lake-ahead", daemon=True).start()

    def _has_room(self) -> bool:
        return not self._over and len(self._ready) < self._most

    def _fill(self) -> None:
        goes_on = True
        while goes_on:
            made: Made | BaseException | None
            try:
                made = self._produce()
            except BaseException as error:  # noqa: BLE001
                made = error
            with self._changed:
                self._ready.append(made)
                self._over = self._over or made is None or isinstance(made, BaseException)
                goes_on = self._runs = self._has_room()
                self._changed.notify_all()

    def close(self) -> None:
        """Make no further one, and return when none is made any more."""
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: not self._runs)
