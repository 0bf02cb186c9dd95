"""Rows of lake tables on their way into files: from the texts that Postgres sends to Parquet, cut by partition.

docs/design/lake-tables.md. Files are written before anything points to them; whoever writes them deletes those that
come to nothing, and what a crash leaves is for the orphan sweep.
"""

import io
import math
import re
import struct
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache, partial
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
from frostline.lake import damage, datafiles, duckfiles, ducksql, paths, schema, store
from frostline.lake.datafiles import Seal
from frostline.model import laketypes
from frostline.model.names import Name
from frostline.model.tables import Column, Fingerprint, TableCopy
from frostline.model.tiers import MICROS_PER_DAY, TierKind

Texts = Sequence[Any]
"""The values of each column, as Postgres prints them: arrays of PyArrow, in one piece or in several."""

_arrow: Any = pa
_compute: Any = pc
_parquet: Any = pq
"""PyArrow's type stubs know half of what is used here."""
_ROW_GROUP_ROWS = 40_960
_PATH_FIELD, _POSITION_FIELD = 2147483546, 2147483545
"""Iceberg's own ids for the two columns of a position delete file."""
_TIMES = ("year", "month", "day", "hour")
_ESCAPED = re.compile(rb"\\(\\|[0-7]{3})")
_FILE, _STORE = re.compile("^file:/+"), re.compile("^s3[an]://")
_BESIDE = {"filename", "file_row_number", "file_index"}
"""What DuckDB tells of each row of a file."""
_BC = r"'^(\S+)(.*) BC$', '\1 (BC)\2'"


class ValueRefused(UsageError):
    """A value that the lake's type cannot hold."""

    sqlstate = "22003"


def typed(columns: Sequence[Column], texts: Texts) -> pa.Table:
    """The rows in the lake's types. ValueRefused when one of the values has no place there."""
    names = [f"c{place}" for place in range(len(columns))]
    texts = [
        pa.array([_as_hex(text) for text in values.to_pylist()], pa.string())
        if column.encoding.lake_type == "binary"
        else values
        for column, values in zip(columns, texts, strict=True)
    ]
    given = _arrow.table(dict(zip(names, texts, strict=True)))
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
    keys = partitions(spec, columns, rows)
    numbered = _arrow.table({**keys, "row": pa.array(range(rows.num_rows), pa.int64())})
    grouped = numbered.group_by(list(keys)).aggregate([("row", "list")])
    for group in grouped.to_pylist():
        yield Record(*(group[name] for name in keys)), rows.take(_arrow.array(sorted(group["row_list"])))


def partitions(spec: PartitionSpec, columns: Sequence[Column], rows: pa.Table) -> Mapping[str, Any]:
    """The partition values of each row, by column. ValueRefused when there is none for a value."""
    places, keys = {column.field_id: place for place, column in enumerate(columns)}, dict[str, Any]()
    for number, field in enumerate(spec.fields):
        place, transform = places[field.source_id], cast(Any, field).transform
        keys[f"k{number}"] = partition_values(transform, columns[place], rows.column(place))
    return keys


def partition_values(transform: Transform[Any, Any], column: Column, values: Any) -> Any:
    """The partition value of each row, worked out once for each value that there is. Times are numbers here."""
    apply = transform.transform(schema.iceberg_type(column))
    if laketypes.of(column.encoding.lake_type).infinity:
        is_date = pa.types.is_date32(values.type)
        values = _coarse(transform, values.cast(pa.int32() if is_date else pa.int64()), is_date=is_date)
        if str(transform) in _TIMES:
            apply = partial(_time, str(transform), TierKind.DATE if is_date else TierKind.TIMESTAMP)
    encoded: Any = values.combine_chunks().dictionary_encode()
    made = pa.array([apply(value) for value in encoded.dictionary.to_pylist()])
    return made.take(encoded.indices)


def partition_key(file: DataFile) -> Hashable:
    """Equal for two files if they are in one partition: of one spec, with the same values.

    A PyIceberg record will not do. Its text, and with it its hash, has NULL like 'None', and `a, b` and `c` like `a`
    and `b, c`; it takes 0.0 and -0.0 for equal, which are two partitions for Iceberg, and no NaN for another one.
    """
    return file.spec_id, *(value_key(file.partition[place]) for place in range(len(file.partition)))


def value_key(value: Any) -> tuple[str, Hashable]:
    """The same for a partition value that was written here and for one that was read from a manifest."""
    if isinstance(value, float):
        value = struct.pack("<d", math.nan if math.isnan(value) else value)
    elif isinstance(value, uuid.UUID):
        value = value.bytes
    return type(value).__name__, value


def _time(transform: str, kind: TierKind, value: int) -> int:
    """Python's own times, by which PyIceberg counts, have neither BC nor far years."""
    made = schema.transformed(transform, kind, value)
    if made is None:
        raise ValueRefused(f"a value has no partition {transform}", hint="partition by day")
    return made


def _coarse(transform: Transform[Any, Any], values: Any, *, is_date: bool) -> Any:
    """The first moment of each value's hour or day where that is all that counts, so that few values are left."""
    unit = {"hour": MICROS_PER_DAY // 24, "day": MICROS_PER_DAY, "month": MICROS_PER_DAY, "year": MICROS_PER_DAY}
    step = unit.get(str(transform))
    if is_date or step is None:
        return values
    steps = _compute.divide(values, step)
    below = _compute.less(_compute.subtract(values, _compute.multiply(steps, step)), 0)
    return _compute.multiply(_compute.subtract(steps, below.cast(pa.int64())), step)


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
        rows,
        buffer,
        compression="zstd",
        row_group_size=_ROW_GROUP_ROWS,
        store_decimal_as_integer=True,
        version="2.6",
        write_statistics=[
            name for name, values in zip(rows.column_names, rows.columns, strict=True) if not _has_nan(values)
        ],
    )
    paths.make_parent(location)
    with store.reachable(f"write {location}"), paths.file_io(location).new_output(location).create() as output:
        output.write(buffer.getvalue())


def _has_nan(values: Any) -> bool:
    """Statistics pass NaN over, and engines for which it is the largest value believe them."""
    return pa.types.is_floating(values.type) and _compute.any(_compute.is_nan(values)).as_py() is True


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
    by_partition = dict[Hashable, list[str]]()
    for path in sorted(path for path, positions in places.items() if positions):
        by_partition.setdefault(partition_key(files[path]), []).append(path)
    written = list[DataFile]()
    for within in by_partition.values():
        listed = [(path, position) for path in within for position in sorted(places[path])]
        location = f"{metadata.location}/data/{uuid.uuid4().hex}-deletes.parquet"
        columns = [pa.array([row[0] for row in listed], pa.string()), pa.array([row[1] for row in listed], pa.int64())]
        _put(location, pa.Table.from_arrays(columns, schema=_DELETES))
        written.append(_delete_file(location, files[within[0]], within, len(listed)))
    return written


def _delete_file(location: str, like: DataFile, within: Sequence[str], count: int) -> DataFile:
    size_bytes = paths.size_bytes(location)
    assert size_bytes is not None
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=like.partition,
        record_count=count,
        file_size_in_bytes=size_bytes,
        lower_bounds={_PATH_FIELD: within[0].encode()},
        upper_bounds={_PATH_FIELD: within[-1].encode()},
        spec_id=like.spec_id,
    )
    file.spec_id = like.spec_id
    return file


def read_deletes(location: str) -> dict[str, set[int]]:
    """Which rows a position delete file says are gone, by the path of their file."""
    with damage.parsing(f"file {location}"), paths.open_input(location) as file:
        table = _parquet.read_table(file, columns=["file_path", "pos"])
    gone = dict[str, set[int]]()
    for path in _compute.unique(table.column("file_path")).to_pylist():
        chosen = table.filter(_compute.equal(table.column("file_path"), path))
        gone[path] = set(chosen.column("pos").to_pylist())
    return gone


@lru_cache(maxsize=16_384)
def count_deletes(location: str) -> Mapping[str, int]:
    """How many rows of each file a position delete file names, by what `local` makes of the file's path."""
    with damage.parsing(f"file {location}"), paths.open_input(location) as file:
        named = _parquet.read_table(file, columns=["file_path"]).column("file_path")
    counted = _compute.value_counts(_locals(named)).to_pylist()
    return {str(entry["values"]): int(entry["counts"]) for entry in counted}


def deleted_places(path: str, deletes: Sequence[str]) -> Any:
    """The places of a file's rows that these delete files name: a sorted array of numpy."""
    places = [pa.array([], pa.int64())]
    for location in deletes:
        with damage.parsing(f"file {location}"), paths.open_input(location) as file:
            table = _parquet.read_table(file, columns=["file_path", "pos"])
        chosen = table.column("pos").filter(_compute.equal(_locals(table.column("file_path")), local(path)))
        places.append(chosen.combine_chunks().cast(pa.int64()))
    return _compute.unique(_arrow.concat_arrays(places)).sort().to_numpy(zero_copy_only=False)


def relation(columns: Mapping[str, Column], data: Sequence[str], deletes: Sequence[str]) -> str:
    """The rows of these files that are not gone, in DuckDB SQL, with `filename` and `file_row_number` beside them.

    A column of such a name would be taken for what tells the rows apart: then those two do not come out.
    """
    if any(name.casefold() in _BESIDE for name in columns):
        apart = {f"frostline_{place}": column for place, column in enumerate(columns.values())}
        renamed = (
            f"{ducksql.identifier(old)} as {ducksql.identifier(new)}" for old, new in zip(apart, columns, strict=True)
        )
        return f"(select {', '.join(renamed)} from {relation(apart, data, deletes)})"  # noqa: S608
    read = duckfiles.read_parquet((ducksql.literal(local(path)) for path in data), columns.items())
    if not deletes:
        return f"(select *, filename, file_row_number from {read})"  # noqa: S608
    gone = ", ".join(ducksql.literal(local(path)) for path in deletes)
    names = "regexp_replace(regexp_replace(file_path, '^file:/+', '/'), '^s3[an]://', 's3://')"
    # The number of a file in the list is compared for every row; its name would take three times as long.
    numbers = ", ".join(f"({ducksql.literal(local(path))}, {number}::ubigint)" for number, path in enumerate(data))
    return (
        f"(select *, filename, file_row_number from {read} as f where not exists (select 1 from "  # noqa: S608
        f"(select n.number, d.pos from (select {names} as path, pos from read_parquet([{gone}])) as d "
        f"join (values {numbers}) as n(path, number) on n.path = d.path) as g "
        "where g.number = f.file_index and g.pos = f.file_row_number))"
    )


def local(path: str) -> str:
    """What DuckDB calls a file, however an engine has spelled it: one of the machine has no scheme."""
    return _STORE.sub("s3://", _FILE.sub("/", path))


def spellings(path: str) -> tuple[str, ...]:
    """What engines may call a file that DuckDB calls so, the most likely first."""
    if path.startswith("/"):
        return f"file://{path}", path, f"file:{path}"
    bare = path.removeprefix("s3://")
    return path, f"s3a://{bare}", f"s3n://{bare}"


def _locals(names: Any) -> Any:
    plain = _compute.replace_substring_regex(names, _FILE.pattern, "/")
    return _compute.replace_substring_regex(plain, _STORE.pattern, "s3://")
