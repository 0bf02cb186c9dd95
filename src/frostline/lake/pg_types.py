"""The Postgres types of a lake table's columns, which are in a property of the table, so that nodes need no state.

A column that another engine has added, or whose type it has changed, has none there, and gets the type that fits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from frostline.errors import UnavailableError
from frostline.model import laketypes
from frostline.model.tables import Column
from frostline.model.types import SQL_NAMES, Collation, PgType, encoding, is_name, is_type

PG_COLUMNS = "frostline.pg-columns"
"""The table property with the Postgres types, by field id, in JSON."""


@dataclass(frozen=True)
class PgColumn:
    """What Postgres knows of a column and Iceberg does not."""

    pg_type: PgType
    collation: Collation
    collation_name: str | None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "PgColumn":
        """ValueError for a text that is more than a type or a collation."""
        formatted, builtin, name = str(given["type"]), bool(given["builtin"]), given["collation_name"]
        if not is_type(formatted, builtin=builtin):
            raise ValueError(f"{formatted!r} is no type")
        if name is not None and not is_name(name):
            raise ValueError(f"{name!r} is no collation")
        pg_type = PgType(formatted, str(given["name"]), builtin, given["precision"], given["scale"])
        return cls(pg_type, Collation(given["collation"]), name)


def written(columns: Sequence[Column]) -> str:
    """The property for these columns."""
    return json.dumps(
        {
            str(column.field_id): {
                "type": column.pg_type.formatted,
                "name": column.pg_type.name,
                "builtin": column.pg_type.builtin,
                "precision": column.pg_type.precision,
                "scale": column.pg_type.scale,
                "collation": column.collation.value,
                "collation_name": column.collation_name,
            }
            for column in columns
        }
    )


def columns(metadata: TableMetadata) -> tuple[Column, ...]:
    """The columns as Postgres has them; one whose type another engine has changed gets the type that fits."""
    known = pg_columns(metadata.properties)
    fields = metadata.schema().fields
    return tuple(_column(place, field, known.get(str(field.field_id))) for place, field in enumerate(fields, 1))


def pg_columns(properties: Mapping[str, str]) -> Mapping[str, PgColumn]:
    """The Postgres types in a table's properties, by field id. UnavailableError for what no Postgres has written.

    Types and collations become parts of statements that our own sessions run, so nothing else may be in them.
    """
    try:
        given: Mapping[str, Mapping[str, Any]] = json.loads(properties.get(PG_COLUMNS, "{}"))
        return {number: PgColumn.read(column) for number, column in given.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(
            f"the table's property {PG_COLUMNS} was not written by Postgres: {error}",
            hint="commit the table again with the one it had",
        ) from error


def _column(place: int, field: NestedField, known: PgColumn | None) -> Column:
    lake_type = str(field.field_type)
    if known is not None and is_other_type(field, known):
        known = None
    if known is not None:
        pg_type, collation, collation_name = known.pg_type, known.collation, known.collation_name
    else:
        pg_type, collation_name = _fitting(lake_type, field), None
        collation = Collation.LINGUISTIC if pg_type.name == "text" else Collation.NONE
    travels = encoding(pg_type, collation)
    if travels.lake_type.replace(" ", "") != lake_type.replace(" ", ""):
        raise _not_shown(lake_type, field)
    return Column(
        name=field.name,
        attnum=place,
        field_id=field.field_id,
        pg_type=pg_type,
        encoding=travels,
        collation=collation,
        collation_name=collation_name,
        not_null=field.required,
    )


def _fitting(lake_type: str, field: NestedField) -> PgType:
    digits = laketypes.decimal(lake_type)
    if digits is not None:
        return PgType(f"numeric({digits[0]},{digits[1]})", "numeric", True, *digits)  # noqa: FBT003
    if lake_type not in laketypes.BY_NAME:
        raise _not_shown(lake_type, field)
    name = laketypes.BY_NAME[lake_type].postgres[-1]
    return PgType(SQL_NAMES.get(name, name), name, builtin=True)


def _not_shown(lake_type: str, field: NestedField) -> UnavailableError:
    return UnavailableError(
        f"column {field.name} of type {lake_type} cannot be shown in Postgres", hint="read it with another engine"
    )


def is_other_type(field: NestedField, known: PgColumn) -> bool:
    """Whether another engine has changed the type of a column since Postgres had it."""
    travels = encoding(known.pg_type, known.collation)
    return travels.lake_type.replace(" ", "") != str(field.field_type).replace(" ", "")
