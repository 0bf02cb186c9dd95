"""Who may stand at the door: clients that have connected and have not yet proved who they are.

They have a limit of their own and take no session's place. When there is no room, the newcomer comes in and another one
goes: the one that has stood there longest, of the address that has most of them. So whoever logs in as soon as it is in
is never kept out by those who do not. Everyone has some time: until the one to go has had it, newcomers wait in line.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class _Stranger:
    address: str
    since_s: float


class Door:
    """Counts, and decides who goes. Does nothing to a connection itself. Not for several threads at once."""

    def __init__(self, room: int, fair_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._room, self._fair_s, self._clock = room, fair_s, clock
        self._strangers: dict[int, _Stranger] = {}

    def __len__(self) -> int:
        return len(self._strangers)

    def pause_s(self) -> float:
        """How long newcomers have to wait."""
        if len(self._strangers) < self._room:
            return 0.0
        return max(0.0, self._strangers[self._next_to_go()].since_s + self._fair_s - self._clock())

    def enter(self, number: int, address: str) -> int | None:
        """A stranger comes in. Answers with the number of the one who goes instead, who is not here any more."""
        goes = self.turn_out() if len(self._strangers) >= self._room else None
        self._strangers[number] = _Stranger(address, self._clock())
        return goes

    def turn_out(self) -> int | None:
        """The number of the one who goes, if there is any."""
        if not self._strangers:
            return None
        goes = self._next_to_go()
        del self._strangers[goes]
        return goes

    def leave(self, number: int) -> bool:
        """A stranger is none any more. False when it had been turned out."""
        return self._strangers.pop(number, None) is not None

    def _next_to_go(self) -> int:
        """They are in the order of their coming."""
        most = Counter(stranger.address for stranger in self._strangers.values()).most_common(1)[0][0]
        return next(number for number, one in self._strangers.items() if one.address == most)
