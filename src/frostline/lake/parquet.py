"""Parquet files as pyarrow reads them, with their columns matched by Iceberg field id."""

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from frostline.lake import paths

Chunk: TypeAlias = Any
"""A pyarrow ColumnChunkMetaData. Its type stubs lack half of its attributes."""
Values: TypeAlias = Any
"""A pyarrow Array. Its type stubs know neither buffers nor the attributes of parametric types."""

_DICTIONARY = frozenset(("PLAIN_DICTIONARY", "RLE_DICTIONARY"))
_BATCH_ROWS = 131_072
_BATCH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Footer:
    """What the end of a file says about it."""

    rows: int
    size_bytes: int
    columns: dict[int, tuple[Chunk, ...]]
    """The column chunks of all row groups, by field id."""


def footer(location: str) -> Footer:
    """Read a file's footer."""
    with _opened(location) as (metadata, reader):
        ids = _field_ids(reader)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        columns = {key: tuple(group.column(index) for group in groups) for index, key in enumerate(ids)}
        size_bytes = paths.size_bytes(location)
        assert size_bytes is not None
        return Footer(metadata.num_rows, size_bytes, columns)


def names(location: str) -> dict[int, str]:
    """What the columns are called in the file, by field id."""
    with _opened(location) as (_, reader):
        return dict(zip(_field_ids(reader), reader.schema_arrow.names, strict=True))


def rows(location: str) -> int:
    """How many rows a file has."""
    with paths.open_input(location) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


def has_field_ids(location: str) -> bool:
    """Whether each column of a file says which of the table's it is."""
    with _opened(location) as (_, reader):
        return all(b"PARQUET:field_id" in (field.metadata or {}) for field in reader.schema_arrow)


def batches(location: str, only: Collection[int] | None = None) -> Iterator[dict[int, Values]]:
    """The file's rows in batches of bounded size, as arrays by field id; text comes as dictionaries where stored so.

    `only` are the field ids to read; the rest of the file is not touched.
    """
    with _opened(location) as (metadata, reader):
        named = zip(_field_ids(reader), reader.schema_arrow.names, strict=True)
        chosen = {name: key for key, name in named if only is None or key in only}
        for batch in reader.iter_batches(_batch_rows(metadata), columns=list(chosen), use_threads=False):
            yield {chosen[name]: values for name, values in zip(batch.schema.names, batch.columns, strict=True)}


@contextmanager
def _opened(location: str) -> Generator[tuple[Any, Any]]:
    with paths.open_input(location) as file:
        metadata: Any = pq.ParquetFile(file).metadata
        yield metadata, pq.ParquetFile(file, metadata=metadata, read_dictionary=_dictionary_columns(metadata))


def _field_ids(reader: Any) -> Sequence[int]:
    return [int(field.metadata[b"PARQUET:field_id"]) for field in reader.schema_arrow]


def _batch_rows(metadata: Any) -> int:
    """Whole row groups of narrow rows, so that a dictionary comes only once; fewer rows where they are wide."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1.0)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(widest, 1.0))))


def _dictionary_columns(metadata: Any) -> list[str]:
    """The text columns that are stored as dictionaries throughout."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(metadata.num_columns)]
    texts: set[str] = {chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"}
    return sorted(texts - {chunk.path_in_schema for chunk in chunks if _DICTIONARY.isdisjoint(chunk.encodings)})
