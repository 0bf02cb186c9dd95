"""What do writes cost to a table that has its relation beside it, compared with a table that Frostline does not know?

Both have a million rows of ten columns in ten months (times the scale), and new keys in the hot one. Of the first, nine months are in the lake only, and
its relation is `beside_all` (`frostline table add beside --relation beside_all`); where the relation is in the table's place, the same heap is called
`_beside`. Rows are updated by key by prepared statements of pgbench, each a transaction without a wait for the disk, with generic plans. 100,000 rows (times the scale)
are inserted by one statement, updated by one, and deleted by one.
"""

import time
from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import data, hotkeys, pgbench
from benchmarks.rig.pgbench import How
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS, SECONDS, ROWS, MANY = 5, 2, 0.2, 100_000
OURS, OTHER = "beside", "apart"
HOW = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"}
UPDATE = f"{hotkeys.PICK}update public.{{table}} set temperature = temperature + 1 where id = :id and ts = :day;\n"
NEW = f"id > {hotkeys.NEW} and ts >= '2024-10-01'"
STATEMENTS = {
    "insert of many": f"insert into public.{{table}} ({data.COLUMNS}) select {{values}} from generate_series(1, {{many}}) as i",
    "update of many": f"update public.{{table}} set temperature = temperature + 1 where {NEW}",
    "delete of many": f"delete from public.{{table}} where {NEW}",
}
QUESTIONS = tuple(
    Question(f"{text} with its relation beside it", f"{OURS}, {what}", Measure.SPEED, 0.95, f"{OTHER}, {what}")
    for what, text in {
        "update by key": "hot update by key of a table",
        "insert of many": "hot insert of 100,000 rows into a table",
        "update of many": "hot update of 100,000 rows in one statement of a table",
        "delete of many": "hot delete of 100,000 rows in one statement from a table",
    }.items()
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn; the one that comes first changes with each round, and the first round warms up."""
    with lab.world(prepare) as world:
        for number in range(ROUNDS + 1):
            for table in (OURS, OTHER) if number % 2 else (OTHER, OURS):
                samples = list(_asked(world, table, int(MANY * scale)))
                yield from samples if number else ()


def prepare(world: World, scale: float) -> None:
    """Both tables; all of one that is cold is in the lake."""
    for name in (OURS, OTHER):
        data.create(world, name, scale * ROWS)
    world.add(OURS, data.hot_period(), relation=f"{OURS}_all")
    assert not world.archive(OURS).cleaned.waiting
    for name in (OURS, OTHER):
        hotkeys.add(world, name)


def _asked(world: World, table: str, many: int) -> Iterator[Sample]:
    yield pgbench.run(world, f"{table}, update by key", UPDATE.format(table=table), How("prepared", SECONDS, HOW))
    values = hotkeys.values(f"{hotkeys.NEW} + i", hotkeys.day_of("i"))
    for what, statement in STATEMENTS.items():
        world.run(f"vacuum analyze public.{table}")
        start = time.perf_counter()
        assert world.run(statement.format(table=table, values=values, many=many)) == many
        yield Sample(f"{table}, {what}", time.perf_counter() - start, many)
    world.run(f"vacuum public.{table}")
    world.run("checkpoint")
