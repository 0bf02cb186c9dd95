"""The Iceberg side of a table."""

import dataclasses
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, StringType, TimestampType, TimestamptzType
from tests.fixtures.lake_tables import column, events

from frostline.errors import UsageError
from frostline.lake import commit, schema
from frostline.model import fields, lake_grid
from frostline.model.names import Name
from frostline.model.tables import Column, TableCopy
from frostline.model.tiers import MICROS_PER_DAY, TierKind

PYTHON_DAYS = st.integers(-719_162, 2_932_896)
"""The days that Python's dates, and so PyIceberg's transforms, know."""
PYTHON_MICROS = st.integers(-719_162 * MICROS_PER_DAY, 2_932_896 * MICROS_PER_DAY)


def tier(kind: TierKind, transform: str):
    return events(tier_kind=kind, lake_partition=transform)


def test_fields_keep_their_ids_and_are_optional():
    columns = (column(4, "id", "bigint", "int8"), column(9, "ts", "timestamp with time zone", "timestamptz"))
    fields = schema.iceberg_schema(events(columns=columns)).fields
    assert [(field.field_id, field.name, field.required) for field in fields] == [(4, "id", False), (9, "ts", False)]


@pytest.mark.parametrize(
    ("formatted", "name", "expected"),
    [
        ("smallint", "int2", IntegerType()),
        ("bigint", "int8", LongType()),
        ("numeric(12,2)", "numeric", DecimalType(12, 2)),
        ("numeric", "numeric", StringType()),
        ("date", "date", DateType()),
        ("timestamp without time zone", "timestamp", TimestampType()),
        ("timestamp with time zone", "timestamptz", TimestamptzType()),
        ("jsonb", "jsonb", StringType()),
    ],
)
def test_each_type_has_its_lake_type(formatted: str, name: str, expected: object):
    assert schema.iceberg_type(column(1, "c", formatted, name)) == expected


def test_names_that_differ_by_case_only_stay_apart_in_files():
    columns = (column(1, "A", "bigint", "int8"), column(2, "a", "bigint", "int8"), column(3, "a_2", "bigint", "int8"))
    names = schema.parquet_names(events(columns=columns))
    assert names == ("A", "a_2", "a_2_3")


@given(PYTHON_MICROS, st.sampled_from(["year", "month", "day", "hour"]), st.sampled_from(["TIMESTAMP", "TIMESTAMPTZ"]))
def test_time_partitions_are_those_of_iceberg(value: int, transform: str, kind: str):
    source = TimestampType() if kind == "TIMESTAMP" else TimestamptzType()
    expected = parse_transform(transform).transform(source)(value)
    assert schema.partition_value(tier(TierKind[kind], transform), value) == expected


@given(PYTHON_DAYS, st.sampled_from(["year", "month", "day"]))
def test_date_partitions_are_those_of_iceberg(value: int, transform: str):
    expected = parse_transform(transform).transform(DateType())(value)
    assert schema.partition_value(tier(TierKind.DATE, transform), value) == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 10**6))
def test_integer_partitions_are_those_of_iceberg(value: int, width: int):
    expected = parse_transform(f"truncate[{width}]").transform(LongType())(value)
    assert schema.partition_value(tier(TierKind.BIGINT, f"truncate[{width}]"), value) == expected


@given(st.integers(-210_000_000_000_000_000, 9_223_000_000_000_000_000), st.sampled_from(["year", "month", "day"]))
def test_a_slice_of_the_grid_never_straddles_a_partition(lower: int, transform: str):
    table = tier(TierKind.TIMESTAMPTZ, transform)
    first, last = next(lake_grid.ranges(transform, table.tier_kind, lower, lower + 400 * 366 * MICROS_PER_DAY))
    assert schema.partition_value(table, first) == schema.partition_value(table, last - 1)
    assert schema.partition_value(table, last) == schema.partition_value(table, first) + 1


def test_a_value_beyond_the_partition_type_is_refused():
    with pytest.raises(UsageError, match="hour"):
        schema.partition_value(tier(TierKind.TIMESTAMP, "hour"), 9_200_000_000_000_000_000)


def test_the_partition_field_has_a_reserved_name():
    renamed = dataclasses.replace(events().columns[1], name="frost month")
    table = events(columns=(events().columns[0], renamed), tier_key="frost month")
    assert schema.partition_spec(table).fields[0].name == "frostline_month"


COPY = TableCopy(
    Name("public", "events"),
    (column(1, "id", "integer", "int4"), column(2, "note", "text", "text")),
)


def following(*steps: TableCopy) -> TableMetadata:
    """The metadata of a table whose schema has followed so many changes."""
    catalog = commit.Staging(uuid4())
    metadata = commit.new_metadata(COPY, "file:///nowhere", {})
    for step in steps:
        table = Table(("public", "events"), metadata, "", PyArrowFileIO(), catalog)
        transaction = table.transaction()
        schema.follow(transaction, schema.iceberg_schema(step))
        metadata = transaction.table_metadata
    return metadata


def changed(*now: Column, last: int = 2) -> TableCopy:
    columns, _ = fields.evolve(now, [fields.of(copied) for copied in COPY.columns], last)
    return dataclasses.replace(COPY, columns=columns)


def described(metadata: TableMetadata) -> list[tuple[int, str, str]]:
    return [(field.field_id, field.name, str(field.field_type)) for field in metadata.schema().fields]


def test_a_schema_follows_its_columns_by_their_ids():
    """One is renamed and promoted, one dropped, one added."""
    metadata = following(changed(column(1, "number", "bigint", "int8"), column(3, "day", "date", "date")))
    assert described(metadata) == [(1, "number", "long"), (3, "day", "date")]
    assert metadata.last_column_id == 3
    assert [version.schema_id for version in metadata.schemas] == [0, 1]


def test_a_schema_that_is_the_same_is_no_change():
    metadata = following(COPY, COPY)
    assert (metadata.current_schema_id, [version.schema_id for version in metadata.schemas]) == (0, [0])


def test_a_schema_that_the_table_had_is_taken_up_again():
    other = changed(column(1, "number", "integer", "int4"))
    metadata = following(other, COPY, other)
    assert described(metadata) == [(1, "number", "int")]
    assert (metadata.current_schema_id, [version.schema_id for version in metadata.schemas]) == (1, [0, 1])


def test_a_schema_that_somebody_else_has_changed_is_not_followed():
    """The commit requires the schema that it was decided by."""
    table = Table(
        ("public", "events"),
        commit.new_metadata(COPY, "file:///nowhere", {}),
        "",
        PyArrowFileIO(),
        commit.Staging(uuid4()),
    )
    transaction = table.transaction()
    schema.follow(transaction, schema.iceberg_schema(changed(column(3, "day", "date", "date"))))
    others = following(changed(column(1, "number", "integer", "int4")))
    (requirement,) = transaction._requirements
    with pytest.raises(CommitFailedException, match="schema"):
        requirement.validate(others)
