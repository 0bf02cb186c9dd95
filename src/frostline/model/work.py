"""What the worker does next: one pure function from the state of the tables to a list of actions.

docs/design/worker.md says why in this order, and what happens when an action fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from frostline.model.names import Name
from frostline.model.upkeep import MANY_MANIFESTS

FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)
FRUITLESS_PAUSE = timedelta(seconds=60)
"""An action that found nothing it could do, though it was due."""
SWEEP_INTERVAL = timedelta(days=1)
LOOK_COMMITS, LOOK_INTERVAL = 16, timedelta(minutes=5)
"""A lake table is looked at after so many commits, or so long after one."""


class Kind(StrEnum):
    """An action, by the name of its command, in the order in which a round does them."""

    PREMAKE = "premake"
    ARCHIVE = "archive"
    FOLD = "fold"
    CLEAN = "clean"
    RETAIN = "retain"
    COMPACT = "compact"
    EXPIRE = "expire"
    SWEEP = "sweep"


ORDER = tuple(Kind)


@dataclass(frozen=True)
class Failures:
    """How often an action failed since it last succeeded, and when last."""

    count: int
    last_at: datetime
    error: str = ""


@dataclass(frozen=True)
class TableState:
    """What is known of a table. All times and ages are Postgres' own."""

    name: Name
    now: datetime
    leased_by: str | None = None
    """Who runs a job on it just now."""
    foreign: str | None = None
    """What somebody else has done to its lake: then nothing is built upon that before a person has looked."""
    missing_partitions: int = 0
    """Of those that premake wants ahead."""
    grid_problem: str | None = None
    """Why no partition can be made ahead, if so."""
    ripe_partitions: int = 0
    """Wholly older than the hot period, not held, and before the first one with referenced rows."""
    stays: str | None = None
    """Which partition archive does not go past although it is old enough, and why: rows of it are referenced."""
    lag: int = 0
    """How far the end of the oldest of them lies behind the hot period, on the axis."""
    marks: int = 0
    fold_rows: int = 100_000
    has_old_mark: bool = False
    """One is older than the table's fold_age."""
    over_grace: int = 0
    """Archived partitions whose grace period is over."""
    blocked_by_marks: int = 0
    """Of those, the ones with changes that wait to be folded."""
    can_retain: bool = False
    """The retention line can rise; of a table without a lake: a partition can go."""
    can_compact: bool = False
    manifests: int = 0
    expirable: int = 0
    """Replaced states of the lake that are past the snapshot retention."""
    has_lake: bool = False
    swept_at: datetime | None = None
    """When its folder was last swept, or the table added."""
    lake_table_id: int | None = None
    """Of a lake table."""
    commits: int = 0
    """To a lake table, since somebody has looked at it."""
    looked_at: datetime | None = None
    """None before the first look."""
    failures: Mapping[Kind, Failures] = field(default_factory=dict[Kind, Failures])


@dataclass(frozen=True)
class Action:
    """Something to do to a table now."""

    kind: Kind
    name: Name
    why: str
    lake_table_id: int | None = None
    """Of a lake table."""


Tries = Mapping[tuple[Kind, Name], datetime]
"""When this worker last tried an action."""


def decide(states: Sequence[TableState], tries: Tries | None = None) -> list[Action]:
    """Everything that is due, in the order in which to do it.

    What must wait is left out: for a lease or a repair, after a failure, or after a try that found nothing it could do.
    """
    wanted = [(state, action) for state in states if state.leased_by is None for action in due(state)]
    wanted = [(state, action) for state, action in wanted if state.foreign is None or action.kind is Kind.PREMAKE]
    ready = [action for state, action in wanted if delayed_until(action.kind, state, tries or {}) is None]
    return sorted(ready, key=lambda action: ORDER.index(action.kind))


def due(state: TableState) -> list[Action]:
    """Everything that is due on the table, whether or not it must wait for something."""
    reasons = ((kind, why_due(state)) for kind, why_due in _WHY.items())
    return [Action(kind, state.name, why, state.lake_table_id) for kind, why in reasons if why is not None]


def delayed_until(kind: Kind, state: TableState, tries: Tries) -> datetime | None:
    """When the action may be tried again; None if that is now."""
    moments: list[datetime] = []
    failed = state.failures.get(kind)
    if failed:
        moments.append(failed.last_at + pause(failed.count))
    tried = tries.get((kind, state.name))
    if tried:
        moments.append(tried + FRUITLESS_PAUSE)
    latest = max(moments, default=None)
    return latest if latest is not None and latest > state.now else None


def pause(failures: int) -> timedelta:
    """How long to wait after that many failures in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 20))


def _why_fold(state: TableState) -> str | None:
    if state.marks >= state.fold_rows:
        return f"{state.marks} changed cold rows, at least {state.fold_rows}"
    if state.has_old_mark:
        return "a changed cold row older than fold_age"
    return _plural(state.blocked_by_marks, "partition", "to be cleaned with changes that are not folded")


def _why_compact(state: TableState) -> str | None:
    if state.lake_table_id is not None:
        is_long_ago = state.looked_at is None or state.now - state.looked_at >= LOOK_INTERVAL
        is_due = state.commits >= LOOK_COMMITS or is_long_ago
        return _plural(state.commits, "commit", "since the lake was looked at") if is_due else None
    if state.can_compact:
        return "many small files in the lake"
    return f"{state.manifests} manifests in the lake" if state.manifests > MANY_MANIFESTS else None


def _why_sweep(state: TableState) -> str | None:
    is_over = state.swept_at is not None and state.now - state.swept_at >= SWEEP_INTERVAL
    return "a day since the last sweep" if state.has_lake and is_over else None


_WHY: Mapping[Kind, Callable[[TableState], str | None]] = {
    Kind.PREMAKE: lambda state: _plural(state.missing_partitions, "partition", "to be made ahead"),
    Kind.ARCHIVE: lambda state: _plural(state.ripe_partitions, "partition", "older than the hot period"),
    Kind.FOLD: _why_fold,
    Kind.CLEAN: lambda state: _plural(
        state.over_grace - state.blocked_by_marks, "archived partition", "past the grace period"
    ),
    Kind.RETAIN: lambda state: "rows older than the retention period" if state.can_retain else None,
    Kind.COMPACT: _why_compact,
    Kind.EXPIRE: lambda state: _plural(state.expirable, "lake snapshot", "past the snapshot retention"),
    Kind.SWEEP: _why_sweep,
}


def _plural(count: int, noun: str, rest: str) -> str | None:
    if count < 1:
        return None
    return f"{count} {noun}{'' if count == 1 else 's'} {rest}"
