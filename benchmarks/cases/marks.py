"""How much slower is a cold point read through the relation when the overlay holds 100,000 marks?

A million rows in ten files (times the scale), all of them in the lake only. The same fifty keys are read one by one, in turn without a mark
and with 100,000 marks of other keys, three times each.
"""

import time
from collections.abc import Iterator

from benchmarks.cases import fold
from benchmarks.sample import Sample
from benchmarks.world import World

READS = 50
_READ = "select * from public.events where id = {id} and ts = '2024-01-01 00:00:00+00'::timestamptz + interval '1 s' * {second}"


def measure(world: World, scale: float) -> Iterator[Sample]:
    """Reads without marks and with them, in turn."""
    rows = int(1_000_000 * scale)
    fold.prepare(world, rows)
    for turn in range(fold.ROUNDS):
        yield from _reads(world, "without a mark", rows)
        marks = world.run(fold.CORRECT.format(files=fold.FILES, every=10, turn=1 + turn))
        world.run(f"analyze frostline_overlay.{world.table('events').internal}")
        yield from _reads(world, f"with {marks} marks", rows)
        fold.folded(world, marks)


def _reads(world: World, state: str, rows: int) -> Iterator[Sample]:
    for number in range(READS):
        second = number * (rows // fold.FILES // READS) // 10 * 10  # a multiple of ten is never marked
        start = time.perf_counter()
        found = world.run(_READ.format(id=second * fold.FILES, second=second))
        assert found == 1
        yield Sample(f"cold point read {state}", time.perf_counter() - start, 1)
