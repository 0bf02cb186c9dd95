"""What do inserts, updates and deletes of hot rows cost, compared with the bare heap?

The same statements go to the relation `events` and to its own heap `_events`, with one client. Single rows are inserted and updated by prepared
statements of pgbench, each a transaction: with the server's defaults, where a commit waits for the disk (to both in turn, one by one,
because the disk is not the same a second later), and with `synchronous_commit = off`, where nothing hides behind the disk. Updates and deletes by key are asked once more with generic plans on both sides
(`plan_cache_mode = force_generic_plan`), as `frostline doctor` recommends. 100,000 rows (times the scale) come in one INSERT ... SELECT from a temporary table, and by COPY. As many are
updated by one statement, and deleted by one; the latter is shown only. Each of 5,000 rows (times the scale) is deleted by its key, with the wait for the disk and without.
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
MANY, DELETED = 100_000, 5_000
RELATION, HEAP = "relation", "heap"
TABLES = {RELATION: "public.events", HEAP: "public._events"}
START = {"id": hotkeys.NEW}
NO_WAIT = {"synchronous_commit": "off"}
KEPT = {"plan_cache_mode": "force_generic_plan"}
GENERIC = {**NO_WAIT, **KEPT}
INSERT = (
    f"\\set id :id + 1\n\\set day 20241001 + :id % 28\ninsert into {{table}} ({data.COLUMNS}) values ({{values}});\n"
)
DELETE = (
    f"\\set {{side}} :{{side}} + 1\n\\set day 20241001 + (:{{side}} - {hotkeys.NEW}) % 28\n"
    "delete from {table} where id = :{side} and ts = :day;\n"
)
UPDATE_MANY = f"update {{table}} set temperature = temperature + 1 where id > {hotkeys.NEW} and ts >= '2024-10-01'"
DELETE_MANY = f"delete from {{table}} where id > {hotkeys.NEW} and ts >= '2024-10-01'"
UPDATE = f"{hotkeys.PICK}update {{table}} set temperature = temperature + 1 where id = :id and ts = :day;\n"


def _asked(text: str, how: str, target: float) -> Question:
    return Question(text, f"{RELATION}, {how}", Measure.SPEED, target, f"{HEAP}, {how}")


QUESTIONS = (
    _asked("hot insert of one row, prepared", "insert", 0.95),
    _asked("hot insert of one row, prepared, no wait for the disk", "insert, no wait", 0.95),
    _asked("hot insert of 100,000 rows in one statement", "insert of many", 0.7),
    _asked("hot COPY of 100,000 rows", "copy", 0.3),
    _asked("hot update by key, prepared", "update", 0.6),
    _asked("hot update by key, prepared, generic plans", "update, generic, wait", 0.6),
    _asked("hot update by key, prepared, no wait for the disk", "update, no wait", 0.6),
    _asked("hot update by key, prepared, no wait for the disk, generic plans", "update, generic", 0.6),
    _asked("hot delete by key, prepared", "delete", 0.6),
    _asked("hot delete by key, prepared, generic plans", "delete, generic, wait", 0.6),
    _asked("hot delete by key, prepared, no wait for the disk", "delete, no wait", 0.6),
    _asked("hot delete by key, prepared, no wait for the disk, generic plans", "delete, generic", 0.6),
    _asked("hot update of 100,000 rows in one statement", "update of many", 0.5),
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All of them in turn; what was inserted is removed again each time."""
    seconds, many = SECONDS * min(1, scale * 10), int(MANY * scale)
    with lab.world(data.archived) as world:
        hotkeys.add(world, heap="_events")
        _stage(world, many)
        text = _text(world)
        for _ in range(ROUNDS):
            yield from _mixed(world, "insert", INSERT, How("prepared", 2 * seconds, variables=START))
            yield from _mixed(world, "update", UPDATE, How("prepared", 2 * seconds))
            yield from _mixed(world, "update, generic, wait", UPDATE, How("prepared", 2 * seconds, KEPT))
            yield from _single(world, "insert, no wait", INSERT, How("prepared", seconds, NO_WAIT, START))
            yield from _single(world, "update, no wait", UPDATE, How("prepared", seconds, NO_WAIT))
            yield from _single(world, "update, generic", UPDATE, How("prepared", seconds, GENERIC))
            yield from _many(world, "insert of many", many, lambda table: _insert_staged(world, table))
            yield from _many(world, "copy", many, lambda table: _copy(world, table, text))
            yield from _deleted(world, int(DELETED * scale))
            yield from _changed(world, "update of many", many, UPDATE_MANY)
            yield from _changed(world, "delete of many", many, DELETE_MANY)


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


def _deleted(world: World, rows: int) -> Iterator[Sample]:
    """Each row exists, and is deleted once: the relation's are half of them, the heap's the other half."""
    scripts = {side: DELETE.format(side=side, table=table) for side, table in TABLES.items()}
    starts = {RELATION: hotkeys.NEW, HEAP: hotkeys.NEW + rows}
    for what, settings in {"delete, no wait": NO_WAIT, "delete, generic": GENERIC}.items():
        _insert_staged(world, TABLES[HEAP], 2 * rows)
        for side, script in scripts.items():
            yield pgbench.run(world, f"{side}, {what}", script, How("prepared", 0, settings, starts, rows))
        assert not _left(world)
        _tidy(world)
    for what, settings in {"delete": {}, "delete, generic, wait": KEPT}.items():
        _insert_staged(world, TABLES[HEAP], 2 * rows)
        named = {f"{side}, {what}": script for side, script in scripts.items()}
        yield from pgbench.mixed(world, named, How("prepared", 0, settings, starts, rows))
        assert _left(world) == rows
        _tidy(world)


def _left(world: World) -> int:
    return len(world.ask(f"select id from public._events where id > {hotkeys.NEW}"))


def _changed(world: World, name: str, rows: int, statement: str) -> Iterator[Sample]:
    """All of them by one statement, on rows that are the newest of the heap."""
    for what, table in TABLES.items():
        _insert_staged(world, TABLES[HEAP])
        world.run("vacuum analyze public._events")
        start = time.perf_counter()
        assert world.run(statement.format(table=table)) == rows
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


def _insert_staged(world: World, table: str, rows: int | None = None) -> int:
    """All of them, or the first."""
    chosen = "" if rows is None else f" where id <= {hotkeys.NEW + rows}"
    return world.run(f"insert into {table} ({data.COLUMNS}) select {data.COLUMNS} from staged{chosen}")


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
