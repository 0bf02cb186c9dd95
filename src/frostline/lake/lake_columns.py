"""How the columns of a lake table have changed since a foreign table was made for them: docs/design/lake-tables.md."""

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from frostline.lake.pg_types import is_other_type, pg_columns
from frostline.model.lake_tables import UNCHECKED, remote_schema


def differences(metadata: TableMetadata) -> Mapping[str, str | None]:
    """What `LakeTable.differences` says of the table."""
    now = {field.field_id: field for field in metadata.schema().fields}
    by_schema = {
        remote_schema(former.schema_id): next(
            (said for field in former.fields if (said := _difference(field, now.get(field.field_id)))), None
        )
        for former in metadata.schemas
    }
    known = pg_columns(metadata.properties)
    others = [(field, known[str(key)]) for key, field in now.items() if str(key) in known]
    retyped = (
        f"column {field.name} was {other.pg_type.formatted} and is {field.field_type}"
        for field, other in others
        if is_other_type(field, other)
    )
    return {**by_schema, UNCHECKED: next(retyped, None)}


def names(metadata: TableMetadata) -> Mapping[str, Mapping[str, int]]:
    """The names that columns have or had and their ids, by the schema that a foreign table names."""
    by_schema = {
        remote_schema(former.schema_id): {field.name: field.field_id for field in former.fields}
        for former in metadata.schemas
    }
    ever = {name: number for former in by_schema.values() for name, number in former.items()}
    return {**by_schema, UNCHECKED: {**ever, **{field.name: field.field_id for field in metadata.schema().fields}}}


def _difference(then: NestedField, now: NestedField | None) -> str | None:
    if now is None:
        return f"column {then.name} is gone"
    if then.name != now.name:
        return f"column {then.name} is called {now.name}"
    if then.field_type != now.field_type:
        return f"column {then.name} was {then.field_type} and is {now.field_type}"
    return None
