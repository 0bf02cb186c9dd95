"""The savepoints of a transaction, and which cursors were open at each."""

from collections.abc import Iterable

from frostline.errors import UsageError


class NoSuchSavepoint(UsageError):
    """A savepoint that is not there."""

    sqlstate = "3B001"


class Savepoints:
    """Names may repeat; the latest counts, as in Postgres."""

    def __init__(self) -> None:
        self._set: list[tuple[str, frozenset[str]]] = []

    def set(self, name: str, cursors: Iterable[str]) -> None:
        """SAVEPOINT, while these cursors are open."""
        self._set.append((name, frozenset(cursors)))

    def release(self, name: str) -> None:
        """RELEASE: the savepoint and those after it are gone."""
        del self._set[self._position(name) :]

    def back(self, name: str) -> frozenset[str]:
        """ROLLBACK TO: those after it are gone. Answers with the cursors that stay open."""
        position = self._position(name)
        del self._set[position + 1 :]
        return self._set[position][1]

    def clear(self) -> None:
        """The transaction is over."""
        self._set.clear()

    def _position(self, name: str) -> int:
        for position in reversed(range(len(self._set))):
            if self._set[position][0] == name:
                return position
        raise NoSuchSavepoint(f"savepoint {name!r} does not exist")
