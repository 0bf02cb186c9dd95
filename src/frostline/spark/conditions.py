"""Which tier values a condition leaves over: files and partitions outside are not touched. Too wide is safe."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.types import StructType

from frostline.errors import UsageError
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column
from frostline.spark import lakeconditions

Expression: TypeAlias = Any
"""An expression of Spark's, in Java."""

_OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">",
}
_FLIPPED = {"=": "=", "<": ">", ">": "<"}
_CHANGING = re.compile(r"Current|Now|Local|Rand|Uuid|UDF")
"""Expressions that mean something else at the next action."""
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday|epoch)\b.*", re.IGNORECASE | re.DOTALL)
"""Texts that Spark may take for a time that changes."""


@dataclass(frozen=True)
class Where:
    """What is known of a condition: the columns in it, and the tier values that it can be true for."""

    columns: frozenset[str]
    range: Range
    of_files: lakeconditions.Condition = lakeconditions.EVERY_ROW
    """What it says of the files of a lake table."""


def of_where(
    spark: SparkSession, schema: StructType, where: str, tier_key: str | None, columns: Mapping[str, Column]
) -> Where:
    """Let Spark itself read the condition, so that its literals and the session's time zone mean what they will."""
    untyped: Any = spark
    rows: DataFrame = untyped.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    try:
        filtered = rows.where(where)
    except PySparkException as error:
        message = (error.getMessage() or str(error)).partition("\n")[0]
        hint = "give a condition of Spark SQL on the table's columns"
        raise UsageError(f"where {where!r}: {message}", hint=hint) from None
    written = list(_nodes(_condition(filtered, "analyzed")))
    named = frozenset(_name(expression) for expression in written if _class(expression) == "AttributeReference")
    if any(map(_may_change, written)):
        return Where(named, EVERYTHING)
    condition = _condition(filtered, "optimizedPlan")
    if tier_key is None:
        return Where(named, EVERYTHING, lakeconditions.of_expression(condition, columns))
    return Where(named, together(_of_expression(conjunct, tier_key) for conjunct in _conjuncts(condition)))


def of_filters(filters: Iterable[Filter], tier_key: str) -> Range:
    """What Spark's filters leave over."""
    return together(_of_filter(pushed, tier_key) for pushed in filters)


def together(ranges: Iterable[Range]) -> Range:
    """What all of them leave over."""
    return reduce(Range.clip, ranges, EVERYTHING)


def _range(operator: str, values: list[int]) -> Range:
    """Not tightened by one for < and >: the condition itself is applied as well."""
    lower = None if operator == "<" else min(values)
    upper = None if operator == ">" else max(values) + 1
    return Range(lower, upper)


def _condition(filtered: DataFrame, stage: str) -> Expression:
    """The condition of the plan's filter; None when Spark needs no filter at all."""
    java: Any = filtered
    plan = getattr(java._jdf.queryExecution(), stage)()  # noqa: SLF001
    return plan.condition() if _class(plan) == "Filter" else None


def _class(expression: Expression) -> str:
    return expression.getClass().getSimpleName()


def _name(expression: Expression) -> str:
    return expression.name()


def _children(expression: Expression) -> list[Expression]:
    children = expression.children()
    return [children.apply(index) for index in range(children.size())]


def _nodes(expression: Expression) -> Iterator[Expression]:
    if expression is not None:
        yield expression
        for child in _children(expression):
            yield from _nodes(child)


def _may_change(expression: Expression) -> bool:
    if _CHANGING.search(_class(expression)):
        return True
    return _class(expression) == "Literal" and bool(_SPECIAL.fullmatch(str(expression.toString())))


def _conjuncts(expression: Expression) -> Iterator[Expression]:
    if expression is None:
        return
    if _class(expression) == "And":
        for child in _children(expression):
            yield from _conjuncts(child)
        return
    yield expression


def _of_expression(expression: Expression, tier_key: str) -> Range:
    """The range of `key operator literal`, the other way round, or `key in (literals)`."""
    operator = "=" if _class(expression) == "In" else _OPERATORS.get(_class(expression))
    operands = _children(expression)
    if operator is None or not operands:
        return EVERYTHING
    if _is_key(operands[-1], tier_key):
        operator, operands = _FLIPPED[operator], operands[::-1]
    values = [_literal(child) for child in operands[1:]]
    numbers = [value for value in values if value is not None]
    if not _is_key(operands[0], tier_key) or len(numbers) < len(values):
        return EVERYTHING
    return _range(operator, numbers)


def _is_key(expression: Expression, tier_key: str) -> bool:
    return _class(expression) == "AttributeReference" and _name(expression) == tier_key


def _literal(expression: Expression) -> int | None:
    """A literal of a tier key's type is the axis value itself: Spark counts as we do."""
    value = expression.value() if _class(expression) == "Literal" else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _of_filter(pushed: Filter, tier_key: str) -> Range:
    operator = _OPERATORS.get(type(pushed).__name__)
    if isinstance(pushed, In) and pushed.attribute == (tier_key,):
        values = [lakeconditions.number_of(value) for value in pushed.value]
        numbers = [value for value in values if value is not None]
        return _range("=", numbers) if numbers and len(numbers) == len(values) else EVERYTHING
    comparison = isinstance(pushed, (EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual))
    if operator is None or not comparison or pushed.attribute != (tier_key,):
        return EVERYTHING
    number = lakeconditions.number_of(pushed.value)
    return EVERYTHING if number is None else _range(operator, [number])
