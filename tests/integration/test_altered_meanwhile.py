"""The table is altered at every step of a job that is under way: the job goes on or publishes nothing, and no column is a wrong one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.quick import first
from tests.fixtures.statements import run

from frostline import failpoints
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint
from frostline.pipeline import verify
from frostline.relation import columns, guard, renewal

CHANGES = {
    "a column is renamed": ("rename column {status} to remark", "rename column remark to {status}"),
    "the key is renamed": ("rename column {id} to number", "rename column number to {id}"),
    "the tier key is renamed": ("rename column {ts} to moment", "rename column moment to {ts}"),
    "columns exchange their names": (
        "rename column {status} to x; alter table {t} rename column other to {status}; alter table {t} rename column x to other",
        "rename column {status} to x; alter table {t} rename column other to {status}; alter table {t} rename column x to other",
    ),
    "a column is dropped": ("drop column extra", "add column extra text default 'again'"),
    "a column is new": ("add column more int not null default 5", "drop column more"),
    "a type is wider": ("alter column {amount} type numeric({digits}, 2)", "alter column {status} set default 'none'"),
    "the table is renamed": ("", ""),
}
"""What is done to both tables, and then taken back: the next one begins with the same names."""


class Altered:
    """Two tables of the same rows, and what alters both while a job works on one of them."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.digits = 12
        self.world = World(lake)
        self.world.keep_states("0")
        assert guard.ensure(lake.catalog)
        self.say("add column other text default 'other'; alter table {t} add column extra text default 'extra'")

    def say(self, change: str) -> bool:
        """Whether both tables were altered: a job may hold the heap just then, as any statement may."""
        self.digits += "{digits}" in change
        changes = change.format(t="{t}", digits=self.digits, **self.world.named)
        try:
            with self.lake.connect() as connection, connection.transaction():
                run(connection, "set local lock_timeout = '300ms'")
                for name in ("_events", "plain"):
                    run(connection, f"alter table public.{name} {changes}".replace("{t}", f"public.{name}"))
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def rename(self, old: str, new: str) -> bool:
        """Of the relation, which takes its heap along."""
        try:
            with self.lake.connect() as connection:
                run(connection, f"set lock_timeout = '300ms'; alter view public.{old} rename to {new}")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def alter(self, what: str) -> Callable[[], bool] | None:
        """Do it, and say how it is taken back; None if the job kept it out."""
        forth, back = CHANGES[what]
        if not forth:
            return partial(self.rename, "happenings", "events") if self.rename("events", "happenings") else None
        return partial(self.say, back) if self.say(forth) else None

    def is_whole(self) -> None:
        """All rows are those of the plain table, by columns that are called alike, and the catalog knows it."""
        shown = "select row_to_json(t)::jsonb::text from public.{} t order by 1"
        with self.lake.connect() as connection:
            shown_rows = [run(connection, shown.format(name)).fetchall() for name in ("events", "plain")]
        assert shown_rows[0] == shown_rows[1]
        table = self.lake.table()
        assert columns.difference(self.lake.catalog, table) is None
        assert renewal.is_current(self.lake.catalog, table)


@dataclass(frozen=True)
class Job:
    """A job, and what gives it something to do."""

    prepare: Callable[[World], object]
    start: Callable[[Lake], Any]


def write(world: World) -> None:
    """Changes of cold rows, in the overlay."""
    nth = 2 + world.month % 5
    world.both(
        f"update public.{{t}} set {{amount}} = {{amount}} + 1, other = 'o' || {{id}} where {{id}} % {nth} = 0",
        f"delete from public.{{t}} where {{id}} = {20 + nth}",
    )


def small_files(world: World) -> None:
    for _ in range(2):
        world.fill()
        world.archive()


def in_grace(world: World) -> None:
    world.set_grace("1 day")
    world.release()
    world.fill()
    write(world)
    (result,) = world.lake.archive()
    assert result.error is None, result.error


def after_grace(world: World) -> None:
    in_grace(world)
    world.set_grace("0")


def cold_again(world: World) -> None:
    world.set_grace("0")
    world.release()
    world.fill()
    (result,) = world.lake.archive()
    assert result.error is None, result.error
    write(world)


JOBS = {
    "archive": Job(lambda world: (world.release(), world.fill()), lambda lake: lake.archive("events")),
    "fold": Job(cold_again, lambda lake: lake.fold("events")),
    "compact": Job(small_files, lambda lake: lake.compact("events")),
    "thaw": Job(cold_again, lambda lake: lake.thaw("events")),
    "undo": Job(in_grace, lambda lake: lake.undo("events")),
    "clean": Job(after_grace, lambda lake: lake.clean("events")),
}


def watched(patch: pytest.MonkeyPatch, seen: Callable[[Failpoint], None]) -> None:
    """Call it at each failpoint that a job comes to in this process."""
    real = failpoints.reached
    for module in [module for name, module in sys.modules.items() if name.startswith("frostline.")]:
        if getattr(module, "reached", None) is real:
            patch.setattr(module, "reached", seen)


def outcome(job: Job, lake: Lake) -> FrostlineError | None:
    """How a job has ended; what it says is a result or an error."""
    try:
        result = job.start(lake)
    except FrostlineError as error:
        return error
    return result[0].error if isinstance(result, list) else None


@pytest.mark.parametrize("name", first(1, list(JOBS)))
def test_a_job_goes_on_or_publishes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    copies.without_spark(lake, monkeypatch)
    altered, job = Altered(lake), JOBS[name]
    small_files(altered.world)
    job.prepare(altered.world)
    places: list[Failpoint] = []
    with monkeypatch.context() as patch:
        watched(patch, places.append)
        assert outcome(job, lake) is None
    shift = list(JOBS).index(name)
    tried: dict[tuple[Failpoint, str], str] = {}
    for number, place in enumerate(dict.fromkeys(places)):
        what = list(CHANGES)[(number + shift) % len(CHANGES)]
        job.prepare(altered.world)
        tried[place, what] = meanwhile(altered, job, place, what)
    assert {"published", "refused"} & set(tried.values()), tried
    assert verify.run(lake.catalog, lake.table()).faults == ()
    altered.world.connection.close()


def meanwhile(altered: Altered, job: Job, place: Failpoint, what: str) -> str:
    """Run the job, and alter the table when it comes there; everything has to be in order afterwards, and the job has to work."""
    back: list[Callable[[], object] | None] = []

    def reached(now: Failpoint) -> None:
        if now is place and not back:
            back.append(altered.alter(what))

    with pytest.MonkeyPatch.context() as patch:
        watched(patch, reached)
        error = outcome(job, altered.lake)
    assert back, (place, what)
    if what == "the table is renamed" and back[0]:
        assert back[0]()
    altered.is_whole()
    if error is not None:
        again = outcome(job, altered.lake)
        assert again is None, (place, what, error, again)
        altered.is_whole()
    if back[0] and what != "the table is renamed":
        assert back[0]()
        altered.is_whole()
    return "nothing was altered" if not back[0] else "published" if error is None else "refused"
