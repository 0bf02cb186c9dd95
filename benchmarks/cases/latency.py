"""How much slower is a reader of hot rows while a job runs on the same table?

Two million rows of ten columns (times the scale) in ten months. A reader in a process of its own reads hot rows by their primary key through the
relation, one after the other, all the time. Beside it nine months are archived; then, with one correction in a hundred rows, folded;
then cleaned. After each job the same reader has for just as long nothing beside it but processes that use as many cores as the job did. What
the job used is the processor time of the whole machine less that of the reader and its backend; whole cores are used by
processes that never sleep, the rest by one that sleeps in part of every tenth of a second. A median, a 99th percentile and the slowest
read of one run make a sample.
"""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.question import Measure, Question
from benchmarks.rig import beside, data
from benchmarks.rig.beside import Seen, Statement
from benchmarks.sample import Sample
from benchmarks.world import Lab, World
from frostline.pipeline import clean

ROUNDS, ROWS, KEYS = 3, 0.4, 2_000
JOBS, FIGURES = ("archive", "fold", "clean"), ("p50", "p99", "longest")
QUESTIONS = tuple(
    Question(
        f"hot point read during {job}, {figure}", f"{job}, {figure}", Measure.TIME, 1.2, f"load of {job}, {figure}"
    )
    for job in JOBS
    for figure in FIGURES
)
_READ = "select * from public.events where id = %s and ts = %s"
_KEYS = f"select id, ts::text from public._events where ts >= '{data.COLD}' order by hashint8(id) limit {KEYS}"
_CORRECT = f"update public._events set amount = amount + 1 where id % 100 = 0 and ts < '{data.COLD}'"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Each job and its load in turn, on a new copy of the table each time."""
    for _ in range(ROUNDS):
        with lab.world(prepare) as world:
            world.add("events", data.hot_period(), grace="1 day")
            reader = Statement(_READ, [[id_, str(ts)] for id_, ts in world.ask(_KEYS)])
            for name, work in _jobs(world, data.rows(scale * ROWS)):
                seen = beside.job(world, reader, work)
                yield from _samples(name, seen)
                yield from _samples(f"load of {name}", beside.equal_load(world, reader, seen))


def prepare(world: World, scale: float) -> None:
    """`events`, partitioned, and nothing else."""
    data.create(world, "events", scale * ROWS)


def _jobs(world: World, rows: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """One after the other; what each needs is made before it, with nobody measuring."""
    yield "archive", partial(world.archive, "events")
    assert 0 < world.run(_CORRECT) < rows
    yield "fold", partial(_fold, world)
    world.run("update frostline.managed_table set grace_period = '0'")
    yield "clean", partial(_clean, world)


def _fold(world: World) -> None:
    assert world.fold("events").taken


def _clean(world: World) -> None:
    done = clean.run(world.connection, world.settings, world.table("events"))
    assert len(done.emptied) == data.MONTHS - 1, done


def _samples(what: str, seen: Seen) -> Iterator[Sample]:
    yield Sample(f"{what}, p50", seen.p50, 1)
    yield Sample(f"{what}, p99", seen.p99, 1)
    yield Sample(f"{what}, longest", seen.longest, 1)
