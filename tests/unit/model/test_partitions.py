"""Partition bounds: read from what Postgres prints, for every kind of tier key."""

import psycopg
import pytest
from tests.fixtures.statements import rows, run

from frostline.catalog.connect import connect
from frostline.model.names import Name
from frostline.model.partitions import Partition, bounds
from frostline.model.tiers import TierKind, days_of, to_text

PRINTED = "select pg_get_expr(relpartbound, oid) from pg_class where relispartition and relkind = 'r' order by relname"


def made(connection: psycopg.Connection, kind: TierKind, *limits: tuple[str, str]) -> list[str]:
    """The bounds that Postgres prints for partitions made with these."""
    run(connection, f"create table public.t (k {kind.value}) partition by range (k)")
    for number, (lower, upper) in enumerate(limits):
        run(connection, f"create table public.t_{number} partition of public.t for values from ({lower}) to ({upper})")
    return [text for (text,) in rows(connection, PRINTED)]


@pytest.mark.parametrize("kind", [kind for kind in TierKind if kind.is_time])
def test_bounds_of_time_kinds(empty_database: str, kind: TierKind) -> None:
    limits = [("minvalue", "'0044-03-15 BC'"), ("'0044-03-15 BC'", "'2024-01-01'"), ("'2024-01-01'", "maxvalue")]
    with connect(empty_database, purpose="tests") as connection:
        first, second, third = [bounds(kind, text) for text in made(connection, kind, *limits)]
    ides, new_year = second
    assert (first, third) == ((None, ides), (new_year, None))
    assert ides is not None
    assert new_year is not None
    assert to_text(kind, ides).startswith("0044-03-15")
    assert to_text(kind, new_year).startswith("2024-01-01")


@pytest.mark.parametrize("kind", [kind for kind in TierKind if not kind.is_time])
def test_bounds_of_integer_kinds(empty_database: str, kind: TierKind) -> None:
    limits = [("minvalue", "-5"), ("-5", "5"), ("5", str(kind.highest)), (str(kind.highest), "maxvalue")]
    with connect(empty_database, purpose="tests") as connection:
        read_bounds = [bounds(kind, text) for text in made(connection, kind, *limits)]
    assert read_bounds == [(None, -5), (-5, 5), (5, kind.highest), (kind.highest, None)]


def test_an_infinite_bound_is_an_end_of_the_axis() -> None:
    text = "FOR VALUES FROM ('-infinity') TO ('infinity')"
    assert bounds(TierKind.DATE, text) == (TierKind.DATE.lowest, TierKind.DATE.highest)


def test_dates_are_days() -> None:
    assert bounds(TierKind.DATE, "FOR VALUES FROM ('1970-01-02') TO ('2024-01-01')") == (1, days_of(2024, 1, 1))


@pytest.mark.parametrize(
    "text",
    [
        "DEFAULT",
        "",
        "FOR VALUES IN ('2024-01-01')",
        "FOR VALUES FROM ('2024-01-01', 1) TO ('2024-02-01', 1)",
        "FOR VALUES WITH (modulus 2, remainder 0)",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a range"):
        bounds(TierKind.DATE, text)


@pytest.mark.parametrize(
    ("lower", "upper", "begins_below", "reaches_above"),
    [
        (None, 9, True, False),
        (5, 10, True, False),
        (5, 11, True, True),
        (9, None, True, True),
        (10, 11, False, True),
        (10, None, False, True),
    ],
)
def test_a_partition_lies_on_the_sides_of_a_line_where_it_may_have_rows(
    lower: int | None, upper: int | None, begins_below: bool, reaches_above: bool
) -> None:
    partition = Partition(Name("public", "t_1"), lower, upper, is_default=False, size_bytes=0, rows_estimate=0)
    assert (partition.begins_below(10), partition.reaches_above(10)) == (begins_below, reaches_above)


def test_the_default_partition_may_have_rows_on_both_sides_of_every_line() -> None:
    default = Partition(Name("public", "t_default"), None, None, is_default=True, size_bytes=0, rows_estimate=0)
    assert default.begins_below(TierKind.DATE.lowest)
    assert default.reaches_above(TierKind.DATE.highest)
