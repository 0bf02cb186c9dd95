"""The files of a lake state: their ranges, and what the lake alone knows of their tables."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, TypeVar

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.types import DecimalType, NestedField

from frostline.lake import bounds, lake_pruning, lake_rewrite, lake_rows, lake_table, paths, schema, snapshots
from frostline.model import laketypes
from frostline.model.names import Name
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column, StoredTable, TableCopy
from frostline.model.types import Collation, LakeEncoding, PgType
from frostline.tiers import filesums


class SizedFile(Protocol):
    """A file, as far as its size goes."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        ...


Sized = TypeVar("Sized", bound=SizedFile)

_THREADS = 16


@dataclass(frozen=True)
class ColdFile:
    """A data file. `ranges` has the smallest and largest value of tier key, dates and timestamps, by field id."""

    path: str
    rows: int
    size_bytes: int
    ranges: Mapping[int, tuple[int, int]] = field(hash=False)
    sha256: bytes | None = None
    """Its recorded checksum."""
    deletes: tuple[str, ...] = ()
    """The files that say which of its rows are gone; of a lake table only."""


def of_state(
    table: StoredTable, metadata_location: str | None, snapshot_id: int | None, dsn: str
) -> tuple[ColdFile, ...]:
    """The files of the point's lake snapshot, by their names' order."""
    if metadata_location is None or snapshot_id is None:
        return ()
    return _files(metadata_location, snapshot_id, _ranged(table), table, dsn)


def of_lake_table(
    table: StoredTable, metadata_location: str | None, snapshot_id: int | None, condition: BooleanExpression
) -> tuple[ColdFile, ...]:
    """The files of a lake table that can have a row for which the condition holds. Nobody has recorded checksums."""
    if metadata_location is None or snapshot_id is None:
        return ()
    state, wanted = lake_table.state_at(metadata_location, snapshot_id), _ranged(table)
    with ThreadPoolExecutor(_THREADS) as pool:  # each is read once a process
        list(pool.map(lake_rows.count_deletes, state.deletes))
    deletes = lake_rewrite.worn(state).deletes
    files = [
        replace(_cold_file(file, wanted), deletes=tuple(deletes.get(file.file_path, ())))
        for file in lake_pruning.possible(state.metadata, state.data.values(), condition)
    ]
    return tuple(sorted(files, key=lambda file: file.path))


def _ranged(table: StoredTable) -> frozenset[int]:
    """The columns of which it matters what the files have: by field id."""
    return frozenset(
        column.field_id
        for column in table.columns
        if infinity(column) is not None or (table.tier and column.name == table.tier.name)
    )


@lru_cache(maxsize=64)
def _files(
    metadata_location: str, snapshot_id: int, wanted: frozenset[int], table: StoredTable, dsn: str
) -> tuple[ColdFile, ...]:
    with filesums.asked(dsn) as sums:
        sums.expect_metadata(table)
        snapshot, io = snapshots.find(metadata_location, snapshot_id), paths.file_io(metadata_location)
        files = [_cold_file(file, wanted) for file in snapshots.data_files(snapshot, io)]
        known = sums.of([file.path for file in files])
    files = [replace(file, sha256=known.get(file.path)) for file in files]
    return tuple(sorted(files, key=lambda file: file.path))


def _cold_file(data_file: DataFile, wanted: Iterable[int]) -> ColdFile:
    lower, upper = data_file.lower_bounds or {}, data_file.upper_bounds or {}
    ranges = {
        key: (bounds.tier_value(lower[key]), bounds.tier_value(upper[key]))
        for key in wanted
        if key in lower and key in upper
    }
    return ColdFile(data_file.file_path, data_file.record_count, data_file.file_size_in_bytes, ranges)


def tier_range(table: StoredTable, file: ColdFile) -> Range:
    """The tier values of a file; everything if it does not say, or the table has no tier key."""
    ends = file.ranges.get(table.column(table.tier.name).field_id) if table.tier else None
    return Range.closed(*ends) if ends else EVERYTHING


def grouped(files: Iterable[Sized], most_bytes: int) -> Iterator[list[Sized]]:
    """The files in their order, in groups of at most that many bytes together. A larger file is a group of its own."""
    group: list[Sized] = []
    size_bytes = 0
    for file in files:
        if group and size_bytes + file.size_bytes > most_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += file.size_bytes
    if group:
        yield group


def infinity(column: Column) -> int | None:
    """What stands for infinity in a column of dates or timestamps."""
    return laketypes.of(column.encoding.lake_type).infinity


def described(name: Name, metadata_location: str) -> TableCopy:
    """A table of which only the lake knows."""
    fields = snapshots.read_metadata(metadata_location).schema().fields
    return TableCopy(name, tuple(_column(number, column) for number, column in enumerate(fields, 1)))


def _column(number: int, column: NestedField) -> Column:
    kind = column.field_type
    lake_type = f"decimal({kind.precision}, {kind.scale})" if isinstance(kind, DecimalType) else str(kind)
    pg_type = PgType(lake_type, lake_type, builtin=False)
    encoding = LakeEncoding(lake_type, as_text=False, pushable=False)
    return Column(column.name, number, column.field_id, pg_type, encoding, Collation.NONE, not_null=False)


def shown_names(table: StoredTable) -> dict[str, Column]:
    """The columns by their names in files and DataFrames, where no two may differ by case only."""
    return dict(zip(schema.parquet_names(table), table.columns, strict=True))
