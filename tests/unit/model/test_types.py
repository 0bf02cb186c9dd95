"""How types travel: natively where that is exact, as text everywhere else; pushed only where all engines agree."""

import pytest

from frostline.model.types import Collation, LakeEncoding, PgType, encoding


def numeric(precision: int | None, scale: int | None) -> PgType:
    return PgType("numeric", "numeric", builtin=True, precision=precision, scale=scale)


def plain(name: str, *, builtin: bool = True) -> PgType:
    return PgType(name, name, builtin=builtin)


NATIVE = {
    "bool": "boolean",
    "int2": "int",
    "int4": "int",
    "int8": "long",
    "float4": "float",
    "float8": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "text": "string",
    "varchar": "string",
    "bytea": "binary",
}
AS_TEXT = ["jsonb", "json", "interval", "inet", "cidr", "macaddr", "_int4", "int4range", "int4multirange", "tsvector",
           "bit", "money", "time", "timetz", "xml", "bpchar", "char", "name", "point", "oid"]  # fmt: skip


@pytest.mark.parametrize(("name", "lake_type"), NATIVE.items())
def test_types_with_an_exact_twin_travel_as_themselves(name: str, lake_type: str) -> None:
    assert encoding(plain(name), Collation.NONE) == LakeEncoding(lake_type, as_text=False, pushable=True)


@pytest.mark.parametrize("name", AS_TEXT)
def test_every_other_type_travels_as_text_and_its_conditions_stay_in_postgres(name: str) -> None:
    assert encoding(plain(name), Collation.NONE) == LakeEncoding("string", as_text=True, pushable=False)


def test_uuids_travel_as_text_that_compares_as_they_do() -> None:
    assert encoding(plain("uuid"), Collation.NONE) == LakeEncoding("string", as_text=True, pushable=True)


@pytest.mark.parametrize("name", ["int4", "uuid", "text", "mood"])
def test_a_users_own_type_of_a_builtin_name_is_not_taken_for_it(name: str) -> None:
    assert encoding(plain(name, builtin=False), Collation.NONE) == LakeEncoding("string", as_text=True, pushable=False)


@pytest.mark.parametrize(
    ("collation", "pushable"),
    [(Collation.BYTES, True), (Collation.LINGUISTIC, True), (Collation.NONDETERMINISTIC, False)],
)
def test_text_is_pushed_when_equality_is_byte_equality(collation: Collation, *, pushable: bool) -> None:
    assert encoding(plain("text"), collation) == LakeEncoding("string", as_text=False, pushable=pushable)


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (12, 2), (38, 0), (38, 38)])
def test_numbers_that_a_decimal_can_hold_travel_as_one(precision: int, scale: int) -> None:
    encoded = encoding(numeric(precision, scale), Collation.NONE)
    assert encoded == LakeEncoding(f"decimal({precision}, {scale})", as_text=False, pushable=True)


@pytest.mark.parametrize(("precision", "scale"), [(None, None), (39, 0), (1000, 5), (3, 5), (3, -2)])
def test_numbers_that_no_decimal_can_hold_travel_as_text(precision: int | None, scale: int | None) -> None:
    assert encoding(numeric(precision, scale), Collation.NONE) == LakeEncoding("string", as_text=True, pushable=False)
