"""How many transactions a second can be committed to a lake table, by one writer and by many?

Each is an INSERT of one row of five columns through the foreign table, prepared, by pgbench. A writer waits for its commit before it begins the
next one, so one writer's rate is what a commit takes; 8 and 32 writers come at the same time, and those that wait share a snapshot. Each run has a
table of its own with no row in it. `snapshots` counts the Iceberg snapshots of the same run, and `p99` is what one commit in a hundred takes longer
than. At last one writer goes on for 1,000 commits in one table: the second half is compared with the first, because the metadata grows with
each of them.
"""

from collections.abc import Iterator

from benchmarks.question import Measure, Question
from benchmarks.rig import lake, pgbench
from benchmarks.rig.pgbench import How
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 3
SECONDS = 6
WRITERS = (1, 8, 32)
COMMITS = 1000
P99_S = 1.0
QUESTIONS = (
    Question("commits of 32 writers to a lake table", "32 writers", Measure.SPEED, 10, "1 writer"),
    Question("commits of 8 writers to a lake table", "8 writers", Measure.SPEED, 3, "1 writer"),
    Question("commits per snapshot, 32 writers", "32 writers", Measure.SPEED, 5, "snapshots of 32 writers"),
    Question("p99 of a commit, 32 writers", "p99 of 32 writers", Measure.LONGEST, P99_S),
    Question("the last of 1,000 commits to a table", "commits 501 to 1,000", Measure.SPEED, 0.8, "commits 1 to 500"),
)
_INSERT = "insert into public.{table} values (:client_id, now(), 'sensor', 1.5, 'a note');\n"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """One writer, eight and thirty-two in turn."""
    seconds = max(3.0, SECONDS * min(1.0, scale))
    with lab.world() as world:
        lake.make(world, "warm_up")
        warm_up = How("prepared", 0, transactions=5, clients=WRITERS[-1])
        pgbench.run(world, "warm-up", _INSERT.format(table="warm_up"), warm_up)
        for turn in range(ROUNDS):
            for writers in WRITERS:
                yield from _written(world, f"by_{writers}_{turn}", writers, seconds)
        yield from _long(world, int(COMMITS * scale))


def _written(world: World, table: str, writers: int, seconds: float) -> Iterator[Sample]:
    lake.make(world, table)
    what = "1 writer" if writers == 1 else f"{writers} writers"
    how = How("prepared", seconds, clients=writers, keep_times=True)
    commits = pgbench.run(world, what, _INSERT.format(table=table), how)
    yield commits
    yield Sample(f"snapshots of {what}", commits.seconds, lake.snapshots(world, table))
    yield Sample(f"p99 of {what}", pgbench.percentile_s(world, 0.99), 1)


def _long(world: World, commits: int) -> Iterator[Sample]:
    lake.make(world, "long")
    half = commits // 2
    for what in ("commits 1 to 500", "commits 501 to 1,000"):
        how = How("prepared", 0, transactions=half)
        yield pgbench.run(world, what, _INSERT.format(table="long"), how)
