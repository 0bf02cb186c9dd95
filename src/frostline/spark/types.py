"""Spark's types: those of a table's columns when it is read, and which may be written into which Postgres types."""

import difflib
from collections.abc import Mapping, Sequence

from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructField, StructType

from frostline.catalog.batches import Relation, Target
from frostline.errors import UsageError
from frostline.model import laketypes
from frostline.model.names import Name, quoted
from frostline.model.tables import Column

POINT = "frostline.point"
"""The columns' metadata says of which point they are, so that a DataFrame can be released."""


def spark_type(column: Column) -> DataType:
    """The type of the column in Spark, read as Spark reads its own schemas. What travels as text is a string."""
    kind = laketypes.spark_type(column.encoding.lake_type)
    return StructField.fromJson({"name": column.name, "type": kind, "nullable": True}).dataType


def schema(columns: Mapping[str, Column], point_id: str | None = None) -> StructType:
    """The schema of these columns, by their names in Spark."""
    metadata = {POINT: point_id} if point_id else {}
    return StructType([StructField(name, spark_type(column), metadata=metadata) for name, column in columns.items()])


def chosen(table: Name, shown: Mapping[str, Column], wanted: Sequence[str] | None) -> dict[str, Column]:
    """The wanted columns, or all; by the name that Spark shows, or else by the one that Postgres has."""
    if wanted is None:
        return dict(shown)
    own = {column.name: name for name, column in shown.items()}
    names = {column: column if column in shown else own.get(column) for column in wanted}
    missing = [column for column, name in names.items() if name is None]
    if missing:
        raise UsageError(f"{table} has no column {missing[0]!r}", hint=f"it has {', '.join(shown)}")
    return {name: shown[name] for name in names.values() if name is not None}


_NUMBERS = ("numeric", "float4", "float8")
_INTEGERS = ("int2", "int4", "int8", "oid", *_NUMBERS)
_TAKEN: dict[type[spark.DataType], tuple[str, ...]] = {
    spark.BooleanType: ("bool",),
    spark.ByteType: _INTEGERS,
    spark.ShortType: _INTEGERS,
    spark.IntegerType: _INTEGERS,
    spark.LongType: _INTEGERS,
    spark.DecimalType: _NUMBERS,
    spark.FloatType: _NUMBERS,
    spark.DoubleType: _NUMBERS,
    spark.DateType: ("date",),
    spark.TimestampType: ("timestamptz",),
    spark.TimestampNTZType: ("timestamp",),
    spark.BinaryType: ("bytea",),
}
"""Those that mean the same on both sides. A string may be anything: Postgres reads it."""
_TEXT = (spark.StringType, spark.NullType)
_HINTS: dict[type[spark.DataType], str] = {
    spark.TimestampType: "it is an instant; for a clock time without zone: .cast('timestamp_ntz')",
    spark.TimestampNTZType: "it has no time zone; for an instant: .cast('timestamp')",
    spark.StructType: "give it as Postgres writes it, as a string; for json: to_json({column})",
    spark.MapType: "for json: to_json({column})",
}


def targets(relation: Relation, schema: StructType, mode: str) -> tuple[Target, ...]:
    """The columns that the DataFrame's fields are written into, in its order; UsageError when it does not fit."""
    _refuse_twice(schema.names)
    columns = tuple(_target(relation, field) for field in schema.fields)
    _require_key(relation, schema.names, mode)
    if mode == "append":
        _require_values(relation, schema.names)
    return columns


def _refuse_twice(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the DataFrame has the column {quoted(name)} twice", hint="select each column once")


def _target(relation: Relation, field: spark.StructField) -> Target:
    target = relation.column(field.name)
    if target is None:
        names = [column.name for column in relation.columns]
        close = difflib.get_close_matches(field.name, names, n=1, cutoff=0.8)
        close = close or [name for name in names if name.lower() == field.name.lower()]
        hint = f"did you mean {quoted(close[0])}?" if close else f"leave it out: df.drop({field.name!r})"
        raise UsageError(f"{relation.name} has no column {quoted(field.name)}", hint=hint)
    if target.generated:
        hint = f"leave it out: df.drop({field.name!r})"
        raise UsageError(f"column {quoted(field.name)} of {relation.name} is computed by Postgres", hint=hint)
    if not _fits(field.dataType, target):
        raise _misfit(relation, field, target)
    return target


def _fits(given: spark.DataType, target: Target, *, inside: bool = False) -> bool:
    """Whether the values mean the same there. Of an array, those inside it, however deep."""
    if isinstance(given, _TEXT):
        return True
    if isinstance(given, spark.ArrayType):
        return target.is_array and _fits(given.elementType, target, inside=True)
    return target.is_array == inside and target.type_name in _TAKEN.get(type(given), ())


def _misfit(relation: Relation, field: spark.StructField, target: Target) -> UsageError:
    hint = _HINTS.get(type(field.dataType), "give it as Postgres writes it: .cast('string')")
    return UsageError(
        f"column {quoted(field.name)} of {relation.name} is {target.formatted}, "
        f"the DataFrame's is {field.dataType.simpleString()}",
        hint=hint.format(column=quoted(field.name)),
    )


def _require_key(relation: Relation, names: Sequence[str], mode: str) -> None:
    missing = [name for name in relation.key if name not in names]
    if mode != "append" and missing:
        raise UsageError(
            f"{mode} finds rows by key, and the DataFrame has no column {quoted(missing[0])}",
            hint=f"the key of {relation.name} is ({', '.join(map(quoted, relation.key))})",
        )


def _require_values(relation: Relation, names: Sequence[str]) -> None:
    for column in relation.columns:
        if column.not_null and not column.has_default and not column.generated and column.name not in names:
            raise UsageError(
                f"column {quoted(column.name)} of {relation.name} must not be null and has no default",
                hint="add it to the DataFrame",
            )
