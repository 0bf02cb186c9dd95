"""Do a thousand partitions cost ten times what a hundred cost, and not a hundred times?

Two tables with 100 rows in each partition: 100 partitions and 1,000 (times the scale). Of each: plan, archive without clean, status, verify,
and clean, which compares every partition with the lake, empties it and drops it.
"""

from collections.abc import Callable, Iterator

from benchmarks.sample import Sample, watched
from benchmarks.world import World
from frostline.catalog import jobs
from frostline.model.tables import Table
from frostline.pipeline import archive, clean, plan, status, verify

WIDTH = 100
_TABLE = "create table public.{name} (id bigint, n bigint, status text, primary key (id, n)) partition by range (n)"
_PARTITION = "create table public.{name}_{number} partition of public.{name} for values from ({lower}) to ({upper})"
_ROWS = "insert into public.{name} select i, i, 'ok' from generate_series(0, {rows}) i"


def measure(world: World, scale: float) -> Iterator[Sample]:
    """All steps for a hundred, then for a thousand."""
    for partitions in (100, int(1_000 * scale)):
        name = f"of_{partitions}"
        _prepare(world, name, partitions)
        yield from _steps(world, world.add(name, "1", lake_partition=f"truncate[{WIDTH}]"), partitions)


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
    yield _done(table, "clean", partitions, lambda: len(clean.run(connection, table).emptied))


def _archived(world: World, table: Table) -> int:
    """Archive what is ripe, and leave the cleaning for later; returns the partitions."""
    with jobs.exclusive(world.connection, table):
        batch = plan.of_table(world.connection, table).plan
        job = archive.Job(world.connection, world.settings, table, batch)
        job.run(lambda: world.spark, lambda _table, _progress: None)
    return len(batch.partitions)


def _done(table: Table, what: str, partitions: int, step: Callable[[], int]) -> Sample:
    with watched() as watch:
        found = step()
    assert found == partitions, (what, found)
    return Sample(f"{table.name}: {what}", watch.seconds, partitions, watch.peak_bytes, watch.peaks)
