"""What a table must be to be managed: every reason to refuse is told at once, each with what to do about it."""

from dataclasses import replace

import pytest

from frostline.model.names import Name
from frostline.model.registration import (
    HeapColumn,
    HeapFacts,
    HeapPartition,
    check_lake_partition,
    default_lake_partition,
    refusals,
)
from frostline.model.tiers import TierKind
from frostline.model.types import Collation, PgType


def column(attnum: int, name: str, type_name: str, *, not_null: bool = True) -> HeapColumn:
    return HeapColumn(
        attnum=attnum,
        name=name,
        pg_type=PgType(type_name, type_name, builtin=True),
        not_null=not_null,
        generated=False,
        identity="",
        default=None,
        collation=Collation.NONE,
        collation_name=None,
        comment=None,
        identity_sequence=None,
    )


def partition(bound: str, relkind: str = "r") -> HeapPartition:
    return HeapPartition(Name("public", "events_1"), relkind, bound, oid=2, size_bytes=0, rows_estimate=-1)


GOOD = HeapFacts(
    name=Name("public", "events"),
    oid=1,
    relkind="p",
    persistence="p",
    owner="me",
    owner_is_ours=True,
    strategy="r",
    key_parts=1,
    tier_attnum=2,
    is_partition=False,
    row_security=False,
    columns=(column(1, "id", "int8"), column(2, "ts", "timestamptz")),
    primary_key=("id", "ts"),
    partitions=(partition("FOR VALUES FROM ('2024-01-01 00:00:00+00') TO ('2024-02-01 00:00:00+00')"),),
    default_has_rows=False,
    inbound_foreign_keys=(),
    materialized_views=(),
    row_type_users=(),
    heap_name_taken=False,
    comment=None,
)

TEXT_KEY = (column(1, "id", "int8"), column(2, "ts", "text"))
NULLABLE_KEY = (column(1, "id", "int8"), column(2, "ts", "timestamptz", not_null=False))
RESERVED = (*GOOD.columns, column(3, "frostline_tier", "text"))


def test_a_good_table_is_not_refused() -> None:
    assert refusals(GOOD) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(GOOD, relkind="r"), "not partitioned"),
        (replace(GOOD, relkind="v"), "not a table"),
        (replace(GOOD, persistence="u"), "temporary or unlogged"),
        (replace(GOOD, is_partition=True), "itself a partition"),
        (replace(GOOD, owner_is_ours=False), "owner me"),
        (replace(GOOD, strategy="l"), "RANGE-partitioned by exactly one column"),
        (replace(GOOD, key_parts=2), "RANGE-partitioned by exactly one column"),
        (replace(GOOD, tier_attnum=None), "RANGE-partitioned by exactly one column"),
        (replace(GOOD, columns=TEXT_KEY), "tier key ts is of type text"),
        (replace(GOOD, columns=NULLABLE_KEY), "tier key ts is nullable"),
        (replace(GOOD, columns=RESERVED), "frostline_tier has a reserved name"),
        (replace(GOOD, primary_key=()), "no primary key"),
        (replace(GOOD, partitions=(partition("FOR VALUES FROM ('x') TO ('y')", "p"),)), "not a plain table"),
        (replace(GOOD, partitions=(partition("FOR VALUES FROM ('x') TO ('y')"),)), "not a timestamp"),
        (replace(GOOD, default_has_rows=True), "DEFAULT partition holds rows"),
        (replace(GOOD, inbound_foreign_keys=("fk on public.orders",)), "foreign key fk on public.orders"),
        (replace(GOOD, materialized_views=("public.daily",)), "materialized view public.daily"),
        (replace(GOOD, row_type_users=("function f(events)",)), "function f(events) uses its row type"),
        (replace(GOOD, heap_name_taken=True), "public._events is already taken"),
        (replace(GOOD, name=Name("public", "e" * 63)), "too long"),
    ],
)
def test_each_reason_is_told_with_a_hint(facts: HeapFacts, reason: str) -> None:
    (refusal,) = refusals(facts)
    assert reason in refusal.reason
    assert refusal.hint


def test_all_reasons_are_told_at_once() -> None:
    bad = replace(GOOD, primary_key=(), default_has_rows=True, heap_name_taken=True, columns=NULLABLE_KEY)
    assert len(refusals(bad)) == 4


def test_a_domain_is_no_tier_key_even_with_a_builtin_name() -> None:
    own = replace(GOOD.columns[1], pg_type=PgType("public.date", "date", builtin=False))
    assert replace(GOOD, columns=(GOOD.columns[0], own)).tier_kind is None


@pytest.mark.parametrize(
    ("kind", "widths", "transform"),
    [
        (TierKind.DATE, [], "month"),
        (TierKind.TIMESTAMPTZ, [5, 5], "month"),
        (TierKind.BIGINT, [100, 1000, 1000], "truncate[1000]"),
        (TierKind.SMALLINT, [], "truncate[1000000]"),
    ],
)
def test_the_default_grid_follows_the_partitions(kind: TierKind, widths: list[int], transform: str) -> None:
    assert default_lake_partition(kind, widths) == transform


def test_a_wished_grid_must_fit_the_tier_key() -> None:
    assert check_lake_partition("day", TierKind.DATE) is None
    refusal = check_lake_partition("hour", TierKind.DATE)
    assert refusal is not None
    assert "'hour'" in refusal.reason
