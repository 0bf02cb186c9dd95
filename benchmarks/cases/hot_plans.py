"""Does a query of hot rows get the plan that the heap alone would get, and what does planning it cost?

Two million rows of ten columns (times the scale) in ten months, of which five are in the lake only: a million hot rows and a million cold ones. Beside the
relation `events` there is `plain`, an ordinary table with the same rows, partitions and indexes: the primary key, `ts`, and `device, ts`.
Every query has a constant condition that shows its rows to be hot. Measured in turn by EXPLAIN (ANALYZE, TIMING OFF): the time to plan and the
time to execute, in medians of ten runs, which are rolled back where they write. All rows are in memory. The two answers are compared before that.
A query that executes ten times as long is shown with its plan.
"""

import statistics
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from benchmarks.question import Measure, Question
from benchmarks.rig import data, plans
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS, RUNS, ROWS = 5, 10, 0.4
OVER = 10.0
COLD = datetime(2024, 6, 1, tzinfo=UTC)
TABLES = {"relation": "public.events", "heap": "public.plain"}
HOT = "e.ts >= '2024-07-01'"
QUERIES = {
    "point read by key": "select * from {table} e where e.id = {id} and e.ts = '{ts}'",
    "index join of 3 outer rows": "select w.id, e.amount, e.note from wanted w join {table} e on e.id = w.id where {hot}",
    "semi-join by IN": "select * from {table} e where e.id in (select w.id from wanted w) and {hot}",
    "semi-join by EXISTS": "select w.id from wanted w where exists (select from {table} e where e.id = w.id and {hot})",
    "top 3 of each by LATERAL": """
        select w.device, l.* from wanted w cross join lateral
               (select e.id, e.ts from {table} e where e.device = w.device and {hot} order by e.ts desc, e.id limit 3) l""",
    "newest 10": "select * from {table} e where {hot} order by e.ts desc limit 10",
    "min and max of ts": "select min(e.ts), max(e.ts) from {table} e where {hot}",
    "next page by key": """
        select * from {table} e where (e.ts, e.id) > ('{ts}', {id}) and {hot} order by e.ts, e.id limit 50""",
    "merge join": """
        select e.id, e.amount, w.weight from {table} e join weights w on w.id = e.id where {hot} order by e.id limit 1000""",
    "update by join": "update {table} e set amount = e.amount + 1 from wanted w where e.id = w.id and {hot}",
}
QUESTIONS = tuple(
    Question(f"hot {name}, {part}", f"relation, {name}, {part}", Measure.TIME, target, f"heap, {name}, {part}")
    for name in QUERIES
    for part, target in (("execution", 1.2), ("planning", 4.0))
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:  # noqa: ARG001  (the tables are of the lab's scale)
    """Each query on both in turn; the first round warms up."""
    with lab.world(prepare) as world:
        ((id_, ts),) = world.ask("select id, ts from public.wanted order by id limit 1")
        for name, query in QUERIES.items():
            texts = {side: query.format(table=table, hot=HOT, id=id_, ts=ts) for side, table in TABLES.items()}
            ours, expected = (_answer(world, text) for text in texts.values())
            assert ours == expected, f"{name}: {ours} instead of {expected}"
            yield from _rounds(world, name, texts)


def _rounds(world: World, name: str, texts: Mapping[str, str]) -> Iterator[Sample]:
    note = ""
    for number in range(ROUNDS + 1):
        explained = {side: _explained(world, text) for side, text in texts.items()}
        if number == 0:
            ours, other = (explained[side]["execution"] for side in TABLES)
            note = _plans(world, texts) if ours > OVER * other else ""
            continue
        for side, times in explained.items():
            for part, seconds in times.items():
                yield Sample(f"{side}, {name}, {part}", seconds, 1, note=note if part == "execution" else "")
            note = ""


def _plans(world: World, texts: Mapping[str, str]) -> str:
    with world.connection.transaction(force_rollback=True):
        _search(world)
        return plans.folded(*(plans.explained(world, text, analyze=True) for text in texts.values()))


def prepare(world: World, scale: float) -> None:
    """Both tables, with the same indexes, and the small tables that they are joined with."""
    for name in ("plain", "events"):
        data.create(world, name, scale * ROWS)
        world.run(f"create index on public.{name} (ts)")
        world.run(f"create index on public.{name} (device, ts)")
    world.add("events", data.hot_period(COLD))
    assert not world.archive("events").cleaned.waiting
    world.run(
        "create table public.wanted as select id, ts, device from public.plain where ts >= '2024-08-01' order by id limit 3"
    )
    world.run("create table public.weights as select id, id % 100 as weight from public.plain")
    world.run("alter table public.weights add primary key (id)")
    for name in ("plain", "_events", "wanted", "weights"):
        world.run(f"vacuum analyze public.{name}")


def _answer(world: World, text: str) -> object:
    """The rows, in any order, or how many were written."""
    with world.connection.transaction(force_rollback=True):
        _search(world)
        return world.run(text) if text.startswith("update") else sorted(map(str, world.ask(text)))


def _explained(world: World, text: str) -> dict[str, float]:
    """The medians of some runs, in seconds."""
    runs: list[dict[str, Any]] = []
    for _ in range(RUNS):
        with world.connection.transaction(force_rollback=True):
            _search(world)
            ((explained,),) = world.ask(f"explain (analyze, timing off, buffers off, summary, format json) {text}")
            assert isinstance(explained, list)
            runs.append(explained[0])
    times = {"planning": "Planning Time", "execution": "Execution Time"}
    return {part: statistics.median(run[key] for run in runs) / 1000 for part, key in times.items()}


def _search(world: World) -> None:
    world.run("set local search_path = public")
