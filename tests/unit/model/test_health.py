"""What is wrong with a table, without a database."""

from dataclasses import replace
from datetime import UTC, datetime

from frostline.model import health
from frostline.model.health import Problem, Signs
from frostline.model.names import Name
from frostline.model.work import Failures, Kind, TableState

NOW = datetime(2026, 11, 15, tzinfo=UTC)
STATE = TableState(Name("public", "events"), NOW)


def test_a_healthy_table_has_no_problem() -> None:
    assert health.problems(STATE, Signs()) == []
    assert health.problems(replace(STATE, ripe_partitions=3, over_grace=1), Signs()) == []


def test_a_foreign_commit_comes_first_and_has_its_command() -> None:
    state = replace(STATE, foreign="it was moved", failures={Kind.FOLD: Failures(1, NOW, "disk full")})
    assert health.problems(state, Signs())[0] == Problem(
        "it was moved; every job on it waits", "frostline repair public.events"
    )


def test_a_failure_names_the_error_and_the_command_that_repeats_it() -> None:
    state = replace(STATE, failures={Kind.FOLD: Failures(1, NOW, "disk full"), Kind.ARCHIVE: Failures(3, NOW, "x")})
    assert health.problems(state, Signs()) == [
        Problem("fold failed once: disk full", "frostline fold public.events"),
        Problem("archive failed 3 times in a row: x", "frostline archive public.events"),
    ]


def test_each_sign_has_its_command() -> None:
    signs = Signs(held_from="2024-01-01", stray_rows=2, grid_problem="it is irregular", blockers=("123",))
    problems = health.problems(replace(STATE, over_grace=1), signs)
    assert [problem.command for problem in problems] == [
        "frostline premake public.events",
        "frostline table set public.events --every '1 month'",
        "frostline table set public.events --release",
        "select * from pg_stat_activity order by xact_start",
    ]
    assert "2 rows lie beyond the last partition" in problems[0].what
    assert "123" in problems[3].what
    assert "1 row lies beyond" in health.problems(STATE, Signs(stray_rows=1))[0].what


def test_old_transactions_matter_only_to_partitions_that_could_be_cleaned() -> None:
    assert health.problems(STATE, Signs(blockers=("123",))) == []


def test_a_missing_worker_matters_when_something_is_due() -> None:
    assert health.of_all([STATE], 2, None) == [Problem("no worker runs, and 2 actions are due", "frostline run")]
    assert health.of_all([STATE], 1, None)[0].what == "no worker runs, and 1 action is due"
    assert health.of_all([STATE], 0, None) == health.of_all([STATE], 2, "process 1") == health.of_all([], 0, None) == []
