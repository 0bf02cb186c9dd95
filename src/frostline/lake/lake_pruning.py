"""Which files of a lake table can have a row for which a condition holds: by their partitions, bounds and counts."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from frostline.lake import pyiceberg_compat

Matches: TypeAlias = Callable[[DataFile], bool]


def possible(metadata: TableMetadata, files: Iterable[DataFile], condition: BooleanExpression) -> Iterator[DataFile]:
    """Those of the files, which are of a state of this table, that cannot be left out."""
    if isinstance(condition, AlwaysTrue):
        yield from files
        return
    by_bounds = pyiceberg_compat.by_bounds(metadata.schema(), condition)
    by_partition = dict[int, Matches]()
    for file in files:
        if file.spec_id not in by_partition:
            by_partition[file.spec_id] = _by_partition(metadata, file.spec_id, condition)
        if _may(by_partition[file.spec_id], file) and _may(by_bounds, file):
            yield file


def _may(matches: Matches, file: DataFile) -> bool:
    """Another engine may have written bounds that cannot be read: then they say nothing."""
    try:
        return matches(file)
    except (ValueError, TypeError):
        return True


def _by_partition(metadata: TableMetadata, spec_id: int, condition: BooleanExpression) -> Matches:
    spec = metadata.specs()[spec_id]
    try:
        partition_type = spec.partition_type(metadata.schema())
        projected = inclusive_projection(metadata.schema(), spec)(condition)
        evaluate = expression_evaluator(Schema(*partition_type.fields), projected, case_sensitive=True)
    except ValueError:  # a column that files were cut by is gone
        return lambda _: True
    return lambda file: evaluate(file.partition)
