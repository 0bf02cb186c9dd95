"""How much slower is a cold read through the relation when the overlay holds marks?

Two databases with the same table, nine of its ten months in the lake only. In one, UPDATEs through the relation mark cold rows: first about
1,000, then about 100,000 (times the scale), evenly over the nine months, so some of them lie in what is read and most lie elsewhere. In turn,
both relations are asked for a cold range of 100,000 rows with all columns, and for single rows by key, prepared. Without marks the
relation is compared with the lake's foreign table, read at the same snapshot and within the same bounds.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import LiteralString, cast

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
READS = 15
RANGE = 100_000
MARKS = {"1 k marks": (1_000, 1.2), "100 k marks": (100_000, 2.0)}
_MARK = "update public.events set note = 'corrected' where ts < '2024-10-01' and id % {step} = {rest}"


def _questions() -> Iterator[Question]:
    for kind in ("range", "point"):
        yield Question(
            f"cold {kind} read, empty overlay", f"{kind}, no marks", Measure.TIME, 1.1, f"{kind}, foreign table"
        )
        for marks, (_, target) in MARKS.items():
            yield Question(
                f"cold {kind} read, {marks}", f"{kind}, {marks}", Measure.TIME, target, f"{kind}, beside {marks}"
            )


QUESTIONS = tuple(_questions())


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """The unmarked relation beside the foreign table, then beside the marked one."""
    with lab.world(data.archived) as empty, lab.world(data.archived) as marked:
        lake, pin = cold.lake(empty)
        yield from _in_turn((empty, "no marks", "public.events", "true"), (empty, "foreign table", lake, pin), scale)
        for marks, (count, _) in MARKS.items():
            _mark(marked, int(count * scale), scale)
            yield from _in_turn(
                (marked, marks, "public.events", "true"), (empty, f"beside {marks}", "public.events", "true"), scale
            )


def _mark(world: World, count: int, scale: float) -> None:
    """Mark about so many rows; vacuum and analyze as autovacuum would a little later."""
    step = max(2, data.rows(scale) * 9 // data.MONTHS // max(count, 1))
    world.run(_MARK.format(step=step, rest=1))
    world.run(f'vacuum analyze frostline_overlay."{world.table("events").internal}"')


_Side = tuple[World, str, str, str]
"""A database, the name of the samples, what is read there, and a condition that goes with it."""


def _in_turn(ours: _Side, other: _Side, scale: float) -> Iterator[Sample]:
    for number in range(ROUNDS + 1):
        for kind, read in (("range", _range), ("point", _points)):
            samples = [Sample(f"{kind}, {side[1]}", *read(side, number, scale)) for side in (other, ours)]
            if number > 0:
                yield from samples


def _range(side: _Side, number: int, scale: float) -> tuple[float, int]:
    """Seconds and rows of one range, another one in each round."""
    world, _, source, condition = side
    wanted = int(RANGE * scale)
    first = data.rows(scale) // data.MONTHS * number + wanted
    query = cold.moved(source, f"{condition} and {cold.between(world, first, first + wanted, scale)}")
    start = time.perf_counter()
    ((rows,),) = world.ask(query)
    seconds = time.perf_counter() - start
    assert rows == wanted
    return seconds, wanted


def _points(side: _Side, number: int, scale: float) -> tuple[float, int]:
    """The median of some reads, of other keys in each round."""
    world, _, source, condition = side
    query = f"select {data.COLUMNS} from {source} where {condition} and id = %s and ts = %s"
    seconds: list[float] = []
    for key in _keys(world, list(cold.ids(READS * (number + 1), scale))[READS * number :], scale):
        start = time.perf_counter()
        (row,) = world.connection.execute(cast(LiteralString, query), key, prepare=True).fetchall()
        seconds.append(time.perf_counter() - start)
        assert row[0] == key[0]
    return statistics.median(seconds), 1


def _keys(world: World, numbers: Sequence[int], scale: float) -> list[tuple[object, ...]]:
    return [(number, cold.moment(world, number, scale)) for number in numbers]
