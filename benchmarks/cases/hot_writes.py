"""What do inserts and updates of hot rows cost, compared with the bare heap?

The same statements go to the relation `events` and to its own heap `_events`, with one client. Single rows are inserted and updated by prepared
statements of pgbench, each a transaction: with the server's defaults, where a commit waits for the disk (to both in turn, one by one,
because the disk is not the same a second later), and with `synchronous_commit = off`, where nothing hides behind the disk. Updates are asked once more with generic plans on both sides
(`plan_cache_mode = force_generic_plan`). 100,000 rows (times the scale) come in one INSERT ... SELECT from a temporary table, and by COPY.
"""

import time
from collections.abc import Callable, Iterator
from typing import LiteralString, cast

from benchmarks.question import Measure, Question
from benchmarks.rig import data, hotkeys, pgbench
from benchmarks.rig.pgbench import How
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 4
SECONDS = 2
MANY = 100_000
RELATION, HEAP = "relation", "heap"
TABLES = {RELATION: "public.events", HEAP: "public._events"}
START = {"id": hotkeys.NEW}
NO_WAIT = {"synchronous_commit": "off"}
GENERIC = {**NO_WAIT, "plan_cache_mode": "force_generic_plan"}
INSERT = (
    f"\\set id :id + 1\n\\set day 20241001 + :id % 28\ninsert into {{table}} ({data.COLUMNS}) values ({{values}});\n"
)
UPDATE = f"{hotkeys.PICK}update {{table}} set temperature = temperature + 1 where id = :id and ts = :day;\n"


def _asked(text: str, how: str, target: float) -> Question:
    return Question(text, f"{RELATION}, {how}", Measure.SPEED, target, f"{HEAP}, {how}")


QUESTIONS = (
    _asked("hot insert of one row, prepared", "insert", 0.95),
    _asked("hot insert of one row, prepared, no wait for the disk", "insert, no wait", 0.95),
    _asked("hot insert of 100,000 rows in one statement", "insert of many", 0.7),
    _asked("hot COPY of 100,000 rows", "copy", 0.3),
    _asked("hot update by key, prepared", "update", 0.75),
    _asked("hot update by key, prepared, no wait for the disk", "update, no wait", 0.75),
    _asked("hot update by key, prepared, no wait for the disk, generic plans", "update, generic", 0.75),
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All of them in turn; what was inserted is removed again each time."""
    seconds, many = SECONDS * min(1, scale * 10), int(MANY * scale)
    with lab.world(data.archived) as world:
        hotkeys.add(world)
        _stage(world, many)
        text = _text(world)
        for _ in range(ROUNDS):
            yield from _mixed(world, "insert", INSERT, How("prepared", 2 * seconds, variables=START))
            yield from _mixed(world, "update", UPDATE, How("prepared", 2 * seconds))
            yield from _single(world, "insert, no wait", INSERT, How("prepared", seconds, NO_WAIT, START))
            yield from _single(world, "update, no wait", UPDATE, How("prepared", seconds, NO_WAIT))
            yield from _single(world, "update, generic", UPDATE, How("prepared", seconds, GENERIC))
            yield from _many(world, "insert of many", many, lambda table: _insert_staged(world, table))
            yield from _many(world, "copy", many, lambda table: _copy(world, table, text))


def _mixed(world: World, name: str, script: str, how: How) -> Iterator[Sample]:
    scripts = {f"{what}, {name}": _filled(script, table) for what, table in TABLES.items()}
    yield from pgbench.mixed(world, scripts, how)
    _tidy(world)


def _single(world: World, name: str, script: str, how: How) -> Iterator[Sample]:
    for what, table in TABLES.items():
        yield pgbench.run(world, f"{what}, {name}", _filled(script, table), how)
        _tidy(world)


def _filled(script: str, table: str) -> str:
    return script.format(table=table, values=hotkeys.values(":id", ":day"))


def _many(world: World, name: str, rows: int, insert: Callable[[str], int]) -> Iterator[Sample]:
    for what, table in TABLES.items():
        start = time.perf_counter()
        assert insert(table) == rows
        yield Sample(f"{what}, {name}", time.perf_counter() - start, rows)
        _tidy(world)


def _stage(world: World, many: int) -> None:
    values = hotkeys.values(f"{hotkeys.NEW} + i", hotkeys.day_of("i"))
    world.run("create temporary table staged as select * from public._events limit 0")
    world.run(f"insert into staged ({data.COLUMNS}) select {values} from generate_series(1, {many}) as i")
    world.run("vacuum analyze staged")


def _text(world: World) -> bytes:
    with world.connection.cursor().copy("copy staged to stdout") as copy:
        return b"".join(bytes(part) for part in copy)


def _insert_staged(world: World, table: str) -> int:
    return world.run(f"insert into {table} ({data.COLUMNS}) select {data.COLUMNS} from staged")


def _copy(world: World, table: str, text: bytes) -> int:
    cursor = world.connection.cursor()
    with cursor.copy(cast(LiteralString, f"copy {table} ({data.COLUMNS}) from stdin")) as copy:
        copy.write(text)
    return cursor.rowcount


def _tidy(world: World) -> None:
    """Remove what was inserted, and leave nothing to be written for the next one."""
    world.run(f"delete from public._events where id >= {hotkeys.NEW}")
    world.run("vacuum public._events")
    world.run("checkpoint")
