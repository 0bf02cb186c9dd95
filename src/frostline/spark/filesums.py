"""Lake files are compared by tasks before Spark's own reader gets them: docs/design/damaged-files.md."""

from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from frostline.lake import filecheck
from frostline.lake.filecheck import Checks
from frostline.pipeline import tasks
from frostline.tiers import filesums
from frostline.tiers.filesums import SummedFile

_TASK_BYTES = 256 << 20
"""Files of together so many bytes are compared by one task."""


def compare(spark: SparkSession, files: Sequence[SummedFile], checks: Checks | None) -> None:
    """In the driver: compare the files that Spark's own reader is about to get, by tasks of Spark."""
    here = filesums.of_process(checks or filecheck.fitting(files[0].path))
    sums = here.unread(files, lambda wanted: filesums.recorded(files, wanted))
    unread = [file for file in files if file.path in sums]
    if unread:
        tasks.run(spark, _read_all, list(_grouped(unread)), lambda _: None)
    for file in unread:
        here.remember(file)


def _read_all(files: Sequence[SummedFile]) -> None:
    for file in files:
        assert file.sha256 is not None
        filecheck.read_whole(file, file.sha256)


def _grouped(files: Sequence[SummedFile]) -> Iterator[list[SummedFile]]:
    group: list[SummedFile] = []
    for file in files:
        if group and sum(one.size_bytes for one in group) + file.size_bytes > _TASK_BYTES:
            yield group
            group = []
        group.append(file)
    if group:
        yield group
