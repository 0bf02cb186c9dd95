"""Lake files as Spark's own reader needs them: by their columns' names, and without values that it cannot hold."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from frostline.errors import UsageError
from frostline.lake import damage, parquet, store
from frostline.model.tables import Column, LakeTable
from frostline.tiers.files import ColdFile, infinity

_THREADS = 16


def require_finite(table: LakeTable, columns: Sequence[Column], files: Iterable[ColdFile]) -> None:
    """UsageError when one of these columns has an infinite date or timestamp in one of these files."""
    checked = {column: value for column in columns if (value := infinity(column)) is not None}
    for file in files:
        for column, value in checked.items():
            if value in map(abs, file.ranges.get(column.field_id, ())):
                raise UsageError(
                    f"column {column.name!r} of {table.name} holds infinity, which Spark cannot",
                    hint="leave it out: columns=[...]",
                )


def by_names(files: Sequence[ColdFile]) -> dict[tuple[tuple[int, str], ...], list[ColdFile]]:
    """The files together that have the same columns, as (field id, name in the file) each."""
    with store.reachable("read the footers of lake files"), ThreadPoolExecutor(_THREADS) as pool:
        named = pool.map(_names, [file.path for file in files])
        groups: dict[tuple[tuple[int, str], ...], list[ColdFile]] = {}
        for file, columns in zip(files, named, strict=True):
            groups.setdefault(columns, []).append(file)
    return groups


@lru_cache(maxsize=100_000)
def _names(path: str) -> tuple[tuple[int, str], ...]:
    """Files never change, so each footer is read once a process."""
    with damage.parsing(f"file {path}"):
        return tuple(parquet.names(path).items())
