"""Golden pairs: every line of `tests/golden/translate/*.txt` is a condition, the next one what becomes of it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import column

from frostline.model.names import RemoteName
from frostline.model.range import Range
from frostline.model.tables import LakeFile, Table
from frostline.model.tiers import TierKind
from frostline.model.types import Collation
from frostline.server.served_tables import OnlyManaged
from frostline.server.translate.operands import Untranslatable
from frostline.server.translate.plan import DuckPlan, PostgresPlan, plan
from frostline.server.translate.statements import NotServed, Select, parse

GOLDEN = Path(__file__).parents[2] / "golden" / "translate"
ARROW = "  -> "


class OneTable:
    """A lake with one table, and no file."""

    def __init__(self) -> None:
        self.table = lakeserver.table(
            7,
            [
                column(1, "id", "int8"),
                column(2, "ts", "timestamptz"),
                column(3, "small", "int2"),
                column(4, "n", "int4"),
                column(5, "price", "numeric", precision=12, scale=2),
                column(6, "name", "text", collation=Collation.LINGUISTIC),
                column(7, "code", "varchar", collation=Collation.BYTES, collation_name='pg_catalog."C"'),
                column(8, "r", "float4"),
                column(9, "f", "float8"),
                column(10, "day", "date"),
                column(11, "at", "timestamp"),
                column(12, "b", "bytea"),
                column(13, "u", "uuid"),
                column(14, "ok", "bool"),
                column(15, "doc", "jsonb"),
                column(16, 'odd "name"', "int4"),
            ],
            "ts",
            TierKind.TIMESTAMPTZ,
        )

    def forget(self) -> None:
        """Nothing is remembered."""

    def resolve(self, table_id: int) -> Table:
        return self.table

    def current_snapshot(self, table_id: int) -> int | None:
        return 42

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        return ()

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        return {}


def planned(sql: str, params: tuple[str | None, ...] = ()) -> DuckPlan | PostgresPlan:
    (statement,) = parse(sql)
    assert isinstance(statement, Select)
    return plan(statement, params, OnlyManaged(OneTable()))


def translated(rest: str) -> str:
    decided = planned(f'select id from "public.events"."7[,1000)" {rest}', ("5", None, "x", "{1,NULL}"))
    if isinstance(decided, PostgresPlan):
        return f"postgres: {decided.reason}"
    return (" and ".join(decided.scan.conditions) + decided.tail).strip()


def pairs() -> Iterator[object]:
    for file in sorted(GOLDEN.glob("*.txt")):
        lines = file.read_text().splitlines()
        for position, line in enumerate(lines):
            if line.startswith(ARROW):
                yield pytest.param(
                    lines[position - 1], line.removeprefix(ARROW), id=f"{file.stem}: {lines[position - 1]}"
                )


@pytest.mark.parametrize(("before", "after"), list(pairs()))
def test_golden(before: str, after: str) -> None:
    assert translated(before if before.startswith("order by") else f"where {before}") == after


def test_the_pin_is_taken_out_and_chooses_the_snapshot() -> None:
    decided = planned('select id from "x"."7[,9)" where ((frostline_snapshot = 3::bigint)) and ((id = 1))')
    assert isinstance(decided, DuckPlan)
    assert decided.scan.source.snapshot == 3
    assert decided.scan.conditions == ('("id:1" = 1)',)


def test_without_a_pin_the_current_snapshot_is_read() -> None:
    assert planned('select id from "x"."7[,9)"').scan.source.snapshot == 42  # pyright: ignore[reportAttributeAccessIssue]


def test_two_pins_are_refused() -> None:
    with pytest.raises(NotServed, match="two snapshots"):
        planned('select id from "x"."7[,9)" where frostline_snapshot = 3 and frostline_snapshot = 4')


def test_conditions_on_the_tier_key_narrow_the_files() -> None:
    decided = planned(
        'select id from "x"."7[,9999999999999999)" where ts >= \'2024-01-01 00:00:00+00\' and ts < $1::timestamptz',
        ("2024-02-01 00:00:00+00",),
    )
    assert isinstance(decided, DuckPlan)
    assert decided.scan.range == Range.closed(1704067200000000, 1706745599999999)
    assert decided.scan.source.remote == RemoteName(7, None, 9999999999999999)


def test_only_needed_columns_are_read() -> None:
    decided = planned('select id, null from "x"."7[,9)" where price > 3')
    assert isinstance(decided, DuckPlan)
    assert [each.name for each in decided.scan.columns] == ["id", "price"]


def test_what_postgres_must_finish_still_gets_the_conditions_that_are_sure() -> None:
    decided = planned('select id from "x"."7[,9)" where name > \'a\' and id = 5')
    assert isinstance(decided, PostgresPlan)
    assert decided.scans[0].conditions == ('("id:1" = 5)',)


def test_untranslatable_is_not_an_error_of_ours() -> None:
    assert not issubclass(Untranslatable, NotServed)
