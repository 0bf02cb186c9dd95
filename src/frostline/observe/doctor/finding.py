"""What a check finds: good, doubtful, wrong, or not to be seen."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How bad it is. Only a fault makes the doctor's exit code 1."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Verdict:
    """What a check says."""

    state: State
    detail: str
    hint: str | None = None
    """What to do about it, if possible a command to run."""


@dataclass(frozen=True)
class Finding:
    """What a check said, under its name."""

    name: str
    state: State
    detail: str
    hint: str | None = None


class Unknowable(Exception):
    """A check cannot look, because something that it needs is missing. The text says what."""


def ok(detail: str) -> Verdict:
    """It is as it should be."""
    return Verdict(State.OK, detail)


def warning(detail: str, hint: str) -> Verdict:
    """It works, and will do harm some day."""
    return Verdict(State.WARNING, detail, hint)


def fault(detail: str, hint: str) -> Verdict:
    """Something does not work."""
    return Verdict(State.FAULT, detail, hint)
