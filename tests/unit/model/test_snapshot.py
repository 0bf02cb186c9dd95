"""Which tables a pattern means, and how pieces are shared out."""

import pytest

from frostline.model.names import Name
from frostline.model.snapshot import (
    BadRequest,
    Relation,
    bins,
    check_name,
    choose,
    parse_patterns,
)

THERE = [
    Relation(Name("public", "orders"), 1, "r"),
    Relation(Name("public", "orders_old"), 2, "r"),
    Relation(Name("public", "events"), 3, "p", is_managed=True),
    Relation(Name("public", "part"), 4, "r", is_partition=True),
    Relation(Name("public", "seen"), 5, "v"),
    Relation(Name("Sales", "a*b,c"), 6, "r"),
    Relation(Name("sales", "x"), 7, "r"),
]


def chosen(*wanted: str, exclude: tuple[str, ...] = ()) -> list[int]:
    return sorted(relation.oid for relation in choose(parse_patterns(wanted), parse_patterns(exclude), THERE))


@pytest.mark.parametrize(
    ("wanted", "exclude", "expected"),
    [
        (("public.*",), (), [1, 2, 3]),
        (("*.*",), (), [1, 2, 3, 6, 7]),
        (("orders",), (), [1]),
        (("ORDERS*",), (), [1, 2]),
        (("public.orders, sales.x",), (), [1, 7]),
        (("public.part",), (), [4]),
        (('"Sales"."a*b,c"',), (), [6]),
        (('"Sales".*',), (), [6]),
        (("public.*", "public.orders"), ("public.orders*",), [3]),
        (("*.*",), ("public.*", '"Sales".*'), [7]),
    ],
)
def test_patterns_mean_tables(wanted: tuple[str, ...], exclude: tuple[str, ...], expected: list[int]) -> None:
    assert chosen(*wanted, exclude=exclude) == expected


@pytest.mark.parametrize(
    ("wanted", "exclude", "said"),
    [
        (("public.nothing",), (), "--tables 'public.nothing' names no table"),
        (("public.*", "other.*"), (), "--tables 'other.*' names no table"),
        (("public.seen",), (), "public.seen is a view"),
        (("public.s*",), (), "--tables 'public.s*' names no table"),
        (("public.*",), ("public.nothing",), "--exclude 'public.nothing' names no table"),
        (("public.orders",), ("public.*",), "no table is left"),
        (("a.b.c",), (), "not a pattern"),
        (("",), (), "not a pattern"),
        (("a,,b",), (), "not a pattern"),
        (('"a',), (), "not a pattern"),
    ],
)
def test_what_means_nothing_is_refused(wanted: tuple[str, ...], exclude: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        chosen(*wanted, exclude=exclude)
    assert said in str(refusal.value)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a.b", "a" * 64, "a\n", "é"])
def test_a_name_is_a_namespace_and_a_folder(name: str) -> None:
    check_name("a" * 63)
    with pytest.raises(BadRequest, match="not a name of a snapshot"):
        check_name(name)


def test_small_pieces_share_tasks_and_large_ones_do_not() -> None:
    small = bins([(number, 0) for number in range(500)], 256 << 20)
    assert len(small) == 8
    assert sorted(member for those in small for member in those) == list(range(500))
    assert max(map(len, small)) - min(map(len, small)) <= 1
    assert len(bins([(number, 256 << 20) for number in range(20)], 256 << 20)) == 20
    assert bins([("only", 5)], 1 << 20) == [["only"]]


@pytest.mark.parametrize("wanted", ["public.*", "readings", "*.*"])
def test_a_lake_table_is_taken_and_another_foreign_table_passed_over(wanted: str) -> None:
    lake_table, other = (
        Relation(Name("public", "readings"), 8, "f", lake_table_id=1),
        Relation(Name("public", "f"), 9, "f"),
    )
    chosen = choose(parse_patterns([wanted]), (), [*THERE, lake_table, other])
    assert lake_table in chosen
    assert other not in chosen
    others = choose(parse_patterns(["public.*"]), parse_patterns(["readings"]), [*THERE, lake_table, other])
    assert sorted(relation.oid for relation in others) == [1, 2, 3]
    with pytest.raises(BadRequest, match=r"public\.f is a foreign table"):
        choose(parse_patterns(["f"]), (), [lake_table, other])
