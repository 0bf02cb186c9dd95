"""How many corrections a second does a fold carry into the lake, and how does that compare with Spark rewriting the files?

Five million rows of ten columns (times the scale), all of them in the lake only, in ten monthly files. So many of them are corrected, spread
evenly over all files: as an UPDATE leaves them after a vacuum, one row in the heap and its image in the overlay, but written by two
statements for all of them, which is faster. A fold is timed from its beginning to its publish: every file is written anew, every value of
it is proved, the marks and the heap rows are taken away, with fsync. In turn with it, Spark reads the same ten files and writes them again
with zstd; it applies no correction, proves nothing and commits nothing. Spark is warm for both.
"""

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from benchmarks.question import Measure, Question
from benchmarks.rig import data
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.relation import marks

STEPS = {"1 k": 5000, "100 k": 50, "1 M": 5}
"""How many marks there are at scale 1, and which row of the table is the next with one."""
ROUNDS = 2
_OTHER = "Spark rewrites the files of {}"
QUESTIONS = (
    *(Question(f"fold of {size} marks", f"fold of {size}", Measure.SPEED, 1.0, _OTHER.format(size)) for size in STEPS),
    Question("fold of 100 k marks: corrections", "fold of 100 k", Measure.RATE, 20_000),
)
_CHANGED = """
create temp table changed as select {before}, amount + 1 as amount, {after} from public.images where id % {step} = 0"""


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Fold and Spark in turn, few marks and many, in a table whose files the fold before has written."""
    with lab.world(prepare) as world:
        _spark(world, "warm-up", 0)
        for _ in range(ROUNDS):
            for size, step in STEPS.items():
                corrections = _correct(world, step)
                assert corrections == -(-data.rows(scale) // step)
                yield _folded(world, f"fold of {size}", corrections)
                yield _spark(world, _OTHER.format(size), corrections)


def prepare(world: World, scale: float) -> None:
    """`events`, cold from end to end, and in `images` the rows of it that will be corrected."""
    data.create(world, "events", scale)
    world.run("create table public.images as select * from public.events where id % 5 = 0")
    world.run("vacuum analyze public.images")
    world.add("events", data.hot_period(datetime(2025, 1, 1, tzinfo=UTC)))
    while world.archive("events").cleaned.waiting:
        time.sleep(0.5)  # an autovacuum may look at the partitions just now


def _correct(world: World, step: int) -> int:
    """Give the rows whose id is a multiple of `step` another amount; returns how many there are."""
    before, _, after = data.COLUMNS.partition(", amount, ")
    table = world.table("events")
    with world.connection.transaction(), marks.marking_disabled(world.connection, table):
        world.run(_CHANGED.format(before=before, after=after, step=step))
        world.run(f"insert into public._events ({data.COLUMNS}) select {data.COLUMNS} from changed")
        corrections = world.run(
            f"insert into frostline_overlay.{table.internal} ({data.COLUMNS}, frostline_live) "
            f"select {data.COLUMNS}, true from changed"
        )
        world.run("drop table changed")
    world.run(f"vacuum analyze public._events, frostline_overlay.{table.internal}")
    return corrections


def _folded(world: World, what: str, corrections: int) -> Sample:
    with watched() as watch:
        result = world.fold("events")
    assert (result.taken, result.replaced_files) == (corrections, data.MONTHS), result
    return Sample(what, watch.seconds, corrections, watch.peak_bytes)


def _spark(world: World, what: str, corrections: int) -> Sample:
    files = world.lake_files("events")
    target = world.folder / "by spark"
    with watched() as watch:
        world.spark.read.parquet(*files).write.option("compression", "zstd").parquet(str(target))
    shutil.rmtree(target)
    return Sample(what, watch.seconds, corrections, watch.peak_bytes)
