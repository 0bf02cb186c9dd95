"""One table of lake types, which everybody who tells them apart agrees with."""

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyspark.sql.types import StructField

from frostline.lake import ducktext, schema
from frostline.model import laketypes
from frostline.model.laketypes import BY_NAME, can_become, duck_type, native, of, spark_type
from frostline.model.tables import Column
from frostline.model.types import Collation, LakeEncoding, PgType
from frostline.tiers.proof import columnhash

ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "decimal(12, 2)": pa.decimal128(12, 2), "date": pa.date32(), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"), "string": pa.string(), "binary": pa.binary(),
}  # fmt: skip
"""What pyarrow reads from files of each type."""
TYPES = sorted(ARROW)


def column(lake_type: str) -> Column:
    pg_type = PgType("x", "x", builtin=True)
    return Column(
        "x", 1, 1, pg_type, LakeEncoding(lake_type, as_text=False, pushable=True), Collation.NONE, not_null=False
    )


def test_every_type_is_tried_here() -> None:
    assert {of(name).name for name in TYPES} == set(BY_NAME)


@pytest.mark.parametrize("lake_type", TYPES)
def test_every_engine_knows_every_type(lake_type: str) -> None:
    assert str(schema.iceberg_type(column(lake_type))) == lake_type
    assert StructField.fromJson({"name": "x", "type": spark_type(lake_type), "nullable": True}).dataType
    assert ducktext.printed_value("x", lake_type)
    assert columnhash.hashes(pa.array([None], ARROW[lake_type]), lake_type)[0] == 0


def test_a_decimal_has_its_digits_everywhere() -> None:
    assert duck_type("decimal(12, 2)") == spark_type("decimal(12, 2)") == "decimal(12, 2)"
    assert native("numeric", 12, 2) == "decimal(12, 2)"


@pytest.mark.parametrize("digits", [(None, None), (39, 0), (5, 6), (5, -2)])
def test_a_number_that_no_decimal_holds_has_no_type_of_its_own(digits: tuple[int | None, int | None]) -> None:
    assert native("numeric", *digits) is None


@pytest.mark.parametrize("kind", [lake_type for lake_type in BY_NAME.values() if lake_type.infinity is not None])
def test_infinity_is_a_value_that_a_file_can_have(kind: laketypes.LakeType) -> None:
    assert kind.infinity is not None
    assert to_bytes(schema.iceberg_type(column(kind.name)), kind.infinity)


@pytest.mark.parametrize(
    ("old", "new", "possible"),
    [
        ("int", "long", True),
        ("long", "int", False),
        ("float", "double", True),
        ("decimal(9, 2)", "decimal(12, 2)", True),
        ("decimal(12, 2)", "decimal(9, 2)", False),
        ("decimal(9, 2)", "decimal(12, 3)", False),
        ("int", "decimal(9, 2)", False),
        ("string", "string", True),
    ],
)
def test_a_field_widens_as_iceberg_lets_it(old: str, new: str, *, possible: bool) -> None:
    assert can_become(old, new) is possible
