"""How fast does an archive move rows into the lake, and how does that compare with Spark's own JDBC reader?

Five million rows of ten columns (times the scale), in ten partitions. An archive is timed from its beginning to its publish: capture, export,
proof of every value, commit. In turn with it, Spark reads the same table through JDBC, in eight ranges of blocks under one snapshot, and
writes Parquet with zstd; it proves and commits nothing. Both have run once before, on a hundredth of the rows. The ANALYZE
that follows a publish is timed on its own, and compared with nothing.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

from benchmarks.question import Measure, Question
from benchmarks.rig import data, others
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.catalog import jobs
from frostline.pipeline import archive, plan
from frostline.relation import bound

ROUNDS = 3
QUESTIONS = (Question("archive: export, proof and publish", "archive", Measure.SPEED, 2.0, "Spark JDBC to Parquet"),)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn, on a new copy of the table each time."""
    with lab.world(data.small) as world:
        list(_both(world, data.rows(scale / 100)))
    for _ in range(ROUNDS):
        with lab.world(data.plain) as world:
            yield from _both(world, data.rows(scale))


def _both(world: World, rows: int) -> Iterator[Sample]:
    yield _jdbc(world, rows)
    yield from _archived(world, rows)


def _archived(world: World, rows: int) -> Iterator[Sample]:
    table = world.add("plain", data.hot_period(datetime(2025, 1, 1, tzinfo=UTC)), grace="1 day")
    with jobs.exclusive(world.connection, table):
        with watched() as watch:
            files = archive.move_batch(world.jobs(), table, plan.of_table(world.connection, table).plan)
        assert sum(file.rows for file in files) == rows
        yield Sample("archive", watch.seconds, rows, watch.peak_bytes)
        with watched() as watch:
            bound.analyze(world.connection, table)
        yield Sample("statistics after it", watch.seconds, 1, watch.peak_bytes)


def _jdbc(world: World, rows: int) -> Sample:
    target = world.folder / "by spark"
    with watched() as watch, others.shared_snapshot(world) as snapshot:
        others.jdbc(world, "plain", snapshot).write.option("compression", "zstd").parquet(str(target))
    assert world.spark.read.parquet(str(target)).count() == rows
    shutil.rmtree(target)
    return Sample("Spark JDBC to Parquet", watch.seconds, rows, watch.peak_bytes)
