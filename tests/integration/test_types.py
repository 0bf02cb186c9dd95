"""Types: every value is identical after the journey, and every condition means what it means on a plain table."""

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.type_zoo import CONDITIONS, EVERY_KIND, ODD_SESSION, Kind, prepared


@pytest.fixture
def kinds(lake: Lake) -> list[Kind]:
    """Every type that this build of Postgres has."""
    return prepared(lake.catalog)


@pytest.fixture
def zoo(lake: Lake, kinds: Sequence[Kind]) -> Iterator[psycopg.Connection]:
    """`public.zoo`, whose rows are all in the lake, and `public.plain`, which has the same rows and is no relation."""
    columns = ", ".join(f"{kind.column} {kind.type}" for kind in kinds)
    run(
        lake.catalog,
        f"create table public.zoo (id int, {columns}, primary key (id)) partition by range (id);"
        "create table public.zoo_1 partition of public.zoo for values from (0) to (100)",
    )
    for number in range(max(len(kind.values) for kind in kinds) + 1):
        insert(lake, kinds, number)
    run(lake.catalog, "create table public.plain as table public.zoo")
    run(lake.catalog, "create table public.zoo_2 partition of public.zoo for values from (100) to (2000)")
    run(lake.catalog, "insert into public.zoo (id) values (1000)")
    run(lake.catalog, "insert into public.plain (id) values (1000)")
    lake.add("zoo", hot="500")
    (result,) = lake.archive("zoo")
    assert result.error is None
    assert len(result.cleaned.emptied) == 1
    with lake.connect() as connection:
        yield connection


def insert(lake: Lake, kinds: Sequence[Kind], number: int) -> None:
    """One row; the last one is all NULL."""
    given = [kind.values[number] if number < len(kind.values) else None for kind in kinds]
    places = ", ".join(f"%s{kind.cast}" for kind in kinds)
    run(lake.catalog, f"insert into public.zoo values ({number}, {places})", given)


def described(connection: psycopg.Connection, table: str, kinds: Sequence[Kind]) -> list[list[tuple[object, ...]]]:
    return [
        rows(connection, f"select id, {kind.column}::text, pg_typeof({kind.column})::text from {table} order by id")
        for kind in kinds
    ]


def test_every_value_is_identical_after_the_journey(zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    for kind, there, here in zip(
        kinds, described(zoo, "public.zoo", kinds), described(zoo, "public.plain", kinds), strict=True
    ):
        assert there == here, kind.name


@pytest.mark.slow
def test_every_value_is_identical_in_a_session_with_other_settings(
    zoo: psycopg.Connection, kinds: Sequence[Kind]
) -> None:
    run(zoo, ODD_SESSION)
    for kind, there, here in zip(
        kinds, described(zoo, "public.zoo", kinds), described(zoo, "public.plain", kinds), strict=True
    ):
        assert there == here, kind.name


@pytest.mark.slow
def test_every_value_is_identical_after_a_thaw(lake: Lake, zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    assert lake.thaw("zoo").refilled == ("public.zoo_1",)
    assert value(zoo, "select count(*) from only public.zoo_1") == value(zoo, "select count(*) - 1 from public.plain")
    for kind, there, here in zip(
        kinds, described(zoo, "public.zoo", kinds), described(zoo, "public.plain", kinds), strict=True
    ):
        assert there == here, kind.name


def test_every_value_equals_the_one_in_a_plain_table(zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    for kind in kinds:
        if kind.has_equality:
            different = f"z.{kind.column} is distinct from p.{kind.column}"
            query = f"select count(*) from public.zoo z join public.plain p using (id) where {different}"
            assert value(zoo, query) == 0, kind.name


def test_every_value_is_found_by_equality(zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    for kind in kinds:
        for text in kind.values if kind.has_equality else ():
            condition = f"{kind.column} = %s{kind.cast}"
            there, here = both(zoo, condition, [text])
            assert there == here, (kind.name, text)
            assert there, (kind.name, text)


def test_conditions_mean_what_they_mean_on_a_plain_table(zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    absent = [kind.column for kind in EVERY_KIND if kind not in kinds]
    different: list[object] = []
    for condition in CONDITIONS:
        if not any(column in condition for column in absent):
            there, here = both(zoo, condition)
            different += [] if there == here else [(condition, there, here)]
    assert different == []


def both(
    connection: psycopg.Connection, condition: str, values: Sequence[object] | None = None
) -> tuple[object, object]:
    """The rows for which the condition holds, in the relation and in the plain table."""
    there, here = (answer(connection, table, condition, values) for table in ("public.zoo", "public.plain"))
    return there, here


def answer(connection: psycopg.Connection, table: str, condition: str, values: Sequence[object] | None) -> object:
    """The numbers of the rows, or the error that Postgres raises about the values."""
    try:
        return value(connection, f"select array_agg(id order by id) from {table} where {condition}", values)
    except psycopg.DataError as error:
        return error.sqlstate


def test_null_is_null_after_the_journey(zoo: psycopg.Connection, kinds: Sequence[Kind]) -> None:
    for kind in kinds:
        there, here = both(zoo, f"{kind.column} is null")
        assert there == here, kind.name
