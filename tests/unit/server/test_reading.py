"""Which conditions DuckDB is asked, and which the bounds of the files answer."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.server.test_translate import OneTable

from frostline.model.tables import LakeFile
from frostline.model.tiers import TierKind, from_text
from frostline.server.engine import Engine
from frostline.server.meter import Meter
from frostline.server.queries import Backend
from frostline.server.reading import answer, choose
from frostline.server.served_tables import OnlyManaged
from frostline.server.translate.plan import DuckPlan, plan
from frostline.server.translate.statements import Select, parse

END = from_text(TierKind.TIMESTAMPTZ, "2025-01-01 00:00:00+00")
TABLE = f'"public.events"."7[,{END})"'


def micros(text: str) -> int:
    return from_text(TierKind.TIMESTAMPTZ, f"{text} 00:00:00+00")


class TwoMonths(OneTable):
    """Two files: January and February 2024."""

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        return (
            LakeFile("/january.parquet", 10, 100, micros("2024-01-01"), micros("2024-01-31")),
            LakeFile("/february.parquet", 10, 100, micros("2024-02-01"), micros("2024-02-29")),
        )


def asked(condition: str) -> str:
    """What follows WHERE in the query for DuckDB."""
    tables = OnlyManaged(TwoMonths())
    (statement,) = parse(f"select n from {TABLE} where {condition}")
    assert isinstance(statement, Select)
    decided = plan(statement, (), tables)
    assert isinstance(decided, DuckPlan)
    return answer(decided, choose(decided.scan, tables), Meter()).sql.rpartition(" where ")[2].removesuffix(")")


@pytest.mark.parametrize(
    "condition",
    [
        "ts < '2024-03-01 00:00:00+00'",
        "ts <= '2024-02-29 00:00:00+00'",
        "'2024-03-01 00:00:00+00' > ts",
        "ts >= '2024-01-01 00:00:00+00'",
        "ts > '2023-12-31 00:00:00+00'",
        "ts >= '2024-02-01 00:00:00+00' and ts < '2024-03-01 00:00:00+00'",
    ],
)
def test_what_the_bounds_of_the_files_answer_is_not_asked_again(condition: str) -> None:
    assert asked(condition) == "true"


@pytest.mark.parametrize(
    "condition",
    [
        "ts < '2024-02-29 00:00:00+00'",
        "ts <= '2024-02-28 00:00:00+00'",
        "ts > '2024-01-01 00:00:00+00'",
        "ts >= '2024-01-02 00:00:00+00'",
        "ts = '2024-01-01 00:00:00+00'",
        "ts <> '2025-01-01 00:00:00+00'",
        "not ts < '2023-01-01 00:00:00+00'",
    ],
)
def test_a_file_that_reaches_beyond_is_asked(condition: str) -> None:
    assert '"ts:2"' in asked(condition)


class Counting(TwoMonths):
    """Counts how often somebody asks for the files."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        self.asked += 1
        return super().files(table_id, snapshot_id)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "order by ts",
        "where ts < '2024-02-01 00:00:00+00' order by ts limit 1",
        "where ts < '2020-01-01 00:00:00+00' order by ts",
        "order by n",
    ],
)
def test_the_files_of_a_query_are_chosen_once(rest: str, tmp_path: Path) -> None:
    (statement,) = parse(f"select n from {TABLE} {rest}")
    assert isinstance(statement, Select)
    tables = Counting()
    engine = Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path)
    Backend(OnlyManaged(tables), engine, None).open(statement, (), lambda _: None)
    engine.close()
    assert tables.asked == 1
