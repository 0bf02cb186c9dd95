"""Lake files as Spark's own reader needs them: compared (docs/design/damaged-files.md), and by their columns' names.

What Spark cannot hold is refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from pyspark.sql import SparkSession

from frostline.errors import UsageError
from frostline.lake import damage, filecheck, lake_rows, parquet, store
from frostline.lake.filecheck import Checks
from frostline.model import missing
from frostline.model.tables import Column, StoredTable
from frostline.pipeline import tasks
from frostline.tiers import filesums
from frostline.tiers.files import ColdFile, grouped, infinity
from frostline.tiers.filesums import SummedFile

FILE, PLACE = "frostline_file", "frostline_place"
"""What the rows of files with deletes have besides their columns, for a moment."""
_PLAIN = re.compile(r"[\w.=-]+", re.ASCII)
"""Names of files that Spark shows as they are."""
_THREADS = 16
_TASK_BYTES = 256 << 20
"""One task compares files of this many bytes together."""


def compare(spark: SparkSession, files: Sequence[SummedFile], checks: Checks | None) -> None:
    """In the driver: compare the files that Spark's own reader is about to get, by tasks of Spark."""
    here = filesums.of_process(checks or filecheck.fitting(files[0].path))
    sums = here.unread(files, lambda wanted: filesums.recorded(files, wanted))
    unread = [file for file in files if file.path in sums]
    if unread:
        tasks.run(spark, _read_all, list(grouped(unread, _TASK_BYTES)), lambda _: None)
    for file in unread:
        here.remember(file)


def _read_all(files: Sequence[SummedFile]) -> None:
    for file in files:
        assert file.sha256 is not None
        filecheck.read_whole(file, file.sha256)


def require_finite(table: StoredTable, columns: Sequence[Column], files: Iterable[ColdFile]) -> None:
    """UsageError when one of these columns has an infinite date or timestamp in one of these files."""
    checked = {column: value for column in columns if (value := infinity(column)) is not None}
    for file in files:
        for column, value in checked.items():
            if value in map(abs, file.ranges.get(column.field_id, _of_missing(column))):
                raise UsageError(
                    f"column {column.name!r} of {table.name} holds infinity, which Spark cannot",
                    hint="leave it out: columns=[...]",
                )


def _of_missing(column: Column) -> tuple[int, ...]:
    """What a file may have in a column of dates or timestamps that it has no range of: it may lack it."""
    if column.missing is None:
        return ()
    return (int(missing.value(column.missing, column.encoding.lake_type)),)


def by_names(files: Sequence[ColdFile]) -> dict[tuple[tuple[int, str], ...], list[ColdFile]]:
    """The files together that have the same columns, as (field id, name in the file) each."""
    with store.reachable("read the footers of lake files"), ThreadPoolExecutor(_THREADS) as pool:
        named = pool.map(_names, [file.path for file in files])
        groups: dict[tuple[tuple[int, str], ...], list[ColdFile]] = {}
        for file, columns in zip(files, named, strict=True):
            groups.setdefault(columns, []).append(file)
    return groups


def are_told_apart(groups: Mapping[tuple[tuple[int, str], ...], Sequence[ColdFile]]) -> bool:
    """Whether Spark can tell which rows of these files are deleted, by names of files without their folders.

    No two files that a delete file names may have one name, and no column one that we or Spark give to what tells the
    rows apart.
    """
    worn = [(names, file) for names, files in groups.items() for file in files if file.deletes]
    paths = {path for _, file in worn for location in file.deletes for path in lake_rows.count_deletes(location)}
    called = [path.rpartition("/")[2] for path in paths | {lake_rows.local(file.path) for _, file in worn}]
    columns = {name.lower() for names, _ in worn for _, name in names}
    return (
        len(set(called)) == len(called)
        and all(map(_PLAIN.fullmatch, called))
        and columns.isdisjoint(("_metadata", FILE, PLACE, "gone_file", "gone_place"))
    )


@lru_cache(maxsize=100_000)
def _names(path: str) -> tuple[tuple[int, str], ...]:
    """Files never change, so each footer is read once a process."""
    with damage.parsing(f"file {path}"):
        return tuple(parquet.names(path).items())
