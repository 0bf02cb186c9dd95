"""What do look-ups in the lake cost, one, a thousand in one question, and a thousand one after the other?

A million events of ten columns (times the scale), of which nine months are in the lake, one file a month, sorted by time; their ids rise with the time.
Asked through the relation: one row by its whole key and by its id alone; `= any` of 1,000 ids; and nested loops, for which a sub-query is
sent once for each of 1,000 rows of a small table: by the whole key, in no order and in the order of time, and by `device`, by which no file is sorted, within a month, some hundred rows
each. In turn with it, DuckDB is asked in this process on the same files: a prepared statement for each look-up, an IN list for all. It is what can be had
without Postgres, the wire and the lake server. A nested loop begins with a lake server that was just started and has answered one look-up, so all extracts and ledgers that it
makes are a part of its time; it is shown once more with those. One look-up is shown in its parts, as the lake server does them. A single look-up is the median of twenty.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data, direct, lookup_parts
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS, ASKED, MANY, ROWS = 3, 20, 1000, 0.2
RELATION, DIRECT = "relation", "DuckDB on the files"
ONE = {"one row by its key": "id = {id} and ts = '{ts}'", "one row by its id": "id = {id}"}
LOOPS = {
    "1,000 look-ups by key": "select (select e.amount from events e where e.id = w.id and e.ts = w.ts) from wanted w order by w.place",
    "1,000 look-ups by key in order": "select (select e.amount from events e where e.id = w.id and e.ts = w.ts) from (select * from wanted order by id) w",
    "1,000 look-ups by device in a month": """
        select (select sum(e.amount) from events e where e.device = w.device and {month}) from devices w order by w.device""",
}
BY_KEY = "select amount from events where id = $1 and ts = $2"
BY_DEVICE = "select sum(amount) from events where device = $1 and {month}"
MONTH = "{0}ts >= '2024-03-01' and {0}ts < '2024-04-01'"
TARGETS = {
    "one row by its key": 2.0,
    "one row by its id": 2.0,
    "= any of 1,000 ids": 2.0,
    "1,000 look-ups by key": 1.0,
    "1,000 look-ups by key in order": 1.0,
    "1,000 look-ups by device in a month": 0.2,
}
QUESTIONS = tuple(
    Question(f"cold: {what}", f"{RELATION}, {what}", Measure.TIME, target, f"{DIRECT}, {what}")
    for what, target in TARGETS.items()
)
WANTED = """
create table public.wanted (place integer, id bigint, ts timestamptz);
create table public.devices as select device from generate_series(0, {many} - 1) device"""
Ask = Callable[[], Sequence[Any]]


def measure(lab: Lab, _scale: float) -> Iterator[Sample]:
    """Each question to both in turn; where a lake server stays as it is, the first round warms up."""
    with lab.world(prepare) as world, direct.connected(world.lake_files("events")) as duck:
        world.run("set search_path = public")
        rows = _rows(world)
        yield from _singles(world, duck, rows)
        yield from _lists(world, duck, rows)
        yield from _loops(world, duck, rows)
        yield from lookup_parts.measured(world, list(_remote(world, rows[: ASKED + 1])))


def _remote(world: World, rows: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    """Look-ups as Postgres sends them to the lake server."""
    ((snapshot,),) = world.ask("select snapshot_id from frostline.seam")
    source = f"select {data.COLUMNS} from {cold.remote_name(world)} where ((frostline_snapshot = {snapshot}))"
    for number, ts in rows:
        yield f"{source} and ((id = {number})) and ((ts = '{ts}'::timestamp with time zone))"


def prepare(world: World, scale: float) -> None:
    """The table, and which of its rows are looked for."""
    size = scale * ROWS
    data.create(world, "events", size)
    world.add("events", data.hot_period())
    world.run(WANTED.format(many=MANY))
    for place, number in enumerate(cold.ids(MANY, size)):
        world.run(f"insert into public.wanted values ({place}, {number}, {data.ts_of(number, size)})")
    world.run("vacuum analyze public.wanted, public.devices")
    assert not world.archive("events").cleaned.waiting


def _rows(world: World) -> list[tuple[Any, Any]]:
    return [(number, ts) for number, ts in world.ask("select id, ts from public.wanted order by place")]


def _singles(world: World, duck: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, Any]]) -> Iterator[Sample]:
    for number in range(ROUNDS + 1):
        some = rows[number * ASKED : (number + 1) * ASKED]
        for what, condition in ONE.items():
            texts = [f"select {data.COLUMNS} from events where {condition.format(id=id_, ts=ts)}" for id_, ts in some]
            samples = (
                _median(f"{DIRECT}, {what}", [_asking(duck, text) for text in texts]),
                _median(f"{RELATION}, {what}", [lambda text=text: world.ask(text) for text in texts]),
            )
            yield from samples if number else ()


def _lists(world: World, duck: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, Any]]) -> Iterator[Sample]:
    listed = ", ".join(str(number) for number, _ in rows)
    ours = f"select id, amount from public.events where id = any('{{{listed}}}')"
    theirs = f"select id, amount from events where id in ({listed})"
    for number in range(ROUNDS + 1):
        samples = (
            _timed(f"{DIRECT}, = any of 1,000 ids", _asking(duck, theirs)),
            _timed(f"{RELATION}, = any of 1,000 ids", lambda: world.ask(ours)),
        )
        yield from samples if number else ()


def _loops(world: World, duck: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, Any]]) -> Iterator[Sample]:
    loops: Mapping[str, tuple[str, Sequence[Sequence[Any]]]] = {
        "1,000 look-ups by key": (BY_KEY, rows),
        "1,000 look-ups by key in order": (BY_KEY, sorted(rows)),
        "1,000 look-ups by device in a month": (BY_DEVICE.format(month=MONTH.format("")), [(n,) for n in range(MANY)]),
    }
    for what, (text, values) in loops.items():
        ours = LOOPS[what].format(month=MONTH.format("e."))
        for _ in range(ROUNDS):
            yield _timed(f"{DIRECT}, {what}", lambda text=text, values=values: _each(duck, text, values))
            world.restart_lake()
            id_, ts = rows[0]
            world.ask(f"select amount from events where id = {id_} and ts = '{ts}'")
            yield _timed(f"{RELATION}, {what}", lambda ours=ours: world.ask(ours))
            yield _timed(f"{RELATION}, {what}, again", lambda ours=ours: world.ask(ours))


def _asking(duck: duckdb.DuckDBPyConnection, text: str) -> Ask:
    """Rows as Python objects would cost more than some queries: the table stays Arrow's."""
    return lambda: range(duck.execute(text).to_arrow_table().num_rows)


def _each(duck: duckdb.DuckDBPyConnection, text: str, values: Sequence[Sequence[Any]]) -> list[Any]:
    return [duck.execute(text, parameters).fetchone() for parameters in values]


def _median(what: str, asks: Sequence[Ask]) -> Sample:
    return Sample(what, statistics.median(_timed(what, ask, 1).seconds for ask in asks), 1)


def _timed(what: str, ask: Ask, rows: int = MANY) -> Sample:
    start = time.perf_counter()
    assert len(ask()) == rows, what
    return Sample(what, time.perf_counter() - start, rows)
