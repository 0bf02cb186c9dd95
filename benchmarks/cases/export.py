"""What does the export cost beyond reading the rows: how does it compare with DuckDB alone, and with a bare COPY?

Five million rows of ten columns (times the scale), in ten partitions. Measured in turn: the Spark tasks of an archive that write Parquet files,
sorted by time, without the proof and the publish; DuckDB, without Spark, which copies the table to Parquet with as many threads
as there are cores, partition by partition, in any order; and `COPY ... to stdout (format binary)`, whose output goes nowhere, on
as many connections as there are tasks side by side. The tasks with their proof are measured too, and compared with nothing. All have run
once before, on a hundredth of the rows.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.question import Measure, Question
from benchmarks.rig import data
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.lake import duck, ducksql, paths
from frostline.pipeline import archive, export, plan, tasks
from frostline.pipeline.export import Export
from frostline.tiers import moment

ROUNDS = 3
_NO_JOB = 0
"""No row of the catalog: what the tasks write is published by nobody."""
CORES = os.cpu_count() or 1
QUESTIONS = (
    Question("export alone, against DuckDB alone", "export", Measure.SPEED, 0.85, "DuckDB copies Postgres to Parquet"),
    Question("export alone, against the limit", "export", Measure.SPEED, 0.6, "COPY to stdout (format binary)"),
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """All of them in turn, on the same table; nothing is published, so it stays as it is."""
    with lab.world(data.small) as world:
        _add(world)
        list(_all(world, data.rows(scale / 100)))
    with lab.world(data.plain) as world:
        _add(world)
        for _ in range(ROUNDS):
            yield from _all(world, data.rows(scale))


def _all(world: World, rows: int) -> Iterator[Sample]:
    steps: dict[str, Callable[[], object]] = {
        "export": partial(_tasks, world, write),
        "DuckDB copies Postgres to Parquet": partial(_duckdb, world),
        "COPY to stdout (format binary)": partial(_copy, world),
        "export with proof": partial(_tasks, world, export.export_shard),
    }
    for what, step in steps.items():
        yield _timed(world, what, step, rows)


def _add(world: World) -> None:
    world.add("plain", data.hot_period(datetime(2025, 1, 1, tzinfo=UTC)), grace="1 day")


def _timed(world: World, what: str, step: Callable[[], object], rows: int) -> Sample:
    with watched() as watch:
        step()
    for folder in (_own(world), world.folder / "by duckdb"):
        shutil.rmtree(folder, ignore_errors=True)
    return Sample(what, watch.seconds, rows, watch.peak_bytes)


def _own(world: World) -> Path:
    """Where the tasks of this table write; the rest of the warehouse is that of other cases."""
    return Path(paths.table_location(world.settings.warehouse, world.table("plain")).removeprefix("file://"))


def write(shard: Export) -> None:
    """What a task does between the survey and the proof."""
    location = paths.data_file(shard.location, shard.job_id)
    paths.make_parent(location)
    export.write(shard, location, dictionaries=True)


def _tasks(world: World, task: Callable[[Export], object]) -> None:
    """Run the tasks of an archive as the archive runs them."""
    table = world.table("plain")
    job = archive.Job(world.jobs(), table, plan.of_table(world.connection, table).plan, _NO_JOB)
    with moment.exported(world.settings.dsn) as exported:
        tasks.run(world.spark, task, list(job.shards(exported)), lambda _progress: None)


def _duckdb(world: World) -> None:
    target = world.folder / "by duckdb"
    target.mkdir(parents=True)
    with duck.connect(memory_limit="2GB", threads=CORES, temp_directory=str(world.folder / "spill")) as connection:
        connection.execute("set preserve_insertion_order = false")
        connection.execute(f"attach {ducksql.literal(world.settings.dsn)} as pg (type postgres, read_only)")
        for name in _partitions():
            location = ducksql.literal(str(target / f"{name}.parquet"))
            connection.execute(
                f"copy (select * from pg.public.{name}) to {location} (format parquet, compression zstd)"
            )


def _copy(world: World) -> None:
    """Each connection copies its share of the partitions; psql does nothing but read."""
    running = [_psql(world, _partitions()[number::CORES]) for number in range(CORES)]
    assert not any([process.wait() for process in running])  # noqa: C419  (each must be waited for)


def _psql(world: World, names: Sequence[str]) -> subprocess.Popen[bytes]:
    statements = [f"copy public.{name} to stdout (format binary)" for name in names]
    program = str(world.postgres.programs.bin_dir / "psql")
    arguments = [part for statement in statements for part in ("--command", statement)]
    return subprocess.Popen(
        [program, "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=/dev/null", *arguments, world.settings.dsn]
    )


def _partitions() -> list[str]:
    return [f"plain_{month:02}" for month in range(1, data.MONTHS + 1)]
