"""What commands print: tables for people, JSON for programs."""

import json
from datetime import date

import pytest

from frostline.cli.output import JsonOutput, TextOutput, shown, size
from frostline.cli.progress import exporting

RECORDS = [
    {"table": "public.events", "hot_rows": 1234567, "hot_bytes": 1500000, "snapshot_id": 99999, "since": None},
    {"table": 'public."[bold]x"', "hot_rows": 0, "hot_bytes": 0, "snapshot_id": None, "since": date(2024, 1, 1)},
]


def test_a_table_has_readable_headings_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().records(RECORDS)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0].strip() == "table"
    assert first.split() == ["public.events", "1,234,567", "1.5", "MB", "99999", "-"]
    assert second.split() == ['public."[bold]x"', "0", "0", "B", "-", "2024-01-01"]


def test_a_wide_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().records([{f"column{number}": "x" * 30 for number in range(10)}])
    assert capsys.readouterr().out.count("x" * 30) == 10


def test_nothing_is_said_on_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().records([])
    assert capsys.readouterr() == ("", "nothing to show\n")


def test_json_is_one_document_with_exact_values(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().records(RECORDS)
    printed = json.loads(capsys.readouterr().out)
    assert printed[0]["hot_bytes"] == 1500000
    assert printed[1]["since"] == "2024-01-01"


def test_json_of_nothing_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().records([])
    assert capsys.readouterr().out == "[]\n"


def test_one_record_is_a_list_of_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().record({"lake_bytes": 10, "changed": True})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["lake", "10", "B"], ["changed", "yes"]]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (999_999, "1 MB"), (5 * 10**18, "5e+03 PB")],
)
def test_sizes_have_three_digits(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


def test_numbers_that_name_something_are_not_grouped() -> None:
    assert shown("table_id", 12345) == "12345"
    assert shown("lake_port", 54321) == "54321"


def test_no_progress_bar_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with exporting():
        pass
    assert capsys.readouterr() == ("", "")
