"""Runs shards as Spark tasks and reports how far they are."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import SparkSession

from frostline import errors
from frostline.lake.datafiles import WrittenFile
from frostline.pipeline.export import export_shard
from frostline.pipeline.source import Shard

_POLL_S = 0.2


@dataclass(frozen=True)
class Progress:
    """How much of an export is done."""

    shards: int
    shards_total: int
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Outcome:
    """What a task returns: a file, nothing, or an error that Spark must not wrap and retrying would not help."""

    file: WrittenFile | None = None
    error: str | None = None
    hint: str | None = None
    kind: str = ""


def export(
    spark: SparkSession, shards: Sequence[Shard], report: Callable[[Progress], None]
) -> list[WrittenFile]:
    """Export all shards, one task each. Raises the first error; files of the others are garbage then."""
    context = spark.sparkContext
    done, rows, size = context.accumulator(0), context.accumulator(0), context.accumulator(0)

    def task(shard: Shard) -> Outcome:
        outcome = attempt(shard)
        done.add(1)
        if outcome.file:
            rows.add(outcome.file.rows)
            size.add(outcome.file.size_bytes)
        return outcome

    work = context.parallelize(shards, len(shards)).map(task)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work.collect)
        try:
            while not running.done():
                report(Progress(done.value, len(shards), rows.value, size.value))
                time.sleep(_POLL_S)
        except BaseException:
            context.cancelAllJobs()
            raise
        outcomes = running.result()
    report(Progress(done.value, len(shards), rows.value, size.value))
    return [file for file in map(unwrap, outcomes) if file is not None]


def attempt(shard: Shard) -> Outcome:
    """Export one shard and put a foreseen error into the outcome."""
    try:
        return Outcome(file=export_shard(shard))
    except errors.FrostlineError as error:
        return Outcome(error=str(error), hint=error.hint, kind=type(error).__name__)


def unwrap(outcome: Outcome) -> WrittenFile | None:
    """The file of an outcome, or its error raised again as it was in the task."""
    if outcome.error is None:
        return outcome.file
    kind = getattr(errors, outcome.kind, errors.FrostlineError)
    raise kind(outcome.error, hint=outcome.hint)
