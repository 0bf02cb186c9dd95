"""How long does a writer wait at most while the very partition that it writes to is archived?

200,000 rows of ten columns (times the scale) in one month, of ten. A writer in a process of its own updates rows of that month through the relation by
their primary key, one statement after the other, each its own transaction, with fsync. Meanwhile the month is archived: its rows become cold
under the writer's hands. A statement that Postgres asks to repeat is repeated, and its time goes on. The slowest statement is a sample.
In turn with it: the same writer, for as long, beside processes that use as many cores as the archive did.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from benchmarks.cases import latency
from benchmarks.question import Measure, Question
from benchmarks.rig import beside, data
from benchmarks.rig.beside import Statement
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS, KEYS = 3, 5_000
FIRST = datetime(2024, 2, 1, tzinfo=UTC)
QUESTIONS = (
    Question(
        "slowest update of a partition that is being archived", "slowest update during archive", Measure.LONGEST, 0.1
    ),
)
_WRITE = "update public.events set amount = amount + 1 where id = %s and ts = %s"
_KEYS = f"select id, ts::text from public._events where ts < '{FIRST}' order by hashint8(id) limit {KEYS}"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:  # noqa: ARG001  (the table is of the lab's scale)
    """The archive first: it tells what an equal load is."""
    for _ in range(ROUNDS):
        with _table(lab) as (world, writer):
            seen = beside.job(world, writer, partial(world.archive, "events"))
            yield Sample("slowest update during archive", seen.longest, 1)
            yield Sample("99th percentile during archive", seen.p99, 1)
        with _table(lab) as (world, writer):
            load = beside.equal_load(world, writer, seen)
            yield Sample("slowest update beside an equal load", load.longest, 1)
            yield Sample("99th percentile beside an equal load", load.p99, 1)


@contextmanager
def _table(lab: Lab) -> Generator[tuple[World, Statement]]:
    """A new copy of the table, whose first month is ripe."""
    with lab.world(latency.prepare) as world:
        world.add("events", data.hot_period(FIRST), grace="1 day")
        yield world, Statement(_WRITE, [[id_, str(ts)] for id_, ts in world.ask(_KEYS)])
