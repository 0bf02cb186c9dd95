"""How many corrections a second does a fold carry into the lake, and how does that compare with Spark rewriting the files?

Ten monthly files of 100,000 rows each (times the scale). Corrections are spread evenly over all of them. A fold is timed from its
beginning to its publish, with Spark running already: rewriting, proving and taking the marks away. In turn with it, Spark reads the
same ten files and writes them again, without applying any correction.
"""

import shutil
from collections.abc import Iterator

from benchmarks.sample import Sample, watched
from benchmarks.world import World
from frostline.catalog import jobs
from frostline.pipeline import archive, clean, fold

FILES = 10
ROUNDS = 3
_TABLE = """
create table public.events (
    id bigint, ts timestamptz, device int, status text, amount numeric(12,2), payload jsonb, primary key (id, ts)
) partition by range (ts)"""
_PARTITION = (
    "create table public.events_{0} partition of public.events for values from ('2024-{0:02}-01') to ('2024-{1:02}-01')"
)
_ROWS = """
insert into public.events
select i, timestamptz '2024-01-01 00:00+00' + make_interval(months => (i % {files})::int) + interval '1 s' * (i / {files}),
       i % 1000, (array['ok', 'failed', 'pending'])[1 + i % 3], i % 100000 / 100.0, jsonb_build_object('n', i, 'k', md5(i::text))
  from generate_series(0, {rows} - 1) i"""
CORRECT = "update public.events set amount = amount + 1 where id / {files} % {every} = {turn}"


def measure(world: World, scale: float) -> Iterator[Sample]:
    """Fold and Spark in turn, few corrections and many."""
    rows = int(1_000_000 * scale)
    prepare(world, rows)
    for turn in range(ROUNDS):
        for every in (1000, 10):
            corrections = world.run(CORRECT.format(files=FILES, every=every, turn=turn))
            yield folded(world, corrections)
            yield _spark(world, corrections)


def prepare(world: World, rows: int) -> None:
    """A table of so many rows, all of them in the lake only, in ten files."""
    world.run("set timezone = 'UTC'")
    world.run(_TABLE)
    for month in range(1, FILES + 1):
        world.run(_PARTITION.format(month, month + 1))
    world.run(_ROWS.format(files=FILES, rows=rows))
    world.run("vacuum analyze public.events")
    table = world.add("events", "1 month")
    (result,) = archive.run(
        world.connection, lambda: world.spark, world.settings, [table], lambda _table, _progress: None
    )
    assert result.error is None, result.error
    assert not clean.run(world.connection, world.table("events")).waiting


def folded(world: World, corrections: int) -> Sample:
    """One fold of so many corrections."""
    table = world.table("events")
    with watched() as watch:
        (result,) = fold.run(
            world.connection, lambda: world.spark, world.settings, [table], lambda _table, _progress: None
        )
    assert (result.error, result.taken, result.replaced_files) == (None, corrections, FILES), result
    return Sample(f"fold of {corrections} corrections", watch.seconds, corrections, watch.peak_bytes)


def _spark(world: World, corrections: int) -> Sample:
    files = [file.path for file in jobs.recorded_files(world.connection, world.table("events"))]
    target = world.folder / "by spark"
    with watched() as watch:
        world.spark.read.parquet(*files).write.parquet(str(target))
    shutil.rmtree(target)
    return Sample(
        f"spark rewrites the files of {corrections} corrections", watch.seconds, corrections, watch.peak_bytes
    )
