"""What `frostline.create_lake_table` and `drop_lake_table` send to the lake server, read as values.

It comes from a function in Postgres, over a connection that only who may use the foreign server can have written to;
all the same nothing in it is believed to be of the right shape.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from frostline.catalog.connect import first_line
from frostline.errors import UsageError
from frostline.lake.lake_table import Layout
from frostline.model import types
from frostline.model.lake_tables import Check
from frostline.model.tables import Column
from frostline.model.types import Collation, PgType


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Column(_Part):
    name: str
    type: str
    type_name: str
    builtin: bool
    precision: int | None
    scale: int | None
    not_null: bool
    generated: bool
    collation: Collation
    collation_name: str | None


class Create(_Part):
    """Make a lake table; its foreign table is there already, seen by the transaction that asks alone."""

    do: Literal["create"]
    namespace: str
    table: str
    owner: str
    partition: tuple[str, ...]
    sort: tuple[str, ...]
    key: tuple[str, ...]
    checks: dict[str, str]
    columns: tuple[_Column, ...]

    @property
    def layout(self) -> Layout:
        """How its files are cut and sorted."""
        return Layout(self.partition, self.sort, self.key)

    def held(self) -> Sequence[Check]:
        """The CHECKs."""
        return [Check(name, expression) for name, expression in self.checks.items()]

    def listed(self) -> Sequence[Column]:
        """The columns as the lake has them."""
        generated = [column.name for column in self.columns if column.generated]
        if generated:
            raise UsageError(f"column {generated[0]} is generated", hint="a lake table has plain columns only")
        return [_column(place, column) for place, column in enumerate(self.columns, 1)]


def _column(place: int, column: _Column) -> Column:
    pg_type = PgType(column.type, column.type_name, column.builtin, column.precision, column.scale)
    return Column(
        name=column.name,
        attnum=place,
        field_id=place,
        pg_type=pg_type,
        encoding=types.encoding(pg_type, column.collation),
        collation=column.collation,
        collation_name=column.collation_name,
        not_null=column.not_null,
    )


class Drop(_Part):
    """Drop a lake table, whose foreign tables are gone already for the transaction that asks."""

    do: Literal["drop"]
    purge: bool


_REQUEST: TypeAdapter[Create | Drop] = TypeAdapter(Annotated[Create | Drop, Field(discriminator="do")])


def parse(text: str) -> Create | Drop:
    """UsageError for a text that is no request."""
    try:
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        raise UsageError(f"not a request for a lake table: {first_line(error)}") from None
