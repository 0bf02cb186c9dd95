"""Does a partition cost more where there are many of them?

Two tables with 100 rows in each partition: 20 partitions and 200 (times the scale). Of each: plan, archive without clean, status, verify, and
clean, which compares every partition with the lake, empties it and drops it. What is compared is the time for each partition.
"""

from collections.abc import Callable, Iterator

from benchmarks.question import Measure, Question
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.catalog import jobs
from frostline.model.tables import Table
from frostline.observe import status
from frostline.pipeline import archive, clean, plan, verify

WIDTH = 100
FEW, MANY = "few", "many"
STEPS = ("plan", "archive", "status", "verify", "clean")
QUESTIONS = tuple(
    Question(f"{step} of a partition: 200 over 20", f"{step}, {MANY}", Measure.TIME, 1.5, f"{step}, {FEW}")
    for step in STEPS
)
_TABLE = "create table public.{name} (id bigint, n bigint, status text, primary key (id, n)) partition by range (n)"
_PARTITION = "create table public.{name}_{number} partition of public.{name} for values from ({lower}) to ({upper})"
_ROWS = "insert into public.{name} select i, i, 'ok' from generate_series(0, {rows}) i"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All steps for few, then for many. The first table of all warms up, and does not count."""
    few, many = max(5, int(20 * scale)), max(10, int(200 * scale))
    with lab.world() as world:
        for name, partitions in (("first", 5), (FEW, few), (MANY, many)):
            _prepare(world, name, partitions)
            samples = list(_steps(world, world.add(name, "1", lake_partition=f"truncate[{WIDTH}]"), partitions))
            yield from samples if name != "first" else ()


def _prepare(world: World, name: str, partitions: int) -> None:
    world.run(_TABLE.format(name=name))
    for number in range(partitions + 1):
        lower = number * WIDTH
        world.run(_PARTITION.format(name=name, number=number, lower=lower, upper=lower + WIDTH))
    world.run(_ROWS.format(name=name, rows=partitions * WIDTH + 1))
    world.run(f"vacuum analyze public.{name}")


def _steps(world: World, table: Table, partitions: int) -> Iterator[Sample]:
    connection = world.connection
    yield _done(table, "plan", partitions, lambda: len(plan.of_table(connection, table).plan.partitions))
    yield _done(table, "archive", partitions, lambda: _archived(world, table))
    yield _done(table, "status", partitions, lambda: status.of_table(connection, table).lake.uncleaned_partitions)
    yield _done(table, "verify", partitions, lambda: verify.run(connection, table).partitions)
    yield _done(table, "clean", partitions, lambda: len(clean.run(connection, world.settings, table).emptied))


def _archived(world: World, table: Table) -> int:
    """Archive what is ripe, and leave the cleaning for later; returns the partitions."""
    with jobs.exclusive(world.connection, table):
        batch = plan.of_table(world.connection, table).plan
        archive.archive_batch(world.jobs(), table, batch)
    return len(batch.partitions)


def _done(table: Table, what: str, partitions: int, step: Callable[[], int]) -> Sample:
    """The time of one partition."""
    with watched() as watch:
        counted = step()
    assert counted == partitions, (what, counted)
    return Sample(f"{what}, {table.name.table}", watch.seconds / partitions, 1)
