"""What is wrong with a table, each with the command that helps: a pure function of its state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frostline.model.work import TableState


@dataclass(frozen=True)
class Problem:
    """Something that a person should know."""

    what: str
    command: str


@dataclass(frozen=True)
class Signs:
    """What the worker does not need to know, and a person does."""

    held_from: str | None = None
    """Where archive stops because of an undo or a thaw."""
    stray_rows: int = 0
    """Rows beyond the last partition."""
    grid_problem: str | None = None
    """Why no partition can be made ahead."""
    blockers: tuple[str, ...] = ()
    """Whose old transactions keep archived partitions from being cleaned."""
    columns: str | None = None
    """How the heap's columns differ from those that the table was added with."""
    constraints: str | None = None
    """Which constraints of the heap rows in the lake were not looked at for."""
    row_security: str | None = None
    """On which heap row security is not what the relation applies, and how it differs."""
    lost: tuple[tuple[str, str], ...] = ()
    """Which of its objects are gone, each with the command that makes it again."""


def problems(state: TableState, signs: Signs) -> list[Problem]:
    """The gravest first."""
    return [*_faults(state, signs), *_partitions(state, signs), *_waiting(state, signs)]


def of_all(states: Sequence[TableState], due: int, leader: str | None) -> list[Problem]:
    """What concerns no single table."""
    if leader is None and due and states:
        actions = "1 action is" if due == 1 else f"{due} actions are"
        return [Problem(f"no worker runs, and {actions} due", "frostline run")]
    return []


def _faults(state: TableState, signs: Signs) -> Iterator[Problem]:
    yield from (Problem(*loss) for loss in signs.lost)
    if state.foreign:
        yield Problem(f"{state.foreign}; every job on it waits", f"frostline repair {state.name}")
    if signs.columns:
        stopped = f"the heap has changed ({signs.columns}); archive, fold and clean wait"
        yield Problem(stopped, f"frostline table sync {state.name}")
    if signs.row_security:
        yield Problem(signs.row_security, "frostline init")
    for kind, failed in state.failures.items():
        times = "once" if failed.count == 1 else f"{failed.count} times in a row"
        yield Problem(f"{kind} failed {times}: {failed.error}", f"frostline {kind} {state.name}")


def _partitions(state: TableState, signs: Signs) -> Iterator[Problem]:
    if signs.stray_rows:
        rows = "1 row lies" if signs.stray_rows == 1 else f"{signs.stray_rows} rows lie"
        yield Problem(f"{rows} beyond the last partition", f"frostline premake {state.name}")
    if signs.grid_problem:
        yield Problem(
            f"no partition can be made ahead: {signs.grid_problem}",
            f"frostline table set {state.name} --every '1 month'",
        )


def _waiting(state: TableState, signs: Signs) -> Iterator[Problem]:
    if signs.held_from:
        yield Problem(
            f"an undo or a thaw keeps archive from going past {signs.held_from}",
            f"frostline table set {state.name} --release",
        )
    if state.stays:
        yield Problem(f"archive ends before {state.stays}", f"frostline plan {state.name}")
    if state.over_grace and signs.blockers:
        yield Problem(
            f"{state.over_grace} archived partitions cannot be cleaned while old transactions are open: "
            f"{', '.join(signs.blockers)}",
            "select * from pg_stat_activity order by xact_start",
        )
    if signs.constraints:
        yield Problem(
            f"rows in the lake were not looked at for {signs.constraints}", f"frostline table sync {state.name}"
        )
