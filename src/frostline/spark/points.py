"""Which points a DataFrame is made of, however it was derived: its plan knows."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from pyspark.sql import DataFrame

from frostline.spark import shape

Plan: TypeAlias = Any
"""A logical plan of Spark's, in Java."""


def of_frame(frame: DataFrame) -> list[str]:
    """The numbers of the points, each once. The frame's own columns do not tell: a union shows those of one side."""
    java: Any = frame
    return list(dict.fromkeys(_every(java._jdf.queryExecution().analyzed())))  # noqa: SLF001


def _every(plan: Plan) -> Iterator[str]:
    yield from _shown(plan)
    for below in (plan.children(), plan.subqueries()):
        for index in range(below.size()):
            yield from _every(below.apply(index))


def _shown(plan: Plan) -> Iterator[str]:
    """Of the columns that come out of this step."""
    output = plan.output()
    for index in range(output.size()):
        metadata = output.apply(index).metadata()
        if metadata.contains(shape.POINT):
            yield metadata.getString(shape.POINT)
