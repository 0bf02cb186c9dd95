"""How fast does Spark read a table of two tiers, and how does that compare with reading each tier by hand?

Five million rows of ten columns (times the scale), half of them in the heap and half in the lake. Frostline is timed from `read` to
`release`, the point in time included. By hand, in turn with it: Spark's JDBC reader for the heap above the frost line, in eight ranges of
blocks under one snapshot, and Spark's own Parquet reader for the files of the lake, whose list it is given for nothing; the two as a union.
Two jobs are asked of both: every column of every row into a sink that drops it, and a sum of one column by another. For the second, `read`
is told the two columns; the JDBC and the Parquet reader find out by themselves.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from benchmarks.question import Measure, Question
from benchmarks.rig import data, others
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline import spark as connector

ROUNDS = 3
LINE = datetime(2024, 6, 1, tzinfo=UTC)
"""Five of the ten months lie below it."""
NEEDED = ("status", "amount")
QUESTIONS = (
    Question("Spark: all rows of both tiers", "all rows", Measure.SPEED, 1.5, "all rows, by hand"),
    Question("Spark: an aggregate over both tiers", "aggregate", Measure.SPEED, 1.5, "aggregate, by hand"),
)

Job = Callable[[DataFrame], None]


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both jobs, by both in turn; a first round of each warms Spark up and is not counted."""
    with lab.world(prepare) as world:
        rows, files = data.rows(scale), world.lake_files("events")
        for number in range(ROUNDS + 1):
            samples = list(_round(world, files, rows))
            yield from samples if number else ()


def prepare(world: World, scale: float) -> None:
    """`events`, half of it in the lake only."""
    data.create(world, "events", scale)
    world.add("events", data.hot_period(LINE))
    assert not world.archive("events").cleaned.waiting
    world.run("vacuum analyze public._events")


def _round(world: World, files: list[str], rows: int) -> Iterator[Sample]:
    yield _by_hand(world, "all rows, by hand", files, rows, _drop)
    yield _connector(world, "all rows", rows, _drop)
    yield _by_hand(world, "aggregate, by hand", files, rows, _aggregate(rows))
    yield _connector(world, "aggregate", rows, _aggregate(rows), columns=NEEDED)


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregate(rows: int) -> Job:
    def run(frame: DataFrame) -> None:
        groups = frame.groupBy("status").agg(F.count("*").alias("n"), F.sum("amount")).collect()
        assert sum(row["n"] for row in groups) == rows

    return run


def _connector(world: World, what: str, rows: int, job: Job, columns: tuple[str, ...] | None = None) -> Sample:
    options = {"dsn": world.settings.dsn, "columns": columns}
    with watched() as watch, connector.reading(world.spark, "public.events", **options) as frame:
        job(frame)
    return Sample(what, watch.seconds, rows, watch.peak_bytes)


def _by_hand(world: World, what: str, files: list[str], rows: int, job: Job) -> Sample:
    with watched() as watch, others.shared_snapshot(world) as snapshot:
        hot = others.jdbc(world, "_events", snapshot).where(F.col("ts") >= F.lit(LINE))
        job(world.spark.read.parquet(*files).unionByName(hot))
    return Sample(what, watch.seconds, rows, watch.peak_bytes)
