"""Does Postgres know what a question to both tiers will cost?

The tables of `hot_plans`: a million hot rows and a million cold ones (times the scale), and `plain` with the same rows in its heap. For each question, EXPLAIN
(ANALYZE, TIMING OFF) tells the cost that Postgres expects and the time that it takes: the median of some runs after the first, on both in turn, rolled back where
they write. How many units of cost the heap gets done in a millisecond, in the median of its questions, is the yardstick: by it, the cost that Postgres
expects of the relation is an estimated time, which should be within ten times of the measured one, above or below. Where the cost is above `jit_above_cost`, a Postgres with JIT compiles the statement.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import hot_plans
from benchmarks.question import Measure, Question
from benchmarks.rig import data
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

RUNS, SCALE = 3, hot_plans.ROWS
TABLES = {"relation": "public.events", "heap": "public.plain"}
COLD, HOT = "e.ts < '2024-06-01'", "e.ts >= '2024-07-01'"
SMALL = """
create table public.few as select id, ts, device from public.plain where id % ({rows} / 20) = 7 and ts < '2024-06-01';
create table public.devices as select device, 'device ' || device as name from generate_series(0, 99) device;
create table public.all_devices as select device, 'device ' || device as name from generate_series(0, 1023) device;
analyze public.few, public.devices, public.all_devices"""
"""Some ten cold rows, and a hundred of the devices that rows belong to, and all of them."""
QUERIES = {
    "a hot row by its key": "select * from {table} e where e.id = {hot_id} and e.ts = '{hot_ts}'",
    "the same, by a generic plan": "execute hot_row_{side} ({hot_id}, '{hot_ts}')",
    "1 % of the hot rows": "select * from {table} e where e.ts >= '2024-08-01' and e.ts < '2024-08-02 09:36'",
    "join of 3 rows with hot ones": f"select w.id, e.amount from wanted w join {{table}} e on e.id = w.id where {HOT}",
    "a cold row by its key": "select * from {table} e where e.id = {cold_id} and e.ts = '{cold_ts}'",
    "a cold row by its tier key": "select * from {table} e where e.ts = '{cold_ts}'",
    "a cold row by its id, in both tiers": "select * from {table} e where e.id = {cold_id}",
    "= any of 10 ids, in both tiers": "select * from {table} e where e.id = any('{{{ten}}}')",
    "= any of 1,000 ids, in both tiers": "select * from {table} e where e.id = any('{{{thousand}}}')",
    "1 % of the cold rows": "select * from {table} e where e.ts >= '2024-03-01' and e.ts < '2024-03-02 09:36'",
    "10 % of the cold rows": "select * from {table} e where e.ts >= '2024-03-01' and e.ts < '2024-03-15'",
    "all cold rows": f"select * from {{table}} e where {COLD}",
    "count of all rows": "select count(*) from {table} e",
    "groups of all rows": "select e.device, count(*), sum(e.amount) from {table} e group by e.device",
    "smallest and largest tier key": "select min(e.ts), max(e.ts) from {table} e",
    "the newest 10": "select * from {table} e order by e.ts desc limit 10",
    "the 10 smallest ids": "select * from {table} e order by e.id limit 10",
    "join of 10 rows with cold ones": f"select w.id, e.amount from few w join {{table}} e on e.id = w.id where {COLD}",
    "join of 10 rows with both tiers": "select w.id, e.amount from few w join {table} e on e.id = w.id",
    "semi-join with both tiers": "select e.amount from {table} e where e.id in (select w.id from few w)",
    "NOT EXISTS in both tiers": "select w.id from few w where not exists (select from {table} e where e.id = w.id and e.ts = w.ts)",
    "10 look-ups by a sub-query": "select (select e.amount from {table} e where e.id = w.id and e.ts = w.ts) from few w",
    "EXISTS for each of 100 devices": f"""
        select d.name, exists (select from {{table}} e where e.device = d.device and {COLD}) from devices d""",
    "EXISTS for each of 1,024 devices": f"""
        select d.name, exists (select from {{table}} e where e.device = d.device and {COLD}) from all_devices d""",
    "update of 10 cold rows": f"update {{table}} e set amount = e.amount + 1 where e.id = any('{{{{{{ten}}}}}}') and {COLD}",
}
OFF = 10.0
QUESTIONS = tuple(
    Question(f"estimated time of {name}", f"estimated, {name}", Measure.ESTIMATE, OFF, f"relation, {name}")
    for name in QUERIES
)


@dataclass(frozen=True)
class Cost:
    """What Postgres expected of one question, and what came out."""

    cost: float
    rows: tuple[float, float]
    """That were expected, and that there were."""
    lake_rows: tuple[float, float]
    seconds: float

    @property
    def pace(self) -> float:
        """Units of cost in a millisecond."""
        return self.cost / self.seconds / 1000


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Each question on both, then the yardstick and what it makes of the costs."""
    with lab.world(hot_plans.prepare) as world:
        questions = list(prepare(world, scale))
        costs = {name: {side: asked(world, texts[side]) for side in TABLES} for name, texts in questions}
        ((limit,),) = world.ask("select current_setting('jit_above_cost')::float8")
    yardstick = statistics.median(both["heap"].pace for both in costs.values())
    table = "\n".join(lines(costs, yardstick, float(str(limit))))
    yield Sample("heap, 1,000 units of cost", 1 / yardstick, 1, note=table)
    for name, both in costs.items():
        yield from (Sample(f"{side}, {name}", cost.seconds, 1) for side, cost in both.items())
        yield Sample(f"estimated, {name}", both["relation"].cost / yardstick / 1000, 1)


def prepare(world: World, scale: float) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Make what the questions need, and say them for both tables."""
    rows = data.rows(scale * SCALE)
    world.run(SMALL.format(rows=rows))
    world.run("set search_path = public")
    for side, table in TABLES.items():
        world.run(f"prepare hot_row_{side} (bigint, timestamptz) as select * from {table} where id = $1 and ts = $2")
    keys = {"hot": "wanted", "cold": "few"}
    values: dict[str, object] = {}
    for tier, source in keys.items():
        ((values[f"{tier}_id"], values[f"{tier}_ts"]),) = world.ask(f"select id, ts from {source} order by id limit 1")
    for word, count in {"ten": 10, "thousand": 1000}.items():
        values[word] = ",".join(str(number * 7_368_787 % (rows // 2)) for number in range(count))
    for name, query in QUERIES.items():
        yield name, {side: query.format(table=table, side=side, **values) for side, table in TABLES.items()}


def asked(world: World, text: str) -> Cost:
    """Explain it some times; the first is for warming up."""
    runs = [_explained(world, text) for _ in range(RUNS + 1)][1:]
    plan: Mapping[str, Any] = runs[0]["Plan"]
    lake = [node for node in _nodes(plan) if node["Node Type"] == "Foreign Scan"]
    return Cost(
        plan["Total Cost"],
        _rows([plan]),
        _rows(lake),
        statistics.median(run["Execution Time"] for run in runs) / 1000,
    )


def _explained(world: World, text: str) -> Mapping[str, Any]:
    """What is prepared is explained by its generic plan."""
    with world.connection.transaction(force_rollback=True):
        if text.startswith("execute"):
            world.run("set local plan_cache_mode = force_generic_plan")
        ((explained,),) = world.ask(f"explain (analyze, timing off, buffers off, summary, format json) {text}")
        assert isinstance(explained, list)
        return explained[0]


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows(nodes: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    return sum(node["Plan Rows"] for node in nodes), sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes)


def lines(costs: Mapping[str, Mapping[str, Cost]], yardstick: float, jit_above: float) -> Iterator[str]:
    """The table: what was expected of each question, and what came out, on both."""
    yield f"The heap gets {yardstick:,.0f} units of cost done in a millisecond, in the median.\n"
    yield "| question | rows | of them from the lake | cost | time | units/ms | heap: cost | time | units/ms | estimated / measured time | JIT |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for name, both in costs.items():
        ours, heap = both["relation"], both["heap"]
        off = ours.cost / yardstick / 1000 / ours.seconds
        jit = "yes" if ours.cost > jit_above else ""
        yield f"| {name} | {_pair(ours.rows)} | {_pair(ours.lake_rows)} | {_costs(ours)} | {_costs(heap)} | {_digits(off)} | {jit} |"


def _pair(rows: tuple[float, float]) -> str:
    expected, there = rows
    return f"{expected:,.0f} / {there:,.0f}"


def _costs(cost: Cost) -> str:
    return f"{cost.cost:,.0f} | {_digits(cost.seconds * 1000)} ms | {_digits(cost.pace)}"


def _digits(value: float) -> str:
    """Two that count, and no exponent where it would hide the size."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
