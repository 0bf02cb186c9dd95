"""The prepared statements of a session. They stay as long as the client likes, so they are few and not too long."""

from frostline.errors import UsageError
from frostline.server.translate.size import TooComplex
from frostline.server.translate.statements import NotServed, Statement

MAX_NAMED = 1_000
"""Prepared statements, portals or cursors one session may have."""
MAX_CHARS = 4 << 20
"""Of all statements with a name together: each has its tree."""


class NoSuchThing(UsageError):
    """A cursor, portal or prepared statement that is not there."""

    sqlstate = "34000"


class Prepared:
    """Statements by name. The one without a name is replaced by the next, and may be as long as any other query."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, list[Statement]]] = {"": (0, [])}

    def keep(self, name: str, sql: str, parsed: list[Statement]) -> None:
        """Keep what the text was parsed to; NotServed or TooComplex when that is too much."""
        others = [size for other, (size, _) in self._kept.items() if other not in ("", name)]
        if name and len(others) >= MAX_NAMED:
            raise NotServed(f"more than {MAX_NAMED} prepared statements in one session")
        if name and sum(others) + len(sql) > MAX_CHARS:
            raise TooComplex(
                f"the prepared statements of this session have more than {MAX_CHARS} characters", hint="DEALLOCATE ALL"
            )
        self._kept[name] = (len(sql), parsed)

    def get(self, name: str) -> list[Statement]:
        """The statement, in a list; none for an empty text."""
        if name not in self._kept:
            raise NoSuchThing(f"prepared statement {name!r} does not exist")
        return self._kept[name][1]

    def close(self, name: str) -> None:
        """Forget it, if it is there."""
        self._kept.pop(name, None)

    def deallocate(self, name: str | None) -> None:
        """Forget it, or with no name all of them."""
        if name is None:
            self._kept = {"": (0, [])}
        elif self._kept.pop(name, None) is None:
            raise NoSuchThing(f"prepared statement {name!r} does not exist")
