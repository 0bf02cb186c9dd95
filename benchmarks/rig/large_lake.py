"""Lakes of many files that were never in a heap: DuckDB writes them, and they are published as an archive publishes its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.world import World
from frostline.catalog import jobs, lake_files
from frostline.lake import datafiles, duck, ducksql, paths, schema
from frostline.lake.datafiles import WrittenFile
from frostline.model import archive as plans
from frostline.model.tables import Table
from frostline.pipeline import archive
from frostline.relation import bound
from frostline.tiers.proof import fingerprint

_FILES_A_COMMIT, _FILES_A_TASK = 1_000, 100
_TABLE = "create table public.{name} (id bigint, n bigint, status text, primary key (id, n)) partition by range (n)"
_PARTITION = "create table public.{heap}_{number} partition of public.{heap} for values from ({lower}) to ({upper})"
_FILL = "insert into public.{heap} select i, i, 'ok' from generate_series({lower}, {last}) i"
_ROWS = "select i::bigint, i::bigint, 'ok' from range({lower}, {upper}) r(i)"


@dataclass(frozen=True)
class Size:
    """A lake of so many files, each with so many rows; row number i has the tier value i."""

    name: str
    files: int
    rows_a_file: int

    @property
    def rows(self) -> int:
        """In all."""
        return self.files * self.rows_a_file


def prepare(world: World, size: Size) -> None:
    """A table whose rows are all in the lake, in so many files, and one that is hot."""
    width = size.rows_a_file
    newest = (size.files + 100) * width
    world.run(_TABLE.format(name=size.name))
    world.run(_PARTITION.format(heap=size.name, number="hot", lower=newest, upper=newest + width))
    world.run(_FILL.format(heap=size.name, lower=newest, last=newest))
    table = world.add(size.name, "1", lake_partition=f"truncate[{width}]")
    for first in range(0, size.files, _FILES_A_COMMIT):
        numbers = range(first, min(first + _FILES_A_COMMIT, size.files))
        with jobs.exclusive(world.connection, table):
            batch = plans.Plan((), first * width if first else table.tier_kind.lowest, numbers.stop * width)
            job_id = jobs.start(world.connection, table, "archive", batch.from_line, batch.to_line)
            _Given(world, table, batch, job_id, numbers, width).run()
            bound.analyze(world.connection, table)
            lake_files.settle_merges(world.connection, table)
    world.run("vacuum analyze frostline.lake_file")


def ripe_partition(world: World, size: Size, number: int, rows: int) -> None:
    """A partition of the heap that is ripe, the next one after the lake's files, with so many rows."""
    lower = (size.files + number) * size.rows_a_file
    heap = f"_{size.name}"
    world.run(_PARTITION.format(heap=heap, number=number, lower=lower, upper=lower + size.rows_a_file))
    world.run(_FILL.format(heap=heap, lower=lower, last=lower + rows - 1))
    world.run(f"vacuum analyze public.{heap}_{number}")


class _Given(archive.Job):
    """An archive whose files do not come out of the heap."""

    def __init__(self, world: World, table: Table, batch: plans.Plan, job_id: int, numbers: range, width: int) -> None:
        super().__init__(world.jobs(), table, batch, job_id)
        self._numbers, self._width = numbers, width

    def _export(self) -> list[WrittenFile]:
        pieces = [self._numbers[first : first + _FILES_A_TASK] for first in range(0, len(self._numbers), _FILES_A_TASK)]
        given = [_Piece(self.table, self.location, self.job_id, piece, self._width) for piece in pieces]
        made = self.context.run_tasks(self.table, write, given)
        return [file for task in made for file in task.written]


@dataclass(frozen=True)
class _Piece:
    """The files that one task writes."""

    table: Table
    location: str
    job_id: int
    numbers: range
    width: int


@dataclass(frozen=True)
class _Made:
    written: Sequence[WrittenFile]


def write(piece: _Piece) -> _Made:
    """Write the files, each with its fingerprint."""
    with duck.borrowed("256MB") as connection:
        connection.execute("set preserve_insertion_order = false")
        connection.execute("begin")
        return _Made([_written(piece, connection.execute, number) for number in piece.numbers])


def _written(piece: _Piece, execute: Callable[[str], object], number: int) -> WrittenFile:
    location = paths.data_file(piece.location, piece.job_id)
    paths.make_parent(location)
    rows = _ROWS.format(lower=number * piece.width, upper=(number + 1) * piece.width)
    names = ", ".join(ducksql.identifier(name) for name in schema.parquet_names(piece.table))
    options = datafiles.copy_options(piece.table, dictionaries=True)
    execute(f"copy (select * from ({rows}) r({names})) to {ducksql.literal(location)} ({options})")
    return datafiles.describe(location, piece.table, fingerprint.sealed(location, piece.table), in_order=True)
