"""Parquet files of the lake: how they are written, and how a task describes them for the job row and the commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from frostline.errors import CorruptionError
from frostline.lake import bounds, ducksql, parquet, schema
from frostline.lake.parquet import Chunk
from frostline.model.tables import Fingerprint, RecordedFile, StoredTable

Columns: TypeAlias = Mapping[int, Sequence[Chunk]]
"""The column chunks of a file, by field id."""

_ROW_GROUP_ROWS = 40_960
"""A look-up of one row decodes a row group: DuckDB writes each column of it as one page. With a third of DuckDB's usual
size it takes 0.4 of the time, and reading everything no longer; groups over a few columns take a tenth longer."""
_ROW_GROUP_BYTES = "64MB"


@dataclass(frozen=True)
class WrittenFile:
    """One Parquet file, with all that Iceberg wants to know about it. The mappings are by field id."""

    path: str
    rows: int
    size_bytes: int
    lower: int
    """Smallest tier value, on the axis; 0 in a table that is not partitioned."""
    upper: int
    """Largest tier value, on the axis (inclusive); 0 in a table that is not partitioned."""
    partition: int | None
    """The value of the lake partition transform, the same for all rows; None in a table that is not partitioned."""
    fingerprint: Fingerprint
    in_order: bool
    """The rows are sorted by the tier key."""
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    sha256: bytes
    """Of the whole file."""

    @property
    def recorded(self) -> RecordedFile:
        """What the catalog remembers of it."""
        return RecordedFile(self.path, self.size_bytes, self.lower, self.upper, self.fingerprint, self.sha256)


@dataclass(frozen=True)
class Seal:
    """What was found when a written file was read back: first all its bytes, then all its values.

    In this order: what is damaged before the values were read is in the fingerprint, what is damaged later not in the
    checksum.
    """

    sha256: bytes
    fingerprint: Fingerprint


def copy_options(table: StoredTable, *, dictionaries: bool) -> str:
    """How DuckDB's COPY writes data files: compression, row groups, Iceberg field ids."""
    field_ids = zip(schema.parquet_names(table), table.columns, strict=True)
    chosen = {
        "format": "parquet",
        "compression": "zstd",
        # DuckDB looks binary keys up in it by another hash than it writes, and then finds nothing.
        "write_bloom_filter": "false",
        "row_group_size": str(_ROW_GROUP_ROWS),
        "row_group_size_bytes": ducksql.literal(_ROW_GROUP_BYTES),
        "field_ids": "{" + ", ".join(f"{ducksql.literal(name)}: {column.field_id}" for name, column in field_ids) + "}",
    }
    if not dictionaries:
        chosen["dictionary_size_limit"] = "0"
    return ", ".join(f"{name} {value}" for name, value in chosen.items())


def describe(location: str, table: StoredTable, seal: Seal, *, in_order: bool) -> WrittenFile:
    """Describe a written file by its footer. The file has at least one row."""
    fingerprint = seal.fingerprint
    footer = parquet.footer(location)
    if footer.rows != fingerprint.rows:
        raise CorruptionError(f"{location} has {footer.rows} rows instead of {fingerprint.rows}")
    columns = footer.columns
    lower, upper, partition = _place(table, columns, location)
    lower_bounds, upper_bounds = _bounds(table, columns)
    return WrittenFile(
        path=location,
        rows=footer.rows,
        size_bytes=footer.size_bytes,
        lower=lower,
        upper=upper,
        partition=partition,
        fingerprint=fingerprint,
        in_order=in_order,
        column_sizes={key: sum(chunk.total_compressed_size for chunk in chunks) for key, chunks in columns.items()},
        value_counts={key: sum(chunk.num_values for chunk in chunks) for key, chunks in columns.items()},
        null_value_counts=_null_counts(columns),
        nan_value_counts={},
        lower_bounds=lower_bounds,
        upper_bounds=upper_bounds,
        split_offsets=_split_offsets(next(iter(columns.values()))),
        sha256=seal.sha256,
    )


def _bounds(table: StoredTable, columns: Columns) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Lower and upper bounds. DuckDB gives none for floats with a NaN, where Iceberg could say nothing right either."""
    lowers: dict[int, bytes] = {}
    uppers: dict[int, bytes] = {}
    for column in table.columns:
        value_range = bounds.raw_range(columns[column.field_id])
        if value_range is None:
            continue
        kind = schema.iceberg_type(column)
        lowers[column.field_id] = bounds.lower_bytes(value_range[0], kind)
        upper = bounds.upper_bytes(value_range[1], kind)
        if upper is not None:
            uppers[column.field_id] = upper
    return lowers, uppers


def _place(table: StoredTable, columns: Columns, location: str) -> tuple[int, int, int | None]:
    """Smallest and largest tier value, and the partition."""
    if table.tier is None or table.lake_partition is None:
        return 0, 0, None
    lower, upper = bounds.tier_range(columns[table.column(table.tier.name).field_id], location)
    partition = schema.partition_value(table, lower)
    if schema.partition_value(table, upper) != partition:
        raise CorruptionError(f"{location} spans more than one lake partition ({table.lake_partition})")
    return lower, upper, partition


def _null_counts(columns: Columns) -> dict[int, int]:
    return {
        key: sum(chunk.statistics.null_count for chunk in chunks)
        for key, chunks in columns.items()
        if all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks)
    }


def _split_offsets(chunks: Sequence[Chunk]) -> tuple[int, ...]:
    """Where the row groups start: at the first page of their first column."""
    return tuple(sorted(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks))


def to_data_file(written: WrittenFile, table: StoredTable, partition: Record | None = None) -> DataFile:
    """The manifest entry's content for a written file; `partition` where the table is cut by other columns too."""
    own = Record() if written.partition is None else Record(written.partition)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=own if partition is None else partition,
        record_count=written.rows,
        file_size_in_bytes=written.size_bytes,
        column_sizes=dict(written.column_sizes),
        value_counts=dict(written.value_counts),
        null_value_counts=dict(written.null_value_counts),
        nan_value_counts=dict(written.nan_value_counts),
        lower_bounds=dict(written.lower_bounds),
        upper_bounds=dict(written.upper_bounds),
        split_offsets=list(written.split_offsets),
        sort_order_id=schema.sort_order(table).order_id if written.in_order else None,
        equality_ids=None,
        key_metadata=None,
        spec_id=schema.partition_spec(table).spec_id,
    )
