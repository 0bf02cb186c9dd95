"""What does a large lake cost that a small one does not?

Three tables: 1, 10 and 100 million rows (times the scale) in 10, 1,000 and 10,000 files, all in the lake. DuckDB writes the files, with the
fingerprints that an archive gives them; they are published as an archive publishes its own, 1,000 at a time. Then, of each table in turn: point
reads through the relation, the status, a whole archive of one more partition of 1,000 rows with its clean, and the part of another archive
from the first metadata file to the commit (the median of three). All is warm, as in a worker and a lake server that have been running for a while. Also shown, and
compared with nothing: the first read of a lake server that has just started, which reads every manifest.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.question import Measure, Question
from benchmarks.rig.large_lake import Size, prepare, ripe_partition
from benchmarks.sample import Sample
from benchmarks.world import Lab, World
from frostline.catalog import jobs
from frostline.lake.commit import StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.observe import status
from frostline.pipeline import archive, plan
from frostline.relation import bound

ROUNDS, READS, PUBLISHES, ARCHIVED = 3, 20, 3, 1_000
SMALL, MIDDLE, LARGE = "lake_1m", "lake_10m", "lake_100m"
_READ = "select * from public.{name} where id = {n} and n = {n}"


def _question(what: str, target: float, size: str) -> Question:
    label = {MIDDLE: "10 M rows in 1,000 files", LARGE: "100 M rows in 10,000 files"}[size]
    text = f"{what}: lake of {label} over 1 M in 10"
    return Question(text, f"{what}, {size}", Measure.TIME, target, f"{what}, {SMALL}")


QUESTIONS = (
    _question("archive", 1.25, LARGE),
    _question("publish", 1.25, LARGE),
    _question("status", 1.25, LARGE),
    _question("cold point read", 10.0, LARGE),
    _question("archive", 1.25, MIDDLE),
    _question("publish", 1.25, MIDDLE),
    _question("status", 1.25, MIDDLE),
    _question("cold point read", 10.0, MIDDLE),
)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """The same questions to all tables, in turn."""
    sizes = _sizes(scale)
    with lab.world() as world:
        for size in sizes:
            prepare(world, size)
        for round_number in range(ROUNDS):
            for size in sizes:
                yield from _answers(world, size, round_number)


def _sizes(scale: float) -> tuple[Size, Size, Size]:
    """A smaller scale has fewer files, except the smallest lake, which then has fewer rows in each."""
    more, most = max(20, int(1_000 * scale)), max(40, int(10_000 * scale))
    return (
        Size(SMALL, 10, int(1_000_000 * scale) // 10),
        Size(MIDDLE, more, int(10_000_000 * scale) // more),
        Size(LARGE, most, int(100_000_000 * scale) // most),
    )


def _answers(world: World, size: Size, round_number: int) -> Iterator[Sample]:
    world.restart_lake()
    first = _seconds(lambda: world.run(_READ.format(name=size.name, n=0)))
    yield Sample(f"first cold point read, {size.name}", first, 1)
    yield _read(world, size, round_number)
    yield _status(world, size)
    first_number = round_number * (1 + PUBLISHES)
    ripe_partition(world, size, first_number, ARCHIVED)
    yield Sample(f"archive, {size.name}", _seconds(lambda: _archive(world, size)), ARCHIVED)
    spent: list[float] = []
    for number in range(1, 1 + PUBLISHES):
        ripe_partition(world, size, first_number + number, ARCHIVED)
        spent.append(_publish(world, size))
    yield Sample(f"publish, {size.name}", statistics.median(spent), ARCHIVED)


def _read(world: World, size: Size, round_number: int) -> Sample:
    """The median of point reads all over the lake."""
    spent: list[float] = []
    for number in range(READS):
        row = (number * READS + round_number) * size.rows // READS**2
        start = time.perf_counter()
        assert world.run(_READ.format(name=size.name, n=row)) == 1
        spent.append(time.perf_counter() - start)
    return Sample(f"cold point read, {size.name}", statistics.median(spent), 1)


def _status(world: World, size: Size) -> Sample:
    """The median of a few: one takes some hundredths of a second."""
    table, spent = world.table(size.name), list[float]()
    for _ in range(READS):
        spent.append(_seconds(lambda: status.of_table(world.connection, table)))
    return Sample(f"status, {size.name}", statistics.median(spent), 1)


def _archive(world: World, size: Size) -> None:
    result = world.archive(size.name)
    assert (result.rows, result.cleaned.waiting) == (ARCHIVED, ()), result


def _publish(world: World, size: Size) -> float:
    """From the first metadata file to the commit."""
    table = world.table(size.name)
    with jobs.exclusive(world.connection, table):
        batch = plan.of_table(world.connection, table).plan
        job_id = jobs.start(world.connection, table, "archive", batch.from_line, batch.to_line)
        job = _Timed(world.jobs(), table, batch, job_id)
        job.run()
        bound.analyze(world.connection, table)
    return job.seconds


class _Timed(archive.Job):
    """An archive that keeps how long its publish took."""

    seconds = 0.0

    def _stage(self, files: Sequence[WrittenFile]) -> StagedCommit | None:
        self.seconds -= time.perf_counter()
        return super()._stage(files)

    def _publish(self, files: Sequence[WrittenFile], staged: StagedCommit | None) -> None:
        super()._publish(files, staged)
        self.seconds += time.perf_counter()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
