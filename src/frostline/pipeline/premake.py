"""Premake: the job that makes a table's partitions ahead of time. Needs no lake, so it runs while that is down."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from frostline.catalog import jobs, tables
from frostline.catalog.connect import Connection, operational_errors
from frostline.catalog.jobs import State
from frostline.errors import FrostlineError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.model.tables import Table
from frostline.partitions import premake
from frostline.partitions.default_partition import Stray
from frostline.partitions.premake import BlockedByDefaultRows, Made, Plan
from frostline.pipeline import job
from frostline.settings import Settings

NO_STRAY = Stray()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a premake of one table did."""

    table: Table
    created: tuple[Made, ...] = ()
    stray: Stray = NO_STRAY
    """Rows that are left in DEFAULT."""
    problem: str | None = None
    """Why there are no more partitions, though there should be, and what helps."""
    error: FrostlineError | None = None


def each(
    connection: Connection, settings: Settings, chosen: Sequence[Table], most_moved: int = premake.MOST_MOVED
) -> list[Result]:
    """Premake each table in turn. One table's failure does not stop the others; it is in its result."""
    return job.for_each(chosen, "premake", lambda table: run(connection, settings, table, most_moved), Result)


def run(connection: Connection, settings: Settings, chosen: Table, most_moved: int = premake.MOST_MOVED) -> Result:
    """Make what is missing of one table."""
    hint = f"frostline premake {chosen.name}"
    held = jobs.exclusive(connection, chosen, settings.lease_seconds)
    with operational_errors(f"making partitions of {chosen.name}", hint=hint), held:
        table = tables.get(connection, chosen.name)
        # Whatever the policy wants: a guard that was left refuses rows. A table that somebody reads can stay for now.
        with suppress(UnavailableError):
            premake.clean_up(connection, table)
        created, problem = _make_all(connection, table, most_moved)
        if not table.has_lake:  # others have a sweep, which knows whose files lie in the warehouse
            jobs.prune(connection, table, settings.job_history_days)
        return Result(table, tuple(created), premake.stray(connection, table), problem)


def _make_all(connection: Connection, table: Table, most_moved: int) -> tuple[list[Made], str | None]:
    """Make what is missing, and what is missing after that: moved rows tell that an integer key has come further."""
    created: list[Made] = []
    while True:
        wanted = premake.plan(connection, table)
        if not wanted.cells:
            problem = wanted.problem
            if problem is not None:
                problem += f"; say how wide new ones are: frostline table set {table.name} --every WIDTH"
            return created, problem
        made, problem = _make(connection, table, wanted, most_moved)
        created += made
        if problem or not any(partition.moved for partition in made):
            return created, problem


def _make(connection: Connection, table: Table, wanted: Plan, most_moved: int) -> tuple[list[Made], str | None]:
    with job.begun(_log, connection, table, "premake") as (job_id, line):
        done = list(premake.make(connection, table, wanted, most_moved))
        made = [outcome for outcome in done if isinstance(outcome, Made)]
        problem = next((outcome.reason for outcome in done if isinstance(outcome, BlockedByDefaultRows)), None)
        moved = sum(partition.moved for partition in made)
        line.update(partitions=len(made), moved=moved)
        reached(Failpoint.PREMAKE_MADE)
        names = ", ".join(str(partition.name) for partition in made) or "nothing"
        jobs.describe(connection, job_id, f"made {names}" + (f"; {problem}" if problem else ""))
        if problem and not made:
            jobs.fail(connection, job_id, problem)
        else:
            jobs.advance(connection, job_id, State.PUBLISHED, rows=moved)
    return made, problem
