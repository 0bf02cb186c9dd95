"""Spark's conditions as Iceberg has them, so that files of lake tables are left out. What is not known becomes "true".

Only types that both order alike: to Spark NaN is the largest number, and Iceberg's bounds leave it out.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any, TypeAlias

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, LongLiteral, StringLiteral, TimestampLiteral
from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

from frostline.model.tables import Column

Columns: TypeAlias = Mapping[str, Column]
"""By their names in Spark."""
Value: TypeAlias = Literal[Any]
Condition: TypeAlias = BooleanExpression

EVERY_ROW = AlwaysTrue()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN: Any = In
_JOINED: Mapping[str, Any] = {"And": And, "Or": Or}
_NULLS: Mapping[str, Any] = {"IsNull": IsNull, "IsNotNull": NotNull}
_LITERALS: Mapping[str, Callable[[Any], Value]] = {
    "int": LongLiteral,
    "long": LongLiteral,
    "date": DateLiteral,
    "timestamp": TimestampLiteral,
    "timestamptz": TimestampLiteral,
    "string": StringLiteral,
}
"""By the lake's types. Integers, and times as numbers, as Spark counts them too; texts byte by byte."""
_COMPARISONS: Mapping[str, Any] = {
    "EqualTo": EqualTo,
    "EqualNullSafe": EqualTo,
    "LessThan": LessThan,
    "LessThanOrEqual": LessThanOrEqual,
    "GreaterThan": GreaterThan,
    "GreaterThanOrEqual": GreaterThanOrEqual,
    "StartsWith": StartsWith,
    "StringStartsWith": StartsWith,
}
_FLIPPED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}


def of_expression(node: Any, columns: Columns) -> Condition:
    """What a condition of Spark's, in Java, says of files; None is no condition."""
    kind = node.getClass().getSimpleName() if node is not None else ""
    children = _children(node) if kind else []
    if kind in _JOINED:
        return _JOINED[kind](*(of_expression(child, columns) for child in children))
    if kind in _NULLS:
        column = _column(children[0], columns)
        return EVERY_ROW if column is None else _NULLS[kind](Reference(column.name))
    if kind == "In":
        column = _column(children[0], columns)
        return _one_of(column, [_literal(child, column) for child in children[1:]])
    if kind not in _COMPARISONS or len(children) != 2:
        return EVERY_ROW
    if _column(children[0], columns) is None:
        kind, children = _FLIPPED.get(kind, "" if kind == "StartsWith" else kind), children[::-1]
    column = _column(children[0], columns)
    return _compared(kind, column, _literal(children[1], column))


def of_filters(filters: Iterable[Filter], columns: Columns) -> Condition:
    """What filters as Spark pushes them to a source in Python say of files: all of them hold."""
    return reduce(_JOINED["And"], (_of_filter(pushed, columns) for pushed in filters), EVERY_ROW)


def _of_filter(pushed: Filter, columns: Columns) -> Condition:
    attribute = getattr(pushed, "attribute", ())
    column = columns.get(attribute[0]) if len(attribute) == 1 else None
    kind = type(pushed).__name__
    if kind in _NULLS and column is not None:
        return _NULLS[kind](Reference(column.name))
    if isinstance(pushed, datasource.In):
        return _one_of(column, [_made(value, column) for value in pushed.value])
    return _compared(kind, column, _made(getattr(pushed, "value", None), column))


def _compared(kind: str, column: Column | None, value: Value | None) -> Condition:
    if column is None or value is None or kind not in _COMPARISONS:
        return EVERY_ROW
    return _COMPARISONS[kind](Reference(column.name), value)


def _one_of(column: Column | None, values: list[Value | None]) -> Condition:
    known = [value for value in values if value is not None]
    if column is None or not known or len(known) < len(values):
        return EVERY_ROW
    return _IN(Reference(column.name), set(known))


def _made(value: object, column: Column | None) -> Value | None:
    """A value as Spark hands it to Python."""
    kind = "" if column is None else column.encoding.lake_type
    if kind == "string":
        return StringLiteral(value) if isinstance(value, str) else None
    number = number_of(value)
    return None if kind not in _LITERALS or number is None else _LITERALS[kind](number)


def number_of(value: object) -> int | None:
    """A value as Spark hands it to Python, as a number: days or microseconds since 1970, or an integer as it is."""
    match value:
        case bool():
            return None
        case int():
            return value
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH.date()).days
        case _:
            return None


def _column(node: Any, columns: Columns) -> Column | None:
    return columns.get(node.name()) if node.getClass().getSimpleName() == "AttributeReference" else None


def _literal(node: Any, column: Column | None) -> Value | None:
    """A literal; Spark has given it the type of the column that it is compared with."""
    if column is None or node.getClass().getSimpleName() != "Literal":
        return None
    value, kind = node.value(), column.encoding.lake_type
    if kind == "string":
        return None if value is None else StringLiteral(str(value.toString()))
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _LITERALS[kind](value) if is_number and kind in _LITERALS else None


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]
