"""What a lake table's metadata says of its columns, and what is not believed."""

import json
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frostline.errors import UnavailableError
from frostline.lake import pg_types
from frostline.model import laketypes

WRITTEN: dict[str, Any] = {
    "type": "text",
    "name": "text",
    "builtin": True,
    "precision": None,
    "scale": None,
    "collation": "bytes",
    "collation_name": '"C"',
}


def read(**changes: Any) -> Any:
    properties = {pg_types.PG_COLUMNS: json.dumps({"1": WRITTEN | changes})}
    return pg_types.pg_columns(properties)["1"]


@pytest.mark.parametrize(
    ("lake_type", "formatted"),
    [
        (BooleanType(), "boolean"),
        (IntegerType(), "integer"),
        (LongType(), "bigint"),
        (FloatType(), "real"),
        (DoubleType(), "double precision"),
        (DecimalType(12, 2), "numeric(12,2)"),
        (DateType(), "date"),
        (TimestampType(), "timestamp without time zone"),
        (TimestamptzType(), "timestamp with time zone"),
        (StringType(), "text"),
        (BinaryType(), "bytea"),
    ],
    ids=str,
)
def test_a_column_that_no_postgres_has_made_gets_the_type_that_holds_all_of_its_values(
    lake_type: IcebergType, formatted: str
) -> None:
    (column,) = pg_types.columns(metadata(lake_type))
    assert column.pg_type.formatted == formatted
    assert laketypes.native(column.pg_type.name, column.pg_type.precision, column.pg_type.scale) == str(lake_type)


@pytest.mark.parametrize("lake_type", [UUIDType(), TimeType(), FixedType(5)], ids=str)
def test_a_column_of_a_type_that_no_value_of_ours_travels_as_is_not_shown(lake_type: IcebergType) -> None:
    with pytest.raises(UnavailableError, match="cannot be shown in Postgres"):
        pg_types.columns(metadata(lake_type))


def metadata(lake_type: IcebergType) -> TableMetadata:
    made = Schema(NestedField(1, "value", lake_type, required=False))
    return new_table_metadata(made, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake/t", {})


def test_what_postgres_has_written_is_read_as_it_was() -> None:
    assert read().collation_name == '"C"'
    assert pg_types.pg_columns({}) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "int); drop table users; --"},
        {"type": "int default (select 1)"},
        {"type": "int --"},
        {"type": "int /*"},
        {"type": "int, b int"},
        {"type": "public.evil"},  # says that it is Postgres' own
        {"type": "public.evil(1)[]"},
        {"type": "int", "builtin": False},
        {"type": "a.b.c", "builtin": False},
        {"type": ""},
        {"type": 'x"', "builtin": True},
        {"collation_name": '"C"; drop table users'},
        {"collation_name": "a.b.c"},
        {"collation": "none of them"},
    ],
)
def test_what_is_more_than_a_type_or_a_collation_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match="was not written by Postgres"):
        read(**changes)


@pytest.mark.parametrize("text", ["[]", "{", '{"1": {}}', '{"1": 5}', '"x"'])
def test_what_is_not_even_a_description_is_refused(text: str) -> None:
    with pytest.raises(UnavailableError, match="was not written by Postgres"):
        pg_types.pg_columns({pg_types.PG_COLUMNS: text})
