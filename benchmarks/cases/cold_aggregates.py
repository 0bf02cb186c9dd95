"""How much faster does the lake server aggregate cold rows than Postgres aggregates the same rows of a heap?

Four and a half million cold rows (times the scale). Three queries with groups are sent to the foreign table of the cold rows, which pushes the
whole query to the lake server. In turn with it, Postgres answers the same query on a heap copy: vacuumed, in shared buffers, with
as many parallel workers as the machine has cores. Answers are compared, value by value.
"""

import os
import time
from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
QUERIES = {
    "sums by device": """
        select device, count(*), sum(amount) from {table} where {pin} and ts < '2024-10-01' group by device""",
    "sums by status": """
        select status, ok, count(*), count(note), sum(amount), min(amount), max(amount)
          from {table} where {pin} and ts < '2024-10-01' group by status, ok""",
    "failures of half a year by device": """
        select device, count(*), sum(amount), max(updated) from {table}
         where {pin} and status = 'failed' and ts >= '2024-03-01' and ts < '2024-09-01' group by device""",
}
QUESTIONS = tuple(
    Question(f"cold aggregate: {name}", f"lake server, {name}", Measure.SPEED, 10.0, f"heap, {name}")
    for name in QUERIES
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Each query on both in turn, after one run of each."""
    with lab.world(data.archived) as world:
        world.run(f"set max_parallel_workers_per_gather = {os.cpu_count()}")
        world.run("create extension if not exists pg_prewarm")
        world.ask("select sum(pg_prewarm(relid)) from pg_partition_tree('public.plain') where isleaf")
        ((snapshot,),) = world.ask("select snapshot_id from frostline.seam")
        for name, query in QUERIES.items():
            ours = query.format(table=cold.foreign_table(world), pin=f"frostline_snapshot = {snapshot}")
            yield from _in_turn(world, name, ours, query.format(table="public.plain", pin="true"), data.rows(scale))


def _in_turn(world: World, name: str, ours: str, other: str, rows: int) -> Iterator[Sample]:
    for number in range(ROUNDS + 1):
        expected, other_s = _answered(world, other)
        our_rows, our_s = _answered(world, ours)
        assert frozenset(our_rows) == frozenset(expected)
        if number > 0:
            yield Sample(f"heap, {name}", other_s, rows * 9 // data.MONTHS)
            yield Sample(f"lake server, {name}", our_s, rows * 9 // data.MONTHS)


def _answered(world: World, query: str) -> tuple[list[tuple[object, ...]], float]:
    start = time.perf_counter()
    return world.ask(query), time.perf_counter() - start
