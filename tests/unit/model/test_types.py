"""How types travel: natively where that is exact, as text everywhere else; pushed only where all engines agree."""

import pytest
from tests.fixtures.statements import rows

from frostline.catalog.connect import connect
from frostline.model import laketypes, types
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


@pytest.mark.parametrize(
    "text",
    [
        "integer", "numeric(6,2)", "numeric(3,-2)", "character varying(10)", "timestamp(3) without time zone", "time with time zone",
        "interval", "interval(3)", "interval day to second(3)", "bit varying(5)", '"char"', "double precision[]", "bigint[]",
    ],
)  # fmt: skip
def test_a_type_of_postgres_is_known_as_one(text: str) -> None:
    assert types.is_type(text, builtin=True)
    assert not types.is_type(text, builtin=False)


@pytest.mark.parametrize("text", ["public.kind", 'app."My ""Type"""[]', "gis.geometry(Point,4326)", 'pg_temp."x;y"'])
def test_a_type_with_a_schema_is_somebody_elses(text: str) -> None:
    assert types.is_type(text, builtin=False)
    assert not types.is_type(text, builtin=True)


@pytest.mark.parametrize(
    ("there", "right"),
    [
        (Collation.NONE, {Collation.NONE}),
        (Collation.BYTES, {Collation.BYTES}),
        (Collation.LINGUISTIC, {Collation.BYTES, Collation.LINGUISTIC}),
        (Collation.NONDETERMINISTIC, set(Collation)),
    ],
)
def test_what_is_taken_from_a_collation_holds_of_those_that_compare_no_worse(
    there: Collation, right: set[Collation]
) -> None:
    """What is no text is compared as its type says. Text under that name elsewhere could be compared in any way."""
    assert {here for here in Collation if there.holds_of(here)} == right


def test_types_have_the_names_in_sql_that_postgres_gives_them(empty_database: str) -> None:
    native = sorted(name for lake_type in laketypes.BY_NAME.values() for name in lake_type.postgres)
    asked = f"""select typname::text, format_type(oid, null) from pg_type
                 where typnamespace = 'pg_catalog'::regnamespace and typname::text in ({str(native)[1:-1]})"""
    with connect(empty_database, purpose="tests") as connection:
        named = dict(rows(connection, asked))
    assert sorted(named) == native
    assert {name: formatted for name, formatted in named.items() if name != formatted} == types.SQL_NAMES
