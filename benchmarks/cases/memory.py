"""Does a task need more memory when its partition is larger?

Partitions of 64 MB, 256 MB and 1 GB (times the scale) of rows of 1 kB, each archived by one single task, which sorts its rows, or goes without where
memory is short. DuckDB may take 256 MB of it. Counted is the most resident memory that the task's Python process ever had, all libraries
included, and each partition has a new process: one that is used again keeps some of what earlier tasks took.
"""

import resource
import uuid
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.question import Measure, Question
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.pipeline import archive
from frostline.settings import Settings

ROUNDS = 2
TASK_MEMORY = "256MB"
ROWS = 58_000
"""Of 64 MB."""
TIMES = (1, 4, 16)
FLAT = 1.25
QUESTIONS = tuple(
    Question(f"memory of a task, partition of {times}x", f"{times}x in one task", Measure.SIZE, FLAT, "1x in one task")
    for times in TIMES[1:]
)
_TABLE = """
create table public.{name} (id bigint, ts timestamptz, payload text, primary key (id, ts)) partition by range (ts);
create table public.{name}_old partition of public.{name} for values from ('2024-01-01') to ('2024-02-01')"""
_ROWS = """
insert into public.{name}
select i, timestamptz '2024-01-01 00:00+00' + interval '1 s' * (i::bigint * 7919 % 2500000), repeat(md5(i::text) || md5((-i)::text), 15)
  from generate_series(0, {rows} - 1) i"""


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All sizes in turn."""
    for _ in range(ROUNDS):
        with lab.world(_prepare) as world:
            for times in TIMES:
                yield _archived(world, times, int(ROWS * times * scale))


def _prepare(world: World, scale: float) -> None:
    for times in TIMES:
        name = f"of_{times}"
        world.run(_TABLE.format(name=name))
        world.run(_ROWS.format(name=name, rows=int(ROWS * times * scale)))
        world.run(f"vacuum analyze public.{name}")
        world.add(name, "1 month", grace="1 day")


def _archived(world: World, times: int, rows: int) -> Sample:
    changes = {"export_memory": TASK_MEMORY, "export_shard_bytes": 1 << 40}
    settings: Settings = world.settings.model_copy(update=changes)
    # Spark starts new Python processes for another environment.
    world.spark.sparkContext.environment["FROSTLINE_BENCHMARK"] = str(uuid.uuid4())
    with watched() as watch:
        (result,) = archive.run(replace(world.jobs(), settings=settings), [world.table(f"of_{times}")])
    assert (result.error, result.rows) == (None, rows), result
    return Sample(f"{times}x in one task", watch.seconds, rows, watch.peak_bytes, watch.peaks, _peak(world))


def _peak(world: World) -> int:
    """Asked in the process that ran the task: it is the only one of its environment, and idle."""
    (peak,) = world.spark.sparkContext.parallelize([0], 1).map(lambda _: peak_bytes()).collect()
    return peak


def peak_bytes() -> int:
    """The most resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
