"""How much memory does an archive need when its partition is larger than what Spark and the tasks are given?

Partitions of 64 MB, 256 MB and 1 GB (times the scale) of rows of 1 kB. Spark's Java has 512 MB, a task has 256 MB. First each of them in one
single task, which sorts its rows, or goes without; then the largest again, in tasks of 32 MB. Resident memory at its highest, of Spark's Java,
of the largest Python worker, and of the driver. The program itself, with all its libraries, counts.
"""

from collections.abc import Iterator

from benchmarks.sample import Sample, watched
from benchmarks.world import World
from frostline.pipeline import archive
from frostline.settings import Settings

SPARK_MEMORY = "512m"
TASK_MEMORY = "256MB"
ROWS = 58_000
"""Of 64 MB."""
_TABLE = """
create table public.{name} (id bigint, ts timestamptz, payload text, primary key (id, ts)) partition by range (ts);
create table public.{name}_old partition of public.{name} for values from ('2024-01-01') to ('2024-02-01')"""
_ROWS = """
insert into public.{name}
select i, timestamptz '2024-01-01 00:00+00' + interval '1 s' * (i::bigint * 7919 % 2500000), repeat(md5(i::text) || md5((-i)::text), 15)
  from generate_series(0, {rows} - 1) i"""


def measure(world: World, scale: float) -> Iterator[Sample]:
    """One task for partitions of three sizes, then many for the largest."""
    world.run("set timezone = 'UTC'")
    for times in (1, 4, 16):
        yield _archived(world, f"{times}x in one task", int(ROWS * times * scale), 1 << 40)
    yield _archived(world, "16x in tasks of 32 MB", int(ROWS * 16 * scale), 32 << 20)


def _archived(world: World, what: str, rows: int, shard_bytes: int) -> Sample:
    name = "events_" + what.replace(" ", "_")
    world.run(_TABLE.format(name=name))
    world.run(_ROWS.format(name=name, rows=rows))
    world.run(f"vacuum analyze public.{name}")
    table = world.add(name, "1 month", grace="1 day")
    settings: Settings = world.settings.model_copy(
        update={"export_memory": TASK_MEMORY, "export_shard_bytes": shard_bytes}
    )
    with watched() as watch:
        (result,) = archive.run(
            world.connection, lambda: world.spark, settings, [table], lambda _table, _progress: None
        )
    assert (result.error, result.rows) == (None, rows), result
    return Sample(f"archive of {what}", watch.seconds, rows, watch.peak_bytes, watch.peaks)
