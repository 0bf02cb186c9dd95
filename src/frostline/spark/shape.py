"""The columns of a table in Spark's types."""

from collections.abc import Mapping, Sequence

from pyspark.sql.types import DataType, StructField, StructType

from frostline.errors import UsageError
from frostline.model import laketypes
from frostline.model.names import Name
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
