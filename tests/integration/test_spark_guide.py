"""The guide to reading from Spark does what it says."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.cold_twins import change, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run, value

from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released"), pytest.mark.slow]


def test_every_example_of_the_guide_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_archived(lake)
    change(lake)
    run(
        lake.catalog,
        "create table public.orders (id int, n int, primary key (id, n)) partition by range (n);"
        "create table public.orders_1 partition of public.orders for values from (0) to (100);"
        "insert into public.orders select i, 1 from generate_series(1, 30) i",
    )
    lake.add("orders", hot="1000")
    lake_tables.create(lake.catalog, lake.settings, Name("public", "readings"), ["id bigint", "device text"], Layout())
    run(lake.catalog, "insert into public.readings values (1, 'a'), (2, 'b')")
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    names: dict[str, Any] = {"spark": lake.session()}
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 8
    for example in examples:
        exec(example, names)
    rows = value(lake.catalog, "select count(*) from public.events")
    assert (names["rows"], names["loaded"].count()) == (rows, rows)
    in_january = value(
        lake.catalog, "select count(*) from public.events where ts between '2024-01-01+00' and '2024-01-31+00'"
    )
    assert names["january"].count() == in_january
    assert names["before"].count() == 60
    joined = value(lake.catalog, "select count(*) from public.events join public.orders using (id)")
    assert names["joined"].count() == joined > 0
    assert names["tables"]["public.readings"].count() == 2
