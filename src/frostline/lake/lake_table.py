"""The Iceberg side of a table that lives in the lake alone: its columns as Postgres has them, its metadata, its files.

Everything that a node has to know of the table is in its metadata file, so that nodes need no state of their own. The
Postgres types are in a table property; a column that another engine has added has none, and gets the type that fits.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import NestedField

from frostline.errors import UnavailableError, UsageError
from frostline.lake import paths, schema, snapshots
from frostline.model import laketypes
from frostline.model.lake_tables import LakeOnly
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Column, KeyBounds, LakeFile
from frostline.model.tiers import TierKind
from frostline.model.types import Collation, PgType, encoding

PG_COLUMNS = "frostline.pg-columns"
"""The table property with the Postgres types, by field id, in JSON."""
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)\s*", re.DOTALL)
_FITTING = {
    "boolean": "boolean",
    "int": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "string": "text",
    "binary": "bytea",
    "uuid": "uuid",
    "time": "time without time zone",
}
"""The Postgres type of a column that no Postgres has made."""
_SHORT = {
    "boolean": "bool",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
}


@dataclass(frozen=True)
class Layout:
    """How the files of a table are cut and sorted, as the user has said it: `day(ts)`, `bucket(16, id)`; `ts desc`."""

    partition: Sequence[str] = ()
    sort: Sequence[str] = ()


def new_metadata(columns: Sequence[Column], layout: Layout, location: str, owner: str) -> TableMetadata:
    """The metadata of an empty table. UsageError for a layout that it cannot have."""
    lake_schema = Schema(
        *(NestedField(column.field_id, column.name, schema.iceberg_type(column), required=column.not_null)
          for column in columns)
    )  # fmt: skip
    spec, order = _spec(lake_schema, layout.partition), _order(lake_schema, layout.sort)
    properties = {"owner": owner, PG_COLUMNS: _written(columns)}
    return schema.empty_metadata(lake_schema, spec, order, location, "merge-on-read", properties)


def _written(columns: Sequence[Column]) -> str:
    return json.dumps(
        {
            str(column.field_id): {
                "type": column.pg_type.formatted,
                "name": column.pg_type.name,
                "builtin": column.pg_type.builtin,
                "precision": column.pg_type.precision,
                "scale": column.pg_type.scale,
                "collation": column.collation.value,
                "collation_name": column.collation_name,
            }
            for column in columns
        }
    )


def _spec(lake_schema: Schema, partition: Sequence[str]) -> PartitionSpec:
    fields = list[PartitionField]()
    for text in partition:
        transform, name = _transform(text)
        source = _field(lake_schema, name)
        if not transform.can_transform(source.field_type):
            raise UsageError(f"--partition {text!r}: {source.field_type} has no such transform", hint="choose another")
        called = name if isinstance(transform, IdentityTransform) else f"{name}_{str(transform).partition('[')[0]}"
        field_id = PARTITION_FIELD_ID_START + len(fields)
        fields.append(PartitionField(source.field_id, field_id, transform=transform, name=called))
    return PartitionSpec(*fields, spec_id=0)


def _transform(text: str) -> tuple[Transform[Any, Any], str]:
    call = _CALL.fullmatch(text)
    if call is None:
        return IdentityTransform(), text.strip()
    word, number, name = call.groups()
    try:
        return parse_transform(word if number is None else f"{word}[{number}]"), name
    except ValueError:
        raise UsageError(
            f"--partition {text!r} is no transform", hint="year, month, day, hour(COLUMN); bucket, truncate(N, COLUMN)"
        ) from None


def _order(lake_schema: Schema, sort: Sequence[str]) -> SortOrder:
    fields = list[SortField]()
    for text in sort:
        name, _, word = text.strip().partition(" ")
        if word.strip().lower() not in ("", "asc", "desc"):
            raise UsageError(f"--sort {text!r} is no order", hint="COLUMN, or COLUMN desc")
        downward = word.strip().lower() == "desc"
        direction = SortDirection.DESC if downward else SortDirection.ASC
        nulls = NullOrder.NULLS_FIRST if downward else NullOrder.NULLS_LAST
        fields.append(SortField(_field(lake_schema, name).field_id, IdentityTransform(), direction, nulls))
    return SortOrder(*fields, order_id=1) if fields else UNSORTED_SORT_ORDER


def _field(lake_schema: Schema, name: str) -> NestedField:
    try:
        return lake_schema.find_field(name)
    except ValueError:
        raise UsageError(f"there is no column {name!r}", hint="name one of --column") from None


def columns(metadata: TableMetadata) -> tuple[Column, ...]:
    """The columns as Postgres has them."""
    known: Mapping[str, Any] = json.loads(metadata.properties.get(PG_COLUMNS, "{}"))
    fields = metadata.schema().fields
    return tuple(_column(place, field, known.get(str(field.field_id))) for place, field in enumerate(fields, 1))


def _column(place: int, field: NestedField, known: Mapping[str, Any] | None) -> Column:
    lake_type = str(field.field_type)
    pg_type, collation, collation_name = _fitting(lake_type, field), Collation.NONE, None
    if known is not None:
        name, builtin = str(known["name"]), bool(known["builtin"])
        pg_type = PgType(str(known["type"]), name, builtin, known["precision"], known["scale"])
        collation, collation_name = Collation(known["collation"]), known["collation_name"]
    elif pg_type.name == "text":
        collation = Collation.LINGUISTIC
    travels = encoding(pg_type, collation)
    if travels.lake_type.replace(" ", "") != lake_type.replace(" ", ""):
        raise UnavailableError(
            f"column {field.name} is {pg_type.formatted} in Postgres and {lake_type} in the lake",
            hint="another engine has changed its type",
        )
    return Column(
        name=field.name,
        attnum=place,
        field_id=field.field_id,
        pg_type=pg_type,
        encoding=travels,
        collation=collation,
        collation_name=collation_name,
        not_null=field.required,
    )


def _fitting(lake_type: str, field: NestedField) -> PgType:
    digits = laketypes.decimal(lake_type)
    if digits is not None:
        return PgType(f"numeric({digits[0]},{digits[1]})", "numeric", True, *digits)  # noqa: FBT003
    formatted = _FITTING.get(lake_type)
    if formatted is None:
        raise UnavailableError(
            f"column {field.name} of type {lake_type} cannot be shown in Postgres", hint="read it with another engine"
        )
    return PgType(formatted, _SHORT.get(formatted, formatted), builtin=True)


def described(lake_table_id: int, name: Name, metadata: TableMetadata) -> LakeOnly:
    """The table as the lake server's translator sees it."""
    its_columns = columns(metadata)
    return LakeOnly(
        id=-lake_table_id,
        name=name,
        columns=its_columns,
        key=tuple(column.name for column in its_columns),
        tier_key="",
        tier_kind=TierKind.BIGINT,
        lake_partition=None,
        policy=Policy(),
        token="",
    )


@dataclass(frozen=True)
class State:
    """What a table consists of at one metadata file. It never changes."""

    location: str
    metadata: TableMetadata
    data: Mapping[str, DataFile]
    """Data files, by path."""
    deletes: Mapping[str, DataFile]
    """Files of position deletes, by path."""

    @property
    def snapshot_id(self) -> int | None:
        """None for a table that has never had a row."""
        return self.metadata.current_snapshot_id


@lru_cache(maxsize=64)
def state(location: str) -> State:
    """What a table consists of; UnavailableError for one with files that we cannot read as they are meant."""
    metadata = snapshots.read_metadata(location)
    snapshot, io = metadata.current_snapshot(), paths.file_io(location)
    data, deletes = dict[str, DataFile](), dict[str, DataFile]()
    for manifest in snapshots.manifests(snapshot, io) if snapshot else ():
        for entry in _entries(manifest):
            kinds = {DataFileContent.DATA: data, DataFileContent.POSITION_DELETES: deletes}
            file = entry.data_file
            file.spec_id = manifest.partition_spec_id
            if file.content not in kinds or file.file_format != "PARQUET":
                raise UnavailableError(
                    f"{file.file_path} is a file of {file.content.name} in {file.file_format}, which is not served",
                    hint="rewrite the table's files with the engine that wrote it",
                )
            if not paths.is_inside(file.file_path, metadata.location.rstrip("/")):
                # Whoever may commit to a table could have our server read another one for them.
                raise UnavailableError(
                    f"{file.file_path} is not in the table's folder {metadata.location}, so it is not served",
                    hint="write its rows into the table instead",
                )
            kinds[file.content][file.file_path] = file
    return State(location, metadata, data, deletes)


@lru_cache(maxsize=4096)
def _entries(manifest: Any) -> list[ManifestEntry]:
    """The live entries of a manifest, which never changes. Manifests are equal when their paths are."""
    return snapshots.entries(manifest, paths.file_io(manifest.manifest_path))


def lake_file(file: DataFile, keys: Sequence[tuple[int, bool]]) -> LakeFile:
    """The file with its bounds of these columns: field id, and whether it is a number."""
    known = tuple(bound for field_id, is_number in keys if (bound := _bounds(file, field_id, is_number)) is not None)
    return LakeFile(file.file_path, file.record_count, file.file_size_in_bytes, 0, 0, known)


def _bounds(file: DataFile, field_id: int, is_number: bool) -> KeyBounds | None:  # noqa: FBT001
    lower, upper = ((held or {}).get(field_id) for held in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None:
        return None
    if is_number:
        return KeyBounds(
            field_id, int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)
        )
    return KeyBounds(field_id, lower, upper)
