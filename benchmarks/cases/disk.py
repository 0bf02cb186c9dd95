"""How many bytes do archived rows take in the lake, and how many did they take in the heap?

The rows of five million events (times the scale) that lie in nine of ten months, and are in the lake only. Counted: the Parquet files that the
lake's current snapshot has, and the same nine partitions of an ordinary table with the same rows, vacuumed, with its primary key, its TOAST
and its maps (`pg_total_relation_size`).
"""

from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import data
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.catalog import lake_files

QUESTIONS = (Question("bytes on disk, of the same rows", "lake files", Measure.SIZE, 1 / 8, "heap and indexes"),)
COLD_MONTHS = data.COLD.month - 1


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """The time is that of asking."""
    with lab.world(data.archived) as world:
        with watched() as watch:
            _, rows, size = lake_files.totals(world.connection, world.table("events"))
        yield Sample("lake files", watch.seconds, 1, size_bytes=size)
        with watched() as watch:
            heap = _sum(world, "pg_total_relation_size('public.{name}')")
        yield Sample("heap and indexes", watch.seconds, 1, size_bytes=heap)
        assert rows == _sum(world, "(select count(*) from public.{name})") < data.rows(scale)


def _sum(world: World, of_partition: str) -> int:
    """Something of the nine partitions of the ordinary table, added up."""
    names = [f"plain_{month:02}" for month in range(1, COLD_MONTHS + 1)]
    return sum(int(str(world.ask(f"select {of_partition.format(name=name)}")[0][0])) for name in names)
