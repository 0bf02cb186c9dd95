"""What does a read of one hot row by its key cost, compared with the bare heap?

The relation `events` has its hot month in the heap `_events` and nine months in the lake. pgbench, with one client, reads random hot rows by the
whole primary key, from the relation and directly from that heap: the same rows in the same pages. Prepared is pgbench's `prepared`
with the server's defaults, where Postgres itself chooses between a generic plan and a new plan for each execution; the same with
`plan_cache_mode = force_generic_plan` on both sides; and simple, where every statement is parsed and planned.
"""

from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import data, hotkeys, pgbench
from benchmarks.rig.pgbench import How
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 5
SECONDS = 2
GENERIC = {"plan_cache_mode": "force_generic_plan"}
QUESTIONS = (
    Question("hot point read, prepared", "relation, prepared", Measure.SPEED, 0.8, "heap, prepared"),
    Question("hot point read, prepared, generic plans", "relation, generic", Measure.SPEED, 0.8, "heap, generic"),
    Question("hot point read, simple", "relation, simple", Measure.SPEED, 0.5, "heap, simple"),
)
_SCRIPT = f"{hotkeys.PICK}select {data.COLUMNS} from public.{{table}} where id = :id and ts = {{day}};\n"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All of them in turn, on rows that are in memory."""
    seconds = SECONDS * min(1, scale * 10)
    with lab.world(data.archived) as world:
        hotkeys.add(world, heap="_events")
        world.ask("select sum(hashtextextended(h::text, 0)) from public._events h")
        for _ in range(ROUNDS):
            yield from _both(world, "prepared", How("prepared", seconds))
            yield from _both(world, "generic", How("prepared", seconds, GENERIC))
            yield from _both(world, "simple", How("simple", seconds))


def _both(world: World, name: str, how: How) -> Iterator[Sample]:
    for what, table in (("relation", "events"), ("heap", "_events")):
        script = _SCRIPT.format(table=table, day=hotkeys.DAY[how.mode])
        yield pgbench.run(world, f"{what}, {name}", script, how)
