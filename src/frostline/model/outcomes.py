"""What the answers of a catalog on the other side of a network mean for a commit of many tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto

_MISSING = ("NoSuchTableException", "NoSuchNamespaceException")


class Answer(Enum):
    """What a catalog made of a commit."""

    COMMITTED = auto()
    """Everything in the request is done."""
    CONFLICT = auto()
    """A requirement does not hold any more; nothing is done."""
    NO_ENDPOINT = auto()
    """The catalog does not know this kind of request; nothing is done."""
    NO_TABLE = auto()
    """A table of the request is not there; nothing is done."""
    FORBIDDEN = auto()
    """The token or the credential is not good for this; nothing is done."""
    REFUSED = auto()
    """The catalog does not take the request as it stands; nothing is done."""
    BUSY = auto()
    """Too many requests; nothing is done."""
    UNKNOWN = auto()
    """It may be done, or be done later."""


_BY_STATUS = {
    202: Answer.UNKNOWN,
    301: Answer.NO_ENDPOINT,
    302: Answer.NO_ENDPOINT,
    303: Answer.UNKNOWN,
    307: Answer.NO_ENDPOINT,
    308: Answer.NO_ENDPOINT,
    400: Answer.REFUSED,
    401: Answer.FORBIDDEN,
    403: Answer.FORBIDDEN,
    405: Answer.NO_ENDPOINT,
    409: Answer.CONFLICT,
    419: Answer.FORBIDDEN,
    429: Answer.BUSY,
    501: Answer.NO_ENDPOINT,
}


def answer(status: int, error_type: str | None) -> Answer:
    """What an HTTP status means, with the type of the error in the answer's body if there is one.

    A 404 is told apart by the type: it is said of a table that is not there, and of a path that the server never had.
    A redirect comes from what stands before the catalog, such as a login, which has not passed the request on.
    """
    if status == 404:
        return Answer.NO_TABLE if error_type in _MISSING else Answer.NO_ENDPOINT
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    if 200 <= status < 300:
        return Answer.COMMITTED
    return Answer.UNKNOWN if status >= 500 else Answer.REFUSED


class Verdict(Enum):
    """How much of a commit has arrived, as the catalog's tables show."""

    ALL = auto()
    NONE = auto()
    SOME = auto()


@dataclass(frozen=True)
class Sighting:
    """Which tables have what a commit gave them."""

    has: tuple[str, ...]
    lacks: tuple[str, ...]

    @staticmethod
    def of(held: Mapping[str, bool]) -> "Sighting":
        """By table: whether it has it."""
        has = tuple(name for name, there in held.items() if there)
        return Sighting(has, tuple(name for name in held if name not in has))

    @property
    def verdict(self) -> Verdict:
        """All, none or some of them."""
        if not self.lacks:
            return Verdict.ALL
        return Verdict.SOME if self.has else Verdict.NONE


class Trace(Enum):
    """What a table shows of a commit that requires its main branch to be where it was."""

    HAS = auto()
    """It has happened."""
    STANDS = auto()
    """The branch is where it was: it may still happen."""
    PASSED = auto()
    """The branch has gone on without it, so it has not happened and never will."""
    UNCLEAR = auto()
    """The history is cut off, or the table is gone."""


class Fate(Enum):
    """What has become of a commit of many tables whose answer was lost."""

    HAPPENED = auto()
    NEVER = auto()
    """Nothing of it was done, and nothing will be."""
    OPEN = auto()
    """It may still happen, or nobody can tell."""
    TORN = auto()
    """Some tables have it, and others never will."""


def fate(traces: Collection[Trace]) -> Fate:
    """The tables are looked at one after the other while it may be done, so what differs is not torn by itself."""
    if all(trace is Trace.HAS for trace in traces):
        return Fate.HAPPENED
    if Trace.PASSED in traces:
        return Fate.TORN if Trace.HAS in traces else Fate.NEVER
    return Fate.OPEN


def unknown(sighting: Sighting, catalog: str, cause: str) -> str:
    """The words for a commit that has not arrived everywhere."""
    if sighting.verdict is Verdict.NONE:
        many = f"none of its {len(sighting.lacks)} tables has it" if len(sighting.lacks) > 1 else "its table lacks it"
        return f"a commit to catalog {catalog!r} may still arrive ({cause}): {many} so far"
    parts = f"{named(sighting.has)} have it, {named(sighting.lacks)} not"
    return f"a commit to catalog {catalog!r} is half done ({cause}): {parts}"


def named(names: tuple[str, ...], most: int = 20) -> str:
    """A list of names, cut when it is long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
