"""Do the latest cold rows, and a look-up by id alone, take longer in a lake of many files?

Two lakes with files of a thousand rows: twenty of them, and two thousand. In turn, the foreign tables of each are asked for the ten latest rows, for
the largest tier value, and the relation for one row by its id, which names no tier value. A sample is the median of some. All were asked before.
"""

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import large_lake
from benchmarks.rig.large_lake import Size
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
ASKED = 10
FEW, MANY = Size("few", 20, 1_000), Size("many", 2_000, 1_000)
_TARGET = 3.0
QUESTIONS = tuple(
    Question(f"{what}, 2,000 files instead of 20", f"{what} of many", Measure.TIME, _TARGET, f"{what} of few")
    for what in ("the ten latest cold rows", "the largest cold tier value", "a cold row by its id alone")
)


def prepare(world: World, _scale: float) -> None:
    """Both lakes; the scale changes nothing."""
    for size in (FEW, MANY):
        large_lake.prepare(world, size)


def measure(lab: Lab, _scale: float) -> Iterator[Sample]:
    """Each question to both lakes in turn."""
    with lab.world(prepare) as world:
        lake = {size.name: f'frostline_lake."{world.table(size.name).internal}"' for size in (FEW, MANY)}
        for number in range(ROUNDS + 1):
            for size in (FEW, MANY):
                latest = f"select id, n, status from {lake[size.name]} order by n desc limit 10"
                samples = (
                    _timed(f"the ten latest cold rows of {size.name}", lambda _, text=latest: world.ask(text), 10),
                    _timed(
                        f"the largest cold tier value of {size.name}",
                        lambda _, size=size: world.ask(f"select max(n) from {lake[size.name]}"),
                        1,
                    ),
                    _timed(
                        f"a cold row by its id alone of {size.name}",
                        lambda at, size=size: world.ask(
                            f"select * from public.{size.name} where id = {at * 7919 % size.rows}"
                        ),
                        1,
                    ),
                )
                if number > 0:
                    yield from samples


def _timed(what: str, ask: Callable[[int], list[tuple[object, ...]]], rows: int) -> Sample:
    seconds: list[float] = []
    for at in range(ASKED):
        start = time.perf_counter()
        assert len(ask(at)) == rows
        seconds.append(time.perf_counter() - start)
    return Sample(what, statistics.median(seconds), rows)
