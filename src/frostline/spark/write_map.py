"""Runs a function over the Arrow batches of a DataFrame's parts, as `DataFrame.mapInArrow` does.

That one refuses to work without pandas, which it does not use, and takes a column name with a dot in it for a path.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def column(df: DataFrame, name: str) -> Column:
    """The DataFrame's column of that name, whatever is in it."""
    return df["`" + name.replace("`", "``") + "`"]


def mapped(df: DataFrame, function: Function, schema: str) -> DataFrame:
    """What the function yields for each part."""
    internals: Any = functions
    udf = internals.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    call = udf(*(column(df, name) for name in df.columns))
    java: Any = getattr(df, "_jdf")  # noqa: B009  (PySpark has no public way to it)
    return DataFrame(java.mapInArrow(getattr(call, "_jc"), False, None), df.sparkSession)  # noqa: B009, FBT003
