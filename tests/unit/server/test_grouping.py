"""Groups and aggregates: what DuckDB computes, and what is left to Postgres."""

import pytest
from tests.unit.server.test_translate import planned

from frostline.server.protocol.backend import ResultColumn
from frostline.server.translate.plan import DuckPlan, PostgresPlan
from frostline.server.translate.projection import TYPE_OIDS

TABLE = '"public.events"."7[,1000)"'


def answered(select: str, rest: str = "") -> str:
    decided = planned(f"select {select} from {TABLE} {rest}")
    if isinstance(decided, PostgresPlan):
        return f"postgres: {decided.reason}"
    return ", ".join(decided.outputs) + decided.tail


@pytest.mark.parametrize(
    ("select", "rest", "expected"),
    [
        ("count(*)", "", "cast(count(*) as varchar)"),
        ("count(doc)", "", 'cast(count("doc:15") as varchar)'),
        ("count(distinct name)", "", 'cast(count(distinct "name:6") as varchar)'),
        ("sum(small)", "", 'cast(cast(sum("small:3") as bigint) as varchar)'),
        ("sum(n)", "", 'cast(cast(sum("n:4") as bigint) as varchar)'),
        ("sum(id)", "", 'cast(sum("id:1") as varchar)'),
        ("sum(price)", "", 'cast(sum("price:5") as varchar)'),
        ("min(price), max(id)", "", 'cast(min("price:5") as varchar), cast(max("id:1") as varchar)'),
        ("name, count(*)", "group by name", '"name:6", cast(count(*) as varchar) group by "name:6"'),
        ("count(*), n", "group by 2", 'cast(count(*) as varchar), cast("n:4" as varchar) group by "n:4"'),
        ("n", "group by n, id, n", 'cast("n:4" as varchar) group by "n:4", "id:1"'),
        ("n as id", "group by n", 'cast("n:4" as varchar) group by "n:4"'),
        ("n", "group by 1 order by 1 desc limit 2", 'cast("n:4" as varchar) group by "n:4" order by "n:4" desc nulls first limit 2'),
        ("count(*) as c", "group by n order by c", 'cast(count(*) as varchar) group by "n:4" order by count(*) asc nulls last'),
        ("count(*) as n", "group by n order by n", 'cast(count(*) as varchar) group by "n:4" order by count(*) asc nulls last'),
        ("n", "group by n order by sum(id)", 'cast("n:4" as varchar) group by "n:4" order by sum("id:1") asc nulls last'),
        ("code", "group by code order by code", '"code:7" group by "code:7" order by "code:7" asc nulls last'),
    ],
)  # fmt: skip
def test_duckdb_answers(select: str, rest: str, expected: str) -> None:
    assert answered(select, rest) == expected


@pytest.mark.parametrize(
    ("select", "rest"),
    [
        ("avg(n)", ""),
        ("sum(f)", ""),
        ("min(r)", ""),
        ("min(name)", ""),
        ("max(b)", ""),
        ("min(u)", ""),
        ("sum(n + 1)", ""),
        ("sum(distinct n)", ""),
        ("count(distinct f)", ""),
        ("count(distinct doc)", ""),
        ("count(*) filter (where n > 1)", ""),
        ("count(*) over ()", ""),
        ("string_agg(name, ',')", ""),
        ("lower(name)", ""),
        ("count(*) + 1", ""),
        ("id, count(*)", ""),
        ("id", "group by n"),
        ("count(*)", "group by f"),
        ("count(*)", "group by doc"),
        ("count(*)", "group by frostline_snapshot"),
        ("n as x, count(*)", "group by x"),
        ("count(*)", "group by n + 1"),
        ("count(*)", "group by 2"),
        ("n, count(*)", "group by rollup (n)"),
        ("n, count(*)", "group by n having count(*) > 1"),
        ("name", "group by name order by name"),
        ("n", "group by n order by id"),
        ("n as x, id as x", "group by n, id order by x"),
        ("n", "group by n order by n using <"),
        ("distinct n", ""),
    ],
)
def test_postgres_answers_what_could_differ(select: str, rest: str) -> None:
    assert answered(select, rest).startswith("postgres: ")


def test_a_sum_that_duckdb_has_no_digits_for_is_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.server.translate.grouping._SUM_DIGITS", 11)
    assert answered("sum(price)") == "postgres: sum of numeric"


def test_columns_are_described_as_postgres_would() -> None:
    decided = planned(f"select n, count(*), sum(n), sum(id) as total, max(ts) from {TABLE} group by n")
    assert isinstance(decided, DuckPlan)
    assert decided.result == (
        ResultColumn("n", TYPE_OIDS["int4"]),
        ResultColumn("count", TYPE_OIDS["int8"]),
        ResultColumn("sum", TYPE_OIDS["int8"]),
        ResultColumn("total", TYPE_OIDS["numeric"]),
        ResultColumn("max", TYPE_OIDS["timestamptz"]),
    )


def test_a_sample_has_no_groups() -> None:
    assert answered("count(*)", "where random() < 0.5").startswith("postgres: ")


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) from (select id from {0} where n = 1) s",
        "select count(*) from (select id from {0} limit 5) s",
        "select count(*) from {0} a join (values (1), (2)) v (x) on true",
        "select count(*) from (values (1), (2)) v (x) left join {0} a on a.n = v.x",
        "select n, count(*) from (select n + 1 as n from {0}) s group by n",
        "select id from (select id from {0} limit 5) s",
    ],
)
def test_postgres_answers_what_is_not_asked_of_the_table_itself(query: str) -> None:
    assert isinstance(planned(query.format(TABLE)), PostgresPlan)
