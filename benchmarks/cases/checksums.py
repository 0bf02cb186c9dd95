"""What does it cost to compare lake files with their checksums before they are read?

The lake server is started anew with each setting of `lake_checksums` in turn. Measured are the very first point read, which makes it read one file whole; in
another new server the first aggregate over all nine cold months, of which it needs three columns; and point reads after
that, when nothing is left to compare but the sizes. All files are in the operating system's cache, so this is the processor's part; a disk's comes on top where
a file would not have been read whole anyway.
"""

import statistics
import time
from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
READS = 20
CHECKS = ("off", "size", "first_read")
_POINT = f"select {data.COLUMNS} from public.events where id = %s and ts = %s"
_ALL = "select device, count(*), sum(amount) from {table} where frostline_snapshot = {snapshot} and ts < '2024-10-01' group by device"
QUESTIONS = (
    Question(
        "first point read after a start, checksums compared",
        "first point, first_read",
        Measure.TIME,
        2.0,
        "first point, off",
    ),
    Question(
        "first aggregate after a start, checksums compared",
        "first aggregate, first_read",
        Measure.TIME,
        2.0,
        "first aggregate, off",
    ),
    Question("later point reads, checksums compared", "later point, first_read", Measure.TIME, 1.1, "later point, off"),
    Question("later point reads, sizes compared", "later point, size", Measure.TIME, 1.1, "later point, off"),
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Each setting in turn, other keys in each round."""
    with lab.world(data.archived) as world:
        keys = [(number, cold.moment(world, number, scale)) for number in cold.ids(READS * (ROUNDS + 1), scale)]
        for number in range(ROUNDS + 1):
            some = keys[number * READS : (number + 1) * READS]
            for checks in CHECKS:
                samples = list(_measured(world, checks, some, scale))
                if number > 0:
                    yield from samples


def _measured(world: World, checks: str, keys: list[tuple[int, object]], scale: float) -> Iterator[Sample]:
    world.restart_lake(lake_checksums=checks)
    yield Sample(f"first point, {checks}", _point(world, keys[0]), 1)
    world.restart_lake(lake_checksums=checks)
    yield Sample(f"first aggregate, {checks}", _aggregate(world), data.rows(scale) * 9 // data.MONTHS)
    _point(world, keys[0])
    yield Sample(f"later point, {checks}", statistics.median(_point(world, key) for key in keys), 1)


def _point(world: World, key: tuple[int, object]) -> float:
    start = time.perf_counter()
    (row,) = world.connection.execute(_POINT, key, prepare=True).fetchall()
    assert row[0] == key[0]
    return time.perf_counter() - start


def _aggregate(world: World) -> float:
    ((snapshot,),) = world.ask("select snapshot_id from frostline.seam")
    query = _ALL.format(table=cold.foreign_table(world), snapshot=snapshot)
    start = time.perf_counter()
    assert len(world.ask(query)) == 1024
    return time.perf_counter() - start
