"""What does a lake of ten thousand files cost that one of a hundred files does not?

Two tables of the same 100,000 rows (times the scale), all in the lake: in 100 files and in 10,000. They were committed 500 files at a
time. Of each in turn: the first point read after the lake server started, later ones, a count of all rows, the status, an archive of one
more partition, and the clean of that partition, which compares its one file with the heap.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from benchmarks.sample import Sample, watched
from benchmarks.world import World
from frostline.catalog import jobs
from frostline.lake import datafiles, duck, ducksql, paths, schema, snapshots
from frostline.lake.datafiles import WrittenFile
from frostline.model import archive as plans
from frostline.model.tables import Table
from frostline.pipeline import archive, clean, export, fingerprint, plan, status

ROWS, WIDTH, FILES_A_COMMIT, READS = 100_000, 1_000, 500, 20
_TABLE = """
create table public.{name} (id bigint, n bigint, status text, amount numeric(12,2), payload jsonb, primary key (id, n))
partition by range (n)"""
_PARTITION = "create table public.{heap}_{n} partition of public.{heap} for values from ({lower}) to ({upper})"
_FILL = """
insert into public.{heap} select i, i, 'ok', i % 100, jsonb_build_object('n', i) from generate_series({lower}, {upper} - 1) i"""
_LAKE_ROWS = """
select i::bigint, i::bigint, 'ok', (i % 100)::decimal(12, 2), '{{"n": ' || i || '}}' from range({lower}, {upper}, {step}) r(i)"""
_READ = "select * from public.{name} where id = {n} and n = {n}"


def measure(world: World, scale: float) -> Iterator[Sample]:
    """The same questions to both tables, three times."""
    sizes = (100, int(10_000 * scale))
    for files in sizes:
        prepare(world, f"of_{files}", files)
    _forget_the_lake()
    for turn in range(3):
        for files in sizes:
            yield from _questions(world, f"of_{files}", files, turn)


def prepare(world: World, name: str, files: int) -> None:
    """A table whose rows are all in the lake, in so many files."""
    world.run(_TABLE.format(name=name))
    newest = (files + 100) * WIDTH
    world.run(_PARTITION.format(heap=name, n="hot", lower=newest, upper=newest + WIDTH))
    world.run(_FILL.format(heap=name, lower=newest, upper=newest + 1))
    table = world.add(name, "1", lake_partition=f"truncate[{WIDTH}]")
    for first in range(0, files, FILES_A_COMMIT):
        numbers = range(first, min(first + FILES_A_COMMIT, files))
        with jobs.exclusive(world.connection, table):
            batch = plans.Plan((), first * WIDTH if first else table.tier_kind.lowest, numbers.stop * WIDTH)
            _Given(world, table, batch, numbers, ROWS // files).run(lambda: world.spark, lambda _table, _progress: None)
    world.run("analyze frostline.lake_file")


class _Given(archive.Job):
    """An archive whose files do not come out of the heap."""

    def __init__(self, world: World, table: Table, batch: plans.Plan, numbers: Sequence[int], rows: int) -> None:
        super().__init__(world.connection, world.settings, table, batch)
        self._numbers, self._rows = numbers, rows

    def _export(self, spark: Callable[[], SparkSession], report: archive.Report) -> list[WrittenFile]:  # noqa: ARG002
        with duck.borrowed("256MB") as connection:
            connection.execute("set preserve_insertion_order = false")
            connection.execute("begin")
            return [self._written(connection.execute, number) for number in self._numbers]

    def _written(self, execute: Callable[[str], object], number: int) -> WrittenFile:
        location = paths.data_file(self.location, self.job_id)
        paths.make_parent(location)
        lower = number * WIDTH
        rows = _LAKE_ROWS.format(lower=lower, upper=lower + WIDTH, step=WIDTH // self._rows)
        names = ", ".join(ducksql.identifier(name) for name in schema.parquet_names(self.table))
        options = export.options(self.table, dictionaries=True)
        execute(f"copy (select * from ({rows}) r({names})) to {ducksql.literal(location)} ({options})")
        found = fingerprint.of_parquet([location], self.table)
        return datafiles.describe(location, self.table, found, in_order=True)


def _forget_the_lake() -> None:
    """The lake server knows no more than after its start, but for what DuckDB itself keeps of files."""
    for known in (snapshots.files, snapshots.read_metadata, snapshots._manifest_files):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        known.cache_clear()


def _questions(world: World, name: str, files: int, turn: int) -> Iterator[Sample]:
    table, rows = world.table(name), ROWS + turn * WIDTH
    when = f"{name}, after a publish" if turn else f"{name}, after the start"
    yield _asked(f"{when}: first point read", lambda: world.run(_READ.format(name=name, n=0)) == 1)
    for number in range(READS):
        n = number * files // READS * WIDTH
        start = time.perf_counter()
        assert world.run(_READ.format(name=name, n=n)) == 1
        yield Sample(f"{name}: point read", time.perf_counter() - start, 1)
    yield _asked(f"{when}: read of all rows", lambda: world.run(f"select id from public.{name}") == rows + 1, rows)
    yield _asked(f"{name}: status", lambda: status.of_table(world.connection, table).lake.rows == rows)
    _one_more(world, name, files + turn)
    yield _asked(f"{name}: archive of one more", lambda: _archived(world, table) == WIDTH, WIDTH)
    yield _asked(f"{name}: clean of one", lambda: len(clean.run(world.connection, table).emptied) == 1, WIDTH)


def _one_more(world: World, name: str, number: int) -> None:
    """A partition that is ripe."""
    lower, upper = number * WIDTH, (number + 1) * WIDTH
    world.run(_PARTITION.format(heap=f"_{name}", n=number, lower=lower, upper=upper))
    world.run(_FILL.format(heap=f"_{name}", lower=lower, upper=upper))
    world.run(f"vacuum analyze public._{name}")


def _archived(world: World, table: Table) -> int:
    """Archive what is ripe, and leave the cleaning for later; returns the rows."""
    with jobs.exclusive(world.connection, table):
        batch = plan.of_table(world.connection, table).plan
        job = archive.Job(world.connection, world.settings, table, batch)
        return sum(file.rows for file in job.run(lambda: world.spark, lambda _table, _progress: None))


def _asked(what: str, question: Callable[[], bool], rows: int = 1) -> Sample:
    with watched() as watch:
        assert question()
    return Sample(what, watch.seconds, rows, watch.peak_bytes, watch.peaks)
