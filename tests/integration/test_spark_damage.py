"""Spark over damaged lake files: both ways to read a table give the right rows or an error that names the file."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.fixtures import damage
from tests.fixtures.damage import DAMAGES, damaged, flip
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline import spark as connector
from frostline.errors import FrostlineError
from frostline.spark import lakefiles
from frostline.tiers import filesums

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released"), pytest.mark.slow]

Read = Callable[[Lake], list[tuple[int, str | None]]]


@pytest.fixture(scope="module")
def cold(shared_lake: Lake) -> Lake:
    """Three months that are only in the lake, and a mark."""
    make_events(shared_lake.catalog, "public.events", months=3)
    fill_events(shared_lake.catalog, months=3, rows_a_month=100)
    shared_lake.add()
    (result,) = shared_lake.archive()
    assert result.error is None
    run(shared_lake.catalog, "update public.events set status = 'new' where id = 5")
    return shared_lake


def by_frames(lake: Lake) -> list[tuple[int, str | None]]:
    """Spark's own Parquet reader."""
    frame = connector.read(lake.session(), "public.events", dsn=lake.dsn)
    try:
        return sorted((row.id, row.status) for row in frame.collect())
    finally:
        connector.release(frame)


def by_source(lake: Lake) -> list[tuple[int, str | None]]:
    """Tasks in Python, in processes that remember what they have compared."""
    spark: SparkSession = lake.session()
    connector.register(spark)
    frame = spark.read.format("frostline").option("dsn", lake.dsn).option("table", "public.events").load()
    try:
        return sorted((row.id, row.status) for row in frame.collect())
    finally:
        connector.release(frame)


@pytest.mark.parametrize("read", [by_frames, by_source])
def test_a_damaged_file_is_an_error_that_names_it(cold: Lake, read: Read) -> None:
    right = rows(cold.catalog, "select id, status from public.events order by id")
    assert read(cold) == right
    file = cold.data_files()[1]
    flips = {f"bit {bit}": lambda content, bit=bit: flip(content, bit) for bit in bits(file)}
    for name, change in (DAMAGES | flips).items():
        with damaged(file, change), pytest.raises((FrostlineError, PySparkException)) as caught:
            read(cold)
        assert file.name in str(caught.value), name
    assert read(cold) == right


def bits(file: Path) -> list[int]:
    return random.Random(5).sample(range(8 * file.stat().st_size), 6)


def test_a_file_is_compared_once_by_spark_own_reader(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    filesums.of_process.cache_clear()
    asked = list[int]()
    real = lakefiles.tasks.run
    monkeypatch.setattr(lakefiles.tasks, "run", lambda *given: asked.append(1) or real(*given))
    for _ in range(2):
        by_frames(cold)
    assert asked == [1]


def test_a_role_that_may_not_read_the_checksums_reads_all_the_same(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rows(cold.catalog, "select id, status from public.events order by id")
    damage.forget_everything(cold)
    monkeypatch.setattr(filesums, "_connected", lambda _: None)
    assert by_frames(cold) == right
