"""The Iceberg side of a table: schema and how it changes, partition spec and sort order, metadata without a row."""

import re
import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import TypeAdapter
from pyiceberg.partitioning import (
    PARTITION_FIELD_ID_START,
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from frostline.errors import UsageError
from frostline.lake import pyiceberg_compat
from frostline.model.tables import Column, StoredTable
from frostline.model.tiers import MICROS_PER_DAY, TierKind, civil

_ICEBERG = TypeAdapter(PrimitiveType)
_TRUNCATE = re.compile(r"truncate\[(\d+)\]")
_INT_MAX = 2**31 - 1


def iceberg_type(column: Column) -> PrimitiveType:
    """The Iceberg type that carries the column: lake types are written as Iceberg writes them."""
    return _ICEBERG.validate_python(column.encoding.lake_type)


def iceberg_schema(table: StoredTable) -> Schema:
    """All fields are optional: writers outside Iceberg cannot declare a required one, and readers check that."""
    return Schema(
        *(NestedField(column.field_id, column.name, iceberg_type(column), required=False) for column in table.columns)
    )


def follow(transaction: Transaction, wanted: Schema) -> None:
    """Let the table's schema be this one from the next commit on; one that it had before is taken up again.

    Its field ids are those of `model.fields.evolve`, so that files written before are read as they were meant. Refused
    at the commit if somebody else has changed the schema meanwhile.
    """
    metadata = transaction.table_metadata
    now = metadata.schema()
    if now.fields == wanted.fields:
        return
    number = next((known.schema_id for known in metadata.schemas if known.fields == wanted.fields), None)
    required = AssertCurrentSchemaId.model_validate({"current-schema-id": now.schema_id})
    if number is None:
        number = max(known.schema_id for known in metadata.schemas) + 1
        chosen = SetCurrentSchemaUpdate.model_validate({"schema-id": number})
        updates = (AddSchemaUpdate(schema=wanted.model_copy(update={"schema_id": number})), chosen)
    else:
        updates = (SetCurrentSchemaUpdate.model_validate({"schema-id": number}),)
    pyiceberg_compat.apply(transaction, updates, (required,))


def parquet_names(table: StoredTable) -> tuple[str, ...]:
    """The columns' names inside data files, which readers match by field id.

    They are the columns' own names, but for those that differ from an earlier one by case only: DuckDB would rename it.
    """
    names: dict[str, str] = {}
    for column in table.columns:
        name = column.name
        while name.casefold() in names:
            name += f"_{column.field_id}"
        names[name.casefold()] = name
    return tuple(names.values())


class _AnyDay(DayTransform[Any]):
    """PyIceberg names the partitions of a commit in words, which fails for days that Python's dates do not know."""

    def to_human_string(self, _: object, value: Any) -> str:
        """The number of the day."""
        return str(value)


class _AnyHour(HourTransform[Any]):
    """The same for hours."""

    def to_human_string(self, _: object, value: Any) -> str:
        """The number of the hour."""
        return str(value)


def _transform(text: str) -> Transform[Any, Any]:
    return {"day": _AnyDay, "hour": _AnyHour}[text]() if text in ("day", "hour") else parse_transform(text)


def partition_spec(table: StoredTable) -> PartitionSpec:
    """Partition by the table's transform of the tier key.

    The field's name is from the reserved ones, so no column can take it and a renamed tier key does not change it.
    """
    if table.tier is None or table.lake_partition is None:
        return UNPARTITIONED_PARTITION_SPEC
    name = "frostline_" + table.lake_partition.partition("[")[0]
    field = PartitionField(
        source_id=table.column(table.tier.name).field_id,
        field_id=PARTITION_FIELD_ID_START,
        transform=_transform(table.lake_partition),
        name=name,
    )
    return PartitionSpec(field, spec_id=0)


def sort_order(table: StoredTable) -> SortOrder:
    """Files are sorted by the tier key, where they are partitioned by it."""
    if table.tier is None or table.lake_partition is None:
        return UNSORTED_SORT_ORDER
    source = table.column(table.tier.name).field_id
    return SortOrder(SortField(source, IdentityTransform(), SortDirection.ASC), order_id=1)


def partition_value(table: StoredTable, axis_value: int) -> int:
    """The value of the table's partition transform for a tier value, as Iceberg defines it."""
    assert table.tier is not None
    assert table.lake_partition is not None
    kind = table.tier.kind
    value = transformed(table.lake_partition, kind, axis_value)
    if value is None:
        raise UsageError(
            f"tier value {axis_value} is out of the range of the lake partition {table.lake_partition!r}",
            hint=f"register {table.name} with --lake-partition '{_wide_enough(table.lake_partition)}'",
        )
    return value


def _wide_enough(transform: str) -> str:
    """A transform much like this one that has a value for every tier value: powers of two end where integers do."""
    truncate = _TRUNCATE.fullmatch(transform)
    return f"truncate[{1 << (int(truncate[1]) - 1).bit_length()}]" if truncate else "day"


def transformed(transform: str, kind: TierKind, value: int) -> int | None:
    """The value of a partition transform, as Iceberg defines it, for every value there is; None when it has none."""
    made = _transformed(transform, kind, value)
    highest = kind.highest if kind is TierKind.BIGINT else _INT_MAX
    return made if -highest - 1 <= made <= highest else None


def _transformed(transform: str, kind: TierKind, value: int) -> int:
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate:
        return value - value % int(truncate[1])
    if transform == "hour":
        return value // (MICROS_PER_DAY // 24)
    days = value if kind is TierKind.DATE else value // MICROS_PER_DAY
    if transform == "day":
        return days
    year, month, _ = civil(days)
    return year - 1970 if transform == "year" else (year - 1970) * 12 + month - 1


def empty_metadata(
    lake_schema: Schema,
    spec: PartitionSpec,
    order: SortOrder,
    location: str,
    changed_by: Literal["copy-on-write", "merge-on-read"],
    properties: Mapping[str, str],
) -> TableMetadata:
    """A table without snapshots. Built by hand because PyIceberg's own way would give the fields new ids."""
    return TableMetadataV2.model_validate(
        {
            "location": location,
            "schemas": [lake_schema],
            "last-column-id": lake_schema.highest_field_id,
            "current-schema-id": lake_schema.schema_id,
            "partition-specs": [spec],
            "default-spec-id": spec.spec_id,
            "last-partition-id": spec.last_assigned_field_id,
            "sort-orders": [order],
            "default-sort-order-id": order.order_id,
            "properties": {
                TableProperties.WRITE_FILE_FORMAT: "parquet",
                TableProperties.PARQUET_COMPRESSION: "zstd",
                "write.delete.mode": changed_by,
                "write.update.mode": changed_by,
                "write.merge.mode": changed_by,
                # A snapshot, pin or transaction may need an old state. Only Frostline knows, so only it removes.
                "gc.enabled": "false",
                "write.metadata.delete-after-commit.enabled": "false",
                TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
                **properties,
            },
            "last-updated-ms": time.time_ns() // 1_000_000,
        }
    )
