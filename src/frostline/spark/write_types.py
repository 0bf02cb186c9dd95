"""Which Spark types may be written into which Postgres types, and what is wrong with a DataFrame before it is run."""

import difflib
from collections.abc import Sequence

from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from frostline.catalog.batches import Relation, Target
from frostline.errors import UsageError
from frostline.model.names import quoted

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
    chosen = tuple(_target(relation, field) for field in schema.fields)
    _require_key(relation, schema.names, mode)
    if mode == "append":
        _require_values(relation, schema.names)
    return chosen


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
