"""How long does a cold point read through the relation take, compared with DuckDB on the same Parquet files?

Rows of the nine cold months are read by their key, one by one, ten columns each. The relation is asked with a prepared statement over an open
connection. In turn with it, DuckDB runs a prepared statement on the files of the lake snapshot in this process, with as many threads as the
lake server's and with its cache of file footers. A sample is the median of some reads. Both were asked before.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb

from benchmarks.question import Measure, Question
from benchmarks.rig import cold, data, direct
from benchmarks.sample import Sample
from benchmarks.world import Lab, World

ROUNDS = 7
READS = 20
QUESTIONS = (Question("cold point read through the relation", "relation", Measure.TIME, 2.0, "DuckDB on the files"),)
_RELATION = f"select {data.COLUMNS} from public.events where id = %s and ts = %s"
_DUCKDB = f"prepare point as select {data.COLUMNS} from events where id = $1 and ts = $2"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn, other keys in each round."""
    with lab.world(data.archived) as world, direct.connected(world.lake_files("events")) as duck:
        duck.execute(_DUCKDB)
        keys = [(number, cold.moment(world, number, scale)) for number in cold.ids(READS * (ROUNDS + 1), scale)]
        for number in range(ROUNDS + 1):
            some = keys[number * READS : (number + 1) * READS]
            samples = (
                _timed("DuckDB on the files", lambda key: _by_duckdb(duck, key), some),
                _timed("relation", lambda key: _by_relation(world, key), some),
            )
            if number > 0:
                yield from samples


def _by_duckdb(connection: duckdb.DuckDBPyConnection, key: tuple[int, object]) -> Sequence[Any]:
    number, moment = key
    # Rows as Python objects would cost more than the query: the table stays Arrow's.
    table = connection.execute(f"execute point({number}, timestamptz '{moment}')").to_arrow_table()
    return [table["id"].to_pylist()]


def _by_relation(world: World, key: tuple[int, object]) -> Sequence[Any]:
    return world.connection.execute(_RELATION, key, prepare=True).fetchall()


def _timed(
    what: str, read: Callable[[tuple[int, object]], Sequence[Any]], keys: Sequence[tuple[int, object]]
) -> Sample:
    seconds: list[float] = []
    for key in keys:
        start = time.perf_counter()
        (row,) = read(key)
        seconds.append(time.perf_counter() - start)
        assert row[0] == key[0]
    return Sample(what, statistics.median(seconds), 1)
