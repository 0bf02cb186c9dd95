"""Rows of lake tables on their way into files: from the texts that Postgres sends to Parquet, cut by partition.

docs/design/lake-tables.md. Files are written before anything points to them; whoever writes them deletes those that
come to nothing, and what a crash leaves is for the orphan sweep.
"""

import io
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import Transform
from pyiceberg.typedef import Record

from frostline.errors import UsageError
from frostline.lake import datafiles, ducksql, paths, schema, store
from frostline.lake.datafiles import Seal
from frostline.model import laketypes
from frostline.model.names import Name
from frostline.model.tables import Column, Fingerprint, TableCopy
from frostline.model.tiers import MICROS_PER_DAY

Texts = Sequence[Sequence[str | None]]
"""The values of each column, as Postgres prints them."""

_arrow: Any = pa
_compute: Any = pc
_parquet: Any = pq
"""PyArrow's type stubs know half of what is used here."""
_ROW_GROUP_ROWS = 40_960
_PATH_FIELD, _POSITION_FIELD = 2147483546, 2147483545
"""Iceberg's own ids for the two columns of a position delete file."""
_ESCAPED = re.compile(rb"\\(\\|[0-7]{3})")
_BC = r"'^(\S+)(.*) BC$', '\1 (BC)\2'"


class ValueRefused(UsageError):
    """A value that the lake's type cannot hold."""

    sqlstate = "22003"


def typed(columns: Sequence[Column], texts: Texts) -> pa.Table:
    """The rows in the lake's types. ValueRefused when one of the values has no place there."""
    names = [f"c{place}" for place in range(len(columns))]
    texts = [
        [_as_hex(text) for text in values] if column.encoding.lake_type == "binary" else values
        for column, values in zip(columns, texts, strict=True)
    ]
    given = _arrow.table({name: pa.array(values, pa.string()) for name, values in zip(names, texts, strict=True)})
    casts = ", ".join(f"{_cast(name, column)} as {name}" for name, column in zip(names, columns, strict=True))
    with _converter().cursor() as connection:
        connection.register("given", given)
        try:
            made = connection.execute(f"select {casts} from given").to_arrow_table()  # noqa: S608
        except duckdb.Error as error:
            raise ValueRefused(
                "a value cannot be held by the lake's type of its column", hint="store it in a text column"
            ) from error
    return made.cast(arrow_schema(columns, names))


def _as_hex(text: str | None) -> str | None:
    r"""The text of a bytea as `\x...`: postgres_fdw sends `a\000b` where the session has bytea_output = escape."""
    if text is None or text.startswith("\\x"):
        return text
    plain = _ESCAPED.sub(lambda part: bytes([92 if part[1] == b"\\" else int(part[1], 8)]), text.encode())
    return "\\x" + plain.hex()


@cache
def _converter() -> duckdb.DuckDBPyConnection:
    """Opened once: that takes longer than most conversions. Each conversion has a cursor of its own."""
    opened = duckdb.connect(config={"threads": "1"})
    opened.execute("set global timezone = 'UTC'")
    return opened


def _cast(name: str, column: Column) -> str:
    kind = column.encoding.lake_type
    if kind == "string":
        return name
    if kind == "binary":
        return f"unhex(substr({name}, 3))"
    if laketypes.of(kind).infinity:
        name = f"case when suffix({name}, ' BC') then regexp_replace({name}, {_BC}) else {name} end"
    return f"cast({name} as {laketypes.duck_type(kind)})"


def arrow_schema(columns: Sequence[Column], names: Sequence[str]) -> pa.Schema:
    """The columns as Parquet is to have them, with their field ids."""
    return pa.schema(
        [
            pa.field(
                name,
                _arrow_type(column.encoding.lake_type),
                nullable=not column.not_null,
                metadata={"PARQUET:field_id": str(column.field_id)},
            )
            for name, column in zip(names, columns, strict=True)
        ]
    )


_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def _arrow_type(lake_type: str) -> pa.DataType:
    digits = laketypes.decimal(lake_type)
    return pa.decimal128(*digits) if digits else _ARROW[lake_type]


def write(metadata: TableMetadata, columns: Sequence[Column], rows: pa.Table) -> list[DataFile]:
    """Write the rows, a file for each partition that they lie in, sorted as the table is."""
    spec, copy = metadata.spec(), TableCopy(Name("", ""), tuple(columns))
    ordered = _sorted(metadata, columns, rows)
    named = ordered.rename_columns(list(schema.parquet_names(copy)))
    named = named.cast(arrow_schema(columns, named.column_names))
    return [_written(metadata, copy, spec, record, part) for record, part in _parts(spec, columns, named)]


def _sorted(metadata: TableMetadata, columns: Sequence[Column], rows: pa.Table) -> pa.Table:
    by_id = {column.field_id: f"c{place}" for place, column in enumerate(columns)}
    keys = [
        (by_id[field.source_id], "descending" if field.direction == SortDirection.DESC else "ascending")
        for field in metadata.sort_order_by_id(metadata.default_sort_order_id).fields  # pyright: ignore[reportOptionalMemberAccess]
    ]
    sortable: Any = rows
    return sortable.sort_by(keys) if keys and rows.num_rows > 1 else rows


def _parts(spec: PartitionSpec, columns: Sequence[Column], rows: pa.Table) -> Iterator[tuple[Record, pa.Table]]:
    """The rows of each partition, with its values."""
    if not spec.fields:
        yield Record(), rows
        return
    places = {column.field_id: place for place, column in enumerate(columns)}
    keys = dict[str, Any]()
    for number, field in enumerate(spec.fields):
        place, transform = places[field.source_id], cast(Any, field).transform
        keys[f"k{number}"] = _transformed(transform, columns[place], rows.column(place))
    numbered = _arrow.table({**keys, "row": pa.array(range(rows.num_rows), pa.int64())})
    grouped = numbered.group_by(list(keys)).aggregate([("row", "list")])
    for group in grouped.to_pylist():
        yield Record(*(group[name] for name in keys)), rows.take(_arrow.array(sorted(group["row_list"])))


def _transformed(transform: Transform[Any, Any], column: Column, values: Any) -> Any:
    """The partition value of each row, worked out once for each value that there is. Times are numbers here."""
    kind = schema.iceberg_type(column)
    if laketypes.of(column.encoding.lake_type).infinity:
        width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        values = _coarse(transform, values.cast(width), is_date=width == pa.int32())
    encoded: Any = values.combine_chunks().dictionary_encode()
    apply = transform.transform(kind)
    made = pa.array([apply(value) for value in encoded.dictionary.to_pylist()])
    return made.take(encoded.indices)


def _coarse(transform: Transform[Any, Any], values: Any, *, is_date: bool) -> Any:
    """The first moment of each value's hour or day where that is all that counts, so that few values are left."""
    unit = {"hour": MICROS_PER_DAY // 24, "day": MICROS_PER_DAY, "month": MICROS_PER_DAY, "year": MICROS_PER_DAY}
    step = unit.get(str(transform))
    if is_date or step is None:
        return values
    whole = _compute.divide(values, step)
    below = _compute.less(_compute.subtract(values, _compute.multiply(whole, step)), 0)
    return _compute.multiply(_compute.subtract(whole, below.cast(pa.int64())), step)


def _written(metadata: TableMetadata, copy: TableCopy, spec: PartitionSpec, record: Record, rows: pa.Table) -> DataFile:
    location = f"{metadata.location}/data/{uuid.uuid4().hex}.parquet"
    _put(location, rows)
    written = datafiles.describe(location, copy, Seal(b"", Fingerprint(rows.num_rows, 0)), in_order=False)
    file = datafiles.to_data_file(written, copy, record)
    file.spec_id = spec.spec_id
    return file


def _put(location: str, rows: pa.Table) -> None:
    buffer = io.BytesIO()
    _parquet.write_table(
        rows, buffer, compression="zstd", row_group_size=_ROW_GROUP_ROWS, store_decimal_as_integer=True, version="2.6"
    )
    paths.make_parent(location)
    with store.reachable(f"write {location}"), paths.file_io(location).new_output(location).create() as output:
        output.write(buffer.getvalue())


_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH_FIELD)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POSITION_FIELD)}),
    ]
)


def write_deletes(
    metadata: TableMetadata, files: Mapping[str, DataFile], places: Mapping[str, AbstractSet[int]]
) -> list[DataFile]:
    """Write which rows of these files are gone: a file for each partition, sorted as Iceberg wants it."""
    by_partition = dict[tuple[int, str], list[str]]()
    for path in sorted(path for path, positions in places.items() if positions):
        file = files[path]
        by_partition.setdefault((file.spec_id, repr(file.partition)), []).append(path)
    written = list[DataFile]()
    for (spec_id, _), within in by_partition.items():
        listed = [(path, position) for path in within for position in sorted(places[path])]
        location = f"{metadata.location}/data/{uuid.uuid4().hex}-deletes.parquet"
        columns = [pa.array([row[0] for row in listed], pa.string()), pa.array([row[1] for row in listed], pa.int64())]
        _put(location, pa.Table.from_arrays(columns, schema=_DELETES))
        written.append(_delete_file(location, files[within[0]].partition, spec_id, within, len(listed)))
    return written


def _delete_file(location: str, partition: Record, spec_id: int, within: Sequence[str], count: int) -> DataFile:
    size_bytes = paths.size_bytes(location)
    assert size_bytes is not None
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=count,
        file_size_in_bytes=size_bytes,
        lower_bounds={_PATH_FIELD: within[0].encode()},
        upper_bounds={_PATH_FIELD: within[-1].encode()},
        spec_id=spec_id,
    )
    file.spec_id = spec_id
    return file


def read_deletes(location: str) -> dict[str, set[int]]:
    """Which rows a position delete file says are gone, by the path of their file."""
    with store.reachable(f"read {location}"), paths.open_input(location) as file:
        table = _parquet.read_table(file, columns=["file_path", "pos"])
    gone = dict[str, set[int]]()
    for path in _compute.unique(table.column("file_path")).to_pylist():
        chosen = table.filter(_compute.equal(table.column("file_path"), path))
        gone[path] = set(chosen.column("pos").to_pylist())
    return gone


def relation(columns: Mapping[str, Column], data: Sequence[str], deletes: Sequence[str]) -> str:
    """The rows of these files that are not gone, in DuckDB SQL, with `filename` and `file_row_number` beside them."""
    read = ducksql.read_parquet((ducksql.literal(_local(path)) for path in data), columns.items())
    if not deletes:
        return f"(select *, filename, file_row_number from {read})"  # noqa: S608
    gone = ", ".join(ducksql.literal(_local(path)) for path in deletes)
    names = "regexp_replace(file_path, '^file:/+', '/')" if data and data[0].startswith("file:") else "file_path"
    return (
        f"(select *, filename, file_row_number from {read} as f where not exists (select 1 from "  # noqa: S608
        f"(select {names} as gone_path, pos as gone_pos from read_parquet([{gone}])) as g "
        "where g.gone_path = f.filename and g.gone_pos = f.file_row_number))"
    )


def _local(path: str) -> str:
    return path.removeprefix("file://")
