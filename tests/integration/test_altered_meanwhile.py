"""The table is altered at every step of a job that is under way: the job goes on or publishes nothing, and no column is a wrong one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.months import World, beginning, identifier
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value

from frostline import failpoints
from frostline import spark as connector
from frostline.catalog import seams, tables
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint
from frostline.model.tiers import to_text
from frostline.pipeline import verify
from frostline.relation import columns, guard, renewal
from frostline.spark.writes import Mode

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
        run(lake.catalog, "create sequence public.batches")
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


def to_retain(world: World) -> None:
    """A month less is kept each time, which a file may reach over."""
    cold_again(world)
    world.keep_from(beginning(world.month - 1))


def retain(lake: Lake) -> list[Any]:
    """The plain table loses what is below R, too."""
    number = lake.table().id
    done = lake.retain("events")
    table = tables.by_id(lake.catalog, number)
    line = seams.retained(lake.catalog, table)
    if line is not None:
        oldest = to_text(table.tier_kind, line)
        run(lake.catalog, f"delete from public.plain where {identifier(table.tier_key)} < '{oldest}'")
    return done


def truncate(lake: Lake) -> None:
    lake.truncate()
    run(lake.catalog, "truncate public.plain")


JOBS = {
    "archive": Job(lambda world: (world.release(), world.fill()), lambda lake: lake.archive("events")),
    "fold": Job(cold_again, lambda lake: lake.fold("events")),
    "compact": Job(small_files, lambda lake: lake.compact("events")),
    "thaw": Job(cold_again, lambda lake: lake.thaw("events")),
    "undo": Job(in_grace, lambda lake: lake.undo("events")),
    "clean": Job(after_grace, lambda lake: lake.clean("events")),
    "retain": Job(to_retain, retain),
    "truncate": Job(cold_again, truncate),
}


@dataclass
class Batch:
    """Rows written from Spark, and to the plain table by SQL. Each text is in two columns, which may exchange their names."""

    mode: Mode
    as_files: bool = False

    def __call__(self, lake: Lake) -> None:
        """Columns are named as they are called when it begins; the plain table's as they are called in the end."""
        table = lake.table()
        there = rows(
            lake.catalog, f"select {', '.join(map(identifier, table.key))} from public.plain order by 1, 2 limit 9"
        )
        number = value(lake.catalog, "select nextval('public.batches')")
        fresh = [(100 * number + n, datetime(1960, 1 + n, 3, tzinfo=UTC)) for n in range(1, 4)]
        keys = {"append": fresh, "upsert": fresh + there, "delete": there}[self.mode]
        texts = [(f"{self.mode} {number}",) * 2 for _ in keys]
        called = {column.attnum: column.name for column in table.columns}
        batch = lake.session().createDataFrame(
            [key + text for key, text in zip(keys, texts, strict=True)],
            StructType([StructField(called[attnum], kind) for attnum, kind in BATCH.items()]),
        )
        lake_rows = 1 if self.as_files else None
        done = connector.write(batch, str(table.relation), self.mode, dsn=lake.dsn, lake_rows=lake_rows)
        assert bool(done.as_files) is self.as_files, done
        self._by_sql(lake, keys, texts)

    def _by_sql(self, lake: Lake, keys: list[Any], texts: list[Any]) -> None:
        names = "select attname from pg_attribute where attrelid = 'public.plain'::regclass and attnum = any(%s) order by attnum"
        first, second, status, other = (identifier(name) for (name,) in rows(lake.catalog, names, [list(BATCH)]))
        statement = f"insert into public.plain ({first}, {second}, {status}, {other}) values (%s, %s, %s, %s)"
        if self.mode == "delete":
            statement = f"delete from public.plain where ({first}, {second}) = (%s, %s) and %s::text = %s::text"
        elif self.mode == "upsert":
            statement += f" on conflict ({first}, {second}) do update set {status} = excluded.{status}, {other} = excluded.{other}"
        for key, text in zip(keys, texts, strict=True):
            run(lake.catalog, statement, key + text)


BATCH = {1: LongType(), 2: TimestampType(), 3: StringType(), 5: StringType()}
"""The columns of a batch by their number in the plain table, which no rename changes."""
BATCHES = {
    "append": Batch("append"),
    "append as files": Batch("append", as_files=True),
    "upsert": Batch("upsert"),
    "delete": Batch("delete"),
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
    is_altered_meanwhile(lake, JOBS[name], shift=list(JOBS).index(name))


@pytest.mark.spark
@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize("name", first(1, list(BATCHES)))
def test_a_batch_of_spark_is_written_or_nothing_of_it(lake: Lake, name: str, shift: int) -> None:
    is_altered_meanwhile(lake, Job(cold_again, BATCHES[name]), shift=4 * shift)


def is_altered_meanwhile(lake: Lake, job: Job, shift: int) -> None:
    """At each place that the job comes to another change, beginning with that number."""
    altered = Altered(lake)
    small_files(altered.world)
    job.prepare(altered.world)
    places: list[Failpoint] = []
    with pytest.MonkeyPatch.context() as patch:
        watched(patch, places.append)
        assert outcome(job, lake) is None
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
