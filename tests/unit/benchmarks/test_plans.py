"""A plan is short enough to be read, and still says where the rows are."""

from typing import Any

from benchmarks.rig import plans


def scan(name: str, rows: float = 1, loops: int = 1, **more: Any) -> dict[str, Any]:
    return {"Node Type": "Seq Scan", "Relation Name": name, "Actual Rows": rows, "Actual Loops": loops, **more}


def node(kind: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Node Type": kind, "Actual Rows": 7, "Actual Loops": 1, "Plans": list(children), **more}


def test_partitions_that_are_alike_are_one_line_with_the_sum_of_their_rows():
    short = plans.short(node("Append", scan("t_199701", 3), scan("t_199702", 4), scan("t_199703", 2, 5), scan("u")))
    assert short.splitlines() == [
        "Append [rows=7]",
        "  Seq Scan on t_199701 [rows=3]",
        "  ... and 2 more like it, with 14 rows in all",
        "  Seq Scan on u [rows=1]",
    ]


def test_neither_the_seam_nor_a_scan_of_a_subquery_is_shown_but_what_filters_is():
    inner = node("Subquery Scan", scan("t", Filter="(a > 1)"))
    short = plans.short(node("Append", scan("seam"), inner, node("Subquery Scan", scan("u"), Filter="(b > 1)")))
    assert short.splitlines() == [
        "Append [rows=7]",
        "  Seq Scan on t [rows=1]",
        "      Filter: (a > 1)",
        "  Subquery Scan [rows=7]",
        "      Filter: (b > 1)",
        "    Seq Scan on u [rows=1]",
    ]


def test_a_plan_that_did_not_run_has_no_rows():
    join = {"Node Type": "Hash Join", "Join Type": "Anti", "Hash Cond": "(a = b)"}
    assert plans.short(join) == "Anti Hash Join\n    Hash Cond: (a = b)"


def test_what_was_never_executed_and_what_ran_often_says_so():
    short = plans.short(node("Nested Loop", scan("a", 0, 0), scan("b", 2, 9)))
    assert "Seq Scan on a [never executed]" in short
    assert "Seq Scan on b [rows=2 x 9]" in short


def test_a_long_condition_is_cut():
    (_, line) = plans.short(scan("t", Filter="x" * 1000)).splitlines()
    assert line.endswith(" ...")
    assert len(line) < 200
