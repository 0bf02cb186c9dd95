"""The fields of a lake table as its columns change: which keep their Iceberg field id, and which get a new one.

A field id means one column for ever, also when the column is renamed: files that were written under another name or a
narrower type are read by it. An id that was once given is never given again, whatever became of its column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frostline.model import laketypes
from frostline.model.tables import Column


@dataclass(frozen=True)
class Field:
    """A column as the lake has it, before its table changed."""

    attnum: int
    """What a column is known by: a column that is dropped and added again is another one."""
    field_id: int
    name: str
    lake_type: str

    def to_record(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        return {"attnum": self.attnum, "field_id": self.field_id, "name": self.name, "lake_type": self.lake_type}


def of(column: Column) -> Field:
    """What has to be known of a column when its table changes next."""
    return Field(column.attnum, column.field_id, column.name, column.encoding.lake_type)


def evolve(columns: Iterable[Column], before: Sequence[Field], last_field_id: int) -> tuple[tuple[Column, ...], int]:
    """The columns with the field ids that they keep or get, and the last id that was ever given.

    A column keeps its id when it is renamed or moved, and when Iceberg lets its type become the new one. Otherwise it
    is a new field, and the old one is dropped with those that no column has any more.
    """
    known = {field.attnum: field for field in before}
    result: list[Column] = []
    for column in columns:
        old = known.get(column.attnum)
        if old and laketypes.can_become(old.lake_type, column.encoding.lake_type):
            result.append(replace(column, field_id=old.field_id))
        else:
            last_field_id += 1
            result.append(replace(column, field_id=last_field_id))
    return tuple(result), last_field_id
