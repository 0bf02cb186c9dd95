"""What an error of Postgres means for whoever ran the command: an error of our tree, or None if it is a bug of ours."""

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from frostline.catalog.connect import first_line
from frostline.errors import ConflictError, CorruptionError, FrostlineError, UnavailableError, UsageError

_AGAIN = "run the command again"
_LOOK = f"frostline status; then {_AGAIN}"
_RIGHTS = "run it as a role that may, or grant that right: docs/guides/own-postgres.md lists the privileges"


@dataclass(frozen=True)
class Meaning:
    """What to say about a class of errors, and what to do."""

    kind: type[FrostlineError]
    says: str
    hint: str


_GAVE_UP = Meaning(UnavailableError, "Postgres gave up", _LOOK)
_CHANGED = Meaning(
    ConflictError,
    "the database is not as this command found it",
    f"frostline doctor; then {_AGAIN}",
)
_CONSTRAINT = Meaning(UsageError, "a constraint is against it", f"correct the rows or the constraint, then {_AGAIN}")
_OWN_CODE = Meaning(
    UsageError,
    "a trigger, function or policy of the database is against it",
    f"correct it, then {_AGAIN}",
)
_REFUSED = Meaning(UsageError, "Postgres refuses it", f"correct what it names, then {_AGAIN}")

_BY_STATE: Mapping[str, Meaning] = {
    "25006": Meaning(
        UsageError, "this Postgres only reads", "name the primary in dsn or FROSTLINE_DSN: a standby cannot be written"
    ),
    "40001": Meaning(ConflictError, "another transaction was faster", _AGAIN),
    "42501": Meaning(UsageError, "the connected role may not do this", _RIGHTS),
    "53100": Meaning(
        UnavailableError, "Postgres has no room on its disk", f"make room where Postgres keeps its data, then {_AGAIN}"
    ),
    "53200": Meaning(
        UnavailableError, "Postgres has not enough memory", f"raise max_locks_per_transaction or memory, then {_AGAIN}"
    ),
    "53300": Meaning(
        UnavailableError, "Postgres has no connection left", f"end some, or raise max_connections; then {_AGAIN}"
    ),
    "57014": Meaning(
        UnavailableError,
        "a statement was cancelled",
        f"if that was a timeout, raise it for this role: alter role NAME set statement_timeout = 0; then {_AGAIN}",
    ),
}
_BY_CLASS: Mapping[str, Meaning] = {
    "08": _GAVE_UP,
    "0A": _REFUSED,
    "22": Meaning(UsageError, "a value is against it", f"correct the value, then {_AGAIN}"),
    "23": _CONSTRAINT,
    "2B": Meaning(UsageError, "something depends on it", f"drop what depends on it, then {_AGAIN}"),
    "28": Meaning(UsageError, "Postgres does not let this role in", "correct the role and password of dsn"),
    "2F": _OWN_CODE,
    "38": _OWN_CODE,
    "39": _OWN_CODE,
    "3D": _CHANGED,
    "3F": _CHANGED,
    "40": _GAVE_UP,
    "44": _CONSTRAINT,
    "53": _GAVE_UP,
    "54": _REFUSED,
    "55": _GAVE_UP,
    "57": _GAVE_UP,
    "58": Meaning(UnavailableError, "Postgres cannot use its files", f"see the log of Postgres, then {_AGAIN}"),
    "HV": Meaning(UnavailableError, "the lake server does not answer as it should", "frostline doctor"),
    "P0": _OWN_CODE,
    "XX": Meaning(CorruptionError, "Postgres found something wrong with itself", "see the log of Postgres"),
}
_OURS = frozenset({"42601", "42P02", "42P18", "42702", "42725", "42804", "42P10", "42803", "25P02", "25001"})
"""Syntax, types, ambiguous names: only a statement that we wrote wrongly fails so."""
_SESSION_LOST = ("25P03", "25P04")
"""By a timeout for idle or long transactions."""


def understood(error: BaseException, doing: str = "") -> FrostlineError | None:
    """The error as one of ours; None if nobody but us can have caused it, or if it is none of Postgres'."""
    meaning = _meaning(error) if isinstance(error, psycopg.Error) else None
    if meaning is None:
        return None
    while_doing = f" while {doing}" if doing else ""
    return meaning.kind(f"{meaning.says}{while_doing}: {first_line(error)}", hint=meaning.hint)


def _meaning(error: psycopg.Error) -> Meaning | None:
    state = error.sqlstate
    if state is None:
        return _GAVE_UP if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else None
    if state in _OURS:
        return None
    if state in _SESSION_LOST:
        return _GAVE_UP
    if state in _BY_STATE:
        return _BY_STATE[state]
    return _CHANGED if state.startswith("42") else _BY_CLASS.get(state[:2])
